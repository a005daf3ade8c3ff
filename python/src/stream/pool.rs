//! The class `CudaStreamPool`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::{StreamFlags, StreamPool};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::{Stream, StreamHandle, class};
use crate::error::{During, raise};
use crate::machine;

/// The most streams of a pool: each takes memory of the driver, and a device works on 128 at a time.
const MOST_STREAMS: usize = 1 << 16;

/// A fixed number of streams, given out in turn.
#[pyclass(frozen, weakref, module = "alluvion.rmm.pylibrmm.cuda_stream_pool")]
pub(crate) struct CudaStreamPool {
    streams: Arc<StreamPool>,
    next: AtomicUsize,
}

#[pymethods]
impl CudaStreamPool {
    #[new]
    #[pyo3(signature = (pool_size=16, flags=None))]
    fn new(py: Python<'_>, pool_size: usize, flags: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        if pool_size == 0 {
            return Err(PyRuntimeError::new_err("the size of a stream pool must be greater than zero"));
        }
        if pool_size > MOST_STREAMS {
            return Err(PyRuntimeError::new_err(format!(
                "a pool of {pool_size} streams: it has at most {MOST_STREAMS}, more than the queues of any device"
            )));
        }
        let flags =
            flags.map_or(Ok(StreamFlags { blocking: true, ..StreamFlags::default() }), class::flags_of)?;
        let made = py.detach(|| {
            let device = machine::device_in_context()?;
            let made = StreamPool::with_flags(&device, pool_size, flags)?;
            // Frameworks bring the bare handle back.
            (0..made.len()).for_each(|index| device.raw_streams().register(&made.stream(index).to_stream()));
            Ok(made)
        });
        Ok(Self { streams: Arc::new(raise(py, made, During::Construction)?), next: AtomicUsize::new(0) })
    }

    /// The next stream, or the one with a number, which is taken modulo the size.
    #[pyo3(signature = (stream_id=None))]
    fn get_stream(&self, stream_id: Option<usize>) -> Stream {
        // Relaxed: the number orders nothing.
        let index = stream_id.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        let stream = self.streams.stream(index).to_stream();
        Stream::of(Arc::new(StreamHandle::Pooled(stream, Arc::clone(&self.streams))))
    }

    /// How many streams the pool has.
    fn get_pool_size(&self) -> usize {
        self.streams.len()
    }
}
