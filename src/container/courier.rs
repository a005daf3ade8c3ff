//! `Courier`: the stream that a copy with memory of the host is on.
//!
//! A copy that is recorded in place of being run keeps the address of the host's memory for as long as the graph is there, and
//! a launch writes to whoever has that memory by then. On a stream of somebody else's another thread may begin a capture at any
//! moment and end it at any other, so no question before the copy and none behind it can tell that the copy has run:
//! one that is begun after the first and ended before the second is seen by neither.
//!
//! So these copies are not on that stream. They are on one of this crate's own, whose handle nobody else has: the *courier* of
//! the stream, made when the first copy comes, and ended with it. Nobody can begin a capture on it. What could pull it into one
//! is a wait for an event that was recorded in a capture; after the wait and before the copy it is asked whether that has
//! happened, and after that question it waits for nothing more. So the copy runs, and who waits for the courier has waited
//! for the copy.
//!
//! The order is that of a copy on the stream itself: the courier waits for the stream before, and the stream for the courier
//! behind, unless the host has waited by then. One courier for each stream, because copies on one stream follow each other
//! anyway, and those on two must not wait for each other.
//!
//! It costs six driver calls more for a copy that the host waits for: a question, a record and a question on the stream, a
//! question and a wait here, and a last question; 0.4 µs of an H200's driver. For a copy that the host does not wait for, two
//! more: a question and a wait back. That question can come too late: a capture that another thread begins on the stream right
//! behind it is broken by the wait, with an error that says so, and the host waits for the copy.
//!
//! On other streams the copy is on the stream itself. Nobody can capture the legacy stream, and a thread's default stream
//! nobody but that thread; those that this crate has made safe code cannot.

use super::access::Access;
use super::block::{Block, follow};
use super::capture::refuse_capture;
use crate::error::Error;
use crate::stream::{Event, StreamKind, StreamRef};

/// Where a copy with memory of the host goes, and whose order it keeps.
#[derive(Clone, Copy)]
pub(super) struct Courier<'s> {
    named: StreamRef<'s>,
    own: Option<StreamRef<'s>>,
    /// The copy is submitted when all before it is over.
    is_last: bool,
}

impl<'s> Courier<'s> {
    /// For a copy in the order of `named` that runs whatever others do with that stream.
    pub(super) fn of(named: StreamRef<'s>) -> Result<Self, Error> {
        refuse_capture(named)?;
        let own = match named.kind() {
            StreamKind::Foreign => Some(named.courier()?),
            StreamKind::Owned | StreamKind::Legacy | StreamKind::PerThread | StreamKind::Service => None,
        };
        Ok(Self { named, own, is_last: false })
    }

    /// For a copy that the host waits for: it is submitted when all that comes before it is over. Then it is never behind a kernel
    /// that fails, and the error of that kernel is told before anything is lent: see `settle`.
    pub(super) fn behind_all(self) -> Self {
        Self { is_last: true, ..self }
    }

    /// For a copy on `named` itself, whose caller answers for the memory for as long as a graph may have it.
    pub(super) fn on(named: StreamRef<'s>) -> Self {
        Self { named, own: None, is_last: false }
    }

    /// The stream that the copies are on: who has waited for it has waited for them.
    pub(super) fn stream(self) -> StreamRef<'s> {
        self.own.unwrap_or(self.named)
    }

    /// Runs `submit`, which submits a copy of `block` to the stream that it is given, in its place.
    pub(super) fn carry(
        self,
        block: &Block,
        access: Access,
        submit: impl FnOnce(StreamRef<'s>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(own) = self.own else {
            return block.access(self.named, access, || {
                self.wait_for_all_before(self.named)?;
                submit(self.named)
            });
        };
        // The home comes before every access, see `Block::access`.
        if !block.is_home(self.named) {
            follow(own, self.named.release())?;
        }
        block.access(own, access, || {
            // Behind the last wait: nothing can make it capture any more.
            refuse_capture(own)?;
            self.wait_for_all_before(own)?;
            submit(own)
        })
    }

    fn wait_for_all_before(self, stream: StreamRef<'_>) -> Result<(), Error> {
        // A stream that is idle says so in 0.1 µs, and a wait that finds it so takes longer. The legacy stream can only be waited for.
        if self.is_last && (stream.kind() == StreamKind::Legacy || !stream.is_idle()?) {
            stream.synchronize()?;
        }
        Ok(())
    }

    /// A point behind the copies, which what comes next on the named stream follows.
    pub(super) fn record(self) -> Result<Event, Error> {
        let Some(own) = self.own else { return self.named.record() };
        let event = own.record()?;
        self.named.wait_event(&event)?;
        Ok(event)
    }
}
