//! Any program over streams, events and blocks: a block that is taken when its frontier permits it is taken in order.
//!
//! The simulated machine finds a use that is not ordered behind the one before, whether or not it shows. The allocator here is
//! the smallest that there is: a block is its frontier.

#![expect(unsafe_code, reason = "launches kernels, and wraps streams that it makes beside the crate")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use alluvion::driver::{Driver, RawStream, StreamFlags};
use alluvion::sim::{Kernel, SimConfig, SimDriver, explore};
use alluvion::stream::{Epoch, StreamId};
use alluvion::{Event, Frontier, Sim, Stream, StreamRef};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{FailurePersistence, FileFailurePersistence, TestRunner};

use crate::trials::trials;

/// Programs of a night. One takes about half a millisecond.
const PROGRAMS: u32 = 4000;

const SLOTS: usize = 5;
const BLOCKS: usize = 3;
const EVENTS: usize = 2;
const THREADS: usize = 3;
const BLOCK_BYTES: usize = 64;

/// How a stream comes about.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Owned,
    Blocking,
    Legacy,
    /// Of the thread that the step runs on; used later from any.
    PerThread,
    /// Somebody else's, destroyed as soon as its last handle is gone.
    Foreign,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Make(usize, Kind),
    Drop(usize),
    /// Takes a block, if it is free, or uses it on the stream that has it.
    Use(usize, usize),
    /// Uses a block on a second stream.
    Share(usize, usize),
    Free(usize),
    /// Joins the frontiers of two free blocks.
    Join(usize, usize),
    Forget(usize),
    /// Asks whether a block is quiescent. If it is, the host reads it.
    Ask(usize),
    /// Waits until a block is, and reads it.
    Await(usize),
    Synchronize(usize),
    SynchronizeDevice,
    Query(usize),
    WaitForStream(usize, usize),
    Record(usize, usize),
    WaitForEvent(usize, usize),
    QueryEvent(usize),
    SynchronizeEvent(usize),
    DropEvent(usize),
    /// Ends a thread; another takes its place.
    EndThread,
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => Just(Kind::Owned),
        1 => Just(Kind::Blocking),
        1 => Just(Kind::Legacy),
        2 => Just(Kind::PerThread),
        2 => Just(Kind::Foreign),
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    let (slot, block, event) = (0..SLOTS, 0..BLOCKS, 0..EVENTS);
    let s = move || slot.clone();
    let b = move || block.clone();
    let e = move || event.clone();
    prop_oneof![
        4 => (s(), kinds()).prop_map(|(slot, kind)| Op::Make(slot, kind)),
        2 => s().prop_map(Op::Drop),
        10 => (b(), s()).prop_map(|(block, slot)| Op::Use(block, slot)),
        3 => (b(), s()).prop_map(|(block, slot)| Op::Share(block, slot)),
        8 => b().prop_map(Op::Free),
        1 => (b(), b()).prop_map(|(one, other)| Op::Join(one, other)),
        1 => b().prop_map(Op::Forget),
        2 => b().prop_map(Op::Ask),
        1 => b().prop_map(Op::Await),
        1 => s().prop_map(Op::Synchronize),
        1 => Just(Op::SynchronizeDevice),
        2 => s().prop_map(Op::Query),
        2 => (s(), s()).prop_map(|(one, other)| Op::WaitForStream(one, other)),
        2 => (s(), e()).prop_map(|(slot, event)| Op::Record(slot, event)),
        2 => (s(), e()).prop_map(|(slot, event)| Op::WaitForEvent(slot, event)),
        2 => e().prop_map(Op::QueryEvent),
        1 => e().prop_map(Op::SynchronizeEvent),
        1 => e().prop_map(Op::DropEvent),
        1 => Just(Op::EndThread),
    ]
}

/// Programs that failed are kept, and tried first.
fn config(cases: u32) -> ProptestConfig {
    let kept = FileFailurePersistence::Direct("tests/models/streams.seeds");
    let failure_persistence: Option<Box<dyn FailurePersistence>> = Some(Box::new(kept));
    ProptestConfig { cases, max_shrink_iters: 4000, failure_persistence, ..ProptestConfig::default() }
}

/// What came about, over all programs: shows that they reach what they are about.
#[derive(Debug, Default)]
struct StatsBook {
    at_home: AtomicUsize,
    elsewhere_at_once: AtomicUsize,
    elsewhere_after_a_wait: AtomicUsize,
    read_by_the_host: AtomicUsize,
}

impl StatsBook {
    fn counts(&self) -> [usize; 4] {
        [&self.at_home, &self.elsewhere_at_once, &self.elsewhere_after_a_wait, &self.read_by_the_host]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

/// A stream, and what is to be done once it is not used any more.
#[derive(Clone)]
struct Held {
    stream: Option<Stream>,
    /// Destroyed when the last of its clones is dropped.
    foreign: Option<Arc<Foreign>>,
}

struct Foreign(Arc<SimDriver>, RawStream);

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: `Held` drops its stream before this, and this is the last one.
        unsafe { self.0.stream_destroy(0, self.1) }.expect("it is destroyed once");
    }
}

impl Held {
    fn of(stream: Stream) -> Self {
        Self { stream: Some(stream), foreign: None }
    }

    fn as_ref(&self) -> StreamRef<'_> {
        self.stream.as_ref().expect("it is there until it is dropped").as_ref()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.stream = None;
        self.foreign = None;
    }
}

struct Block {
    address: u64,
    /// Who has it, if it is not free.
    holder: Option<Held>,
    /// What its next use must come after; while it is held, what the holder need not have followed: uses elsewhere.
    frontier: Frontier,
}

struct World {
    sim: Arc<Sim>,
    tally: Arc<StatsBook>,
    /// Whether frontiers are asked at all.
    asks: bool,
    slots: [Option<Held>; SLOTS],
    blocks: Vec<Block>,
    events: [Option<Event>; EVENTS],
}

impl World {
    fn new(sim: Arc<Sim>, tally: Arc<StatsBook>, asks: bool) -> Self {
        let address = || sim.allocate_device(0, BLOCK_BYTES).expect("there is room");
        let blocks =
            (0..BLOCKS).map(|_| Block { address: address(), holder: None, frontier: Frontier::quiescent() });
        Self {
            blocks: blocks.collect(),
            sim,
            tally,
            asks,
            slots: std::array::from_fn(|_| None),
            events: [None, None],
        }
    }

    fn make(&self, kind: Kind) -> Held {
        let device = self.sim.device(0);
        match kind {
            Kind::Owned => Held::of(device.stream().expect("a stream")),
            Kind::Blocking => {
                let flags = StreamFlags { blocking: true, priority: 0 };
                Held::of(device.stream_with(flags).expect("a stream"))
            }
            Kind::Legacy => Held::of(device.default_stream()),
            Kind::PerThread => {
                Held::of(device.per_thread_stream().expect("the thread lives").as_ref().to_stream())
            }
            Kind::Foreign => {
                let raw = self.sim.stream_create(0, StreamFlags::default()).expect("a stream");
                // SAFETY: `Held` destroys it when all clones are gone.
                let stream = unsafe { Stream::from_raw(&device, raw) }.expect("a number is left");
                let foreign = Arc::new(Foreign(Arc::clone(self.sim.sim_driver()), raw));
                Held { stream: Some(stream), foreign: Some(foreign) }
            }
        }
    }

    fn launch(&self, stream: StreamRef<'_>, address: u64) {
        let kernel = Kernel::new("use").writes(address, BLOCK_BYTES);
        // SAFETY: the stream is borrowed, and the block lives as long as the machine; a conflict is reported.
        unsafe { self.sim.launch(0, stream.raw(), kernel) }.expect("a kernel can be launched");
    }

    /// Makes the stream come after the frontier, if it does not.
    fn follow(&self, stream: StreamRef<'_>, frontier: &Frontier) {
        let own = frontier.iter().all(|stamp| stamp.stream() == stream.id());
        let may = stream.may_reuse(frontier);
        assert!(may || !own, "what was freed on the stream is the stream's");
        let count = match (own, may) {
            (true, _) => &self.tally.at_home,
            (_, true) => &self.tally.elsewhere_at_once,
            _ => &self.tally.elsewhere_after_a_wait,
        };
        count.fetch_add(1, Ordering::Relaxed);
        if !may && self.asks {
            stream.wait_for(frontier).expect("nothing fails");
            assert!(stream.may_reuse(frontier), "it has waited");
        }
    }

    /// The host reads a block that nobody uses any more.
    fn read(&self, block: usize) {
        self.tally.read_by_the_host.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0_u8; BLOCK_BYTES];
        let to = bytes.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: both ranges live; that no work conflicts is what the machine checks.
        unsafe { self.sim.copy(0, to, self.blocks[block].address, BLOCK_BYTES) }.expect("it can be read");
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Make(slot, kind) => self.slots[slot] = Some(self.make(kind)),
            Op::Drop(slot) => self.slots[slot] = None,
            Op::Use(block, slot) => self.use_block(block, slot),
            Op::Share(block, slot) => self.share(block, slot),
            Op::Free(block) => self.free(block),
            Op::Join(one, other) => {
                if self.blocks[one].holder.is_none() && self.blocks[other].holder.is_none() {
                    let mut joined = self.blocks[one].frontier.clone();
                    joined.join(&self.blocks[other].frontier);
                    self.blocks[one].frontier = joined.clone();
                    self.blocks[other].frontier = joined;
                }
            }
            Op::Forget(block) => self.sim.machine().forget_done(&mut self.blocks[block].frontier),
            Op::Ask(block) => {
                if self.blocks[block].holder.is_none() {
                    let frontier = &self.blocks[block].frontier;
                    if self.sim.machine().is_quiescent(frontier).expect("nothing fails") {
                        self.read(block);
                    }
                }
            }
            Op::Await(block) => {
                if self.blocks[block].holder.is_none() {
                    let frontier = &self.blocks[block].frontier;
                    self.sim.machine().wait_quiescent(frontier).expect("nothing fails");
                    assert!(self.sim.machine().is_quiescent(frontier).expect("nothing fails"));
                    self.read(block);
                }
            }
            Op::Synchronize(slot) => self.with(slot, |stream| stream.synchronize().expect("nothing fails")),
            Op::SynchronizeDevice => self.sim.device(0).synchronize().expect("nothing fails"),
            Op::Query(slot) => self.with(slot, |stream| _ = stream.is_idle().expect("nothing fails")),
            Op::WaitForStream(one, other) => self.with(one, |one| {
                self.with(other, |other| one.wait_for_stream(other).expect("nothing fails"));
            }),
            Op::Record(slot, event) => {
                if let Some(held) = &self.slots[slot] {
                    self.events[event] = Some(held.as_ref().record().expect("nothing fails"));
                }
            }
            Op::WaitForEvent(slot, event) => self.with(slot, |stream| {
                if let Some(event) = &self.events[event] {
                    stream.wait_event(event).expect("nothing fails");
                    assert!(stream.may_reuse(&event.frontier()));
                }
            }),
            Op::QueryEvent(event) => {
                if let Some(event) = &self.events[event] {
                    event.is_complete().expect("nothing fails");
                }
            }
            Op::SynchronizeEvent(event) => {
                if let Some(event) = &self.events[event] {
                    event.synchronize().expect("nothing fails");
                    assert!(self.sim.machine().is_quiescent(&event.frontier()).expect("nothing fails"));
                }
            }
            Op::DropEvent(event) => self.events[event] = None,
            Op::EndThread => {}
        }
    }

    fn with(&self, slot: usize, body: impl FnOnce(StreamRef<'_>)) {
        if let Some(held) = &self.slots[slot] {
            body(held.as_ref());
        }
    }

    fn use_block(&mut self, block: usize, slot: usize) {
        if self.blocks[block].holder.is_none() {
            let Some(held) = self.slots[slot].clone() else { return };
            self.follow(held.as_ref(), &self.blocks[block].frontier);
            self.blocks[block].holder = Some(held);
            self.blocks[block].frontier = Frontier::quiescent();
        }
        let Block { address, holder, frontier } = &self.blocks[block];
        let Some(holder) = holder else { return };
        // What was shared is waited for before the holder goes on. A stand-in for the holder is another stream: what the holder
        // did last is in the frontier, too.
        self.follow(holder.as_ref(), frontier);
        self.launch(holder.as_ref(), *address);
        let used = holder.as_ref().release();
        self.blocks[block].frontier.extend(used);
    }

    fn share(&mut self, block: usize, slot: usize) {
        let (Some(held), Block { address, holder: Some(_), frontier }) =
            (&self.slots[slot], &self.blocks[block])
        else {
            return;
        };
        self.follow(held.as_ref(), frontier);
        self.launch(held.as_ref(), *address);
        let used = held.as_ref().release();
        self.blocks[block].frontier.extend(used);
    }

    fn free(&mut self, block: usize) {
        if let Some(holder) = self.blocks[block].holder.take() {
            let freed = holder.as_ref().release();
            self.blocks[block].frontier.extend(freed);
        }
    }
}

/// A thread that runs the steps it is sent, one at a time, on a world that goes to and fro.
struct Worker {
    steps: Option<Sender<(World, Op)>>,
    worlds: Receiver<World>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn new() -> Self {
        let (steps, to_run) = channel::<(World, Op)>();
        let (done, worlds) = channel();
        let thread = thread::spawn(move || {
            for (mut world, op) in to_run {
                world.run(op);
                done.send(world).expect("it is waited for");
            }
        });
        Self { steps: Some(steps), worlds, thread: Some(thread) }
    }

    fn run(&self, world: World, op: Op) -> World {
        let steps = self.steps.as_ref().expect("it runs until it is dropped");
        steps.send((world, op)).expect("the thread runs");
        self.worlds.recv().expect("the step does not panic")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.steps = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs a program, each step on one of three threads, one after another. Returns the mistakes.
fn hazards_of(seed: u64, program: &[(usize, Op)], tally: &Arc<StatsBook>, asks: bool) -> Vec<String> {
    let sim = Arc::new(Sim::with_config(SimConfig::default().seed(seed)));
    let mut workers: Vec<Option<Worker>> = (0..THREADS).map(|_| None).collect();
    let mut world = World::new(Arc::clone(&sim), Arc::clone(tally), asks);
    for &(on, op) in program {
        match (on, op) {
            (0, _) => world.run(op),
            (_, Op::EndThread) => workers[on] = None,
            _ => world = workers[on].get_or_insert_with(Worker::new).run(world, op),
        }
    }
    // Every block is used once more, on one stream: whatever was lost until now shows here.
    world.run(Op::Make(0, Kind::Owned));
    for block in 0..BLOCKS {
        world.run(Op::Free(block));
        world.run(Op::Use(block, 0));
    }
    sim.hazards().iter().map(ToString::to_string).collect()
}

#[test]
fn what_the_frontier_permits_is_in_order() {
    let tally = Arc::new(StatsBook::default());
    let programs = (any::<u64>(), vec((0..THREADS, ops()), 1..60));
    let count = trials(PROGRAMS);
    let mut runner = TestRunner::new(config(count));
    runner
        .run(&programs, |(seed, program)| {
            let hazards = hazards_of(seed, &program, &tally, true);
            prop_assert!(hazards.is_empty(), "{}", hazards[0]);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let counts = tally.counts();
    println!("at home, elsewhere at once, elsewhere after a wait, read by the host: {counts:?}");
    assert!(counts.iter().all(|reached| *reached > count as usize / 10), "{counts:?}");
}

/// Shows that the programs would find a frontier that is not followed.
#[test]
fn an_allocator_that_does_not_ask_is_caught() {
    let mut runner = TestRunner::deterministic();
    let programs = (any::<u64>(), vec((0..THREADS, ops()), 60));
    let caught = (0..50).filter(|_| {
        let (seed, program) = programs.new_tree(&mut runner).expect("there are programs").current();
        !hazards_of(seed, &program, &Arc::default(), false).is_empty()
    });
    assert!(caught.count() > 25);
}

proptest! {
    #![proptest_config(config(trials(2000)))]

    /// A frontier is a map from streams to the latest point of each.
    #[test]
    fn a_frontier_is_a_map_of_latest_points(
        steps in vec((0_usize..4, 0_usize..6, any::<bool>()), 1..40),
        joins in vec((0_usize..4, 0_usize..4), 0..6),
    ) {
        let sim = Sim::new();
        let streams: Vec<Stream> = (0..6).map(|_| sim.device(0).stream().unwrap()).collect();
        let mut frontiers = vec![Frontier::quiescent(); 4];
        let mut maps: Vec<BTreeMap<StreamId, Epoch>> = vec![BTreeMap::new(); 4];
        for (at, stream, advance) in steps {
            let stamp = streams[stream].as_ref().release();
            if advance {
                streams[stream].record().unwrap();
            }
            frontiers[at].extend(stamp);
            // Epochs of a stream only grow, so the last one is the latest.
            let before = maps[at].insert(stamp.stream(), stamp.epoch());
            prop_assert!(before.is_none_or(|before| before <= stamp.epoch()));
        }
        for (into, from) in joins {
            let other = frontiers[from].clone();
            frontiers[into].join(&other);
            for (stream, epoch) in maps[from].clone() {
                let latest = maps[into].entry(stream).or_insert(epoch);
                *latest = epoch.max(*latest);
            }
        }
        for (frontier, map) in frontiers.iter().zip(&maps) {
            let points: Vec<_> = frontier.iter().map(|stamp| (stamp.stream(), stamp.epoch())).collect();
            let expected: Vec<_> = map.iter().map(|(stream, epoch)| (*stream, *epoch)).collect();
            prop_assert_eq!(&points, &expected);
            prop_assert_eq!((frontier.len(), frontier.is_empty()), (map.len(), map.is_empty()));
            // What is reusable is decided point by point.
            for (at, stream) in streams.iter().enumerate() {
                let own = map.keys().all(|id| *id == stream.id());
                prop_assert_eq!(stream.as_ref().may_reuse(frontier), own, "{}", at);
            }
        }
    }
}

/// Every program of up to three streams and six steps, the first and the last of which use the block, under every schedule.
#[test]
fn every_small_program_is_in_order_under_every_schedule() {
    let mut alphabet = vec![SmallOp::Ask];
    for stream in 0..3 {
        alphabet.extend([SmallOp::Use(stream), SmallOp::Renew(stream), SmallOp::Query(stream)]);
        alphabet.extend((0..3).filter(|other| *other != stream).map(|other| SmallOp::Wait(stream, other)));
    }
    let (mut programs, mut schedules) = (0_u64, 0_u64);
    let inner = alphabet.len().pow(3);
    for last in 0..3 {
        for number in 0..inner {
            let at = |place: u32| alphabet[number / alphabet.len().pow(place) % alphabet.len()];
            let program = [SmallOp::Use(0), at(0), at(1), at(2), SmallOp::Use(last)];
            let explored = explore(SimConfig::default(), |driver| run_small(driver, &program));
            assert!(explored.complete, "{program:?}");
            (programs, schedules) = (programs + 1, schedules + explored.schedules);
        }
    }
    println!("{programs} programs, {schedules} schedules");
    assert!(schedules > programs);
}

#[derive(Clone, Copy, Debug)]
enum SmallOp {
    /// Takes the block, uses it, and frees it.
    Use(usize),
    /// Ends a stream and makes another, which gets its handle.
    Renew(usize),
    Query(usize),
    Wait(usize, usize),
    /// Asks whether the block is quiescent.
    Ask,
}

fn run_small(driver: &Arc<SimDriver>, program: &[SmallOp]) {
    let sim = Sim::with_driver(Arc::clone(driver));
    let device = sim.device(0);
    let address = sim.allocate_device(0, BLOCK_BYTES).unwrap();
    let mut streams: Vec<Stream> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut free = Frontier::quiescent();
    for op in program {
        match *op {
            SmallOp::Use(stream) => {
                let stream = streams[stream].as_ref();
                if !stream.may_reuse(&free) {
                    stream.wait_for(&free).unwrap();
                }
                let kernel = Kernel::new("use").writes(address, BLOCK_BYTES);
                // SAFETY: the stream is borrowed, and the block lives as long as the machine; a conflict is reported.
                unsafe { sim.launch(0, stream.raw(), kernel) }.unwrap();
                free = Frontier::of(stream.release());
            }
            SmallOp::Renew(stream) => {
                drop(streams.remove(stream));
                streams.insert(stream, device.stream().unwrap());
            }
            SmallOp::Query(stream) => _ = streams[stream].is_idle().unwrap(),
            SmallOp::Wait(stream, other) => streams[stream].wait_for_stream(&streams[other]).unwrap(),
            SmallOp::Ask => _ = sim.machine().is_quiescent(&free).unwrap(),
        }
    }
    assert_eq!(sim.hazards(), [], "{program:?}");
}
