//! The class `LimitingResourceAdaptor`.

use alluvion::ResourceExt;
use alluvion::adaptor::Limiting;
use pyo3::prelude::*;

use super::UpstreamResourceAdaptor;
use super::base::{layer, owner_of};
use crate::argument::Bytes;

/// At most `allocation_limit` bytes at a time. Each request counts in whole units of 256 bytes; one beyond the limit is
/// `MemoryError`.
#[pyclass(extends = UpstreamResourceAdaptor, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct LimitingResourceAdaptor {
    limit: usize,
}

#[pymethods]
impl LimitingResourceAdaptor {
    #[new]
    #[pyo3(signature = (upstream_mr, allocation_limit))]
    fn new(upstream_mr: &Bound<'_, PyAny>, allocation_limit: Bytes) -> PyResult<PyClassInitializer<Self>> {
        let limit = allocation_limit.0;
        Ok(layer(upstream_mr, |upstream| Ok(Limiting::new(upstream, limit)))?.add_subclass(Self { limit }))
    }

    /// The bytes that are allocated now, in whole units of 256.
    fn get_allocated_bytes(slf: &Bound<'_, Self>) -> PyResult<usize> {
        Ok(owner_of(slf)?.find::<Limiting>().map_or(0, |book| book.used_bytes()))
    }

    /// The limit, in bytes.
    fn get_allocation_limit(&self) -> usize {
        self.limit
    }
}
