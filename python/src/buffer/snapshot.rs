//! `Snapshot`: what a buffer has at one moment.

use std::sync::Arc;

use alluvion::{Device, Error};
use pyo3::prelude::*;

use super::Memory;
use crate::machine;
use crate::stream::{StreamArgument, StreamHandle};

/// The memory, size and stream of a buffer at one moment, kept while a call uses them.
pub(crate) struct Snapshot {
    pub(crate) memory: Option<Arc<Memory>>,
    pub(crate) size: usize,
    pub(crate) stream: Arc<StreamHandle>,
}

impl Snapshot {
    /// The address of the bytes: 0 without memory.
    pub(crate) fn address(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.address())
    }

    /// The device of the bytes, and the current one without memory.
    pub(crate) fn device(&self) -> Result<Device, Error> {
        self.memory.as_ref().map_or_else(machine::device, |memory| Ok(memory.device().clone()))
    }
}

impl Drop for Snapshot {
    /// Lets go of the memory. This may be its last handle, where another thread dropped or resized the buffer meanwhile.
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take_if(|memory| Arc::strong_count(memory) == 1) {
            let stream = Arc::clone(&self.stream);
            // Attached already, as all code that takes snapshots is.
            let _ = Python::try_attach(|py| memory.release(py, stream));
        }
        if !self.stream.is_default() && Arc::strong_count(&self.stream) == 1 {
            let stream = core::mem::replace(&mut self.stream, StreamArgument::Missing.into_handle());
            let _ = Python::try_attach(|py| stream.release(py));
        }
    }
}
