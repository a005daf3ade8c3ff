//! `OnHost`: a resource as an `Allocator`.

#![expect(unsafe_code, reason = "turns addresses into pointers: the only place that does")]

use core::alloc;
use core::fmt;
use core::num::NonZero;
use core::ptr::NonNull;

use super::blocks::{Blocks, nothing};
use crate::resource::Describe;
use crate::resource::{DevicePtr, HostAccessible, Layout, Resource, ResourceRef};
use crate::source::Pinned;
use crate::sync::Arc;

/// A resource as an `Allocator`: what [`Vec`](crate::host::Vec), [`Box`](crate::host::Box) and
/// [`HashMap`](crate::host::HashMap) take, over memory that the host may touch.
///
/// It is the only place in the crate where the address of a block becomes a pointer. A resource whose blocks only the
/// device may touch does not fit:
///
/// ```compile_fail,E0277
/// use alluvion::{OnHost, Sim, host::Vec, source::Cuda};
///
/// let sim = Sim::new();
/// let vector = Vec::<u8, _>::new_in(OnHost::new(Cuda::new(&sim.device(0))));
/// ```
///
/// A collection owns its allocator: give it `OnHost<&R>`, which is `Copy`, `OnHost<Arc<R>>`, or [`PinnedAlloc`](crate::PinnedAlloc).
/// Only handles can be cloned here, because a clone must be the same allocator.
///
/// A block cannot be grown where it is: growing and shrinking allocate, copy and free. An allocator has no place for the
/// reason of a failure: ask the [`resource`](Self::resource) for it.
///
/// # Stream ordering
///
/// None: an allocator has no stream. It takes [`Resource::allocate_sync`], whose blocks the host may use at once, and
/// [`Resource::deallocate_sync`], for which every use must be over. The uses that safe code can start end in time: a
/// transfer takes ownership of the collection or borrows it until it is done. A transfer from a raw pointer is unsafe to
/// start, and whoever starts it keeps the collection until it is over.
///
/// # Thread safety
///
/// That of the resource.
///
/// # Examples
///
/// ```
/// use alluvion::{OnHost, Sim, host::Vec, source::Pinned};
///
/// let sim = Sim::new();
/// let pinned = Pinned::new(&sim.device(0))?;
/// let mut vector = Vec::new_in(OnHost::new(&pinned));
/// vector.extend([1, 2, 3]);
/// assert_eq!(vector, [1, 2, 3]);
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct OnHost<R> {
    resource: R,
}

static_assertions::assert_impl_all!(OnHost<Pinned>: Send, Sync, Clone, allocator_api2::alloc::Allocator);
static_assertions::assert_impl_all!(OnHost<&'static Pinned>: Send, Sync, Copy);
static_assertions::assert_not_impl_any!(OnHost<Box<Pinned>>: Clone);
static_assertions::assert_not_impl_any!(OnHost<crate::source::Cuda>: allocator_api2::alloc::Allocator);

impl<R: HostAccessible> OnHost<R> {
    /// Opens a resource for the host.
    #[must_use]
    pub const fn new(resource: R) -> Self {
        Self { resource }
    }
}

impl<R> OnHost<R> {
    /// The resource.
    #[must_use]
    pub const fn resource(&self) -> &R {
        &self.resource
    }

    /// The resource, out of its allocator.
    #[must_use]
    pub fn into_inner(self) -> R {
        self.resource
    }
}

// SAFETY: `HostAccessible` says that a block of `allocate_sync` is memory that the host may read and write through its
// address, from any thread, and `Resource` that it is as long and as aligned as asked for, overlaps no other, stays valid
// wherever the resource is moved until it is deallocated, and that nothing unwinds. `Clone`, below, is for handles of one
// resource. A call that fails returns before it changes anything.
unsafe impl<R: HostAccessible> Blocks for OnHost<R> {
    fn allocate_block(&self, layout: alloc::Layout) -> Option<NonNull<[u8]>> {
        if layout.size() == 0 {
            return Some(nothing(layout));
        }
        let block = self.resource.allocate_sync(Layout::try_from(layout).ok()?).ok()?;
        // The host's addresses are as wide as its pointers.
        let address = NonZero::new(block.address() as usize)?;
        Some(NonNull::slice_from_raw_parts(NonNull::with_exposed_provenance(address), layout.size()))
    }

    unsafe fn deallocate_block(&self, block: NonNull<u8>, layout: alloc::Layout) {
        if layout.size() == 0 {
            return;
        }
        // It could be converted when the block was allocated, and has an address.
        let (Some(block), Ok(layout)) = (DevicePtr::new(block.addr().get() as u64), Layout::try_from(layout))
        else {
            return;
        };
        // SAFETY:
        // - `block` is live and came from this resource, or from one that a handle was cloned from: the caller's promise.
        // - `layout` fits: it is converted as it was in `allocate_block`.
        // - every use is over: the caller's promise for its own, and the device's end while the collection lives.
        unsafe { self.resource.deallocate_sync(block, layout) };
    }
}

// An allocator may be cloned only into the same allocator. A borrow, a count and a `Pinned` are; what else a resource means
// by `Clone` is not known here.

impl<R: ?Sized> Clone for OnHost<&R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: ?Sized> Copy for OnHost<&R> {}

impl<R: ?Sized> Clone for OnHost<ResourceRef<'_, R>> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: ?Sized> Copy for OnHost<ResourceRef<'_, R>> {}

impl<R: ?Sized> Clone for OnHost<Arc<R>> {
    fn clone(&self) -> Self {
        Self { resource: Arc::clone(&self.resource) }
    }
}

impl Clone for OnHost<Pinned> {
    fn clone(&self) -> Self {
        Self { resource: self.resource.clone() }
    }
}

impl<R: Resource> fmt::Debug for OnHost<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnHost({})", Describe::new(&self.resource))
    }
}
