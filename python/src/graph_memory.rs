//! What of a stack belongs to a captured graph?

#![expect(unsafe_code, reason = "gives the memory of graphs that are gone back")]

use alluvion::compose::StackGraphMemory;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::attached::drop_detached;
use crate::error::{During, raise};
use crate::stream::StreamArgument;

/// Memory of a stack that belongs to a captured graph. Made by `Stack.capture`; keep it beside the graph.
#[pyclass(frozen, weakref, module = "alluvion")]
pub(crate) struct GraphMemory {
    /// `None` in the destructor alone.
    memory: Option<StackGraphMemory>,
}

impl GraphMemory {
    pub(crate) fn of(memory: StackGraphMemory) -> Self {
        Self { memory: Some(memory) }
    }
}

#[pymethods]
impl GraphMemory {
    /// The bytes that it has of the pool; 0 once it is released.
    #[getter]
    fn reserved_bytes(&self, py: Python<'_>) -> usize {
        py.detach(|| self.memory.as_ref().map_or(0, StackGraphMemory::reserved_bytes))
    }

    /// Makes later work of `later` wait for all that `earlier` has captured so far, so that it may reuse what that one has freed. A stream that
    /// does not capture yet joins the capture.
    fn follow(&self, py: Python<'_>, later: StreamArgument, earlier: StreamArgument) -> PyResult<()> {
        let followed = py.detach(|| {
            let Some(memory) = &self.memory else { return Ok(()) };
            let device = memory.stack().device();
            later
                .handle()
                .with(device, |later| earlier.handle().with(device, |earlier| memory.follow(later, earlier)))
        });
        raise(py, followed, During::Other)
    }

    /// Ends the allocations for this graph: call it when the capture has ended, or is given up. The memory stays the graph's. The end of a
    /// `with` block does it.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let ended = py.detach(|| self.memory.as_ref().map_or(Ok(()), StackGraphMemory::end));
        raise(py, ended, During::Other)
    }

    /// Gives the memory back to the pool, and returns the bytes; 0 if that was done before.
    ///
    /// Whoever calls it promises that the graph is gone, with all that can be launched of it, and that none of its launches is running or
    /// queued. `alluvion.errors.InUse` while a block of it is out, or while another thread releases it: this call gives nothing back then, and can
    /// be made again. The allocations have ended in any case.
    fn release(&self, py: Python<'_>) -> PyResult<usize> {
        let released = py.detach(|| {
            let Some(memory) = &self.memory else { return Ok(0) };
            // SAFETY: who calls `release` in Python promises that the graph is gone, and its launches are over, by the method's text.
            unsafe { memory.release() }
        });
        raise(py, released, During::Other)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match self.end(py) {
            // Another exception is on its way, which says more.
            Err(_) if !kind.is_none() => Ok(()),
            ended => ended,
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("GraphMemory({} bytes)", self.reserved_bytes(py))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyRuntimeError::new_err(
            "a GraphMemory cannot be pickled or copied: it is memory of this process",
        ))
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            // It may be the last handle of the stack, whose drop waits.
            drop_detached(memory);
        }
    }
}
