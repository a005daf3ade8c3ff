//! `CallCounts`: the number of driver calls of each kind.

use core::fmt;
use core::ops::{Index, Sub};

use crate::driver::Call;

const KINDS: usize = Call::ALL.len();

/// The number of calls of each kind, successful or not.
///
/// Two snapshots can be subtracted, so that a test can check that a path makes no driver call.
///
/// ```
/// use alluvion::sim::{SimConfig, SimDriver};
/// use alluvion::driver::{Call, Driver};
///
/// let driver = SimDriver::new(SimConfig::default());
/// let before = driver.calls();
/// let _address = driver.allocate_device(0, 1000)?;
/// let made = driver.calls() - before;
/// assert_eq!(made[Call::AllocateDevice], 1);
/// assert_eq!(made.total(), 1);
/// # Ok::<(), alluvion::driver::DriverError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CallCounts([u64; KINDS]);

impl Default for CallCounts {
    fn default() -> Self {
        Self([0; KINDS])
    }
}

impl CallCounts {
    /// Calls of every kind together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The kinds that were called at all, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (Call, u64)> + '_ {
        Call::ALL.iter().map(|&call| (call, self[call])).filter(|&(_, count)| count > 0)
    }

    pub(super) fn add(&mut self, call: Call) {
        self.0[call as usize] += 1;
    }
}

impl Index<Call> for CallCounts {
    type Output = u64;

    fn index(&self, call: Call) -> &u64 {
        &self.0[call as usize]
    }
}

impl Sub for CallCounts {
    type Output = Self;

    /// The calls since `earlier`.
    fn sub(mut self, earlier: Self) -> Self {
        for (count, before) in self.0.iter_mut().zip(earlier.0) {
            *count = count.saturating_sub(before);
        }
        self
    }
}

impl fmt::Debug for CallCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(call, count)| (call.symbol(), count))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_counts_what_came_between() {
        let mut counts = CallCounts::default();
        counts.add(Call::Copy);
        let before = counts.clone();
        counts.add(Call::Copy);
        counts.add(Call::EventRecord);
        let made = counts - before;
        assert_eq!((made[Call::Copy], made[Call::EventRecord], made.total()), (1, 1, 2));
        assert_eq!(format!("{made:?}"), r#"{"cuEventRecord": 1, "cuMemcpy": 1}"#);
    }
}
