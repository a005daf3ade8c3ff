//! `Past`: a point of a stream, and all that comes before it.

use super::clock::VectorClock;
use super::{Epoch, Stamp};

/// A point of a stream, and the points that the stream had waited for by then. If the point is over, so are all of them.
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

    /// Adds these points to the clock of a stream that has waited for them. Returns `false` if the clock had them already.
    ///
    /// `grown` is the point of that stream at which its clock last grew.
    pub(super) fn teach(&self, clock: &mut VectorClock, grown: Stamp) -> bool {
        if clock.includes(self.stamp) {
            return false;
        }
        if self.clock.includes(grown) {
            // A past that includes `grown` includes the whole clock. That is usual where streams wait for each other in turn.
            clock.clone_from(&self.clock);
        } else {
            clock.join(&self.clock);
        }
        clock.raise(self.stamp);
        true
    }

    /// Calls `finish` for the point and for each one before it that it has not been called for before: the point is over.
    pub(super) fn finish(&self, mut finish: impl FnMut(Stamp)) {
        self.clock.finish(&mut finish);
        finish(self.stamp);
    }
}
