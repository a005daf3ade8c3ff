//! `Shards`: one of several parts for each address.

use core::fmt;

use crate::driver::DriverResult;
use crate::resource::DevicePtr;
use crate::sync::{Apart, Mutex, MutexGuard};

/// With sixteen, two threads seldom meet in one on a host of 16 cores. In a model each thread meets each.
const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };

/// Parts of one book, each behind a lock of its own and in cache lines of its own. Which one a block is in follows from its address.
///
/// In a child of the process that it was made in it is locked by nobody: [`each`](Self::each) is empty there.
pub(crate) struct Shards<T, const N: usize = SHARDS>([Apart<Mutex<T>>; N]);

impl<T: Default, const N: usize> Default for Shards<T, N> {
    fn default() -> Self {
        const { assert!(N.is_power_of_two(), "the top bits of a hash are a number of a shard") };
        Self(core::array::from_fn(|_| Apart::default()))
    }
}

impl<T, const N: usize> Shards<T, N> {
    /// Returns `true` in a child of the process that it was made in.
    #[inline]
    pub(crate) fn is_forked_child(&self) -> bool {
        self.0[0].is_forked_child()
    }

    /// # Errors
    ///
    /// That the driver is not initialised, in a child of the process that it was made in.
    #[inline]
    pub(crate) fn require_same_process(&self) -> DriverResult<()> {
        self.0[0].require_same_process()
    }

    /// The one that a block is in.
    #[inline]
    pub(crate) fn of(&self, block: DevicePtr) -> &Mutex<T> {
        // Fibonacci hashing: the top bits of the product depend on all bits of the address.
        let hash = block.address().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.0[hash.rotate_left(N.ilog2()) as usize % N]
    }

    /// All of them, each locked in its turn.
    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.0.iter().filter_map(|shard| shard.lock_unless_forked())
    }
}

impl<T, const N: usize> fmt::Debug for Shards<T, N> {
    /// Without the data: to show that, the locks would be held while a foreign formatter runs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shards")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn blocks_in_a_row_are_spread_over_the_shards() {
        // Blocks of one unit, of a power of two, and of an odd multiple.
        for stride in [1, 16, 256, 8192, 8193] {
            let shards = Shards::<u32>::default();
            for at in 0..1600 {
                let block = DevicePtr::new(0x7F00_0000_0000 + at * stride * 256).expect("it is not null");
                *shards.of(block).lock() += 1;
            }
            for blocks in shards.each() {
                assert!(
                    (50..200).contains(&*blocks),
                    "{} of 1600 blocks {stride} units apart are in one shard",
                    *blocks
                );
            }
        }
    }
}
