//! An erased handle is shared between threads, so only what may be shared can be erased.

use std::cell::Cell;
use std::fmt;

use alluvion::source::Cuda;
use alluvion::{
    AnyResource, Device, DeviceAccessible, DevicePtr, Error, Layout, Resource, ResourceId, ResourceRef, Sim,
    StreamRef,
};

/// Counts without an atomic.
struct Counting {
    upstream: Cuda,
    count: Cell<usize>,
}

unsafe impl Resource for Counting {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.count.set(self.count.get() + 1);
        self.upstream.allocate(layout, stream)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        unsafe { self.upstream.deallocate(block, layout, stream) }
    }

    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn id(&self) -> ResourceId {
        self.upstream.id()
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counting")
    }
}

unsafe impl DeviceAccessible for Counting {}

fn main() {
    let sim = Sim::new();
    let counting = Counting { upstream: Cuda::new(&sim.device(0)), count: Cell::new(0) };
    let _ = ResourceRef::erase(&counting);
    let _ = AnyResource::new(counting);
}
