//! The class `StatisticsResourceAdaptor`.

use alluvion::ResourceExt;
use alluvion::adaptor::{Counts, Stats, StatsBook};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::UpstreamResourceAdaptor;
use super::base::{layer, owner_of};
use crate::error::named;

/// Counts bytes and allocations: those that are there now, the most that there were, and all together.
#[pyclass(extends = UpstreamResourceAdaptor, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct StatisticsResourceAdaptor;

#[pymethods]
impl StatisticsResourceAdaptor {
    #[new]
    #[pyo3(signature = (upstream_mr))]
    fn new(upstream_mr: &Bound<'_, PyAny>) -> PyResult<PyClassInitializer<Self>> {
        // Without slack, so that a peak is exact, whichever threads allocate.
        let base = layer(upstream_mr, |upstream| Ok(Stats::with_slack(upstream, 0).count_empty(true)))?;
        Ok(base.add_subclass(Self))
    }

    /// The counts since the last push that was not popped.
    #[getter]
    fn allocation_counts<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let counts = Self::book(slf, |book| Ok::<_, alluvion::Error>(book.counts()))?;
        statistics(slf.py(), &counts.unwrap_or_default())
    }

    /// Counts from zero until the next pop. Returns the counts until now.
    fn push_counters<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let counts = Self::book(slf, |book| Ok::<_, alluvion::Error>(book.push()))?;
        statistics(slf.py(), &counts.unwrap_or_default())
    }

    /// Returns the counts since the last push, and adds them to those before it. `IndexError` if nothing was pushed.
    fn pop_counters<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        match Self::book(slf, StatsBook::pop)? {
            Ok(counts) => statistics(slf.py(), &counts),
            Err(_) => {
                Err(named(slf.py(), "OutOfRange", "cannot pop the last counter pair: nothing was pushed"))
            }
        }
    }
}

impl StatisticsResourceAdaptor {
    /// What the book of this layer says.
    fn book<T: Send>(slf: &Bound<'_, Self>, ask: impl FnOnce(&StatsBook) -> T + Send) -> PyResult<T> {
        let owner = owner_of(slf)?;
        let book =
            owner.find::<Stats>().ok_or_else(|| named(slf.py(), "Error", "the layer that counts is gone"))?;
        Ok(slf.py().detach(|| ask(book)))
    }
}

/// The counts as an object of `alluvion.rmm.statistics.Statistics`.
fn statistics<'py>(py: Python<'py>, counts: &Counts) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || {
        py.import("alluvion.rmm.statistics")?.getattr("Statistics").map(Bound::unbind)
    })?;
    let (bytes, blocks) = (counts.bytes, counts.allocations);
    class.bind(py).call1((bytes.live, blocks.live, bytes.peak, blocks.peak, bytes.total, blocks.total))
}
