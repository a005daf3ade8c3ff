//! What of a stack sleeps, and until when?

#![expect(unsafe_code, reason = "puts blocks to sleep that a program has the addresses of")]

use std::path::PathBuf;

use alluvion::compose::StackSleeper;
use alluvion::tag::Tag;
use alluvion::{AnyResource, DevicePtr, Error, SleepConfig};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::attached::drop_detached;
use crate::error::{During, raise};
use crate::pinned;

/// What one call has put to sleep.
#[pyclass(frozen, weakref, module = "alluvion._alluvion")]
pub(crate) struct Sleeper {
    /// `None` in the destructor alone.
    sleeper: Option<StackSleeper>,
}

impl Sleeper {
    /// Puts a stack to sleep, or what carries a tag. With `keeps` the contents go to pinned memory of the host, and with a folder to a file
    /// there.
    ///
    /// # Errors
    ///
    /// As [`AnyResource::sleep`].
    pub(crate) fn begin(
        stack: &AnyResource,
        tag: Option<&str>,
        keeps: bool,
        folder: Option<PathBuf>,
    ) -> Result<Self, Error> {
        let mut config = config_of(stack, keeps, folder)?;
        if let Some(path) = tag {
            config = config.tag(Tag::of_path(path));
        }
        // SAFETY: who calls `sleep` in Python promises that no work uses what sleeps, and frees none of it meanwhile, by the method's
        // text: as with every address that a program has there.
        let sleeper = unsafe { stack.sleep(config) }?;
        Ok(Self { sleeper: Some(sleeper) })
    }
}

/// What becomes of the contents: they go to pinned memory of the host if it `keeps` them there, or to a file of a folder.
pub(crate) fn config_of(
    stack: &AnyResource,
    keeps: bool,
    folder: Option<PathBuf>,
) -> Result<SleepConfig<'static>, Error> {
    let config = SleepConfig::default();
    match folder {
        Some(folder) => Ok(config.keep_on_disk(folder)),
        None if keeps => Ok(config.keep_in(pinned::pool_of(stack.device())?)),
        None => Ok(config),
    }
}

#[pymethods]
impl Sleeper {
    /// Gives the blocks memory again, at the addresses that they had, and restores what was kept. Waits until that is over. Nothing
    /// if they are awake. If memory is short it is a `MemoryError`; everything sleeps on then, nothing is lost, and it can be called
    /// again.
    fn wake(&self, py: Python<'_>) -> PyResult<()> {
        let woken = py.detach(|| self.sleeper.as_ref().map_or(Ok(()), StackSleeper::wake));
        raise(py, woken, During::Allocation)
    }

    /// Reads the contents of so many bytes from an address on, while they sleep. `None` if not all of them lie in one block, or none are kept
    /// in memory of the host: nothing was kept, a file has it, or the blocks are awake.
    fn kept<'py>(
        &self,
        py: Python<'py>,
        address: u64,
        bytes: usize,
    ) -> PyResult<Option<Bound<'py, PyByteArray>>> {
        let (Some(sleeper), Some(from)) = (&self.sleeper, DevicePtr::new(address)) else { return Ok(None) };
        // More than that is nowhere, and not tried to be had.
        if bytes > sleeper.kept_bytes() {
            return Ok(None);
        }
        let mut are_kept = Ok(false);
        let contents = PyByteArray::new_with(py, bytes, |into| {
            are_kept = py.detach(|| sleeper.read_kept(from, into));
            Ok(())
        })?;
        let are_kept = raise(py, are_kept, During::Other)?;
        Ok(are_kept.then_some(contents))
    }

    /// Whether the blocks have no memory now.
    #[getter]
    fn is_asleep(&self) -> bool {
        self.sleeper.as_ref().is_some_and(StackSleeper::is_asleep)
    }

    /// How many blocks were put to sleep.
    #[getter]
    fn blocks(&self) -> usize {
        self.sleeper.as_ref().map_or(0, StackSleeper::blocks)
    }

    /// Their bytes, each rounded up to 256.
    #[getter]
    fn bytes(&self) -> usize {
        self.sleeper.as_ref().map_or(0, StackSleeper::bytes)
    }

    /// The bytes of the host, or of the file, that their contents went to: 0 if nothing was kept.
    #[getter]
    fn kept_bytes(&self) -> usize {
        self.sleeper.as_ref().map_or(0, StackSleeper::kept_bytes)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.wake(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.is_asleep() { "asleep" } else { "awake" };
        let plural = if self.blocks() == 1 { "" } else { "s" };
        format!("Sleeper({} bytes in {} block{plural}, {state})", self.bytes(), self.blocks())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Some(sleeper) = self.sleeper.take() {
            // The pinned memory and the last handle of the stack may wait.
            drop_detached(sleeper);
        }
    }
}
