//! `Frame`: the counts at the beginning of a scope.

use super::shard::ShardId;
use super::{Counter, Counts};

/// The counts, summed over all threads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// Live bytes and blocks.
    pub(super) live: [i64; 2],
    /// Allocated bytes and blocks.
    pub(super) total: [i64; 2],
    pub(super) failures: u64,
}

/// An open scope: the counts at its beginning, and its peaks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frame {
    began: Sums,
    peak: Peak,
}

/// The bounds of a peak of bytes and blocks: it is at least `least` and at most `most`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peak {
    pub(super) least: [i64; 2],
    pub(super) most: [i64; 2],
}

impl Peak {
    /// An exact peak.
    pub(super) fn exactly(live: [i64; 2]) -> Self {
        Self { least: live, most: live }
    }

    /// The higher one of two peaks.
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

    /// Raises its peak to one that was reached while it was open.
    pub(super) fn reach(&mut self, peak: Peak) {
        self.peak.or(peak);
    }

    /// The counts since it began.
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
    /// The counts of each shard at the beginning of the current interval, in their order. Later shards had counted
    /// nothing then.
    pub(super) lives: Vec<(ShardId, [i64; 2])>,
    /// The frame of the whole time since the layer was made.
    pub(super) whole: Frame,
    /// The pushed scopes, the innermost last.
    pub(super) pushed: Vec<Frame>,
    /// The scopes that callers hold, each with its number.
    held: Vec<(u64, Frame)>,
    next: u64,
}

impl Frames {
    /// The number of no scope: the first has 1.
    pub(super) const NOBODYS: u64 = 0;

    /// The scope that was pushed last.
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

    /// Raises all their peaks to one that was reached while all were open.
    pub(super) fn reach(&mut self, peak: Peak) {
        let held = self.held.iter_mut().map(|(_, frame)| frame);
        for frame in self.pushed.iter_mut().chain(held).chain([&mut self.whole]) {
            frame.reach(peak);
        }
    }
}
