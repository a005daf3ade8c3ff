//! What the tests need beside containers: a stream that is late, memory that is pinned, a resource that counts.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use allocator_api2::alloc::{AllocError, Allocator};
use allocator_api2::vec::Vec as VecIn;
use alluvion::driver::PinnedFlags;
use alluvion::source::Cuda;
use alluvion::{Device, DeviceAccessible, DevicePtr, Error, Layout, Resource, Stream, StreamRef};

/// How long a stalled stream is stalled: long enough for work that does not wait to be caught at it.
const STALL: Duration = Duration::from_millis(10);

/// Keeps the stream busy for a while, so that what was submitted after has not run when the call returns.
pub(crate) fn stall(stream: &Stream) {
    let (release, released) = channel::<()>();
    let function = Box::new(move || {
        // An error says that the clock has struck, and is what is waited for.
        let _ = released.recv_timeout(Duration::from_secs(20));
    });
    // SAFETY: the stream is live and of this device, because it is borrowed; the function does not unwind.
    unsafe {
        stream.device().driver().stream_host_call(stream.device().ordinal(), stream.as_ref().raw(), function)
    }
    .expect("a host call can be queued");
    thread::spawn(move || {
        thread::sleep(STALL);
        drop(release);
    });
}

/// Pinned memory that is used again as soon as it is freed: one block at a time, of one size until it is finished with.
#[derive(Clone)]
pub(crate) struct OneBlock {
    device: Device,
    /// The block that nobody has, or null.
    spare: Arc<AtomicPtr<u8>>,
}

impl OneBlock {
    pub(crate) fn new(device: &Device) -> Self {
        Self { device: device.clone(), spare: Arc::default() }
    }

    pub(crate) fn filled<T: Copy>(&self, len: usize, value: T) -> VecIn<T, Self> {
        let mut vector = VecIn::with_capacity_in(len, self.clone());
        vector.resize(len, value);
        vector
    }

    /// Gives the spare block back to the driver.
    pub(crate) fn finish(&self) {
        if let Some(pointer) = self.take() {
            // SAFETY: `allocate` got it from the driver, and nobody uses it.
            unsafe { self.device.driver().free_pinned(self.device.ordinal(), pointer) }.expect("it was live");
        }
    }

    fn take(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.spare.swap(std::ptr::null_mut(), Ordering::AcqRel))
    }
}

// SAFETY: blocks are live until they are freed, wherever the allocator is moved; clones share them.
unsafe impl Allocator for OneBlock {
    fn allocate(&self, layout: std::alloc::Layout) -> Result<NonNull<[u8]>, AllocError> {
        let (driver, ordinal) = (self.device.driver(), self.device.ordinal());
        let pointer = match self.take() {
            Some(pointer) => pointer,
            None => driver
                .allocate_pinned(ordinal, layout.size(), PinnedFlags::default())
                .map_err(|_| AllocError)?,
        };
        Ok(NonNull::slice_from_raw_parts(pointer, layout.size()))
    }

    unsafe fn deallocate(&self, pointer: NonNull<u8>, _: std::alloc::Layout) {
        let before = self.spare.swap(pointer.as_ptr(), Ordering::AcqRel);
        assert!(before.is_null(), "one block is out at a time");
    }
}

/// `Cuda`, counted.
#[derive(Clone)]
pub(crate) struct Counting {
    upstream: Cuda,
    pub(crate) allocated: Arc<AtomicUsize>,
    pub(crate) freed: Arc<AtomicUsize>,
}

impl Counting {
    pub(crate) fn new(device: &Device) -> Self {
        Self { upstream: Cuda::new(device), allocated: Arc::default(), freed: Arc::default() }
    }

    /// How many blocks were allocated, and how many of them freed.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.allocated.load(Ordering::Relaxed), self.freed.load(Ordering::Relaxed))
    }
}

// SAFETY: everything is forwarded.
unsafe impl Resource for Counting {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        let block = self.upstream.allocate(layout, stream)?;
        self.allocated.fetch_add(1, Ordering::Relaxed);
        Ok(block)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        self.freed.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises.
        unsafe { self.upstream.deallocate(block, layout, stream) }
    }

    alluvion::forward_resource!(upstream, except allocate, deallocate);
}

// SAFETY: the blocks are those of `Cuda`.
unsafe impl DeviceAccessible for Counting {}
