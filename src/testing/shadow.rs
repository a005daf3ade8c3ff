//! `ShadowHeap`, an interval map of live blocks, and `Shadow`, a resource that is held against one.

#![expect(unsafe_code, reason = "forwards the contract of resources, checked")]

use core::fmt;
use std::collections::BTreeMap;

use super::Violation;
use crate::error::Error;
use crate::forward_resource;
use crate::resource::{
    DeviceAccessible, DevicePtr, HostAccessible, Layout, Resource, ResourceId, blocks_of_upstream,
};
use crate::stream::StreamRef;
use crate::sync::Mutex;

/// The live blocks of one resource, as they must be: aligned, apart from each other, freed once and with their layout.
///
/// ```
/// use alluvion::testing::{ShadowHeap, Violation};
/// use alluvion::{DevicePtr, Layout};
///
/// let mut heap = ShadowHeap::new();
/// let (block, layout) = (DevicePtr::new(0x1000).unwrap(), Layout::from_bytes(1000)?);
/// assert!(heap.insert(block, layout).is_ok());
/// assert_eq!((heap.len(), heap.live_bytes()), (1, 1000));
/// assert!(heap.remove(block, layout).is_ok());
/// assert!(matches!(heap.remove(block, layout), Err(Violation::NotLive { .. })));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ShadowHeap {
    live: BTreeMap<u64, Layout>,
    live_bytes: usize,
}

impl ShadowHeap {
    /// No blocks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes a block that was just allocated. Zero bytes are checked and not kept.
    ///
    /// # Errors
    ///
    /// If it is not aligned, or overlaps a live block; it is not noted then.
    pub fn insert(&mut self, block: DevicePtr, layout: Layout) -> Result<(), Violation> {
        if !block.is_aligned_to(layout.block_align()) {
            return Err(Violation::Misaligned { block: (block, layout) });
        }
        if layout.is_empty() {
            return Ok(());
        }
        let end = block.address().saturating_add(layout.bytes() as u64);
        // Blocks are disjoint, so the last one that starts before the end is the only one that can reach in.
        if let Some((&start, &live)) = self.live.range(..end).next_back()
            && start + live.bytes() as u64 > block.address()
        {
            let other = block_at(start, live);
            return Err(Violation::Overlap { block: (block, layout), live: other });
        }
        self.live.insert(block.address(), layout);
        self.live_bytes += layout.bytes();
        Ok(())
    }

    /// Notes that a block is about to be freed. Zero bytes are ignored.
    ///
    /// # Errors
    ///
    /// If it is not live, or has another layout; nothing is changed then.
    pub fn remove(&mut self, block: DevicePtr, layout: Layout) -> Result<(), Violation> {
        if layout.is_empty() {
            return Ok(());
        }
        match self.live.get(&block.address()) {
            None => Err(Violation::NotLive { block: (block, layout) }),
            Some(&allocated) if allocated != layout => {
                Err(Violation::WrongLayout { block: (block, layout), allocated })
            }
            Some(_) => {
                self.live.remove(&block.address());
                self.live_bytes -= layout.bytes();
                Ok(())
            }
        }
    }

    /// The number of live blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Returns `true` if no block is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Bytes of the live blocks, as asked for.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// The live blocks, by address.
    pub fn iter(&self) -> impl Iterator<Item = (DevicePtr, Layout)> + '_ {
        self.live.iter().map(|(&address, &layout)| block_at(address, layout))
    }
}

fn block_at(address: u64, layout: Layout) -> (DevicePtr, Layout) {
    (DevicePtr::new(address).expect("the address was a block's"), layout)
}

/// Holds every block of a resource against a [`ShadowHeap`].
///
/// A block that the upstream must not have served is not handed on, but refused. A free that must not be is not handed on
/// either: both are [noted](Self::violations). It costs a lock and an ordered map.
///
/// # Stream ordering
///
/// As the upstream's.
///
/// # Thread safety
///
/// Any thread may call it, if any thread may call the upstream.
///
/// # Examples
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::testing::Shadow;
/// use alluvion::{Layout, Resource, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let resource = Shadow::new(Cuda::new(&sim.device(0)));
/// let layout = Layout::from_bytes(100)?;
/// let block = resource.allocate(layout, stream.as_ref())?;
/// assert_eq!(resource.live().len(), 1);
/// // SAFETY: the block came from this resource with this layout, and nothing uses it.
/// unsafe { resource.deallocate(block, layout, stream.as_ref()) };
/// resource.assert_clean();
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Shadow<U> {
    upstream: U,
    id: ResourceId,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    heap: ShadowHeap,
    violations: Vec<Violation>,
}

static_assertions::assert_impl_all!(Shadow<crate::source::Cuda>: Send, Sync, DeviceAccessible);
static_assertions::assert_not_impl_any!(Shadow<crate::source::Cuda>: Clone, HostAccessible);

impl<U> Shadow<U> {
    /// Watches `upstream`.
    #[must_use]
    pub fn new(upstream: U) -> Self {
        Self { upstream, id: ResourceId::unique(), seen: Mutex::new(Seen::default()) }
    }

    /// The upstream.
    #[must_use]
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// The blocks that are live now.
    #[must_use]
    pub fn live(&self) -> Vec<(DevicePtr, Layout)> {
        self.seen.lock().heap.iter().collect()
    }

    /// The violations of the contract so far, by the upstream or its callers.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.seen.lock().violations.clone()
    }

    /// Fails if the contract was broken, or if a block is still live.
    ///
    /// # Panics
    ///
    /// As said.
    #[track_caller]
    pub fn assert_clean(&self) {
        let (violations, live) = (self.violations(), self.live());
        if let Some(first) = violations.first() {
            panic!("{} violations, the first: {first}", violations.len());
        }
        if let Some((block, layout)) = live.first() {
            panic!("{} blocks were never freed, the first: {} bytes at {block}", live.len(), layout.bytes());
        }
    }

    /// Notes a new block, or refuses it. What is refused is leaked: it is somebody else's, too.
    fn insert(&self, block: DevicePtr, layout: Layout) -> Result<DevicePtr, Error> {
        let mut seen = self.seen.lock();
        match seen.heap.insert(block, layout) {
            Ok(()) => Ok(block),
            Err(violation) => {
                seen.violations.push(violation);
                Err(Error::invalid_argument(
                    "a block of the upstream",
                    "it overlaps a live one or is not aligned",
                    "see `Shadow::violations`",
                ))
            }
        }
    }

    /// Returns `true` if the free may go on.
    fn remove(&self, block: DevicePtr, layout: Layout) -> bool {
        let mut seen = self.seen.lock();
        match seen.heap.remove(block, layout) {
            Ok(()) => true,
            Err(violation) => {
                seen.violations.push(violation);
                false
            }
        }
    }
}

// SAFETY: the blocks are the upstream's, which keeps the contract; those that visibly break it are refused. Frees go to the
// upstream that the block came from, because only this value has its id.
unsafe impl<U: Resource> Resource for Shadow<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.insert(self.upstream.allocate(layout, stream)?, layout)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // Before the upstream frees it: afterwards another thread may own the address.
        if self.remove(block, layout) {
            // SAFETY: the caller's promises, and the block came from the upstream.
            unsafe { self.upstream.deallocate(block, layout, stream) };
        }
    }

    fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
        let block = self.upstream.allocate_at_once(layout, stream)?;
        // A block that overlaps a live one is noted, and not handed on.
        self.insert(block, layout).ok()
    }

    unsafe fn deallocate_at_once(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) -> bool {
        if !self.remove(block, layout) {
            // It is noted, and not handed on, as in `deallocate`.
            return true;
        }
        // SAFETY: the caller's promises, and the block came from the upstream.
        let is_free = unsafe { self.upstream.deallocate_at_once(block, layout, stream) };
        if !is_free {
            // It is live all the same. If another block was served over it meanwhile, that is a violation, which is noted.
            drop(self.insert(block, layout));
        }
        is_free
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.insert(self.upstream.allocate_sync(layout)?, layout)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        if self.remove(block, layout) {
            // SAFETY: the caller's promises, and the block came from the upstream.
            unsafe { self.upstream.deallocate_sync(block, layout) };
        }
    }

    forward_resource!(unchanged upstream, except sleeping, allocate, deallocate, id, fmt_layer);

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not under the lock: the formatter may be anybody's, and ask this very layer.
        let live = self.seen.lock().heap.len();
        write!(f, "Shadow({live} live)")
    }
}

blocks_of_upstream!(Shadow);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: u64) -> DevicePtr {
        DevicePtr::new(address).unwrap()
    }

    #[test]
    fn blocks_that_touch_do_not_overlap_and_others_do() {
        let layout = Layout::from_bytes(512).unwrap();
        let mut heap = ShadowHeap::new();
        heap.insert(at(0x1000), layout).unwrap();
        heap.insert(at(0x1200), layout).unwrap();
        heap.insert(at(0x0E00), layout).unwrap();
        for address in [0x0D00, 0x0F00, 0x1000, 0x1100, 0x1300] {
            assert!(
                matches!(heap.insert(at(address), layout), Err(Violation::Overlap { .. })),
                "{address:#x}"
            );
        }
        let around = Layout::from_bytes(0x1000).unwrap();
        assert!(matches!(heap.insert(at(0x0800), around), Err(Violation::Overlap { .. })));
        assert_eq!((heap.len(), heap.live_bytes()), (3, 1536));
    }

    #[test]
    fn alignment_layout_and_liveness_are_checked() {
        let layout = Layout::new(512, 1024).unwrap();
        let mut heap = ShadowHeap::new();
        assert!(matches!(heap.insert(at(0x1200), layout), Err(Violation::Misaligned { .. })));
        heap.insert(at(0x1400), layout).unwrap();
        let other = Layout::from_bytes(512).unwrap();
        assert!(matches!(heap.remove(at(0x1400), other), Err(Violation::WrongLayout { .. })));
        assert!(matches!(heap.remove(at(0x1500), layout), Err(Violation::NotLive { .. })));
        heap.remove(at(0x1400), layout).unwrap();
        assert!(matches!(heap.remove(at(0x1400), layout), Err(Violation::NotLive { .. })));
        assert!(heap.is_empty());
    }

    #[test]
    fn zero_bytes_are_never_live() {
        let layout = Layout::from_bytes(0).unwrap();
        let mut heap = ShadowHeap::new();
        heap.insert(layout.dangling(), layout).unwrap();
        heap.insert(layout.dangling(), layout).unwrap();
        assert!(heap.is_empty());
        heap.remove(layout.dangling(), layout).unwrap();
    }
}
