//! How does a buffer get another size, or another stream?

use std::sync::Arc;

use alluvion::Layout;
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::prelude::*;

use super::class::{DeviceBuffer, State, allocate};
use super::transfer::Copy;
use super::{Memory, Snapshot};
use crate::error::{During, raise};
use crate::stream::{StreamArgument, StreamHandle};

impl DeviceBuffer {
    /// Gives the buffer at least `capacity` bytes, and `size` of them if that is said, on `stream`, which it belongs to from then on.
    pub(super) fn grow(
        &self,
        py: Python<'_>,
        capacity: usize,
        size: Option<usize>,
        stream: StreamArgument,
    ) -> PyResult<()> {
        let before = self.snapshot(py)?;
        let has = before.memory.as_ref().map_or(0, |memory| memory.bytes());
        let stream = stream.into_handle();
        if capacity <= has {
            self.move_to(py, before, size, stream)
        } else {
            self.reallocate(py, before, capacity, size, stream)
        }
    }

    /// Changes the size within the capacity.
    fn move_to(
        &self,
        py: Python<'_>,
        before: Snapshot,
        size: Option<usize>,
        stream: Arc<StreamHandle>,
    ) -> PyResult<()> {
        let mut stream = stream;
        if let Some(memory) = &before.memory
            && !stream.is_same(&before.stream)
        {
            let device = memory.device();
            stream = raise(py, stream.pinned_to_thread(device), During::Other)?;
            let ordered = py.detach(|| {
                before.stream.with(device, |own| {
                    // Another holder of the memory frees it on the stream that it was allocated on, behind this.
                    memory.used_on(own);
                    Ok(())
                })?;
                stream.with(device, |stream| memory.order(stream))
            });
            raise(py, ordered, During::Other)?;
        }
        let stream_before = {
            let mut state = self.state();
            state.size = size.unwrap_or(state.size);
            core::mem::replace(&mut state.stream, stream)
        };
        py.detach(move || drop(stream_before));
        Ok(())
    }

    /// Moves the bytes into new memory.
    fn reallocate(
        &self,
        py: Python<'_>,
        before: Snapshot,
        capacity: usize,
        size: Option<usize>,
        stream: Arc<StreamHandle>,
    ) -> PyResult<()> {
        let is_exported = |memory: &Arc<Memory>| memory.is_exported();
        if before.memory.as_ref().is_some_and(is_exported) {
            return Err(PyBufferError::new_err(format!(
                "the buffer has {} bytes and must move for {capacity}, and a DLPack tensor of it is out, or it is shared with other \
                 processes: let go of the tensor or end the sharing first, or reserve before",
                before.memory.as_ref().map_or(0, |memory| memory.bytes())
            )));
        }
        let mr = self.resource(py)?;
        let align = self.state().align;
        let layout = raise(py, Layout::new(capacity, align), During::Allocation)?;
        let (memory, stream) = allocate(py, &mr, layout, stream)?;
        let memory = Arc::new(memory);
        if let Some(old) = &before.memory
            && before.size > 0
        {
            let copy = Copy { to: memory.address(), from: old.address(), bytes: before.size };
            let copied = py.detach(|| {
                stream.with(memory.device(), |stream| {
                    old.order(stream)?;
                    copy.submit(stream)?;
                    old.used_on(stream);
                    Ok(())
                })
            });
            if let Err(error) = copied {
                memory.release(py, stream);
                return raise(py, Err(error), During::Copy);
            }
        }
        let was = {
            let mut state = self.state();
            let is_unchanged = match (&state.memory, &before.memory) {
                (Some(now), Some(before)) => Arc::ptr_eq(now, before) && !now.is_exported(),
                // One that was empty may have got memory since, and sleep.
                (None, None) => state.asleep.is_none(),
                _ => false,
            };
            is_unchanged.then(|| {
                let size = size.unwrap_or(state.size);
                let new = State {
                    memory: Some(Arc::clone(&memory)),
                    size,
                    align,
                    asleep: None,
                    stream: Arc::clone(&stream),
                    mr: Some(mr),
                };
                core::mem::replace(&mut *state, new)
            })
        };
        // Before the state's own handle, which is then the last one.
        drop(before);
        match was {
            Some(mut was) => {
                if let Some(old) = was.memory.take() {
                    old.release(py, Arc::clone(&was.stream));
                }
                was.stream.release(py);
                drop(was.mr);
                Ok(())
            }
            None => {
                memory.release(py, stream);
                Err(PyRuntimeError::new_err(
                    "another thread resized or exported the buffer at the same time: nothing was changed",
                ))
            }
        }
    }
}
