//! `Segments`: writes down what a stack takes from its source, and when.

#![expect(unsafe_code, reason = "implements the contract of resources")]

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use alluvion::{
    Device, DeviceAccessible, DevicePtr, Error, HostAccessible, Layout, Resource, ResourceId, StreamRef,
};

/// A piece that was taken from the source in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// The step that took it.
    pub(super) born: u32,
    /// The step that gave it back, or `u32::MAX`.
    pub(super) died: u32,
}

/// What was taken so far. A stack owns its source, so who replays keeps another handle.
#[derive(Debug, Default)]
pub(super) struct Register {
    step: AtomicU32,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    segments: Vec<Segment>,
    /// Where in `segments` those are that have not been given back, by their addresses.
    out: HashMap<u64, usize>,
}

impl Register {
    /// What comes next is done by step `step`.
    // Relaxed: one thread replays, and nothing is read on the number's word.
    pub(super) fn begin(&self, step: u32) {
        self.step.store(step, Ordering::Relaxed);
    }

    pub(super) fn segments(&self) -> Vec<Segment> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).segments.clone()
    }

    fn took(&self, address: DevicePtr, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let (address, born) = (address.address(), self.step.load(Ordering::Relaxed));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let at = known.segments.len();
        known.out.insert(address, at);
        known.segments.push(Segment { address, bytes: bytes as u64, born, died: u32::MAX });
    }

    fn gave_back(&self, address: DevicePtr) {
        let step = self.step.load(Ordering::Relaxed);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = known.out.remove(&address.address()) {
            known.segments[at].died = step;
        }
    }
}

/// Writes down what is taken from a source.
#[derive(Debug)]
pub(super) struct Segments<U> {
    upstream: U,
    register: Arc<Register>,
}

impl<U> Segments<U> {
    pub(super) fn new(upstream: U, register: Arc<Register>) -> Self {
        Self { upstream, register }
    }
}

// SAFETY: everything is forwarded to one resource, which keeps the contract; writing it down touches no block.
unsafe impl<U: Resource> Resource for Segments<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        let block = self.upstream.allocate(layout, stream)?;
        self.register.took(block, layout.bytes());
        Ok(block)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        self.register.gave_back(block);
        // SAFETY: the caller's promises; this layer has the id of its upstream.
        unsafe { self.upstream.deallocate(block, layout, stream) }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        let block = self.upstream.allocate_sync(layout)?;
        self.register.took(block, layout.bytes());
        Ok(block)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        self.register.gave_back(block);
        // SAFETY: as in `deallocate`.
        unsafe { self.upstream.deallocate_sync(block, layout) }
    }

    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn id(&self) -> ResourceId {
        self.upstream.id()
    }

    /// As its upstream: a page says what was replayed through, and this is not part of it.
    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.upstream.fmt_layer(f)
    }
}

// SAFETY: the blocks are the upstream's.
unsafe impl<U: DeviceAccessible> DeviceAccessible for Segments<U> {}
// SAFETY: the blocks are the upstream's.
unsafe impl<U: HostAccessible> HostAccessible for Segments<U> {}

#[cfg(test)]
mod tests {
    use alluvion::Sim;
    use alluvion::source::Null;

    use super::*;

    #[test]
    fn what_is_taken_is_written_down_with_its_step() {
        let sim = Sim::new();
        let stream = sim.device(0).stream().unwrap();
        let register = Arc::new(Register::default());
        let source = Segments::new(Null::new(&sim.device(0)), Arc::clone(&register));
        let [nothing, layout] = [0, 1000].map(|bytes| Layout::from_bytes(bytes).unwrap());
        register.begin(3);
        let first = source.allocate(layout, stream.as_ref()).unwrap();
        let second = source.allocate_sync(layout).unwrap();
        source.allocate_sync(nothing).unwrap();
        register.begin(5);
        // SAFETY: it came from there with this layout, and nothing uses it.
        unsafe { source.deallocate(first, layout, stream.as_ref()) };
        let segment =
            |block: DevicePtr, died| Segment { address: block.address(), bytes: 1000, born: 3, died };
        assert_eq!(register.segments(), [segment(first, 5), segment(second, u32::MAX)]);
        // SAFETY: as above.
        unsafe { source.deallocate_sync(second, layout) };
        assert_eq!(register.segments()[1].died, 5);
        assert!(source.describe().to_string().starts_with("Null"));
    }
}
