//! `Watched`: sees which segments are taken from a source.

#![expect(unsafe_code, reason = "implements the contract of resources")]
#![expect(clippy::disallowed_types, reason = "loom does not see the program")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alluvion::{DeviceAccessible, DevicePtr, Error, HostAccessible, Layout, Resource, StreamRef};

use super::What;

/// What has been taken from a source and given back to it since somebody last looked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sightings(Arc<Mutex<Vec<What>>>);

impl Sightings {
    /// Takes them out, in the order in which they happened.
    pub(crate) fn take(&self) -> Vec<What> {
        core::mem::take(&mut *self.lock())
    }

    fn note(&self, what: What) {
        self.lock().push(what);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<What>> {
        // Nothing panics while it is held, and a list is a list.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A source of which it is seen what is taken from it.
#[derive(Debug)]
pub(crate) struct Watched<U> {
    upstream: U,
    sightings: Sightings,
}

impl<U> Watched<U> {
    pub(crate) fn new(upstream: U, sightings: &Sightings) -> Self {
        Self { upstream, sightings: sightings.clone() }
    }

    fn saw_taken(&self, block: DevicePtr, layout: Layout) {
        if !layout.is_empty() {
            let (address, bytes) = (block.address(), layout.rounded_bytes() as u64);
            self.sightings.note(What::SegmentTaken { address, bytes });
        }
    }

    fn saw_given(&self, block: DevicePtr, layout: Layout) {
        if !layout.is_empty() {
            let (address, bytes) = (block.address(), layout.rounded_bytes() as u64);
            self.sightings.note(What::SegmentGiven { address, bytes });
        }
    }
}

// SAFETY: everything is forwarded to one resource, which keeps the contract; looking touches no block.
unsafe impl<U: Resource> Resource for Watched<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        let block = self.upstream.allocate(layout, stream)?;
        self.saw_taken(block, layout);
        Ok(block)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        self.saw_given(block, layout);
        // SAFETY: the caller's promises; this layer has the id of its upstream.
        unsafe { self.upstream.deallocate(block, layout, stream) }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        let block = self.upstream.allocate_sync(layout)?;
        self.saw_taken(block, layout);
        Ok(block)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        self.saw_given(block, layout);
        // SAFETY: as in `deallocate`.
        unsafe { self.upstream.deallocate_sync(block, layout) }
    }

    alluvion::forward_resource!(upstream, except allocate, deallocate);
}

// SAFETY: the blocks are the upstream's.
unsafe impl<U: DeviceAccessible> DeviceAccessible for Watched<U> {}
// SAFETY: the blocks are the upstream's.
unsafe impl<U: HostAccessible> HostAccessible for Watched<U> {}

#[cfg(test)]
mod tests {
    use alluvion::Sim;
    use alluvion::source::Cuda;

    use super::*;

    #[test]
    fn what_is_taken_is_seen_and_what_fails_is_not() {
        let sim = Sim::new();
        let sightings = Sightings::default();
        let watched = Watched::new(Cuda::new(&sim.device(0)), &sightings);
        let layouts = [1000, 0, 1 << 40].map(|bytes| Layout::from_bytes(bytes).unwrap());
        let block = watched.allocate_sync(layouts[0]).unwrap();
        let nothing = watched.allocate_sync(layouts[1]).unwrap();
        assert!(watched.allocate_sync(layouts[2]).is_err());
        // SAFETY: it came from there with this layout, and nothing uses it.
        unsafe { watched.deallocate_sync(block, layouts[0]) };
        // SAFETY: as above.
        unsafe { watched.deallocate_sync(nothing, layouts[1]) };
        let (address, bytes) = (block.address(), 1024);
        assert_eq!(
            sightings.take(),
            [What::SegmentTaken { address, bytes }, What::SegmentGiven { address, bytes }]
        );
        assert!(sightings.take().is_empty());
    }
}
