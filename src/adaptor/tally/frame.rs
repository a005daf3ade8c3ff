//! `Frame`: what was there when a scope began.

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
    peak: [i64; 2],
}

impl Frame {
    pub(super) fn begin(now: Sums) -> Self {
        Self { began: now, peak: now.live }
    }

    /// So much was live at some time while it was open.
    pub(super) fn reach(&mut self, peak: [i64; 2]) {
        for (known, peak) in self.peak.iter_mut().zip(peak) {
            *known = peak.max(*known);
        }
    }

    /// What was counted since it began.
    pub(super) fn counts(&self, now: &Sums) -> Counts {
        let counter = |of: usize| Counter {
            value: now.live[of].wrapping_sub(self.began.live[of]),
            peak: self.peak[of].wrapping_sub(self.began.live[of]),
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
    pub(super) fn reach(&mut self, peak: [i64; 2]) {
        let held = self.held.iter_mut().map(|(_, frame)| frame);
        for frame in self.pushed.iter_mut().chain(held).chain([&mut self.whole]) {
            frame.reach(peak);
        }
    }
}
