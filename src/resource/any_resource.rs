//! `AnyResource`: an owned handle.

#![expect(unsafe_code, reason = "forwards the contract of resources")]

use core::fmt;
use std::sync::{Arc, Weak};

use crate::device::Device;
use crate::forward_resource;
use crate::resource::{DeviceAccessible, Resource, ResourceRef, Shareable};

/// An owned handle of a resource whose type is erased: cheap to clone, shared between threads.
///
/// It is the default resource type of containers, and the type of a device's current resource. Two are equal if they free each
/// other's blocks.
///
/// ```
/// use alluvion::{AnyResource, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let resource = AnyResource::new(Cuda::new(&sim.device(0)));
/// assert_eq!(resource, resource.clone());
/// assert_eq!(resource.describe().to_string(), "Cuda(gpu 0)");
/// ```
#[derive(Clone)]
pub struct AnyResource {
    resource: Arc<dyn Resource + Send + Sync>,
}

/// A weak handle of a resource.
pub(crate) struct WeakResource(Weak<dyn Resource + Send + Sync>);

impl WeakResource {
    pub(crate) fn of(resource: &AnyResource) -> Self {
        Self(Arc::downgrade(&resource.resource))
    }

    pub(crate) fn upgrade(&self) -> Option<AnyResource> {
        self.0.upgrade().map(|resource| AnyResource { resource })
    }
}

static_assertions::assert_impl_all!(AnyResource: Send, Sync, Clone);
static_assertions::assert_eq_size!(AnyResource, [usize; 2]);

impl AnyResource {
    /// Takes a resource and erases its type.
    #[must_use]
    pub fn new<R: DeviceAccessible + Send + Sync + 'static>(resource: R) -> Self {
        Self { resource: Arc::new(resource) }
    }

    /// Shares a resource and erases its type.
    #[must_use]
    pub fn from_arc<R: DeviceAccessible + Send + Sync + 'static>(resource: Arc<R>) -> Self {
        Self { resource }
    }

    /// The resource, without what its type says of it.
    pub(crate) fn into_erased(self) -> Arc<dyn Resource + Send + Sync> {
        self.resource
    }

    /// A resource whose type is forgotten already.
    ///
    /// # Safety
    ///
    /// The type was `DeviceAccessible`, or would have been over another form of the same upstream: work on the device may read and write
    /// each live block.
    pub(crate) unsafe fn from_erased(resource: Arc<dyn Resource + Send + Sync>) -> Self {
        Self { resource }
    }

    /// Borrows the resource.
    #[must_use]
    pub fn as_ref(&self) -> ResourceRef<'_> {
        ResourceRef::from_erased(&*self.resource)
    }

    /// As [`describe`](crate::ResourceExt::describe), without the trait in scope.
    #[must_use]
    pub fn describe(&self) -> crate::resource::Describe<'_> {
        crate::resource::Describe::new(&*self.resource)
    }

    /// Returns `true` if there is another handle of the resource, in a layer over it or elsewhere. Another thread may make or drop one
    /// meanwhile.
    ///
    /// ```
    /// use alluvion::{AnyResource, Sim, source::Cuda};
    ///
    /// let resource = AnyResource::new(Cuda::new(&Sim::new().device(0)));
    /// assert!(!resource.is_shared());
    /// let other = resource.clone();
    /// assert!(resource.is_shared() && other.is_shared());
    /// ```
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.resource) > 1
    }

    /// Returns `true` if both are handles of one resource, and not merely of two whose blocks are the same.
    ///
    /// ```
    /// use alluvion::adaptor::FailureCallback;
    /// use alluvion::relief::Relief;
    /// use alluvion::{AnyResource, Sim, source::Cuda};
    ///
    /// let resource = AnyResource::new(Cuda::new(&Sim::new().device(0)));
    /// let asking = AnyResource::new(FailureCallback::new(resource.clone(), |_| Relief::None));
    /// assert!(resource == asking, "they free each other's blocks");
    /// assert!(!resource.is_same(&asking) && resource.is_same(&resource.clone()));
    /// ```
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        // By address: the same resource may have several tables of methods.
        core::ptr::addr_eq(Arc::as_ptr(&self.resource), Arc::as_ptr(&other.resource))
    }

    /// As [`Resource::device`], without the trait in scope.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.resource.device()
    }
}

// SAFETY: everything is forwarded to one resource, which keeps the contract; the handle can be moved without moving it.
unsafe impl Resource for AnyResource {
    forward_resource!(handle | this | *this.resource);
}

// SAFETY: the constructors take resources that are accessible to the device, and nothing else.
unsafe impl DeviceAccessible for AnyResource {}

// Whether it really can be shared, the resource says when it is asked.
impl Shareable for AnyResource {}

impl PartialEq for AnyResource {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for AnyResource {}

impl fmt::Debug for AnyResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.describe())
    }
}
