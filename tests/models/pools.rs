//! Any program over a pool, on several streams and threads: each kernel finds its own pattern, no use races with another's, the
//! books are exact after each step, and in the end nothing is left.

#![expect(unsafe_code, reason = "implements the contract of resources, wrongly")]

use std::sync::Arc;

use alluvion::sim::SimConfig;
use alluvion::source::{Cuda, Mapped};
use alluvion::suballoc::{Growth, PageBudget, Reuse};
use alluvion::{
    Device, DeviceAccessible, DevicePtr, Error, Layout, Pool, PoolConfig, Resource, ResourceExt, Sim, Stream,
    StreamRef,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{FailurePersistence, FileFailurePersistence, TestRunner};

use crate::pool_program::op::{Op, THREADS, ops};
use crate::pool_program::{StatsBook, Subject, World, worker};
use crate::trials::trials;

/// Programs of a night. One takes 11 ms, unoptimised.
const PROGRAMS: u32 = 1200;

/// The device's memory. Programs run out of it, or of what their pool may have.
const MEMORY: usize = 16 << 20;

/// What the device maps at once.
const PAGE: usize = 2 << 20;

/// How a program's pool is made.
#[derive(Clone, Copy, Debug)]
struct Knobs {
    growth: Growth,
    reuse: Reuse,
    initial: usize,
    maximum: usize,
    checked: bool,
}

impl Knobs {
    fn config(self) -> PoolConfig {
        PoolConfig::default()
            .growth(self.growth)
            .reuse(self.reuse)
            .initial(self.initial)
            .maximum(self.maximum)
            .checked(self.checked)
    }

    fn make(self, device: &Device) -> Pool<Cuda> {
        Cuda::new(device).pool(self.config()).expect("a sound configuration makes a pool")
    }

    /// Over pages, so that a maximum is a number of these.
    fn make_over_pages(self, device: &Device, budget: Option<PageBudget>) -> Pool<Mapped> {
        let source = Mapped::new(device).expect("the device maps pages");
        let config = self.of_pages().config();
        let config = budget.map_or(config.clone(), |budget| config.budget(budget));
        source.pool(config).expect("a sound configuration makes a pool")
    }

    fn of_pages(self) -> Self {
        let maximum =
            if self.maximum == usize::MAX { usize::MAX } else { self.maximum.next_multiple_of(PAGE) };
        Self { maximum, ..self }
    }
}

fn knobs() -> impl Strategy<Value = Knobs> {
    let growths = prop_oneof![
        3 => Just(Growth::Spare),
        1 => Just(Growth::Doubling),
        1 => Just(Growth::Step(700_000)),
        2 => Just(Growth::Exact),
    ];
    let reuses = prop_oneof![3 => Just(Reuse::Wait), 1 => Just(Reuse::Completed), 1 => Just(Reuse::Own)];
    let maxima = prop_oneof![2 => Just(usize::MAX), 2 => Just(5 << 20), 1 => Just(600_000)];
    let initials = prop_oneof![2 => Just(0), 1 => Just(300_000)];
    (growths, reuses, initials, maxima, any::<bool>()).prop_map(
        |(growth, reuse, initial, maximum, checked)| Knobs { growth, reuse, initial, maximum, checked },
    )
}

fn programs(steps: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<(usize, Op)>> {
    vec((prop_oneof![4 => Just(0), 1 => 1..THREADS], ops()), steps)
}

/// Programs that failed are kept, and tried first.
fn config(cases: u32) -> ProptestConfig {
    let kept = FileFailurePersistence::Direct("tests/models/pools.seeds");
    let failure_persistence: Option<Box<dyn FailurePersistence>> = Some(Box::new(kept));
    ProptestConfig { cases, max_shrink_iters: 4000, failure_persistence, ..ProptestConfig::default() }
}

/// Runs a program. Returns the mistakes.
fn mistakes_of<S: Subject>(
    seed: u64,
    knobs: Knobs,
    program: &[(usize, Op)],
    tally: &Arc<StatsBook>,
    subject: impl FnOnce(&Device) -> S,
) -> Vec<String> {
    let sim = Arc::new(Sim::with_config(SimConfig::default().memory_bytes(MEMORY).seed(seed)));
    // A pool rounds it down.
    let maximum = knobs.maximum / 256 * 256;
    let subject = Arc::new(subject(&sim.device(0)));
    let world = World::new(Arc::clone(&sim), subject, maximum, Arc::clone(tally));
    let mut world = worker::run(world, program);
    world.end();
    let mut mistakes = world.mistakes();
    drop(world);
    let left = sim.live();
    if left.allocations() + left.physical + left.mappings + left.reservations > 0 {
        mistakes.push(format!("left behind: {left}"));
    }
    mistakes
}

/// Any programs, over a pool that is made so.
fn try_programs<S: Subject>(
    make: impl Fn(Knobs, &Device) -> S,
    knobs_of: impl Fn(Knobs) -> Knobs,
    programs_of: u32,
) {
    let tally = Arc::new(StatsBook::default());
    let cases = trials(programs_of);
    let mut runner = TestRunner::new(config(cases));
    runner
        .run(&(any::<u64>(), knobs(), programs(1..80)), |(seed, knobs, program)| {
            let knobs = knobs_of(knobs);
            let mistakes = mistakes_of(seed, knobs, &program, &tally, |device| make(knobs, device));
            prop_assert!(mistakes.is_empty(), "{}", mistakes[0]);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let counts = tally.counts();
    println!("served, refused, steals, waits, hits: {counts:?}");
    assert!(counts.iter().all(|count| *count > cases as usize / 10), "{counts:?}");
}

#[test]
fn every_kernel_finds_its_own_pattern() {
    try_programs(|knobs, device| knobs.make(device), |knobs| knobs, PROGRAMS);
}

#[test]
fn every_kernel_finds_its_own_pattern_in_pages() {
    try_programs(|knobs, device| knobs.make_over_pages(device, None), Knobs::of_pages, PROGRAMS / 3);
}

/// Every growth moves what is free, if anything is.
#[test]
fn every_kernel_finds_its_own_pattern_in_pages_that_move() {
    let budget = Some(PageBudget::TimesPeak(1.0));
    try_programs(|knobs, device| knobs.make_over_pages(device, budget), Knobs::of_pages, PROGRAMS / 3);
}

/// A pool that takes all streams for one: what the programs must find.
#[derive(Debug)]
struct Blind {
    pool: Pool<Cuda>,
    only: Stream,
}

impl Subject for Blind {
    type Upstream = Cuda;

    fn inner(&self) -> &Pool<Cuda> {
        &self.pool
    }

    fn is_honest(&self) -> bool {
        false
    }
}

// SAFETY: it does not keep the contract, which is the point: on a simulated machine what follows is a hazard.
unsafe impl Resource for Blind {
    fn allocate(&self, layout: Layout, _: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.pool.allocate(layout, self.only.as_ref())
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, _: StreamRef<'_>) {
        // SAFETY: the caller's promises, but for the stream.
        unsafe { self.pool.deallocate(block, layout, self.only.as_ref()) };
    }

    alluvion::forward_resource!(pool, except allocate, deallocate);
}

// SAFETY: as above.
unsafe impl DeviceAccessible for Blind {}

/// Shows that the programs would find a pool that orders nothing.
#[test]
fn a_pool_that_is_blind_to_streams_is_caught() {
    let mut runner = TestRunner::deterministic();
    let programs = (any::<u64>(), knobs(), programs(60));
    let caught = (0..50).filter(|_| {
        let (seed, knobs, program) = programs.new_tree(&mut runner).expect("there are programs").current();
        let blind =
            |device: &Device| Blind { only: device.stream().expect("a stream"), pool: knobs.make(device) };
        !mistakes_of(seed, knobs, &program, &Arc::default(), blind).is_empty()
    });
    assert!(caught.count() > 25);
}
