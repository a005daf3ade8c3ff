//! `BlockTable`: what is known of live blocks, by their addresses.

use hashbrown::HashMap;

use super::shards::Shards;
use crate::driver::DriverResult;
use crate::resource::DevicePtr;

/// An entry for each live block.
///
/// An entry is made when a block goes out, and taken before the block may go out again: so there is one for an address at a time. Of
/// two threads that take one entry at once, one gets it. What it says and how long it lives is the user's affair. A call takes one lock
/// for one step; the lock is held around no foreign code but a drop of what a newer entry replaces.
///
/// In a child of the process that it was made in it is empty and stays so.
///
/// An insertion and a removal cost 42 ns together with a thousand live blocks, and 120 ns with a million, when the shards no longer
/// fit the caches of the processor: `cargo test --release --features testing --lib -- --ignored --nocapture the_cost_of_a_table`, on
/// a virtual machine with two cores. An entry of a word takes 20 to 39 bytes of the host's memory, and the shards do not shrink.
#[derive(Debug)]
pub(crate) struct BlockTable<V> {
    shards: Shards<HashMap<u64, V>>,
}

impl<V> Default for BlockTable<V> {
    fn default() -> Self {
        Self { shards: Shards::default() }
    }
}

impl<V> BlockTable<V> {
    /// Returns `true` in a child of the process that it was made in.
    #[inline]
    pub(crate) fn is_forked_child(&self) -> bool {
        self.shards.is_forked_child()
    }

    /// # Errors
    ///
    /// That the driver is not initialised, in a child of the process that it was made in.
    #[inline]
    pub(crate) fn require_same_process(&self) -> DriverResult<()> {
        self.shards.require_same_process()
    }

    /// Enters a block that goes out, or one that was taken and not freed.
    #[inline]
    pub(crate) fn insert(&self, block: DevicePtr, value: V) {
        if let Some(mut shard) = self.shards.of(block).lock_unless_forked() {
            shard.insert(block.address(), value);
        }
    }

    /// Enters a block if the host has memory for it, and else gives the value back.
    pub(crate) fn try_insert(&self, block: DevicePtr, value: V) -> Result<(), V> {
        let Some(mut shard) = self.shards.of(block).lock_unless_forked() else { return Err(value) };
        if shard.try_reserve(1).is_err() {
            return Err(value);
        }
        shard.insert(block.address(), value);
        Ok(())
    }

    /// Takes the entry of a block.
    #[inline]
    pub(crate) fn take(&self, block: DevicePtr) -> Option<V> {
        self.shards.of(block).lock_unless_forked()?.remove(&block.address())
    }

    /// Takes the entry of a block if it `fits`. The error has the one that stays, if there is one.
    #[inline]
    pub(crate) fn take_if(&self, block: DevicePtr, fits: impl FnOnce(V) -> bool) -> Result<V, Option<V>>
    where
        V: Copy,
    {
        let mut shard = self.shards.of(block).lock_unless_forked().ok_or(None)?;
        let value = *shard.get(&block.address()).ok_or(None)?;
        if !fits(value) {
            return Err(Some(value));
        }
        shard.remove(&block.address());
        Ok(value)
    }

    /// The entry of a block.
    #[inline]
    pub(crate) fn get(&self, block: DevicePtr) -> Option<V>
    where
        V: Copy,
    {
        self.shards.of(block).lock_unless_forked()?.get(&block.address()).copied()
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.shards.each().map(|shard| shard.len()).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn block(at: u64) -> DevicePtr {
        DevicePtr::new(0x7F00_0000_0000 + at * 256).expect("it is not null")
    }

    #[test]
    fn an_entry_is_taken_once_and_only_if_it_fits() {
        let table = BlockTable::default();
        table.insert(block(1), 300);
        assert_eq!(table.take_if(block(1), |bytes| bytes == 301), Err(Some(300)));
        assert_eq!((table.take_if(block(2), |_| true), table.take(block(2))), (Err(None), None));
        assert_eq!((table.get(block(1)), table.len()), (Some(300), 1), "it is there all the same");
        assert_eq!(table.take_if(block(1), |bytes| bytes == 300), Ok(300));
        assert_eq!((table.take(block(1)), table.get(block(1)), table.len()), (None, None, 0));
        // And the address may come again.
        assert_eq!(table.try_insert(block(1), 512), Ok(()));
        assert_eq!(table.take(block(1)), Some(512));
    }

    #[test]
    fn of_two_threads_that_take_an_entry_one_gets_it() {
        let table = BlockTable::default();
        let blocks = 20_000;
        (0..blocks).for_each(|at| table.insert(block(at), ()));
        let take_all = || (0..blocks).filter(|at| table.take(block(*at)).is_some()).count();
        let taken = std::thread::scope(|scope| {
            let other = scope.spawn(take_all);
            take_all() + other.join().expect("it does not panic")
        });
        assert_eq!(taken as u64, blocks);
    }

    #[test]
    #[ignore = "a measurement, and no test"]
    fn the_cost_of_a_table() {
        for live in [1_000, 1_000_000] {
            let table = BlockTable::default();
            (0..live).for_each(|at| table.insert(block(at), 256_u64));
            let (mut at, pairs) = (0, 4_000_000);
            let begin = std::time::Instant::now();
            for _ in 0..pairs {
                // In an order that the hardware cannot predict.
                at = (at + 7919 * 31) % live;
                assert_eq!(table.take_if(block(at), |bytes| bytes == 256), Ok(256));
                table.insert(block(at), 256);
            }
            println!("{live} live: {} ns a pair", begin.elapsed().as_nanos() / pairs);
        }
    }
}
