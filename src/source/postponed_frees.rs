//! `PostponedFrees`: blocks that were given back to a stream that captures, until they can be freed.

#![expect(unsafe_code, reason = "frees the blocks that were given to it")]

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::device::Device;
use crate::resource::DevicePtr;
use crate::stream::{Frontier, Stamp, StreamRef};
use crate::sync::Mutex;

/// The blocks of one pool that are waiting to be freed.
///
/// A stream that captures accepts frees only of blocks that its graph allocates. Any other block that is freed meanwhile is kept
/// here, with the point of the stream that it was freed at. Once the capture is over, the next call of the pool frees the block on
/// a stream of the crate's own, behind a wait for that point.
#[derive(Debug, Default)]
pub(super) struct PostponedFrees {
    blocks: Mutex<Vec<(DevicePtr, Stamp)>>,
    /// The number of blocks, so that the lock is not taken for none. A call that misses the newest leaves it to the next.
    count: AtomicUsize,
}

impl PostponedFrees {
    /// Takes over a block.
    ///
    /// # Safety
    ///
    /// `block` came from `allocate_async`, no other code frees it, and its uses come before this point of `stream`.
    pub(super) unsafe fn add(&self, block: DevicePtr, stream: StreamRef<'_>) {
        // Before the lock: on a stream with another owner it calls the driver.
        let freed_at = stream.release();
        let Some(mut blocks) = self.blocks.lock_unless_forked() else { return };
        blocks.push((block, freed_at));
        // Relaxed: a hint, see above.
        self.count.store(blocks.len(), Ordering::Relaxed);
    }

    /// Frees the blocks that can be freed by now.
    pub(super) fn retry(&self, device: &Device) {
        // Relaxed: a hint, see above.
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Ok(service) = device.service_stream() else { return };
        // Taken out, so that no lock is held over the driver's calls, and no other thread frees them.
        let mut waiting = core::mem::take(&mut *self.blocks.lock());
        waiting.retain(|&(block, freed_at)| {
            let stream = service.as_ref();
            if stream.wait_for(&Frontier::of(freed_at)).is_err() {
                return true;
            }
            // SAFETY:
            // - the block came from `allocate_async` and no other code frees it: the promise to `add`, and it was taken out.
            // - its uses come before: the stream was made to wait for the point that they come before.
            // - the stream is live and of this device: the device keeps it.
            // A failure means that the context is lost, and the block with it.
            let _ = unsafe { device.driver().free_async(device.ordinal(), block.address(), stream.raw()) };
            false
        });
        let mut blocks = self.blocks.lock();
        blocks.append(&mut waiting);
        // Relaxed: a hint, see above.
        self.count.store(blocks.len(), Ordering::Relaxed);
    }
}
