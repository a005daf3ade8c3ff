//! `Sleepers`: which blocks of a suballocator sleep.

// Not of `sync`, because no protocol depends on it.
use core::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;

use super::super::grow::Caller;
use crate::resource::{OpenCopies, SleepingBlock};
use crate::sync::Arc;

/// What sleeps in a suballocator.
#[derive(Debug)]
pub(in crate::suballoc::engine) struct Sleepers {
    /// The number of the suballocator, in its records.
    pub(super) me: u64,
    /// The blocks that sleep, by address: the number of their record, and their units.
    pub(super) blocks: HashMap<u64, (u64, u32)>,
    pub(super) units: u64,
    pub(super) made: u64,
    /// The record that all of the suballocator sleeps in.
    pub(super) whole: Option<u64>,
    /// The thread that puts blocks to sleep, or wakes them.
    pub(super) caller: Option<Caller>,
    /// The records that are being woken, or whose copies could not be waited for. No page of them is given up.
    pub(super) copying: Vec<Copying>,
}

/// A record between whose blocks and the host copies may be under way.
#[derive(Debug)]
pub(super) struct Copying {
    pub(super) number: u64,
    /// Its blocks that were freed meanwhile: they stay where they are until the copies are over.
    pub(super) freed: Vec<u64>,
    /// Its blocks that are awake when the copies are over, because nothing was to sleep after all.
    pub(super) awake: Vec<SleepingBlock>,
    /// What to wait for; `None` while a thread does.
    pub(super) open: Option<Arc<OpenCopies>>,
}

impl Default for Sleepers {
    fn default() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Self {
            // Relaxed: only that the numbers differ matters.
            me: NEXT.fetch_add(1, Ordering::Relaxed) as u64,
            blocks: HashMap::new(),
            units: 0,
            made: 0,
            whole: None,
            caller: None,
            copying: Vec::new(),
        }
    }
}

impl Sleepers {
    pub(in crate::suballoc::engine) fn units(&self) -> u64 {
        self.units
    }

    pub(in crate::suballoc::engine) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns `true` if a block of that address sleeps.
    pub(in crate::suballoc::engine) fn have(&self, address: u64) -> bool {
        self.blocks.contains_key(&address)
    }

    pub(super) fn is_of(&self, block: &SleepingBlock, number: u64) -> bool {
        self.blocks.get(&block.address).is_some_and(|(of, _)| *of == number)
    }
}
