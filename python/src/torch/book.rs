//! `Book`: the blocks that are out, by their addresses.

#![expect(unsafe_code, reason = "keeps a pointer to a table that is never freed, and hears of forks")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use alluvion::driver::RawStream;
use alluvion::{AnyResource, Layout, Machine};

/// Sixteen shards: threads with streams of their own seldom meet in one.
const SHARDS: usize = 16;
const SHARD_BITS: u32 = SHARDS.ilog2();

/// A block that is out.
#[derive(Debug)]
pub(super) struct Live {
    /// The resource that it came from, which it goes back to.
    pub(super) owner: AnyResource,
    pub(super) layout: Layout,
    /// The streams besides its own that use it, by `record_stream`.
    pub(super) users: Vec<RawStream>,
    /// A block of another machine at the same address: simulated machines count theirs from one number.
    beside: Option<Box<Live>>,
}

impl Live {
    pub(super) fn new(owner: AnyResource, layout: Layout) -> Self {
        Self { owner, layout, users: Vec::new(), beside: None }
    }
}

/// The blocks that are out, by their addresses.
///
/// An insertion and a removal take a lock of a shard each, which is held for one step of a hash table.
#[derive(Debug, Default)]
pub(super) struct Book {
    shards: [Shard; SHARDS],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<HashMap<u64, Live>>);

/// The book of this process. A child of a fork begins one of its own: the blocks of its parent are none of its business, and a
/// lock that another thread held at the fork is never released.
static BOOK: AtomicPtr<Book> = AtomicPtr::new(core::ptr::null_mut());
static HEARS_OF_FORKS: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    // Relaxed: the child has one thread.
    BOOK.store(core::ptr::null_mut(), Ordering::Relaxed);
}

impl Book {
    /// The book of this process, which is never freed: functions are called while the process ends.
    pub(super) fn of_this_process() -> &'static Self {
        // Acquire: what is found was written before it was published.
        let known = BOOK.load(Ordering::Acquire);
        // SAFETY: it is null or was leaked below.
        if let Some(book) = unsafe { known.as_ref() } {
            return book;
        }
        if !HEARS_OF_FORKS.swap(true, Ordering::Relaxed) {
            // SAFETY: the handler stores to an atomic, which is permitted between fork and exec, and does not unwind.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
        let made = Box::into_raw(Box::<Self>::default());
        match BOOK.compare_exchange(core::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it was leaked above, and nobody frees it.
            Ok(_) => unsafe { &*made },
            Err(first) => {
                // SAFETY: it was made above, and was not published.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: another thread published it, which leaked it as above.
                unsafe { &*first }
            }
        }
    }

    /// Adds a block that goes out.
    pub(super) fn insert(&self, address: u64, live: Live) {
        let mut shard = self.shard(address).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = shard.insert(address, live)
            && let Some(newest) = shard.get_mut(&address)
        {
            newest.beside = Some(Box::new(before));
        }
    }

    /// Takes a block out that comes back: that of `machine` if there are several at the address, and else the newest.
    pub(super) fn remove(&self, address: u64, machine: Option<&Machine>) -> Option<Live> {
        let mut shard = self.shard(address).lock().unwrap_or_else(PoisonError::into_inner);
        let mut newest = shard.remove(&address)?;
        let Some(beside) = newest.beside.take() else { return Some(newest) };
        let is_meant = |live: &Live| machine.is_none_or(|machine| live.owner.device().machine() == machine);
        if is_meant(&newest) {
            shard.insert(address, *beside);
            return Some(newest);
        }
        let mut chain = vec![newest];
        let mut next = Some(beside);
        while let Some(mut live) = next {
            next = live.beside.take();
            chain.push(*live);
        }
        let meant = chain.iter().position(is_meant).unwrap_or(0);
        let meant = chain.remove(meant);
        let left = chain.into_iter().rev().fold(None, |beside, mut live| {
            live.beside = beside;
            Some(Box::new(live))
        });
        if let Some(left) = left {
            shard.insert(address, *left);
        }
        Some(meant)
    }

    /// Notes that a stream uses a block, and says whether the block is out.
    pub(super) fn note_user(&self, address: u64, stream: RawStream) -> bool {
        let mut shard = self.shard(address).lock().unwrap_or_else(PoisonError::into_inner);
        let Some(live) = shard.get_mut(&address) else { return false };
        if !live.users.contains(&stream) {
            live.users.push(stream);
        }
        true
    }

    /// The resource that a block came from, and its size.
    pub(super) fn owner(&self, address: u64) -> Option<AnyResource> {
        let shard = self.shard(address).lock().unwrap_or_else(PoisonError::into_inner);
        shard.get(&address).map(|live| live.owner.clone())
    }

    fn shard(&self, address: u64) -> &Mutex<HashMap<u64, Live>> {
        // Fibonacci hashing: the top bits of the product depend on all bits of the address.
        let hash = address.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(hash >> (u64::BITS - SHARD_BITS)) as usize].0
    }
}
