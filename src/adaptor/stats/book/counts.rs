//! `Counts`: the results of counting.

use core::fmt;

use crate::size::Size;
use crate::tag::Tag;

/// The live amount, its peak, and the total of one counted quantity: bytes, or blocks.
///
/// The live amount may be negative: blocks that are freed in a scope may have been allocated before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Counter {
    /// The allocated amount, less the freed one.
    pub live: i64,
    /// An upper bound of the peak of `live`, too high by at most `peak_error`.
    pub peak: i64,
    /// By how much `peak` may be too high. It is 0 where only one thread has counted, and with a
    /// [slack](super::super::Stats::with_slack) of 0.
    pub peak_error: i64,
    /// The allocated amount.
    pub total: i64,
}

/// The allocations and frees in one scope, or since the layer was made.
///
/// ```
/// use alluvion::{DeviceVec, Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stats = Cuda::new(&sim.device(0)).stats();
/// let stream = sim.device(0).stream()?;
/// let _numbers = DeviceVec::<u64, _>::zeroed_in(512, &stream, &stats)?;
/// drop(DeviceVec::<u8, _>::zeroed_in(1024, &stream, &stats)?);
/// assert_eq!(
///     stats.counts().to_string(),
///     "4 KiB in 1 block, at most 5 KiB in 2 blocks, in all 5 KiB in 2 blocks, 0 failures",
/// );
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Counts {
    /// The requested bytes.
    pub bytes: Counter,
    /// The allocated blocks.
    pub allocations: Counter,
    /// The requests that the upstream refused.
    pub failures: u64,
}

/// The allocations under one tag. Frees are not counted by tag: a free does not say which tag the block had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TagCounts {
    /// The tag of the allocating thread; `Tag::NONE` outside of all tag scopes.
    pub tag: Tag,
    /// The requested bytes.
    pub bytes: u64,
    /// The allocations.
    pub allocations: u64,
    /// The requests that the upstream refused.
    pub failures: u64,
}

impl Counter {
    /// The sum over several layers, of the time since each was made: then no live amount is negative.
    fn of_several(each: &[Self]) -> Self {
        let sum =
            |of: fn(&Self) -> i64| each.iter().fold(0_i64, |sum, counter| sum.saturating_add(of(counter)));
        let (live, peak, total) =
            (sum(|counter| counter.live), sum(|counter| counter.peak), sum(|counter| counter.total));
        // At the peak of any of them the others held nothing or more, and now all hold what is live.
        let least = |counter: &Self| counter.peak.saturating_sub(counter.peak_error);
        let least = each.iter().map(least).fold(live, i64::max);
        Self { live, peak, peak_error: peak.saturating_sub(least).max(0), total }
    }
}

impl Counts {
    /// The sum over several layers, of the time since each was made.
    pub(crate) fn of_several(each: &[Self]) -> Self {
        let counter =
            |of: fn(&Self) -> Counter| Counter::of_several(&each.iter().map(of).collect::<Vec<_>>());
        Self {
            bytes: counter(|counts| counts.bytes),
            allocations: counter(|counts| counts.allocations),
            failures: each.iter().fold(0, |sum, counts| sum.saturating_add(counts.failures)),
        }
    }
}

/// A number of bytes that may be negative.
pub(in crate::adaptor) struct SignedSize(pub(in crate::adaptor) i64);

impl fmt::Display for SignedSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}", Size(self.0.unsigned_abs() as usize))
    }
}

/// A number of blocks.
struct BlockCount(i64);

impl fmt::Display for BlockCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} block{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, allocations, failures } = self;
        write!(f, "{} in {}", SignedSize(bytes.live), BlockCount(allocations.live))?;
        write!(f, ", at most {} in {}", SignedSize(bytes.peak), BlockCount(allocations.peak))?;
        if bytes.peak_error != 0 || allocations.peak_error != 0 {
            let least = |counter: &Counter| counter.peak.wrapping_sub(counter.peak_error);
            write!(f, " (at least {} in {})", SignedSize(least(bytes)), BlockCount(least(allocations)))?;
        }
        write!(f, ", in all {} in {}", SignedSize(bytes.total), BlockCount(allocations.total))?;
        write!(f, ", {failures} failure{}", if *failures == 1 { "" } else { "s" })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_several_is_at_most_all_and_at_least_the_largest_and_what_is_live() {
        let counter = |live, peak, peak_error| Counter { live, peak, peak_error, total: peak };
        let of = Counter::of_several;
        assert_eq!(of(&[]), Counter::default());
        assert_eq!(of(&[counter(3, 9, 2)]), counter(3, 9, 2));
        assert_eq!(of(&[counter(0, 9, 2), counter(1, 4, 0)]), counter(1, 13, 13 - 7));
        assert_eq!(of(&[counter(9, 9, 2), counter(4, 4, 0)]), counter(13, 13, 0));
        assert_eq!(of(&[counter(6, 9, 2), counter(4, 4, 0)]), counter(10, 13, 3));
    }

    #[test]
    fn counts_read_as_people_say_them() {
        let bytes = Counter { live: -1024, peak: 0, peak_error: 0, total: 3 << 30 };
        let allocations = Counter { live: -1, peak: 1, peak_error: 0, total: 12 };
        let counts = Counts { bytes, allocations, failures: 1 };
        assert_eq!(
            counts.to_string(),
            "-1 KiB in -1 blocks, at most 0 B in 1 block, in all 3 GiB in 12 blocks, 1 failure"
        );
        let bytes = Counter { peak: 4 << 20, peak_error: 3 << 20, ..bytes };
        let counts = Counts { bytes, ..counts };
        assert_eq!(
            counts.to_string(),
            "-1 KiB in -1 blocks, at most 4 MiB in 1 block (at least 1 MiB in 1 block), in all 3 GiB in 12 blocks, 1 failure"
        );
    }
}
