//! The class `LoggingResourceAdaptor`.

use alluvion::ResourceExt;
use alluvion::adaptor::{Log, Logging};
use pyo3::prelude::*;

use super::UpstreamResourceAdaptor;
use super::base::{layer, owner_of};
use crate::error::{During, raise};

/// Writes a row for each allocation and each free: thread, time, action, address, bytes and stream.
///
/// The file is `<stem>.dev<current device><extension>` of `log_file_name`, or of the variable `RMM_LOG_FILE` if that is left out.
#[pyclass(extends = UpstreamResourceAdaptor, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct LoggingResourceAdaptor {
    file: String,
}

#[pymethods]
impl LoggingResourceAdaptor {
    #[new]
    #[pyo3(signature = (upstream_mr, log_file_name=None))]
    fn new(
        upstream_mr: &Bound<'_, PyAny>,
        log_file_name: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let py = upstream_mr.py();
        super::base::upstream_of(upstream_mr)?;
        let names = py.import("alluvion.rmm.pylibrmm.memory_resource._log_file")?;
        let file: String = names.getattr("log_file_of_device")?.call1((log_file_name,))?.extract()?;
        let base = layer(upstream_mr, |upstream| Ok(Logging::new(upstream, Log::create(&file)?)))?;
        Ok(base.add_subclass(Self { file }))
    }

    /// Returns when all earlier rows are in the file.
    fn flush(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let owner = owner_of(slf)?;
        let flushed = py.detach(|| owner.find::<Logging>().map_or(Ok(()), Log::flush));
        raise(py, flushed, During::Other)
    }

    /// The file, as an absolute path.
    fn get_file_name(&self) -> &str {
        &self.file
    }
}
