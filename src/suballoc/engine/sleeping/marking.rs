//! Which blocks are to sleep, and what becomes of those that are freed asleep.

use core::sync::atomic::Ordering;

use hashbrown::{HashMap, HashSet};

use super::super::book::{Inner, SuballocBook};
use super::super::spill::return_to_core;
use super::sleepers::{Copying, Sleepers};
use crate::error::Error;
use crate::resource::{DevicePtr, Layout, OpenCopies, SleepRecord, SleepingBlock, Tagged};
use crate::stream::{Epoch, Stamp};
use crate::suballoc::core::{FreedAsleep, Owner, Spilled, Want};
use crate::suballoc::sleep_config::Chosen;
use crate::sync::Arc;
use crate::tag::Tag;

impl SuballocBook {
    pub(in crate::suballoc::engine) fn require_awake(&self) -> Result<(), Error> {
        // Relaxed: whoever puts the suballocator to sleep has promised that no other thread uses it meanwhile.
        if !self.sleeps.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(Error::asleep(
            "an allocation from a pool that sleeps",
            "its memory has gone back to its upstream",
            "wake the pool first, by `Sleeper::wake`",
        ))
    }

    /// Every live block, in the order of addresses. All caches are emptied.
    fn live_blocks(&self) -> Vec<(u64, u32)> {
        let mut inner = self.lock();
        self.spill_locked(&mut inner);
        inner.core.awake()
    }

    /// The live blocks that are chosen.
    pub(super) fn chosen(&self, chosen: &Chosen<'_>) -> Result<Vec<u64>, Error> {
        let is_of = |tag: Tag, wanted: Tag| {
            core::iter::successors(Some(tag), |tag| tag.parent()).any(|tag| tag == wanted)
        };
        match *chosen {
            Chosen::All => Ok(self.live_blocks().into_iter().map(|(block, _)| block).collect()),
            Chosen::Tagged(Tagged { tag, by: Some(tags) }) => {
                let tags: HashMap<u64, Tag> = tags.block_tags().into_iter().collect();
                let mut blocks = self.live_blocks();
                blocks.retain(|(block, _)| tags.get(block).is_some_and(|of| is_of(*of, tag)));
                Ok(blocks.into_iter().map(|(block, _)| block).collect())
            }
            Chosen::Tagged(Tagged { tag, by: None }) => {
                let Some(ledger) = &self.ledger else {
                    return Err(Error::unsupported(
                        "sleep of what carries a tag",
                        "the pool keeps no ledger, so that it does not know the tags of its blocks",
                        "make it with `PoolConfig::checked(true)`, or name a book that knows them by `SleepConfig::tags_of`",
                    ));
                };
                let mut blocks = self.live_blocks();
                blocks
                    .retain(|(block, _)| DevicePtr::new(*block).is_some_and(|at| is_of(ledger.tag(at), tag)));
                Ok(blocks.into_iter().map(|(block, _)| block).collect())
            }
            Chosen::One(block) => {
                if self.graphs.hold(block) {
                    return Err(Error::invalid_argument(
                        "sleep of a block that a graph may use",
                        "the graph may be launched at any time",
                        "release the memory of the graph first",
                    ));
                }
                Ok(vec![block.address()])
            }
        }
    }

    /// Marks the blocks, but for those that graphs hold, which may be launched at any time. Each is noticed from now on when it is freed.
    pub(super) fn mark(&self, blocks: &[u64], chosen: &Chosen<'_>) -> Result<SleepRecord<'static>, Error> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        if inner.sleepers.whole.is_some() {
            return Err(Error::asleep(
                "sleep of a pool that sleeps",
                "all of its blocks sleep already",
                "wake it first, by `Sleeper::wake`",
            ));
        }
        inner.sleepers.made += 1;
        let (of, number) = (inner.sleepers.me, inner.sleepers.made);
        let mut record = SleepRecord { of, number, blocks: Vec::new(), host: None, file: None };
        let mut offset = 0;
        // Under the lock, under which a block is left to a graph.
        let of_graphs: HashSet<u64> = self.graphs.held().into_iter().map(|(block, _)| block).collect();
        for &address in blocks {
            if of_graphs.contains(&address) {
                continue;
            }
            // What was freed meanwhile is left out.
            let Some(units) = inner.core.fall_asleep(address) else { continue };
            let bytes = u64::from(units) * Layout::MIN_ALIGN as u64;
            record.blocks.push(SleepingBlock { address, bytes, offset });
            self.enter(&mut inner.sleepers, address, record.number, units);
            offset += bytes;
        }
        match chosen {
            Chosen::All => self.set_whole(&mut inner.sleepers, Some(record.number)),
            Chosen::One(_) if record.blocks.is_empty() => {
                return Err(Error::invalid_argument(
                    "sleep of something that is no live block of the pool, or sleeps",
                    "a block sleeps once, and from its beginning",
                    "name the address that the pool has returned",
                ));
            }
            _ => {}
        }
        Ok(record)
    }

    /// The blocks of a record are awake: at once, or, if copies of their contents go on, when these are over. Those that were
    /// freed meanwhile are left alone.
    pub(super) fn unmark(&self, record: &mut SleepRecord<'_>) {
        let Some(mut guard) = self.lock_unless_forked() else { return };
        let inner = &mut *guard;
        let number = core::mem::take(&mut record.number);
        if inner.sleepers.whole == Some(number) {
            self.set_whole(&mut inner.sleepers, None);
        }
        let copying =
            Copying { number, freed: Vec::new(), awake: core::mem::take(&mut record.blocks), open: None };
        match record.open_copies() {
            open @ Some(_) => inner.sleepers.copying.push(Copying { open, ..copying }),
            None => self.end_copying(inner, copying),
        }
    }

    /// From now on a block of the record that is freed stays where it is, until [`end_waking`](Self::end_waking).
    pub(super) fn begin_waking(&self, record: &SleepRecord<'_>) -> Result<(), Error> {
        let mut inner = self.lock();
        let sleepers = &mut inner.sleepers;
        if record.of != sleepers.me {
            return Err(Error::invalid_argument(
                "to wake what sleeps in another resource",
                "its pages belong there",
                "wake it with the resource that put it to sleep",
            ));
        }
        match sleepers.copying.iter_mut().find(|copying| copying.number == record.number) {
            // Of an earlier attempt.
            Some(copying) => copying.open = None,
            None => sleepers.copying.push(Copying {
                number: record.number,
                freed: Vec::new(),
                awake: Vec::new(),
                open: None,
            }),
        }
        Ok(())
    }

    /// If no copy writes to the blocks of the record any more, those that were freed meanwhile are free. Else the copies are left
    /// [open](Self::settle_copies).
    pub(super) fn end_waking(&self, record: &SleepRecord<'_>) {
        let Some(mut guard) = self.lock_unless_forked() else { return };
        let inner = &mut *guard;
        let is_it = |copying: &Copying| copying.number == record.number;
        let Some(at) = inner.sleepers.copying.iter().position(is_it) else { return };
        match record.open_copies() {
            open @ Some(_) => inner.sleepers.copying[at].open = open,
            None => {
                let over = inner.sleepers.copying.swap_remove(at);
                self.end_copying(inner, over);
            }
        }
    }

    fn end_copying(&self, inner: &mut Inner, over: Copying) {
        for address in over.freed {
            self.leave(&mut inner.sleepers, address);
            if inner.core.free_asleep(address) == Some(FreedAsleep::Mapped) {
                // Its work was over before it slept.
                return_to_core(&mut inner.core, Owner::UNOWNED, Spilled { address, epoch: Epoch(0) });
            }
        }
        for block in over.awake {
            if inner.sleepers.is_of(&block, over.number) {
                self.leave(&mut inner.sleepers, block.address);
                inner.core.awaken(block.address);
            }
        }
    }

    /// Waits for copies that could not be waited for before, and lets go of what they kept.
    pub(in crate::suballoc::engine) fn settle_copies(&self) -> Result<(), Error> {
        let open: Vec<Arc<OpenCopies>> = {
            let Some(inner) = self.lock_unless_forked() else { return Ok(()) };
            inner.sleepers.copying.iter().filter_map(|copying| copying.open.clone()).collect()
        };
        if open.is_empty() {
            return Ok(());
        }
        // All of them, also behind one that cannot be waited for.
        let mut waited = Ok(());
        for copies in &open {
            let settled = copies.settle([]);
            waited = waited.and(settled);
        }
        let Some(mut guard) = self.lock_unless_forked() else { return waited };
        let inner = &mut *guard;
        let is_over = |copying: &mut Copying| copying.open.as_ref().is_some_and(|open| open.are_settled());
        let over: Vec<Copying> = inner.sleepers.copying.extract_if(.., is_over).collect();
        over.into_iter().for_each(|over| self.end_copying(inner, over));
        drop(guard);
        waited
    }

    /// Enters a block that sleeps. O(1), as many blocks may be put to sleep one by one.
    fn enter(&self, sleepers: &mut Sleepers, address: u64, number: u64, units: u32) {
        self.graphs.asleep.enter(address);
        if sleepers.blocks.is_empty() {
            self.graphs.set_asleep(true);
        }
        sleepers.blocks.insert(address, (number, units));
        sleepers.units += u64::from(units);
    }

    /// The block of that address sleeps no more. O(1).
    fn leave(&self, sleepers: &mut Sleepers, address: u64) {
        let Some((_, units)) = sleepers.blocks.remove(&address) else { return };
        sleepers.units -= u64::from(units);
        self.graphs.asleep.leave(address);
        if sleepers.blocks.is_empty() {
            self.graphs.set_asleep(false);
        }
    }

    fn set_whole(&self, sleepers: &mut Sleepers, whole: Option<u64>) {
        sleepers.whole = whole;
        // Relaxed: as in `require_awake`.
        self.sleeps.store(whole.is_some(), Ordering::Relaxed);
    }

    /// Lets the suballocator serve requests again, although the blocks of a record sleep: nobody wakes them any more.
    pub(in crate::suballoc) fn give_up_waking(&self, record: &SleepRecord<'_>) {
        if let Some(mut inner) = self.lock_unless_forked()
            && inner.sleepers.whole == Some(record.number)
        {
            self.set_whole(&mut inner.sleepers, None);
        }
    }

    /// Frees a block if it sleeps; if it has all of its memory still, behind that point of a stream. Returns `false` if it does
    /// not sleep.
    pub(super) fn free_if_asleep(&self, want: Want, block: DevicePtr, behind: Option<Stamp>) -> bool {
        let Some(mut guard) = self.lock_unless_forked() else { return true };
        let inner = &mut *guard;
        let address = block.address();
        let Some(&(number, _)) = inner.sleepers.blocks.get(&address) else { return false };
        if let Some(copying) = inner.sleepers.copying.iter_mut().find(|copying| copying.number == number) {
            // One that is awake may be in use, and is leaked: no order says when that is over.
            if copying.awake.is_empty() && !copying.freed.contains(&address) {
                copying.freed.push(address);
            }
            return true;
        }
        self.leave(&mut inner.sleepers, address);
        if inner.core.free_asleep(address) == Some(FreedAsleep::Mapped) {
            self.put_or_take_back(inner, want, block, behind);
        }
        true
    }
}
