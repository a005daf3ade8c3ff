//! `AsleepFilter`: may a block sleep?

use std::sync::OnceLock;

use crate::sync::{AtomicU64, Ordering};

/// With as many counts as this, a free beside a hundred sleeping blocks finds one of theirs at 4.8 of 100 addresses, and takes the
/// mutex in vain. 16 KiB of a suballocator in which something has slept.
const PLACES: usize = if cfg!(loom) { 1 } else { 2048 };

/// How many blocks sleep, by a part of their addresses: read for each free while anything sleeps, without a lock. It may answer
/// `true` for a block that does not sleep.
#[derive(Debug, Default)]
pub(in crate::suballoc::engine) struct AsleepFilter(OnceLock<Box<[AtomicU64; PLACES]>>);

impl AsleepFilter {
    pub(in crate::suballoc::engine) fn may_hold(&self, address: u64) -> bool {
        // Relaxed: whoever frees a block that sleeps has it from whoever put it to sleep, and so comes after the count.
        self.0.get().is_some_and(|counts| counts[place(address)].load(Ordering::Relaxed) > 0)
    }

    /// Counts a block. Called under the mutex.
    pub(super) fn enter(&self, address: u64) {
        let counts = self.0.get_or_init(|| Box::new(core::array::from_fn(|_| AtomicU64::new(0))));
        // Relaxed: as in `may_hold`.
        counts[place(address)].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a block no more. Called under the mutex.
    pub(super) fn leave(&self, address: u64) {
        if let Some(counts) = self.0.get() {
            // Relaxed: as in `may_hold`.
            counts[place(address)].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Blocks that lie side by side have places far apart: the golden ratio of 64 bits, of which the higher half is used.
fn place(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % PLACES
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_held_until_it_leaves_and_few_others_are() {
        let filter = AsleepFilter::default();
        assert!(!filter.may_hold(1 << 40));
        let addresses = |from: u64| (0..100).map(move |at| from + at * 256);
        addresses(1 << 40).for_each(|address| filter.enter(address));
        assert!(addresses(1 << 40).all(|address| filter.may_hold(address)));
        let wrong = addresses(1 << 41).filter(|address| filter.may_hold(*address)).count();
        assert!(wrong < 15, "{wrong} of 100");
        addresses(1 << 40).for_each(|address| filter.leave(address));
        assert!(addresses(1 << 40).all(|address| !filter.may_hold(address)));
    }
}
