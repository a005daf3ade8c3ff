//! `StatsBook`: what programs reach.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What came about, over all programs: shows that they reach what they are about.
#[derive(Debug, Default)]
pub(crate) struct StatsBook {
    pub(crate) served: AtomicUsize,
    pub(crate) refused: AtomicUsize,
    pub(crate) steals: AtomicUsize,
    pub(crate) waits: AtomicUsize,
    pub(crate) hits: AtomicUsize,
}

impl StatsBook {
    pub(crate) fn counts(&self) -> [usize; 5] {
        [&self.served, &self.refused, &self.steals, &self.waits, &self.hits]
            .map(|count| count.load(Ordering::Relaxed))
    }
}
