//! A block that other processes can open, and its end.

#![expect(unsafe_code, reason = "shares and frees blocks that C names by their addresses")]

use std::ffi::c_void;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use alluvion::driver::{Call, Code, DriverError};
use alluvion::share::{ShareConfig, SharedBlock};
use alluvion::{AnyResource, Device, DevicePtr, Error, Layout, Resource as _, StreamRef};

use crate::boundary::null;
use crate::handle::Handle;
use crate::ledger;
use crate::resource::ResourceHandle;

/// A block that other processes can open.
#[derive(Debug)]
pub struct SharedHandle {
    message: Vec<u8>,
    block: LentBlock,
    /// Held while the system is asked who has the block, and never while the driver is, or while anything is dropped.
    state: Mutex<SharedState>,
}

impl Handle for SharedHandle {
    const NAME: &'static str = "shared";
}

#[derive(Debug)]
pub(super) enum SharedState {
    /// Others can open it.
    Live(Box<SharedBlock>),
    /// The block is the caller's alone.
    Over,
    /// The library frees the block when nobody has it.
    Parked,
}

/// What is lent.
#[derive(Clone, Debug)]
struct LentBlock {
    resource: AnyResource,
    block: DevicePtr,
    layout: Layout,
}

/// A block that is freed when nobody has it any more. No work of this process uses it.
struct ParkedBlock(LentBlock);

impl Drop for ParkedBlock {
    fn drop(&mut self) {
        let LentBlock { resource, block, layout } = &self.0;
        if !layout.is_empty() {
            // SAFETY: the block came from the resource with this layout, and was given up by `alv_shared_park`, which has waited for the
            // work of this process; importers wait for theirs before they let go.
            unsafe { resource.deallocate_sync(*block, *layout) };
        }
    }
}

impl SharedHandle {
    /// # Safety
    ///
    /// `block` is live, and came from `resource` with this layout. It is not freed before the share has ended.
    pub(super) unsafe fn begin(
        resource: &ResourceHandle,
        block: *mut c_void,
        layout: Layout,
        config: ShareConfig,
        stream: StreamRef<'_>,
    ) -> Result<Self, Error> {
        let block = if layout.is_empty() {
            layout.dangling()
        } else {
            ledger::address(block).ok_or_else(|| null("block"))?
        };
        // SAFETY: the caller's promise.
        let shared = unsafe { SharedBlock::new(resource.get(), block, layout, config, stream) }?;
        Ok(Self {
            message: shared.message().to_bytes(),
            block: LentBlock { resource: resource.get().clone(), block, layout },
            state: Mutex::new(SharedState::Live(Box::new(shared))),
        })
    }

    pub(super) fn state(&self) -> Result<MutexGuard<'_, SharedState>, Error> {
        // A thread of the parent may have had the lock at the fork: a child does not wait for it.
        self.device().require(self.device())?;
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends it if no process has the block, and returns whether it has ended.
    fn try_end(&self) -> Result<bool, Error> {
        let ended = {
            let mut state = self.state()?;
            match &mut *state {
                SharedState::Over => return Ok(true),
                SharedState::Parked => return Err(is_parked()),
                SharedState::Live(shared) => {
                    if !shared.try_end()? {
                        return Ok(false);
                    }
                }
            }
            mem::replace(&mut *state, SharedState::Over)
        };
        // Its event goes by a call of the driver: without the lock.
        drop(ended);
        Ok(true)
    }

    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }

    pub(super) fn device(&self) -> &Device {
        self.block.resource.device()
    }

    /// Waits for the end, for so long; without a limit for `None`.
    pub(super) fn end(&self, patience: Option<Duration>) -> Result<(), Error> {
        let begun = Instant::now();
        let mut nap = FIRST_NAP;
        while !self.try_end()? {
            let left = patience.map_or(LONGEST_NAP, |patience| patience.saturating_sub(begun.elapsed()));
            if left.is_zero() {
                return Err(Error::in_use_by_others(
                    "a block that is shared",
                    "a process still has it",
                    "end it later, or leave it to the library (alv_shared_park)",
                ));
            }
            thread::sleep(nap.min(left));
            nap = (2 * nap).min(LONGEST_NAP);
        }
        Ok(())
    }

    pub(super) fn park(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        if stream.is_capturing()? {
            return Err(DriverError::new(Call::StreamCaptureStatus, Code::CAPTURE_UNSUPPORTED).into());
        }
        // Whether it can be parked at all is said before anything is waited for.
        self.state()?.require_live()?;
        stream.synchronize()?;
        let parked = {
            let mut state = self.state()?;
            state.require_live()?;
            mem::replace(&mut *state, SharedState::Parked)
        };
        if let SharedState::Live(shared) = parked {
            shared.park(ParkedBlock(self.block.clone()));
        }
        Ok(())
    }
}

impl SharedState {
    fn require_live(&self) -> Result<(), Error> {
        match self {
            Self::Live(_) => Ok(()),
            Self::Parked => Err(is_parked()),
            Self::Over => Err(Error::invalid_argument(
                "shared",
                "it has ended",
                "free the block, which is the caller's",
            )),
        }
    }
}

/// Whoever waits for the end asks again after so long, and then after twice as long: an end is noticed soon, and a long wait costs
/// little.
const FIRST_NAP: Duration = Duration::from_micros(100);
const LONGEST_NAP: Duration = Duration::from_millis(10);

#[cold]
pub(super) fn is_parked() -> Error {
    Error::invalid_argument("shared", "it was parked: the library has the block", "release the handle")
}
