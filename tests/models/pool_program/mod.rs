//! A program over a pool: streams, threads, blocks and kernels that check whose pattern they find.
//!
//! The oracle is kept beside: which blocks are live, how long they are and what they hold. After each step the pool's own books
//! are compared with it. What is reused too early is a hazard of the simulated machine, or a pattern that is another's.

#![allow(dead_code, reason = "some tests need a part of it")]
#![expect(unsafe_code, reason = "launches kernels, and frees by hand")]

pub(crate) mod books;
pub(crate) mod op;
mod pattern;
mod tally;
pub(crate) mod worker;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvion::{
    DeviceAccessible, DevicePtr, Error, Frontier, Layout, Pool, Resource, ResourceExt as _, Sim, Stream,
};
use op::{Kind, Op, SLOTS};
use pattern::Wrong;
pub(crate) use tally::StatsBook;

/// What a program's pool is made to do, beside what a resource does.
pub(crate) trait Subject: DeviceAccessible + Send + Sync + 'static {
    /// What the pool grows from.
    type Upstream: DeviceAccessible;

    fn inner(&self) -> &Pool<Self::Upstream>;

    /// Whether the pool is told of the streams that the program names.
    fn is_honest(&self) -> bool {
        true
    }
}

impl<U: DeviceAccessible + Send + Sync + 'static> Subject for Pool<U> {
    type Upstream = U;

    fn inner(&self) -> &Self {
        self
    }
}

pub(crate) struct Live {
    pub(crate) pointer: DevicePtr,
    pub(crate) layout: Layout,
    word: u32,
    /// What the next use must come after.
    last_use: Frontier,
    /// The slot of the stream that used it last.
    home: usize,
}

pub(crate) struct World<S> {
    pub(crate) sim: Arc<Sim>,
    pub(crate) subject: Arc<S>,
    pub(crate) maximum: usize,
    pub(crate) live: Vec<Live>,
    slots: [Option<Stream>; SLOTS],
    next_word: u32,
    /// What kernels have found that was not theirs.
    wrong: Wrong,
    tally: Arc<StatsBook>,
}

impl<S: Subject> World<S> {
    pub(crate) fn new(sim: Arc<Sim>, subject: Arc<S>, maximum: usize, tally: Arc<StatsBook>) -> Self {
        Self {
            sim,
            subject,
            maximum,
            live: Vec::new(),
            slots: std::array::from_fn(|_| None),
            next_word: 0x0100_0193,
            wrong: Arc::default(),
            tally,
        }
    }

    fn make(&self, kind: Kind) -> Stream {
        let device = self.sim.device(0);
        match kind {
            Kind::Owned => device.stream().expect("a stream can be made"),
            Kind::Legacy => device.default_stream(),
            Kind::PerThread => device.per_thread_stream().expect("the thread lives").as_ref().to_stream(),
        }
    }

    /// The stream in a slot; made, if there is none.
    fn stream(&mut self, slot: usize) -> Stream {
        if self.slots[slot].is_none() {
            self.slots[slot] = Some(self.make(Kind::Owned));
        }
        self.slots[slot].clone().expect("it was made")
    }

    /// A word that no block holds.
    fn next_word(&mut self) -> u32 {
        // A linear congruential generator of full period: no word comes twice in 2^32.
        self.next_word = self.next_word.wrapping_mul(0x0019_660D).wrapping_add(0x3C6E_F35F);
        self.next_word
    }

    pub(crate) fn run(&mut self, op: Op) {
        match op {
            Op::Make(slot, kind) => self.slots[slot] = Some(self.make(kind)),
            Op::Drop(slot) => self.slots[slot] = None,
            Op::Allocate { slot, layout } => self.allocate(slot, layout),
            Op::AllocateSync { slot, layout } => {
                let served = self.subject.allocate_sync(layout);
                self.enter(served, layout, slot);
            }
            Op::AllocateMany { slot, layout, count } => self.allocate_many(slot, layout, count),
            Op::Use { block, slot } => self.use_block(block, slot),
            Op::Free { block, slot } => self.free(block, Some(slot)),
            Op::FreeAtHome { block } => self.free(block, None),
            Op::FreeSync { block } => self.free_sync(block),
            Op::FreeMany { slot, count } => self.free_many(slot, count),
            Op::Trim { keep_bytes } => self.trim(keep_bytes),
            Op::Merge { slot } => {
                let stream = self.stream(slot);
                self.subject.inner().merge(stream.as_ref()).expect("nothing fails");
            }
            Op::Defragment => self.subject.inner().defragment().expect("nothing fails"),
            Op::Synchronize(slot) => self.stream(slot).synchronize().expect("nothing fails"),
            Op::SynchronizeDevice => self.sim.device(0).synchronize().expect("nothing fails"),
            Op::Query(slot) => _ = self.stream(slot).is_idle().expect("nothing fails"),
            Op::Wait { slot, on } => {
                let (stream, on) = (self.stream(slot), self.stream(on));
                stream.wait_for_stream(&on).expect("nothing fails");
            }
            Op::Largest { slot } => self.allocate_largest(slot),
            Op::EndThread => {}
        }
        if self.subject.is_honest() {
            books::agree(self.subject.inner(), &self.live, self.maximum);
        }
    }

    fn allocate(&mut self, slot: usize, layout: Layout) {
        let stream = self.stream(slot);
        let served = self.subject.allocate(layout, stream.as_ref());
        self.enter(served, layout, slot);
    }

    /// Keeps a block that was served, and writes it.
    fn enter(&mut self, served: Result<DevicePtr, Error>, layout: Layout, home: usize) {
        let pointer = match served {
            Ok(pointer) => pointer,
            Err(error) => {
                assert!(error.is_out_of_memory(), "{layout:?}: {error}");
                let free = self.sim.device(0).memory_info().expect("nothing fails").free_bytes;
                books::refusal_is_due(self.subject.inner(), layout, self.maximum, free);
                self.tally.refused.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        self.tally.served.fetch_add(1, Ordering::Relaxed);
        assert!(pointer.is_aligned_to(layout.block_align()), "{pointer} for {layout:?}");
        let (word, stream) = (self.next_word(), self.stream(home));
        if !layout.is_empty() {
            self.launch(stream.as_ref(), pointer, layout, None, word);
        }
        let last_use = Frontier::of(stream.as_ref().release());
        self.live.push(Live { pointer, layout, word, last_use, home });
    }

    fn allocate_many(&mut self, slot: usize, layout: Layout, count: usize) {
        let stream = self.stream(slot);
        let before = self.subject.inner().status().live_blocks;
        match self.subject.inner().allocate_many(&vec![layout; count], stream.as_ref()) {
            Ok(pointers) => {
                assert_eq!(pointers.len(), count);
                pointers.into_iter().for_each(|pointer| self.enter(Ok(pointer), layout, slot));
            }
            Err(error) => {
                assert!(error.is_out_of_memory(), "{layout:?}: {error}");
                assert_eq!(self.subject.inner().status().live_blocks, before, "all or nothing: {error}");
                self.tally.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// What the pool says that the stream could get, it gets: without growth and without a wait.
    fn allocate_largest(&mut self, slot: usize) {
        let stream = self.stream(slot);
        let before = self.subject.inner().status();
        let bytes = self.subject.inner().largest_bytes(stream.as_ref());
        assert!(bytes <= before.free_bytes + before.cached_bytes, "{bytes} bytes of {before:?}");
        if bytes == 0 || !self.subject.is_honest() {
            return;
        }
        let layout = Layout::from_bytes(bytes).expect("it is no more than there is");
        let served = self.subject.allocate(layout, stream.as_ref());
        let after = self.subject.inner().status();
        assert!(served.is_ok(), "{bytes} bytes could be had: {served:?}, {after:?}");
        assert_eq!(
            (after.upstream_calls, after.waits),
            (before.upstream_calls, before.waits),
            "{bytes} bytes were to be had without growth and without a wait: {before:?}, {after:?}"
        );
        self.enter(served, layout, slot);
    }

    /// Orders a stream after the last use of a block, by the least that does.
    fn follow(&self, live: &Live, stream: &Stream) {
        if !stream.as_ref().may_reuse(&live.last_use) {
            stream.as_ref().wait_for(&live.last_use).expect("nothing fails");
        }
    }

    fn use_block(&mut self, block: usize, slot: usize) {
        let Some(at) = block.checked_rem(self.live.len()) else { return };
        let (stream, word) = (self.stream(slot), self.next_word());
        let live = &self.live[at];
        if live.layout.is_empty() {
            return;
        }
        self.follow(live, &stream);
        self.launch(stream.as_ref(), live.pointer, live.layout, Some(live.word), word);
        self.live[at].word = word;
        self.live[at].last_use = Frontier::of(stream.as_ref().release());
        self.live[at].home = slot;
    }

    /// Takes a block out of the books, behind a last kernel that checks it. Returns it with the stream to free it on.
    fn leave(&mut self, block: usize, slot: Option<usize>) -> Option<(Live, Stream)> {
        let at = block.checked_rem(self.live.len())?;
        let stream = self.stream(slot.unwrap_or(self.live[at].home));
        let live = self.live.swap_remove(at);
        self.follow(&live, &stream);
        if !live.layout.is_empty() {
            self.launch(stream.as_ref(), live.pointer, live.layout, Some(live.word), !live.word);
        }
        Some((live, stream))
    }

    fn free(&mut self, block: usize, slot: Option<usize>) {
        if let Some((live, stream)) = self.leave(block, slot) {
            // SAFETY: the block is live and the subject's, with this layout; the stream comes after its last use.
            unsafe { self.subject.deallocate(live.pointer, live.layout, stream.as_ref()) };
        }
    }

    fn free_sync(&mut self, block: usize) {
        if let Some((live, stream)) = self.leave(block, None) {
            stream.synchronize().expect("nothing fails");
            // SAFETY: as in `free`, and the host has waited.
            unsafe { self.subject.deallocate_sync(live.pointer, live.layout) };
        }
    }

    fn free_many(&mut self, slot: usize, count: usize) {
        let left: Vec<_> = (0..count).filter_map(|_| self.leave(0, Some(slot))).collect();
        let blocks: Vec<_> = left.iter().map(|(live, _)| (live.pointer, live.layout)).collect();
        let stream = self.stream(slot);
        // SAFETY: as in `free`, for each: all of them have followed the stream in this slot.
        unsafe { self.subject.inner().deallocate_many(&blocks, stream.as_ref()) };
    }

    fn trim(&self, keep_bytes: usize) {
        let before = self.subject.inner().status();
        let gone = self.subject.trim(keep_bytes).expect("nothing fails");
        let after = self.subject.inner().status();
        assert_eq!(before.reserved_bytes - after.reserved_bytes, gone, "{before:?}, {after:?}");
    }

    /// Frees what is live, asks for the maximum, and lets go of everything: nothing may be left.
    pub(crate) fn end(&mut self) {
        while !self.live.is_empty() {
            self.free(0, None);
        }
        let pool = self.subject.inner();
        if self.subject.is_honest() {
            books::agree(pool, &[], self.maximum);
        }
        let status = pool.status();
        assert_eq!((status.live_bytes, status.live_blocks), (0, 0), "{status:?}");
        if self.maximum < usize::MAX / 2 {
            // Whatever is pending, and on whatever stream.
            let (stream, layout) =
                (self.make(Kind::Owned), Layout::from_bytes(self.maximum).expect("it is small"));
            let served = self.subject.allocate(layout, stream.as_ref());
            let pointer =
                served.unwrap_or_else(|error| panic!("nothing is live, and the maximum is refused: {error}"));
            self.launch(stream.as_ref(), pointer, layout, None, 1);
            // SAFETY: as in `free`.
            unsafe { self.subject.deallocate(pointer, layout, stream.as_ref()) };
        }
        for (count, seen) in [
            (&self.tally.steals, self.subject.inner().status().steals),
            (&self.tally.waits, self.subject.inner().status().waits),
            (&self.tally.hits, self.subject.inner().status().hits),
        ] {
            count.fetch_add(seen as usize, Ordering::Relaxed);
        }
        self.slots = std::array::from_fn(|_| None);
        self.sim.device(0).synchronize().expect("nothing fails");
        self.subject.trim(0).expect("nothing fails");
        let status = self.subject.inner().status();
        assert_eq!((status.reserved_bytes, status.free_bytes, status.cached_bytes), (0, 0, 0), "{status:?}");
    }
}
