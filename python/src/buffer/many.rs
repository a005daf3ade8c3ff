//! Many buffers at once.

use pyo3::prelude::*;

use super::DeviceBuffer;
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
    let one = |size| DeviceBuffer::allocated(py, size, stream.clone(), Some(resource.clone().unbind()));
    sizes.into_iter().map(one).collect()
}
