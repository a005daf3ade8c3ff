//! `Frame`: what was there when a scope began.

use super::shard::ShardId;
use super::{Counter, Counts};

/// What has been counted, as a sum over all threads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// Bytes and blocks: what came, less what went.
    pub(super) live: [i64; 2],
    /// Bytes and blocks: what came.
    pub(super) total: [i64; 2],
    pub(super) failures: u64,
}

/// A scope that is open: where its counters begin, and the most that was live meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frame {
    began: Sums,
    peak: Peak,
}

/// What is known of a highest point of bytes and of blocks: it is at least `least` and at most `most`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peak {
    pub(super) least: [i64; 2],
    pub(super) most: [i64; 2],
}

impl Peak {
    /// So much it was, exactly.
    pub(super) fn exactly(live: [i64; 2]) -> Self {
        Self { least: live, most: live }
    }

    /// The higher one of two highest points.
    fn or(&mut self, other: Self) {
        for at in 0..2 {
            self.least[at] = self.least[at].max(other.least[at]);
            self.most[at] = self.most[at].max(other.most[at]).max(self.least[at]);
        }
    }
}

impl Frame {
    pub(super) fn begin(now: Sums) -> Self {
        Self { began: now, peak: Peak::exactly(now.live) }
    }

    /// So much was live at some time while it was open.
    pub(super) fn reach(&mut self, peak: Peak) {
        self.peak.or(peak);
    }

    /// What was counted since it began.
    pub(super) fn counts(&self, now: &Sums) -> Counts {
        let counter = |of: usize| Counter {
            live: now.live[of].wrapping_sub(self.began.live[of]),
            peak: self.peak.most[of].wrapping_sub(self.began.live[of]),
            peak_error: self.peak.most[of].wrapping_sub(self.peak.least[of]),
            total: now.total[of].wrapping_sub(self.began.total[of]),
        };
        Counts {
            bytes: counter(0),
            allocations: counter(1),
            failures: now.failures.wrapping_sub(self.began.failures),
        }
    }
}

/// The scopes that are open.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// What each shard had when the interval that runs began, in their order. Those that came later had nothing.
    pub(super) lives: Vec<(ShardId, [i64; 2])>,
    /// Since the tally was made.
    pub(super) whole: Frame,
    /// Those that were pushed, the innermost last.
    pub(super) pushed: Vec<Frame>,
    /// Those that somebody holds, each with its number.
    held: Vec<(u64, Frame)>,
    next: u64,
}

impl Frames {
    /// The number of a scope that nobody holds: the first is 1.
    pub(super) const NOBODYS: u64 = 0;

    /// The one that was pushed last.
    pub(super) fn top(&self) -> &Frame {
        self.pushed.last().unwrap_or(&self.whole)
    }

    pub(super) fn hold(&mut self, frame: Frame) -> u64 {
        self.next += 1;
        self.held.push((self.next, frame));
        self.next
    }

    pub(super) fn held(&self, number: u64) -> Option<&Frame> {
        self.held.iter().find(|(held, _)| *held == number).map(|(_, frame)| frame)
    }

    pub(super) fn let_go(&mut self, number: u64) {
        self.held.retain(|(held, _)| *held != number);
    }

    /// So much was live at some time while all of them were open.
    pub(super) fn reach(&mut self, peak: Peak) {
        let held = self.held.iter_mut().map(|(_, frame)| frame);
        for frame in self.pushed.iter_mut().chain(held).chain([&mut self.whole]) {
            frame.reach(peak);
        }
    }
}
