//! Many threads on one suballocator for a while: random sizes, streams that come and go, blocks that are handed from thread to thread,
//! and work on each that writes a word of its own and looks whether it is still there.

#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use alluvion::source::Cuda;
use alluvion::suballoc::{Arena, FixedSize, Status};
use alluvion::{Device, DeviceAccessible, DevicePtr, Error, Event, Pool, Stream};

use crate::raw_block::{Held, layout_of};

/// How blocks are written and looked at, on a stream, on one sort of machine.
pub(crate) trait Hand: Sync {
    /// Queues writing `word` over `bytes` bytes.
    fn write(&self, stream: &Stream, block: DevicePtr, bytes: usize, word: u32);

    /// Queues counting what is not `word`.
    fn check(&self, stream: &Stream, block: DevicePtr, bytes: usize, word: u32);

    /// How much was found that was somebody else's, once all is over.
    fn wrong(&self) -> u64;
}

/// What is soaked.
pub(crate) trait Subject: DeviceAccessible + Sync {
    fn books(&self) -> Status;

    /// What a program does at a safe point.
    fn tidy(&self, stream: &Stream) -> Result<(), Error>;
}

impl<U: DeviceAccessible + Sync> Subject for Pool<U> {
    fn books(&self) -> Status {
        self.status()
    }

    fn tidy(&self, stream: &Stream) -> Result<(), Error> {
        self.defragment().and(self.merge(stream.as_ref()))
    }
}

impl Subject for Arena<Cuda> {
    fn books(&self) -> Status {
        self.status()
    }

    fn tidy(&self, _: &Stream) -> Result<(), Error> {
        self.defragment()
    }
}

impl Subject for FixedSize<Cuda> {
    fn books(&self) -> Status {
        self.status()
    }

    fn tidy(&self, _: &Stream) -> Result<(), Error> {
        self.defragment()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) threads: usize,
    pub(crate) duration: Duration,
    /// One block in fifty is up to this large, and none is larger.
    pub(crate) largest: usize,
}

/// Blocks that a thread has out at most.
const MOST: usize = 32;

/// Streams that a thread has for itself, and that all have together.
const OWN: usize = 2;
const COMMON: usize = 2;

/// Marsaglia's xorshift: which step is next need not be more random than that.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }

    fn bytes(&mut self, largest: usize) -> usize {
        let bytes = match self.below(50) {
            0 => 1 + self.below(largest),
            1..=5 => 1 + self.below(1 << 20),
            // A few sizes that come again and again.
            6..=30 => [256, 1000, 4096, 20_000, 65_536][self.below(5)],
            _ => 1 + self.below(40_000),
        };
        bytes.min(largest)
    }
}

struct Out<'p, S> {
    block: Held<'p, S>,
    word: u32,
    /// The stream that used it last, and comes after all uses.
    home: Stream,
}

/// A block on its way to another thread, behind an event.
type Handed<'p, S> = (Held<'p, S>, u32, Event);

struct Shared<'p, S> {
    plan: Plan,
    subject: &'p S,
    hand: &'p dyn Hand,
    common: Vec<Stream>,
    handed: Mutex<Vec<Handed<'p, S>>>,
    live_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    steps: AtomicUsize,
    refused: AtomicUsize,
}

struct Worker<'s, 'p, S> {
    shared: &'s Shared<'p, S>,
    device: Device,
    chance: Chance,
    streams: Vec<Stream>,
    out: Vec<Out<'p, S>>,
    next_word: u32,
}

impl<'p, S: Subject> Worker<'_, 'p, S> {
    fn step(&mut self) {
        match self.chance.below(1000) {
            0..500 if self.out.len() < MOST => self.allocate(),
            500..510 if self.out.len() < MOST => self.allocate_sync(),
            510..560 => self.use_elsewhere(),
            560..620 => self.hand_over(),
            620..700 => self.take_over(),
            700..704 => self.streams[0].synchronize().expect("all work succeeds"),
            704..714 => {
                let at = self.chance.below(OWN);
                self.streams[at] = self.device.stream().expect("a stream can be made");
            }
            714 => _ = self.shared.subject.trim(16 << 20).expect("nothing fails"),
            715 => self.shared.subject.tidy(&self.streams[0]).expect("nothing fails"),
            716 => {
                let status = self.shared.subject.books();
                let kept = status.live_bytes + status.free_bytes + status.cached_bytes;
                assert_eq!(kept, status.reserved_bytes, "{status:?}");
            }
            _ => self.free(),
        }
    }

    fn stream(&mut self) -> Stream {
        match self.chance.below(OWN + 1) {
            OWN => self.shared.common[self.chance.below(COMMON)].clone(),
            at => self.streams[at].clone(),
        }
    }

    fn word(&mut self) -> u32 {
        self.next_word = self.next_word.wrapping_mul(0x0019_660D).wrapping_add(0x3C6E_F35F);
        self.next_word
    }

    fn enter(&mut self, block: Held<'p, S>, home: Stream) {
        let bytes = block.layout.bytes();
        let live = self.shared.live_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.shared.peak_bytes.fetch_max(live, Ordering::Relaxed);
        let word = self.word();
        self.shared.hand.write(&home, block.pointer, bytes, word);
        self.out.push(Out { block, word, home });
    }

    fn allocate(&mut self) {
        let layout = layout_of(self.chance.bytes(self.shared.plan.largest));
        let stream = self.stream();
        match Held::allocate(self.shared.subject, layout, stream.as_ref()) {
            Ok(block) => self.enter(block, stream),
            Err(error) => self.is_refused(&error),
        }
    }

    fn allocate_sync(&mut self) {
        let layout = layout_of(self.chance.bytes(self.shared.plan.largest.min(1 << 20)));
        let stream = self.stream();
        match Held::allocate_sync(self.shared.subject, layout) {
            Ok(block) => self.enter(block, stream),
            Err(error) => self.is_refused(&error),
        }
    }

    fn is_refused(&mut self, error: &Error) {
        assert!(error.is_out_of_memory(), "{error}");
        self.shared.refused.fetch_add(1, Ordering::Relaxed);
        (0..4).for_each(|_| self.free());
    }

    fn pick(&mut self) -> Option<Out<'p, S>> {
        let at = self.chance.below(MOST).checked_rem(self.out.len())?;
        Some(self.out.swap_remove(at))
    }

    fn use_elsewhere(&mut self) {
        let Some(Out { block, word, home }) = self.pick() else { return };
        let stream = self.stream();
        stream.wait_for_stream(&home).expect("streams can wait");
        let (at, bytes) = (block.pointer, block.layout.bytes());
        self.shared.hand.check(&stream, at, bytes, word);
        let word = self.word();
        self.shared.hand.write(&stream, at, bytes, word);
        self.out.push(Out { block, word, home: stream });
    }

    fn hand_over(&mut self) {
        let Some(Out { block, word, home }) = self.pick() else { return };
        let event = home.record().expect("an event can be recorded");
        self.shared.handed.lock().expect("no thread panics").push((block, word, event));
    }

    /// Frees what another thread has handed over, on a stream of this one.
    fn take_over(&mut self) {
        let handed = self.shared.handed.lock().expect("no thread panics").pop();
        let Some((block, word, event)) = handed else { return };
        let stream = self.stream();
        stream.wait_event(&event).expect("streams can wait");
        self.let_go(Out { block, word, home: stream });
    }

    fn free(&mut self) {
        if let Some(out) = self.pick() {
            self.let_go(out);
        }
    }

    fn let_go(&mut self, Out { block, word, home }: Out<'p, S>) {
        self.shared.hand.check(&home, block.pointer, block.layout.bytes(), word);
        self.shared.live_bytes.fetch_sub(block.layout.bytes(), Ordering::Relaxed);
        if self.chance.below(50) == 0 {
            home.synchronize().expect("all work succeeds");
            block.free_sync();
        } else {
            block.free(home.as_ref());
        }
    }
}

/// A soak has at least so many steps: some hundreds of steals, on the smallest pools.
const LEAST_STEPS: usize = 1024;

/// What goes on beside the threads of a plan, for as long as it is answered that they go on.
pub(crate) type Beside<'p> = dyn Fn(&dyn Fn() -> bool) + Sync + 'p;

/// Runs the plan. In the end nothing is live, nothing is lost, and nobody has found what was another's.
pub(crate) fn soak<S: Subject>(subject: &S, hand: &dyn Hand, plan: Plan, beside: &[&Beside<'_>]) {
    let shared = Shared {
        plan,
        subject,
        hand,
        common: (0..COMMON).map(|_| subject.device().stream().expect("a stream can be made")).collect(),
        handed: Mutex::default(),
        live_bytes: AtomicUsize::new(0),
        peak_bytes: AtomicUsize::new(0),
        steps: AtomicUsize::new(0),
        refused: AtomicUsize::new(0),
    };
    let begun = Instant::now();
    // On a machine that is busy with other things, until there have been enough steps.
    let goes_on = || begun.elapsed() < plan.duration || shared.steps.load(Ordering::Relaxed) < LEAST_STEPS;
    thread::scope(|scope| {
        let goes_on = &goes_on;
        for work in beside {
            scope.spawn(move || work(goes_on));
        }
        for thread in 0..plan.threads {
            let (shared, device) = (&shared, subject.device().clone());
            scope.spawn(move || {
                let stream = |_| device.stream().expect("a stream can be made");
                let streams = (0..OWN).map(stream).collect();
                let seed = 0x9E37_79B9_7F4A_7C15 ^ (thread as u64) << 32;
                let (chance, next_word) = (Chance(seed), thread as u32 + 1);
                let mut worker = Worker { shared, device, chance, streams, out: Vec::new(), next_word };
                while goes_on() {
                    (0..64).for_each(|_| worker.step());
                    shared.steps.fetch_add(64, Ordering::Relaxed);
                }
                while !worker.out.is_empty() {
                    worker.free();
                }
            });
        }
    });
    let stream = subject.device().stream().expect("a stream can be made");
    for (block, word, event) in shared.handed.into_inner().expect("no thread panics") {
        stream.wait_event(&event).expect("streams can wait");
        hand.check(&stream, block.pointer, block.layout.bytes(), word);
        block.free(stream.as_ref());
    }
    drop(stream);
    subject.device().synchronize().expect("all work succeeds");
    let (steps, refused) = (shared.steps.into_inner(), shared.refused.into_inner());
    let (status, peak) = (subject.books(), shared.peak_bytes.into_inner());
    println!("{steps} steps, {refused} refused, at most {peak} bytes live: {status:?}");
    assert_eq!(hand.wrong(), 0, "blocks held what was another's");
    assert!(steps >= LEAST_STEPS, "{steps} steps are no soak");
    assert_eq!((status.live_blocks, status.live_bytes), (0, 0), "{status:?}");
    // What is free lies in the caches of streams, and in pieces; more than that is lost.
    let bound = 4 * peak + (64 << 20);
    assert!(status.peak_reserved_bytes <= bound, "{peak} bytes were live at most: {status:?}");
    subject.trim(0).expect("nothing fails");
    let status = subject.books();
    assert_eq!((status.reserved_bytes, status.pending_bytes), (0, 0), "{status:?}");
}
