//! `Owner`: a stack that several objects of Python own together.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use alluvion::{AnyResource, DeviceAccessible};

/// A stack that several objects of Python own together.
///
/// The last handle drops the stack, which may wait for the device or run foreign code: a thread that is attached to the
/// interpreter detaches before it drops a handle that is not [shared](Self::is_shared).
#[derive(Clone, Debug)]
pub(crate) struct Owner(Arc<AnyResource>);

impl Owner {
    /// The owner of a resource.
    pub(crate) fn new<R: DeviceAccessible + Send + Sync + 'static>(resource: R) -> Self {
        Self(Arc::new(AnyResource::new(resource)))
    }

    /// One more owner of a stack that is known to the library already.
    pub(crate) fn of(resource: AnyResource) -> Self {
        Self(Arc::new(resource))
    }

    /// A look at the handles, which owns nothing.
    pub(crate) fn downgrade(&self) -> Weak<AnyResource> {
        Arc::downgrade(&self.0)
    }

    /// Whether there is another handle in Python, so that dropping this one drops no stack. Where two threads drop the last two
    /// handles at the same time, both may be told so: the later drop then waits while it is attached, which slows others down.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Whether anything needs the stack beside as many handles in Python: a block, a layer over it, or the device whose current
    /// resource it is.
    pub(crate) fn is_needed_beside(&self, handles: usize) -> bool {
        Arc::strong_count(&self.0) > handles || AnyResource::is_shared(&self.0)
    }
}

impl Deref for Owner {
    type Target = AnyResource;

    fn deref(&self) -> &AnyResource {
        &self.0
    }
}
