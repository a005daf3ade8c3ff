//! The class `BinningMemoryResource`.

use std::sync::{Arc, Mutex, PoisonError};

use alluvion::{AnyResource, Binning};
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

use super::base::{resource_of, tower_over, upstream_of};
use super::{DeviceMemoryResource, Owner, UpstreamResourceAdaptor};
use crate::argument::Bytes;
use crate::error::{During, named, raise};

/// Sends each request to the smallest bin that serves its size, and the others to its upstream.
///
/// With two exponents there are bins of fixed size for each power of two between them, of 128 blocks each, which are taken at once.
/// `add_bin` adds more at any time.
#[pyclass(extends = UpstreamResourceAdaptor, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct BinningMemoryResource {
    bins: Arc<Binning<AnyResource, AnyResource>>,
    /// The resources that were passed as bins. Held for a push or a copy.
    given: Mutex<Vec<Py<PyAny>>>,
}

#[pymethods]
impl BinningMemoryResource {
    #[new]
    #[pyo3(signature = (upstream_mr, min_size_exponent=-1, max_size_exponent=-1))]
    fn new(
        upstream_mr: &Bound<'_, PyAny>,
        min_size_exponent: i8,
        max_size_exponent: i8,
    ) -> PyResult<PyClassInitializer<Self>> {
        let py = upstream_mr.py();
        let upstream = AnyResource::clone(upstream_of(upstream_mr)?);
        // One for the bins that it makes itself.
        let tower = tower_over(upstream_mr, 2)?;
        let mut bins = Binning::with_given_bins(upstream).checked(true);
        if min_size_exponent != -1 && max_size_exponent != -1 {
            if min_size_exponent < 0 || max_size_exponent > 62 || min_size_exponent > max_size_exponent {
                let message = format!(
                    "bins from 2^{min_size_exponent} to 2^{max_size_exponent} bytes: the exponents must rise from 0 to 62"
                );
                return Err(named(py, "ConstructionFailed", &message));
            }
            bins = bins.range(min_size_exponent as u32..=max_size_exponent as u32);
        }
        let bins = Arc::new(raise(py, py.detach(|| bins.build()), During::Construction)?);
        let owner = Owner::of(AnyResource::from_arc(Arc::clone(&bins)));
        let base = UpstreamResourceAdaptor::over(tower, owner, upstream_mr);
        Ok(base.add_subclass(Self { bins, given: Mutex::default() }))
    }

    /// Has a bin serve requests of up to `allocation_size` bytes: `bin_resource`, or one of fixed size, of 128 blocks.
    ///
    /// Of several bins of one size the first serves. Blocks that are allocated go back to where they came from.
    #[pyo3(signature = (allocation_size, bin_resource=None))]
    fn add_bin(
        slf: &Bound<'_, Self>,
        py: Python<'_>,
        allocation_size: Bytes,
        bin_resource: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (bytes, this) = (allocation_size.0, slf.get());
        let Some(object) = bin_resource else {
            return raise(py, py.detach(|| this.bins.add_bin(bytes)), During::Construction);
        };
        let bin = AnyResource::clone(resource_of(object, "bin_resource")?);
        let own = slf.as_any().cast::<DeviceMemoryResource>()?.get().tower();
        let under = object.cast::<DeviceMemoryResource>()?.get().tower();
        own.put_under(py, under)?;
        raise(py, this.bins.add_bin_over(bytes, bin).inspect_err(|_| own.take_out(under)), During::Other)?;
        this.given.lock().unwrap_or_else(PoisonError::into_inner).push(object.clone().unbind());
        Ok(())
    }

    /// The resources that were passed to `add_bin`, in that order.
    #[getter]
    fn bin_mrs(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.iter().map(|object| object.clone_ref(py)).collect()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A thread that holds the lock adds one just now: this round of the collector then sees none.
        let Ok(given) = self.given.try_lock() else { return Ok(()) };
        given.iter().try_for_each(|object| visit.call(object))
    }
}
