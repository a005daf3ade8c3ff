//! `Bump`: real memory at the price of two atomic additions, to measure what is above a source and not the source.

#![expect(unsafe_code, reason = "implements the contract of resources")]

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::source::Cuda;
use alluvion::{Device, DeviceAccessible, DevicePtr, Error, Layout, Resource, ResourceId, StreamRef};

/// One allocation of the driver, handed out from its start to its end, and from the start again once nothing is live.
pub(crate) struct Bump {
    upstream: Cuda,
    whole: Layout,
    start: DevicePtr,
    id: ResourceId,
    /// Live blocks in the upper half, units of 256 bytes handed out in the lower.
    state: AtomicUsize,
}

const ONE_BLOCK: usize = 1 << 32;

impl Bump {
    pub(crate) fn new(device: &Device, bytes: usize) -> Result<Self, Error> {
        let (upstream, whole) = (Cuda::new(device), Layout::from_bytes(bytes)?);
        let start = upstream.allocate_sync(whole)?;
        Ok(Self { upstream, whole, start, id: ResourceId::unique(), state: AtomicUsize::new(0) })
    }
}

// SAFETY: a block is the units between two values of the lower half of `state`, which only grows while anything
// is live, so no two live blocks overlap. They end with the allocation, which `Drop` gives back: borrowers
// cannot outlive that.
unsafe impl Resource for Bump {
    #[inline]
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.upstream.device().require(stream.device())?;
        layout.require_align(Layout::MIN_ALIGN)?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        let added = ONE_BLOCK + layout.rounded_bytes() / Layout::MIN_ALIGN;
        let offset = (self.state.fetch_add(added, Ordering::Relaxed) % ONE_BLOCK) * Layout::MIN_ALIGN;
        if offset + layout.rounded_bytes() > self.whole.bytes() {
            self.state.fetch_sub(added, Ordering::Relaxed);
            return Err(Error::out_of_memory(layout.bytes()));
        }
        Ok(self.start.offset(offset))
    }

    #[inline]
    unsafe fn deallocate(&self, _: DevicePtr, layout: Layout, _: StreamRef<'_>) {
        if layout.is_empty() {
            return;
        }
        let left = self.state.fetch_sub(ONE_BLOCK, Ordering::Relaxed) - ONE_BLOCK;
        if left < ONE_BLOCK {
            // Fails if somebody has allocated since; then whoever frees that block resets.
            let _ = self.state.compare_exchange(left, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bump({} bytes)", self.whole.bytes())
    }
}

// SAFETY: it is memory of `Cuda`.
unsafe impl DeviceAccessible for Bump {}

impl Drop for Bump {
    fn drop(&mut self) {
        // SAFETY: the block came from `upstream` with this layout, and what was handed out of it was borrowed
        // from `self`; `cuMemFree` waits for the work that uses it.
        unsafe { self.upstream.deallocate_sync(self.start, self.whole) };
    }
}
