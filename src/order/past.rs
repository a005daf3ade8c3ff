//! `Past`: a point of a stream, and all that comes before it.

use super::clock::VectorClock;
use super::{Epoch, Stamp};

/// A point of a stream, and what the stream had waited for by then. If the point is over, all of it is.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    stamp: Stamp,
    clock: VectorClock,
}

impl Past {
    pub(super) fn new(stamp: Stamp, clock: VectorClock) -> Self {
        Self { stamp, clock }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.stamp.epoch
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Teaches the clock of a stream that has waited for the point. Returns `false` if it knew that already.
    ///
    /// `grown` is the point of that stream behind which its clock has last learned of something.
    pub(super) fn teach(&self, clock: &mut VectorClock, grown: Stamp) -> bool {
        if clock.includes(self.stamp) {
            return false;
        }
        if self.clock.includes(grown) {
            // What comes after `grown` knows all that is to be joined: so it is where streams wait for each other in a round.
            clock.clone_from(&self.clock);
        } else {
            clock.join(&self.clock);
        }
        clock.raise(self.stamp);
        true
    }

    /// Calls `finish` for the point and each one before it, unless it has been called for that before: the point is over.
    pub(super) fn finish(&self, mut finish: impl FnMut(Stamp)) {
        self.clock.finish(&mut finish);
        finish(self.stamp);
    }
}
