//! The argument `stream`, which may be missing, but not `None`.

use std::sync::{Arc, LazyLock};

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;

use super::{Stream, StreamHandle};

/// The default stream, which most calls mean.
static DEFAULT: LazyLock<Arc<StreamHandle>> = LazyLock::new(|| Arc::new(StreamHandle::Default(0)));

/// A stream that a caller passed, or did not.
#[derive(Clone, Debug, Default)]
pub(crate) enum StreamArgument {
    /// The default stream, handle 0.
    #[default]
    Missing,
    /// The one that was passed.
    Given(Arc<StreamHandle>),
}

impl StreamArgument {
    /// The stream, wherever it comes from.
    pub(crate) fn handle(&self) -> &StreamHandle {
        match self {
            Self::Missing => &StreamHandle::Default(0),
            Self::Given(handle) => handle,
        }
    }

    /// The stream, owned.
    pub(crate) fn into_handle(self) -> Arc<StreamHandle> {
        match self {
            Self::Missing => Arc::clone(&DEFAULT),
            Self::Given(handle) => handle,
        }
    }
}

impl StreamArgument {
    /// A stream of CuPy's, by the attribute that all of its streams have. It lives as long as memory of it is out.
    pub(crate) fn of_cupy(stream: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(match stream.getattr(intern!(stream.py(), "ptr"))?.extract()? {
            0 => Self::Missing,
            number => Self::Given(Arc::new(StreamHandle::from_number(number, Some(stream.clone().unbind())))),
        })
    }
}

impl<'py> FromPyObject<'_, 'py> for StreamArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(stream) = object.cast::<Stream>() {
            return Ok(Self::Given(Arc::clone(stream.get().handle())));
        }
        if object.is_none() {
            return Err(PyTypeError::new_err(
                "stream argument cannot be None: leave it out, or pass DEFAULT_STREAM",
            ));
        }
        match super::class::handle_of(&object) {
            Ok(handle) => Ok(Self::Given(handle)),
            Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
                Err(PyTypeError::new_err(format!(
                    "Argument 'stream' has incorrect type (expected Stream, got {})",
                    object.get_type().name()?
                )))
            }
            Err(error) => Err(error),
        }
    }
}
