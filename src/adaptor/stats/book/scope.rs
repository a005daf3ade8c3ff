//! `Scope`: a stretch of time with counts of its own.

use core::fmt;

use super::{Counts, StatsBook};

/// A stretch of time, for which a [`StatsBook`] has counts of its own, by all threads: what
/// [`StatsBook::scope`](super::StatsBook::scope) begins.
///
/// A leaked scope goes on counting, to no harm.
#[must_use = "a scope that is dropped tells nothing"]
pub struct Scope<'t> {
    tally: &'t StatsBook,
    number: u64,
}

impl<'t> Scope<'t> {
    pub(super) fn new(tally: &'t StatsBook, number: u64) -> Self {
        Self { tally, number }
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.tally.counts_of(self.number)
    }

    /// Ends it, and returns its counts.
    #[must_use]
    pub fn end(self) -> Counts {
        self.counts()
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        self.tally.end(self.number);
    }
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({})", self.counts())
    }
}
