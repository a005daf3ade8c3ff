//! `Owner`: a stack that several objects of Python own together.

use std::ops::Deref;
use std::sync::Arc;

use alluvion::{AnyResource, DeviceAccessible, DevicePtr, Error, Layout, Resource};
use pyo3::prelude::*;

use crate::debug_log::Watch;
use crate::ending::prepare;
use crate::error::forget_raised;
use crate::machine;
use crate::stream::StreamHandle;
use crate::tag;

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

    /// Allocates on a stream. The calling thread is attached, and is detached where the request may wait.
    pub(crate) fn allocate_attached(
        &self,
        py: Python<'_>,
        layout: Layout,
        stream: &StreamHandle,
    ) -> Result<DevicePtr, Error> {
        machine::ensure_context(self.device().machine());
        // The request may call Python, by a function or by the collector.
        prepare();
        tag::follow(py);
        let at_once = stream.with(self.device(), |stream| Ok(self.allocate_at_once(layout, stream)))?;
        if let Some(block) = at_once {
            return Ok(block);
        }
        forget_raised();
        let watch = Watch::begin(py, self);
        let allocated = py.detach(|| stream.with(self.device(), |stream| self.allocate(layout, stream)));
        watch.end(py, self, layout, allocated)
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
