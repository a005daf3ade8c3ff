//! `ResourceRef<'a>`: a borrowed handle.

#![expect(unsafe_code, reason = "forwards the contract of resources")]

use core::fmt;

use crate::forward_resource;
use crate::resource::{Describe, DeviceAccessible, HostAccessible, Resource, Shareable};

/// A borrowed handle of a resource: `Copy`, one pointer while the type is known, two once it is erased.
///
/// A function that need not know the stack takes `ResourceRef<'_>`. It cannot outlive the resource, and its blocks are always
/// accessible to the device: only such resources can be erased.
///
/// ```
/// use alluvion::{DeviceVec, Error, ResourceRef, Sim, Stream, source::Cuda};
///
/// fn ones(stream: &Stream, resource: ResourceRef<'_>) -> Result<Vec<u8>, Error> {
///     DeviceVec::filled_in(16, 1_u8, stream, resource)?.to_vec(stream)
/// }
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// let (resource, stream) = (Cuda::new(&device), device.stream()?);
/// assert_eq!(ones(&stream, ResourceRef::erase(&resource))?, [1; 16]);
/// # Ok::<(), Error>(())
/// ```
pub struct ResourceRef<'a, R: ?Sized = dyn Resource + Sync + 'a> {
    resource: &'a R,
}

static_assertions::assert_eq_size!(ResourceRef<'static, super::AnyResource>, usize);
static_assertions::assert_eq_size!(ResourceRef<'static>, [usize; 2]);
static_assertions::assert_impl_all!(ResourceRef<'static>: Send, Sync, Copy);

impl<'a, R: Resource> ResourceRef<'a, R> {
    /// Borrows a resource and keeps its type.
    #[must_use]
    pub const fn new(resource: &'a R) -> Self {
        Self { resource }
    }
}

impl<'a> ResourceRef<'a> {
    /// Borrows a resource and erases its type.
    #[must_use]
    pub fn erase<R: DeviceAccessible + Sync>(resource: &'a R) -> Self {
        Self { resource }
    }

    /// Borrows a resource whose type is erased already.
    pub(crate) fn from_erased(resource: &'a (dyn Resource + Send + Sync)) -> Self {
        Self { resource }
    }
}

impl<'a, R: ?Sized> ResourceRef<'a, R> {
    /// The resource, for as long as it was borrowed.
    #[must_use]
    pub const fn inner(self) -> &'a R {
        self.resource
    }
}

impl<R: ?Sized> Clone for ResourceRef<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: ?Sized> Copy for ResourceRef<'_, R> {}

// SAFETY: every method is forwarded to one resource, which keeps the contract; the handle can be moved without moving it.
unsafe impl<R: Resource + ?Sized> Resource for ResourceRef<'_, R> {
    forward_resource!(handle | this | *this.resource);
}

// SAFETY: a handle hands out the blocks of what it names.
unsafe impl<R: DeviceAccessible + ?Sized> DeviceAccessible for ResourceRef<'_, R> {}
// SAFETY: a handle hands out the blocks of what it names.
unsafe impl<R: HostAccessible + ?Sized> HostAccessible for ResourceRef<'_, R> {}
// SAFETY: an erased handle is made by `erase` and by `AnyResource`, from resources that are accessible to the device.
unsafe impl<'a> DeviceAccessible for ResourceRef<'a, dyn Resource + Sync + 'a> {}

impl<R: Shareable + ?Sized> Shareable for ResourceRef<'_, R> {}
// Whether it really can be shared, the resource says when it is asked.
impl<'a> Shareable for ResourceRef<'a, dyn Resource + Sync + 'a> {}

impl<'a, R: DeviceAccessible + Sync> From<&'a R> for ResourceRef<'a> {
    fn from(resource: &'a R) -> Self {
        Self::erase(resource)
    }
}

impl<R: Resource + ?Sized> fmt::Debug for ResourceRef<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Describe::new(self))
    }
}
