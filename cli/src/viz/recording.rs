//! `Recording`: a log in columns.

use alluvion::Layout;
use alluvion::trace::{Event, EventKind, Moment, Trace};

use super::narrow::Narrow;
use super::picture::{NOWHERE, Reserved};

/// A log in columns, each as narrow as its numbers: some 15 bytes for an event, where a [`Trace`] takes 64.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// Of each event: 0 if it allocates, because blocks are numbered as they come; else how far back its block is.
    pub(super) back: Narrow,
    /// Since the event before. Rows of two threads may stand in another order than their times: then none.
    pub(super) microseconds: Narrow,
    pub(super) streams: Narrow,
    pub(super) threads: Narrow,
    /// Of each block.
    pub(super) bytes: Narrow,
    pub(super) tags: Narrow,
    /// Where each block was, or [`NOWHERE`] if the log does not say.
    pub(super) addresses: Vec<u64>,
    /// The steps that changed what was reserved, if the log says that.
    pub(super) reserved: Vec<Reserved>,
    /// When it begins, since midnight.
    pub(super) first_microseconds: u64,
    pub(super) peak_live_bytes: u64,
    /// The parts of a log other than its events.
    pub(super) rest: Trace,
    /// The latest moment so far.
    newest: Option<u64>,
    /// What is live after the last event.
    live: u64,
}

/// One event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) kind: EventKind,
    pub(super) block: u32,
}

impl Recording {
    /// Something happens then. The first that does is the beginning.
    pub(super) fn begin(&mut self, microseconds: u64) {
        if self.newest.is_none() {
            (self.newest, self.first_microseconds) = (Some(microseconds), microseconds);
        }
    }

    /// Adds the event that comes next.
    pub(super) fn add(&mut self, event: Event, moment: Moment) -> Result<(), String> {
        let step = u32::try_from(self.len()).map_err(|_| "it has more than 4294967295 events".to_owned())?;
        self.begin(moment.microseconds);
        let before = self.newest.unwrap_or(moment.microseconds);
        let held = event.bytes.next_multiple_of(Layout::MIN_ALIGN as u64);
        match event.kind {
            EventKind::Allocate => {
                self.back.push(0);
                self.bytes.push(event.bytes);
                self.tags.push(moment.tag.into());
                // Null is what a log has for an address that it does not know.
                self.addresses.push(if moment.address == 0 { NOWHERE } else { moment.address });
                self.live = self.live.saturating_add(held);
                self.peak_live_bytes = self.peak_live_bytes.max(self.live);
            }
            EventKind::Free => {
                self.back.push(self.bytes.len() as u64 - u64::from(event.block));
                self.live = self.live.saturating_sub(held);
            }
        }
        self.microseconds.push(moment.microseconds.saturating_sub(before));
        self.newest = Some(before.max(moment.microseconds));
        self.streams.push(event.stream.into());
        self.threads.push(event.thread.into());
        if let Some(bytes) = moment.reserved_bytes
            && self.reserved.last().is_none_or(|last| last.bytes != bytes)
        {
            self.reserved.push(Reserved { step, bytes });
        }
        Ok(())
    }

    /// From when to when something happens; `None` if nothing does.
    pub(super) fn span(&self) -> Option<(u64, u64)> {
        let failed = self.rest.refusals.last().map_or(0, |refusal| refusal.moment.microseconds);
        self.newest.map(|newest| (self.first_microseconds, newest.max(failed)))
    }

    /// How many events there are.
    pub(super) const fn len(&self) -> usize {
        self.back.len()
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        let mut known = 0;
        (0..self.len()).map(move |at| match self.back.at(at) {
            0 => {
                known += 1;
                Step { kind: EventKind::Allocate, block: known - 1 }
            }
            back => Step { kind: EventKind::Free, block: known - back as u32 },
        })
    }
}
