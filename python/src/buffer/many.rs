//! Many buffers at once.

use alluvion::Layout;
use pyo3::prelude::*;

use super::DeviceBuffer;
use crate::error::{During, raise};
use crate::resource::DeviceMemoryResource;
use crate::stream::StreamArgument;

/// A buffer of `resource` for each size, or none at all: if a request fails, the buffers before it go back.
#[pyfunction]
#[pyo3(signature = (resource, sizes, stream=StreamArgument::Missing), text_signature = "(resource, sizes, stream=...)")]
pub(crate) fn allocate_many(
    resource: &Bound<'_, DeviceMemoryResource>,
    sizes: Vec<usize>,
    stream: StreamArgument,
) -> PyResult<Vec<DeviceBuffer>> {
    let (py, stream) = (resource.py(), stream.into_handle());
    let one = |size| {
        let layout = raise(py, Layout::from_bytes(size), During::Allocation)?;
        DeviceBuffer::allocated(py, layout, stream.clone(), Some(resource.clone().unbind()))
    };
    sizes.into_iter().map(one).collect()
}
