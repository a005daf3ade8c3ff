//! `Parked`: what was dropped while other processes had it.

use core::mem;
use std::collections::VecDeque;

use super::loan::Loan;
use crate::contain::contain;
use crate::device::{Attachment, Device};
use crate::sync::Mutex;

/// A loan and what it is of, which is freed when the loan has ended.
pub(super) trait Waiting: Send + Sync {
    fn loan(&mut self) -> &mut Loan;
}

/// The loans of one device that have nobody who waits for their end.
#[derive(Default)]
pub(super) struct Parked {
    waiting: Mutex<VecDeque<Box<dyn Waiting>>>,
}

/// A share asks after so many of them, so that it costs no more with many.
const AT_A_TIME: usize = 8;

impl Parked {
    pub(super) fn park(&self, loan: Box<dyn Waiting>) {
        match self.waiting.lock_unless_forked() {
            Some(mut waiting) => waiting.push_back(loan),
            // The parent's.
            None => mem::forget(loan),
        }
    }

    /// Frees those of the first few that have ended, and puts the others behind.
    pub(super) fn sweep_a_few(&self) {
        self.sweep(AT_A_TIME);
    }

    /// Frees what has ended, of so many. Returns how many that were.
    pub(super) fn sweep(&self, most: usize) -> usize {
        let mut freed = 0;
        let mut left = most.min(self.len());
        while left > 0 {
            left -= 1;
            let next = self.waiting.lock_unless_forked().and_then(|mut waiting| waiting.pop_front());
            // Freed without the lock: the resource may be anybody's.
            let Some(mut loan) = next else { break };
            match loan.loan().try_end() {
                Ok(true) => {
                    // Called from a share of something else, and from the end of the machine: what the keeper of a block throws is
                    // none of theirs.
                    contain(|| drop(loan));
                    freed += 1;
                }
                _ => self.park(loan),
            }
        }
        freed
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.lock_unless_forked().map_or(0, |waiting| waiting.len())
    }

    pub(super) fn bytes(&self) -> usize {
        let Some(mut waiting) = self.waiting.lock_unless_forked() else { return 0 };
        waiting.iter_mut().map(|loan| loan.loan().message().bytes()).sum()
    }

    pub(super) fn of(device: &Device) -> &Self {
        device.attached()
    }
}

impl Attachment for Parked {
    /// What others still have is leaked: they may be at work on it.
    fn release(&self) {
        self.sweep(usize::MAX);
        let left = self.waiting.lock_unless_forked().map(|mut waiting| mem::take(&mut *waiting));
        left.into_iter().flatten().for_each(mem::forget);
    }
}
