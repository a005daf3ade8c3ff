//! `TimelineState`: what of a timeline changes under its lock.

use smallvec::SmallVec;

use super::Ending;
use crate::order::clock::VectorClock;
use crate::order::{Cover, Epoch};

/// The number of covers that a timeline keeps: the oldest that is not done, because it completes first, and the newest ones, so
/// that a wait waits for as little as it must. Dropping one in between costs a longer wait at worst.
const COVERS: usize = 4;

pub(super) struct TimelineState {
    pub(super) phase: Phase,
    /// Set by the last handle, after which no work is submitted: the last work lies in this epoch or an earlier one.
    pub(super) last: Option<Epoch>,
    /// Threads that are recording on `raw` at this moment, with the lock released.
    pub(super) pins: u32,
    /// The number of leases of a fleeting stream.
    pub(super) leases: u32,
    /// Sorted by epoch.
    pub(super) covers: SmallVec<[Cover; COVERS]>,
    /// The points that this stream has waited for.
    pub(super) clock: VectorClock,
    /// The epoch of this stream in which the clock last grew.
    pub(super) grown: Epoch,
    /// The waits since points of the clock were last checked, and the place from which they are checked next.
    pub(super) waits: u32,
    pub(super) looked_up_to: u32,
    pub(super) ending: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Live,
    /// Of a fleeting stream without a lease: the handle must not be used. A lease makes it live again.
    Resting,
    /// The last handle is gone and the final cover is published; pins may be left.
    Closing,
    /// The raw stream is gone.
    Gone,
}

impl TimelineState {
    /// Inserts a cover; returns the one that was removed for it.
    pub(super) fn publish(&mut self, cover: Cover, is_done: impl Fn(Epoch) -> bool) -> Option<Cover> {
        let at = self.covers.partition_point(|other| other.epoch() < cover.epoch());
        if self.phase == Phase::Closing && at < self.covers.len() {
            return Some(cover);
        }
        self.covers.insert(at, cover);
        // The newest is never removed: it covers all points that were released.
        let goes = usize::from(!is_done(self.covers[0].epoch()));
        (self.covers.len() > COVERS).then(|| self.covers.remove(goes))
    }

    /// Inserts the cover that the last handle recorded; returns those that it replaces. A later cover, which another thread
    /// recorded meanwhile, stays.
    pub(super) fn publish_last(&mut self, cover: Cover) -> SmallVec<[Cover; COVERS]> {
        let earlier = self.covers.partition_point(|other| other.epoch() < cover.epoch());
        let superseded = self.covers.drain(..earlier).collect();
        self.covers.insert(0, cover);
        superseded
    }

    pub(super) fn end_if_unpinned(&mut self) -> Option<Ending> {
        (self.phase == Phase::Closing && self.pins == 0).then(|| {
            self.phase = Phase::Gone;
            core::mem::replace(&mut self.ending, Ending::Leave(None))
        })
    }
}
