//! How does a buffer sleep and wake?

#![expect(unsafe_code, reason = "puts a block to sleep that a program has the address of")]

use std::path::PathBuf;
use std::sync::Arc;

use alluvion::Error;
use alluvion::compose::StackSleeper;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use super::Memory;
use super::class::DeviceBuffer;
use crate::error::{During, raise};
use crate::sleep::config_of;
use crate::stream::StreamHandle;

/// A buffer without memory, which has its address still.
pub(super) struct Asleep {
    pub(super) address: u64,
    pub(super) capacity: usize,
    /// The block, and what wakes it. `None` while a thread puts it to sleep, or wakes it.
    held: Option<(Memory, StackSleeper)>,
}

impl Asleep {
    /// Lets go of the block, and of what is kept of it. The calling thread is attached.
    pub(super) fn release(self, py: Python<'_>, stream: Arc<StreamHandle>) {
        if let Some((memory, sleeper)) = self.held {
            Arc::new(memory).release(py, stream);
            // Pinned memory, which may wait, and perhaps the last handle of the stack.
            py.detach(move || drop(sleeper));
        }
    }
}

/// That a buffer which sleeps was asked for its bytes.
#[cold]
pub(super) fn refuse(py: Python<'_>) -> PyErr {
    crate::error::named(py, "Asleep", "asleep: the buffer has no memory now: wake it, and ask again")
}

impl DeviceBuffer {
    /// Gives the memory back and keeps the address; and the contents, with `keeps` in pinned memory of the host, with a folder in a file there.
    pub(super) fn fall_asleep(&self, py: Python<'_>, keeps: bool, folder: Option<PathBuf>) -> PyResult<()> {
        let (memory, stream) = {
            let mut state = self.state();
            if state.asleep.is_some() {
                drop(state);
                return Err(refuse(py));
            }
            let Some(shared) = state.memory.take() else { return Ok(()) };
            match Arc::try_unwrap(shared) {
                Ok(memory) => {
                    let (address, capacity) = (memory.address(), memory.bytes());
                    state.asleep = Some(Asleep { address, capacity, held: None });
                    (memory, Arc::clone(&state.stream))
                }
                Err(shared) => {
                    state.memory = Some(shared);
                    drop(state);
                    return Err(PyBufferError::new_err(
                        "a DLPack tensor of the buffer is out, another process has it, or another thread uses it: let go of it first",
                    ));
                }
            }
        };
        let slept = py.detach(|| {
            let slept = put_to_sleep(&memory, &stream, keeps, folder);
            // The buffer has the handle still, and nobody gives it another stream while it sleeps.
            drop(stream);
            slept
        });
        let mut state = self.state();
        match slept {
            Ok(sleeper) => {
                if let Some(asleep) = &mut state.asleep {
                    asleep.held = Some((memory, sleeper));
                }
                Ok(())
            }
            Err(error) => {
                (state.memory, state.asleep) = (Some(Arc::new(memory)), None);
                drop(state);
                raise(py, Err(error), During::Other)
            }
        }
    }

    /// Gives the buffer memory again, at the address that it had. Nothing if it is awake.
    pub(super) fn awaken(&self, py: Python<'_>) -> PyResult<()> {
        let held = {
            let mut state = self.state();
            let Some(asleep) = &mut state.asleep else { return Ok(()) };
            asleep.held.take()
        };
        let Some((memory, sleeper)) = held else { return Err(refuse(py)) };
        let woken = py.detach(|| sleeper.wake());
        let mut state = self.state();
        match woken {
            Ok(()) => {
                (state.memory, state.asleep) = (Some(Arc::new(memory)), None);
                drop(state);
                py.detach(move || drop(sleeper));
                Ok(())
            }
            Err(error) => {
                if let Some(asleep) = &mut state.asleep {
                    asleep.held = Some((memory, sleeper));
                }
                drop(state);
                raise(py, Err(error), During::Allocation)
            }
        }
    }
}

/// Puts the block of a buffer on `stream` to sleep, of which nobody else has a handle.
fn put_to_sleep(
    memory: &Memory,
    stream: &StreamHandle,
    keeps: bool,
    folder: Option<PathBuf>,
) -> Result<StackSleeper, Error> {
    // A resize may have given the buffer another stream than its block has.
    stream.with(memory.device(), |own| {
        memory.used_on(own);
        Ok(())
    })?;
    let Some((block, uses)) = memory.block_and_uses()? else {
        return Err(Error::unsupported(
            "sleep of memory that another library or another process lent",
            "it is not ours to give back",
            "copy it, and let the copy sleep",
        ));
    };
    let (owner, address) = (block.owner(), block.place().0);
    let config = config_of(owner, keeps, folder)?;
    // SAFETY:
    // - the block is live and of its owner, as `Block` says.
    // - every use of it by this library is in the frontier: of its own stream and the buffer's up to now, and those that were noted. Uses
    //   by others, who have the address, and work until it is awake: who calls `sleep` in Python promises that there are none, by the
    //   method's text.
    unsafe { owner.sleep_block(address, &uses, config) }
}
