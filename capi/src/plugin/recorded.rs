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
    users: Mutex<HashMap<u64, Vec<Stream>>>,
}

impl Recorded {
    /// Notes that a stream uses a block.
    pub(super) fn add(&self, block: DevicePtr, stream: Stream) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let of_block = users.entry(block.address()).or_default();
        if of_block.iter().any(|user| user.id() == stream.id()) {
            // It may be the last handle of a stream: not dropped under the lock.
            drop(users);
            return;
        }
        of_block.push(stream);
        self.blocks.store(users.len(), Ordering::Relaxed);
    }

    /// The streams of a block that is freed.
    #[inline]
    pub(super) fn take(&self, block: DevicePtr) -> Vec<Stream> {
        // Relaxed: whoever frees a block comes after those who have recorded a stream for it, so the read sees at least that.
        if self.blocks.load(Ordering::Relaxed) == 0 { Vec::new() } else { self.take_one(block) }
    }

    #[cold]
    fn take_one(&self, block: DevicePtr) -> Vec<Stream> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = users.remove(&block.address()).unwrap_or_default();
        self.blocks.store(users.len(), Ordering::Relaxed);
        taken
    }
}
