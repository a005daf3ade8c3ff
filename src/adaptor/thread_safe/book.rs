//! `ThreadSafeBook`: the thread inside, and the calls from within.

use core::fmt;
use std::collections::VecDeque;

use crate::resource::{DevicePtr, Layout};
use crate::stream::{Stamp, ThreadToken};
use crate::sync::{AtomicU64, Mutex, Ordering};

/// The book of a [`ThreadSafe`](super::ThreadSafe): calls that came from within another one, on the same thread.
#[derive(Default)]
pub struct ThreadSafeBook {
    /// The number of the thread that is inside; 0 if none is.
    owner: AtomicU64,
    /// How many blocks are parked. Who is inside changes and reads it, so that a call with none takes no second lock.
    parked: AtomicU64,
    blocks: Mutex<VecDeque<Parked>>,
    parked_ever: AtomicU64,
    refused: AtomicU64,
}

/// A block that was freed from within, and not passed on yet.
pub(super) struct Parked {
    pub(super) block: DevicePtr,
    pub(super) layout: Layout,
    /// The point that its uses come before; none if they were over.
    pub(super) freed_at: Option<Stamp>,
}

impl ThreadSafeBook {
    // Relaxed, all: figures; or words that only the thread inside writes, and passes on with the lock.

    /// Allocations and other questions that were refused, because they came from within.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Blocks that were freed from within, and parked.
    #[must_use]
    pub fn parked(&self) -> u64 {
        self.parked_ever.load(Ordering::Relaxed)
    }

    /// Blocks that are parked at this moment: not freed yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.parked.load(Ordering::Relaxed) as usize
    }

    /// Returns `true` if this thread is inside. Only this thread writes its number, so there is no confusion.
    pub(super) fn is_inside(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == this_thread()
    }

    pub(super) fn begin(&self) {
        self.owner.store(this_thread(), Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.owner.store(0, Ordering::Relaxed);
    }

    pub(super) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn park(&self, parked: Parked) {
        self.parked_ever.fetch_add(1, Ordering::Relaxed);
        let mut blocks = self.blocks.lock();
        blocks.push_back(parked);
        self.parked.store(blocks.len() as u64, Ordering::Relaxed);
    }

    pub(super) fn has_parked(&self) -> bool {
        self.waiting() > 0
    }

    /// Takes the block that has been parked for longest.
    pub(super) fn next(&self) -> Option<Parked> {
        let mut blocks = self.blocks.lock();
        let next = blocks.pop_front();
        self.parked.store(blocks.len() as u64, Ordering::Relaxed);
        next
    }

    /// Parks a block again that could not be freed.
    pub(super) fn keep(&self, waiting: Vec<Parked>) {
        let mut blocks = self.blocks.lock();
        blocks.extend(waiting);
        self.parked.store(blocks.len() as u64, Ordering::Relaxed);
    }
}

fn this_thread() -> u64 {
    ThreadToken::current().number() as u64
}

impl fmt::Debug for ThreadSafeBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ThreadSafeBook({} refused, {} parked, {} waiting)",
            self.refused(),
            self.parked(),
            self.waiting()
        )
    }
}
