//! `Delayed`: a resource that frees, then dawdles.

#![expect(unsafe_code, reason = "forwards the contract of resources")]

use core::fmt;
use core::time::Duration;

use crate::forward_resource;
use crate::resource::{DeviceAccessible, DevicePtr, Layout, Resource, blocks_of_upstream};
use crate::stream::StreamRef;

/// Frees, and then keeps the caller waiting.
///
/// In between another thread may get the address. A layer above that closes its books only after the free has returned then
/// closes them over somebody else's block: put this under it, and that happens every time instead of once a year.
///
/// # Stream ordering
///
/// As the upstream's.
///
/// # Thread safety
///
/// As the upstream's.
///
/// # Examples
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::testing::{Delayed, Shadow};
/// use alluvion::{Resource, ResourceExt, Sim};
/// use std::time::Duration;
///
/// let sim = Sim::new();
/// let resource = Shadow::new(Delayed::new(Cuda::new(&sim.device(0)), Duration::from_micros(50)));
/// assert_eq!(resource.describe().to_string(), "Shadow(0 live) > Delayed(50µs) > Cuda(gpu 0)");
/// ```
pub struct Delayed<U> {
    upstream: U,
    delay: Duration,
}

static_assertions::assert_impl_all!(Delayed<crate::source::Cuda>: Send, Sync, DeviceAccessible);

impl<U> Delayed<U> {
    /// Waits for `delay` after every free; for none it lets other threads go first.
    #[must_use]
    pub fn new(upstream: U, delay: Duration) -> Self {
        Self { upstream, delay }
    }

    /// The upstream.
    #[must_use]
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    fn dawdle(&self) {
        if self.delay.is_zero() {
            std::thread::yield_now();
        } else {
            std::thread::sleep(self.delay);
        }
    }
}

// SAFETY: everything is forwarded to the upstream, whose id it has and which keeps the contract.
unsafe impl<U: Resource> Resource for Delayed<U> {
    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // SAFETY: the caller's promises; the ids are the same.
        unsafe { self.upstream.deallocate(block, layout, stream) };
        self.dawdle();
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        // SAFETY: the caller's promises; the ids are the same.
        unsafe { self.upstream.deallocate_sync(block, layout) };
        self.dawdle();
    }

    forward_resource!(unchanged upstream, except sleeping, deallocate, fmt_layer);

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Delayed({:?})", self.delay)
    }
}

blocks_of_upstream!(Delayed);
