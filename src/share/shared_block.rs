//! `SharedBlock`: a block that other processes can open, whose owner is the caller.

#![expect(unsafe_code, reason = "exports a block by its address")]

use core::fmt;
use std::os::fd::BorrowedFd;

use super::device_side::has_stopped;
use super::loan::{Lent, Loan};
use super::message::{Element, Message};
use super::parked::{Parked, Waiting};
use super::share_config::ShareConfig;
use super::shared::clear_up;
use crate::error::Error;
use crate::resource::{DevicePtr, Layout, Resource};
use crate::stream::{OnStream, StreamRef};

/// A block that other processes can open: for programs that have blocks, and no containers. See [`Shared`](super::Shared) for those.
///
/// ```
/// use alluvion::share::{Import, ShareConfig, SharedBlock};
/// use alluvion::{Layout, Resource, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
/// let (resource, layout) = (Cuda::new(&device), Layout::from_bytes(1000)?);
/// let block = resource.allocate(layout, stream.as_ref())?;
/// // SAFETY: the block is live, and is freed below, when nobody has it any more.
/// let mut shared = unsafe { SharedBlock::new(&resource, block, layout, ShareConfig::default(), &stream) }?;
///
/// let other = sim.process();
/// let its_stream = other.device(0).stream()?;
/// let imported = Import::new(shared.message()).open_bytes(&its_stream)?;
/// assert!(!shared.try_end()?);
/// drop(imported);
/// assert!(shared.try_end()?);
/// // SAFETY: the block came from the resource with this layout, and nobody has it.
/// unsafe { resource.deallocate(block, layout, stream.as_ref()) };
/// # Ok::<(), alluvion::Error>(())
/// ```
#[must_use = "what is dropped can be opened no longer"]
pub struct SharedBlock {
    loan: Loan,
}

/// A loan that has nobody who waits for its end, and what is dropped then.
struct KeptBlock<K> {
    loan: Loan,
    // Behind the loan: it is dropped when that has ended.
    _keeper: K,
}

impl<K: Send + Sync> Waiting for KeptBlock<K> {
    fn loan(&mut self) -> &mut Loan {
        &mut self.loan
    }
}

static_assertions::assert_impl_all!(SharedBlock: Send, Sync);

impl SharedBlock {
    /// Shares a block, as bytes. What importers do follows all that `stream` has been given until now.
    ///
    /// # Errors
    ///
    /// As [`Shared::new`](super::Shared::new).
    ///
    /// # Safety
    ///
    /// - `block` is live, and came from `resource` or one with its id, with this layout.
    /// - It is not freed before [`try_end`](Self::try_end) has returned `true` or the keeper of [`park`](Self::park) is dropped: not after
    ///   an error of the end, and not because this value was dropped.
    pub unsafe fn new<'s>(
        resource: &(impl Resource + ?Sized),
        block: DevicePtr,
        layout: Layout,
        config: ShareConfig,
        stream: impl OnStream<'s>,
    ) -> Result<Self, Error> {
        let stream: StreamRef<'_> = stream.stream_ref();
        resource.device().require(stream.device())?;
        clear_up(&config, stream.device());
        // SAFETY: the block is live, and of this resource, with this layout: the caller's promise.
        let export = unsafe { resource.export(block, layout) }?;
        let lent = Lent { export, bytes: layout.bytes(), element: Element::of::<u8>() };
        Ok(Self { loan: Loan::begin(lent, config, stream)? })
    }

    /// What other processes open it by.
    #[must_use]
    pub fn message(&self) -> &Message {
        self.loan.message()
    }

    /// What has to be sent beside the message: as [`Shared::descriptor`](super::Shared::descriptor).
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.loan.descriptor()
    }

    /// The number of processes that have it open.
    ///
    /// # Errors
    ///
    /// As [`Shared::importers`](super::Shared::importers).
    pub fn importers(&self) -> Result<usize, Error> {
        self.loan.importers()
    }

    /// Ends it, if no process has it open, and returns whether it has ended: the block may be freed then.
    ///
    /// # Errors
    ///
    /// As [`Shared::importers`](super::Shared::importers): it has not ended.
    pub fn try_end(&mut self) -> Result<bool, Error> {
        self.loan.try_end()
    }

    /// Leaves the end to the device. `keeper`, what keeps the block from being freed, is dropped when no process has the block: at once,
    /// or by a later share, or by [`sweep`](super::sweep). Until then others can open it.
    ///
    /// If the machine goes first, the keeper is leaked, because others may be at work on the block. In a child of a fork, which has no
    /// part in the share, it is dropped at once; so it is where the device was lost, and nothing runs any more.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use alluvion::share::{self, Import, ShareConfig, SharedBlock};
    /// use alluvion::{Layout, Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
    /// let (resource, layout) = (Cuda::new(&device), Layout::from_bytes(1000)?);
    /// let block = resource.allocate(layout, stream.as_ref())?;
    /// // SAFETY: the block is live, and is freed below, when the keeper has gone.
    /// let shared = unsafe { SharedBlock::new(&resource, block, layout, ShareConfig::default(), &stream) }?;
    /// let other = sim.process();
    /// let imported = Import::new(shared.message()).open_bytes(&other.device(0).stream()?)?;
    ///
    /// let keeper = Arc::new(());
    /// shared.park(Arc::clone(&keeper));
    /// assert_eq!((share::sweep(&device), Arc::strong_count(&keeper)), (0, 2));
    /// drop(imported);
    /// assert_eq!((share::sweep(&device), Arc::strong_count(&keeper)), (1, 1));
    /// // SAFETY: the block came from the resource with this layout, and nobody has it.
    /// unsafe { resource.deallocate(block, layout, stream.as_ref()) };
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn park(self, keeper: impl Send + Sync + 'static) {
        let mut kept = KeptBlock { loan: self.loan, _keeper: keeper };
        if kept.loan.is_forked_child() || matches!(kept.loan.try_end(), Ok(true)) {
            return;
        }
        let device = kept.loan.device().clone();
        if !has_stopped(&device) {
            Parked::of(&device).park(Box::new(kept));
        }
    }
}

impl fmt::Debug for SharedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBlock({:?})", self.message())
    }
}
