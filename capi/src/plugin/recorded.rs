//! `Recorded`: the few blocks that streams were recorded for, where no ledger knows all of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use alluvion::{DevicePtr, Stream};

/// The streams that use a block besides its own, by the address of the block.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// How many blocks there are. A program that records nothing pays for one read at a free.
    blocks: AtomicUsize,
    users: Mutex<HashMap<u64, Users>>,
}

/// The streams that use a block.
#[derive(Debug, Default)]
pub(super) struct Users {
    pub(super) streams: Vec<Stream>,
    /// Whether there is one more, which is not known: then nobody can tell when the block is free.
    pub(super) has_unknown: bool,
}

impl Recorded {
    /// Notes that streams use a block; `None` is a stream that cannot be found out.
    pub(super) fn add(&self, block: DevicePtr, streams: Option<Vec<Stream>>) {
        // Dropped behind the lock: they may be the last handles of streams.
        let mut known = Vec::new();
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let of_block = users.entry(block.address()).or_default();
        of_block.has_unknown |= streams.is_none();
        for stream in streams.unwrap_or_default() {
            if of_block.streams.iter().any(|user| user.id() == stream.id()) {
                known.push(stream);
            } else {
                of_block.streams.push(stream);
            }
        }
        self.blocks.store(users.len(), Ordering::Relaxed);
        drop(users);
    }

    /// The streams of a block that is freed.
    #[inline]
    pub(super) fn take(&self, block: DevicePtr) -> Option<Users> {
        // Relaxed: whoever frees a block comes after those who have recorded a stream for it, so the read sees at least that.
        if self.blocks.load(Ordering::Relaxed) == 0 { None } else { self.take_one(block) }
    }

    #[cold]
    fn take_one(&self, block: DevicePtr) -> Option<Users> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = users.remove(&block.address());
        self.blocks.store(users.len(), Ordering::Relaxed);
        taken
    }
}
