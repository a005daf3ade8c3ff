//! The class `PrefetchResourceAdaptor`.

use alluvion::adaptor::Prefetch;
use pyo3::prelude::*;

use super::UpstreamResourceAdaptor;
use super::base::layer;

/// Moves each new block to the device, on the stream of the request, if its memory is managed.
#[pyclass(extends = UpstreamResourceAdaptor, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct PrefetchResourceAdaptor;

#[pymethods]
impl PrefetchResourceAdaptor {
    #[new]
    #[pyo3(signature = (upstream_mr))]
    fn new(upstream_mr: &Bound<'_, PyAny>) -> PyResult<PyClassInitializer<Self>> {
        Ok(layer(upstream_mr, |upstream| Ok(Prefetch::new(upstream)))?.add_subclass(Self))
    }
}
