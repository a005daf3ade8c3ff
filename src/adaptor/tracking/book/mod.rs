//! `TrackingBook`: the book of [`Tracking`](super::Tracking).

mod call_stack;
mod holding;
mod interpreted;

use core::fmt;
use std::collections::VecDeque;
use std::io::Write;
use std::time::Instant;

use call_stack::Sampler;
pub use call_stack::{CallSite, CallStacks};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
pub use holding::{Holding, Holdings, Share};
pub use interpreted::{CaptureCalls, InterpretedCalls};

use crate::blocks::Shards;
use crate::contain::contain;
use crate::driver::DriverResult;
use crate::error::{Misuse, MisuseKind};
use crate::resource::{DevicePtr, Layout};
use crate::stream::{StreamRef, ThreadToken};
use crate::sync::{Arc, Mutex};
use crate::tag::{BlockTags, Tag};

/// How many addresses of freed blocks a shard remembers: enough to tell a double free from a foreign block if the second
/// free follows soon, at 512 bytes a shard.
const GONE: usize = 64;

/// How many wrong frees are kept: the first ones are the most useful.
const MISUSES: usize = 64;

type OnLeak = Arc<dyn Fn(&Holdings) + Send + Sync>;

/// The live blocks of a [`Tracking`](super::Tracking).
///
/// A block is added after the upstream has allocated it, and removed before the upstream frees it: from then on another
/// thread may own the address. Readers get a copy, so they hold no lock.
///
/// # Wrong frees
///
/// A free of a block that is not live, or with another size than it was allocated with, breaks the contract of
/// [`deallocate`](crate::Resource::deallocate). It is counted and recorded, and not passed on: a leak is better than a
/// wrong free upstream. [`Tracking::try_deallocate`](super::Tracking::try_deallocate) returns an error instead.
pub struct TrackingBook {
    live: Shards<LiveBlocks>,
    began: Instant,
    sampler: Sampler,
    misuses: Mutex<Misuses>,
    on_leak: Option<OnLeak>,
}

#[derive(Default)]
struct LiveBlocks {
    out: HashMap<u64, Holding>,
    /// Wide, so that no sum of sizes is too large for it.
    bytes: u128,
    /// Addresses of the last blocks that went.
    gone: VecDeque<u64>,
}

#[derive(Default)]
struct Misuses {
    first: Vec<Misuse>,
    count: u64,
}

impl TrackingBook {
    pub(super) fn new() -> Self {
        Self {
            live: Shards::default(),
            began: Instant::now(),
            sampler: Sampler::default(),
            misuses: Mutex::default(),
            on_leak: None,
        }
    }

    pub(super) fn require_same_process(&self) -> DriverResult<()> {
        self.misuses.require_same_process()
    }

    pub(super) fn set_stacks(&mut self, stacks: CallStacks) {
        self.sampler = Sampler::of(stacks);
    }

    pub(super) fn set_on_leak(&mut self, on_leak: OnLeak) {
        self.on_leak = Some(on_leak);
    }

    /// Tells of what is live, and of the wrong frees, if there are any.
    pub(super) fn report_leaks(&self) {
        let left = self.outstanding();
        if left.is_clean() {
            return;
        }
        // A panic of the handler ends here, and so does a failure to write: a drop does not panic.
        contain(|| match &self.on_leak {
            Some(on_leak) => on_leak(&left),
            None => {
                let _ = writeln!(std::io::stderr(), "alluvion: a resource was dropped with {left}");
            }
        });
    }

    /// The live blocks now. Concurrent allocations may be seen in part.
    #[must_use]
    pub fn outstanding(&self) -> Holdings {
        if self.misuses.is_forked_child() {
            return Holdings { blocks: Vec::new(), misuses: Vec::new(), misuse_count: 0 };
        }
        let mut blocks = Vec::new();
        for live in self.live.each() {
            blocks.extend(live.out.values().cloned());
        }
        blocks.sort_by_key(|block| (block.at, block.address));
        let misuses = self.misuses.lock();
        Holdings { blocks, misuses: misuses.first.clone(), misuse_count: misuses.count }
    }

    /// The number of live blocks.
    #[must_use]
    pub fn live_blocks(&self) -> usize {
        self.live.each().map(|live| live.out.len()).sum()
    }

    /// The bytes of the live blocks.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        let bytes: u128 = self.live.each().map(|live| live.bytes).sum();
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// How many wrong frees there were.
    #[must_use]
    pub fn misuse_count(&self) -> u64 {
        self.misuses.lock_unless_forked().map_or(0, |misuses| misuses.count)
    }

    /// Adds a block.
    pub(super) fn enter(&self, block: DevicePtr, layout: Layout, stream: Option<StreamRef<'_>>) {
        let holding = Holding {
            address: block,
            bytes: layout.bytes(),
            align: layout.align(),
            stream: stream.map(StreamRef::id),
            tag: Tag::current(),
            thread: ThreadToken::current().number(),
            at: self.began.elapsed(),
            stack: self.sampler.stack(layout.bytes()),
        };
        // The upstream may be the user's, and have forked.
        let Some(mut blocks) = self.live.of(block).lock_unless_forked() else { return };
        blocks.bytes += layout.bytes() as u128;
        // What was there has been freed behind the back of this layer, or else the upstream would not have it to give.
        if let Some(stale) = blocks.out.insert(block.address(), holding) {
            blocks.bytes -= stale.bytes as u128;
        }
    }

    /// A block goes, unless it is none.
    pub(super) fn strike_out(&self, block: DevicePtr, layout: Layout) -> Result<Holding, Misuse> {
        let known = self.live.of(block).lock().remove(block, layout);
        let what = match known {
            Ok(holding) => return Ok(holding),
            Err(MisuseKind::ForeignPointer) => self.around(block),
            Err(what) => what,
        };
        let misuse = Misuse { block, bytes: layout.bytes(), what };
        self.note(misuse);
        Err(misuse)
    }

    /// Returns `true` if entering a block and striking it out take no time: no call stack is captured, and the book is of this
    /// process.
    pub(super) fn is_quick(&self) -> bool {
        !self.sampler.captures() && !self.misuses.is_forked_child()
    }

    /// Removes a block that may not be freed in the end: [`put_back`](Self::put_back) enters it again. `None` if it is not live
    /// with this size, which is not noted. The book is of this process.
    pub(super) fn withdraw(&self, block: DevicePtr, layout: Layout) -> Option<Holding> {
        self.live.of(block).lock().remove(block, layout).ok()
    }

    /// Enters a block again that was withdrawn and not freed.
    pub(super) fn put_back(&self, holding: Holding) {
        // The upstream may be the user's, and have forked.
        let Some(mut blocks) = self.live.of(holding.address).lock_unless_forked() else { return };
        let address = holding.address.address();
        if let Some(at) = blocks.gone.iter().rposition(|&gone| gone == address) {
            blocks.gone.remove(at);
        }
        blocks.bytes += holding.bytes as u128;
        blocks.out.insert(address, holding);
    }

    #[cold]
    fn note(&self, misuse: Misuse) {
        let mut misuses = self.misuses.lock();
        misuses.count += 1;
        if misuses.first.len() < MISUSES {
            misuses.first.push(misuse);
        }
    }

    /// The kind of misuse that a free of this address is, where no live block begins.
    #[cold]
    fn around(&self, address: DevicePtr) -> MisuseKind {
        let at = address.address();
        let holds = |block: &&Holding| {
            at.checked_sub(block.address.address()).is_some_and(|offset| offset < block.bytes as u64)
        };
        let block =
            self.live.each().find_map(|live| live.out.values().find(holds).map(|block| block.address));
        block.map_or(MisuseKind::ForeignPointer, |block| MisuseKind::InteriorPointer { block })
    }
}

impl LiveBlocks {
    /// Removes a live block, and remembers its address.
    fn remove(&mut self, block: DevicePtr, layout: Layout) -> Result<Holding, MisuseKind> {
        match self.out.entry(block.address()) {
            Entry::Occupied(out) if out.get().bytes == layout.bytes() => {
                self.bytes -= layout.bytes() as u128;
                if self.gone.len() == GONE {
                    self.gone.pop_front();
                }
                self.gone.push_back(block.address());
                Ok(out.remove())
            }
            Entry::Occupied(out) => Err(MisuseKind::WrongSize { allocated_bytes: out.get().bytes }),
            Entry::Vacant(_) if self.gone.contains(&block.address()) => Err(MisuseKind::DoubleFree),
            Entry::Vacant(_) => Err(MisuseKind::ForeignPointer),
        }
    }
}

impl BlockTags for TrackingBook {
    fn block_tags(&self) -> Vec<(u64, Tag)> {
        let tags = |held: &Holding| (held.address.address(), held.tag);
        self.live.each().flat_map(|live| live.out.values().map(tags).collect::<Vec<_>>()).collect()
    }
}

/// Reports live blocks and wrong frees, if there are any: to the leak handler, else to the standard error stream.
impl fmt::Debug for TrackingBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrackingBook({} out)", self.live_blocks())
    }
}
