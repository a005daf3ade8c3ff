//! Exploring a program runs each of its schedules once.
#![cfg(feature = "sim")]
#![expect(unsafe_code, reason = "drives the driver seam by hand")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "the programs keep their ranges live to their end; that some race is the point"
)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use alluvion::driver::{Driver, FillValue, PoolKind, RawEvent, RawStream, StreamFlags};
use alluvion::sim::{Explored, HazardKind, Schedule, SimConfig, SimDriver, explore, explore_up_to, replay};

/// A machine with bytes that the host can look at without a driver call.
struct Program<'a> {
    driver: &'a Arc<SimDriver>,
    bytes: u64,
}

impl<'a> Program<'a> {
    fn new(driver: &'a Arc<SimDriver>) -> Self {
        Self { driver, bytes: driver.allocate_managed(0, 64).unwrap() }
    }

    fn streams<const N: usize>(&self) -> [RawStream; N] {
        core::array::from_fn(|_| self.driver.stream_create(0, StreamFlags::default()).unwrap())
    }

    fn fill(&self, stream: RawStream, at: u64, value: u8) {
        unsafe { self.driver.fill_async(0, self.bytes + at, FillValue::U8(value), 1, stream) }.unwrap();
    }

    fn copy(&self, stream: RawStream, to: u64, from: u64) {
        unsafe { self.driver.copy_async(0, self.bytes + to, self.bytes + from, 1, stream) }.unwrap();
    }

    fn edge(&self, before: RawStream, after: RawStream) -> RawEvent {
        let event = self.driver.event_create(0).unwrap();
        unsafe {
            self.driver.event_record(0, event, before).unwrap();
            self.driver.stream_wait_event(0, after, event).unwrap();
        }
        event
    }

    fn synchronize(&self, stream: RawStream) {
        unsafe { self.driver.stream_synchronize(0, stream) }.unwrap();
    }

    fn finish(&self) {
        self.driver.context_synchronize(0).unwrap();
    }

    fn byte(&self, at: u64) -> u8 {
        unsafe { core::ptr::with_exposed_provenance::<u8>((self.bytes + at) as usize).read_volatile() }
    }
}

/// Runs every schedule; counts them by outcome.
fn outcomes<T: Ord>(mut program: impl FnMut(&Program<'_>) -> T) -> BTreeMap<T, u64> {
    let mut outcomes = BTreeMap::new();
    let explored = explore(SimConfig::default(), |driver| {
        *outcomes.entry(program(&Program::new(driver))).or_default() += 1;
    });
    assert_eq!(explored, Explored { schedules: outcomes.values().sum(), complete: true });
    outcomes
}

#[test]
fn two_unordered_writes_have_both_orders() {
    let found = outcomes(|program| {
        let [a, b] = program.streams();
        program.fill(a, 0, 1);
        program.fill(b, 0, 2);
        program.finish();
        program.byte(0)
    });
    assert_eq!(found, BTreeMap::from([(1, 1), (2, 1)]));
}

#[test]
fn independent_operations_have_every_order() {
    let found = outcomes(|program| {
        for (value, stream) in (1..).zip(program.streams::<4>()) {
            program.fill(stream, 0, value);
        }
        program.finish();
        program.byte(0)
    });
    assert_eq!(found, BTreeMap::from([(1, 6), (2, 6), (3, 6), (4, 6)]), "4! in all");
}

#[test]
fn streams_interleave_and_stay_in_order() {
    let found = outcomes(|program| {
        let [a, b] = program.streams();
        for value in 1..=2 {
            program.fill(a, 0, value);
            program.fill(b, 0, 10 + value);
        }
        program.finish();
        program.byte(0)
    });
    assert_eq!(found, BTreeMap::from([(2, 3), (12, 3)]), "4 over 2 in all");
}

#[test]
fn an_event_leaves_one_order() {
    let found = outcomes(|program| {
        let [a, b, c] = program.streams();
        program.fill(a, 0, 1);
        program.edge(a, b);
        program.fill(b, 0, 2);
        program.edge(b, c);
        program.fill(c, 0, 3);
        program.finish();
        (program.byte(0), program.driver.hazards().len())
    });
    assert_eq!(found, BTreeMap::from([((3, 0), 1)]));
}

#[test]
fn a_wait_stops_when_it_has_what_it_wants() {
    // The copy never waited for the fill. It runs before it, or after.
    let found = outcomes(|program| {
        let [producer, consumer] = program.streams();
        program.fill(producer, 0, 7);
        program.copy(consumer, 1, 0);
        program.synchronize(consumer);
        (program.byte(1), program.byte(0))
    });
    assert_eq!(found, BTreeMap::from([((0, 0), 1), ((7, 7), 1)]));
}

#[test]
fn a_query_is_answered_both_ways() {
    let found = outcomes(|program| {
        let [stream] = program.streams();
        program.fill(stream, 0, 7);
        let done = unsafe { program.driver.stream_query(0, stream) }.unwrap();
        (done, program.byte(0))
    });
    assert_eq!(found, BTreeMap::from([((false, 0), 1), ((true, 7), 1)]));
}

#[test]
fn polling_ends() {
    let found = outcomes(|program| {
        let [a, b] = program.streams();
        program.fill(a, 0, 1);
        let event = program.edge(a, b);
        let mut asked = 1;
        while !unsafe { program.driver.event_query(0, event) }.unwrap() {
            asked += 1;
        }
        asked
    });
    assert_eq!(found, BTreeMap::from([(1, 1), (2, 1)]));
}

#[test]
fn reuse_in_a_pool_depends_on_the_schedule_and_is_sound_in_each() {
    let found = outcomes(|program| {
        let [a, b] = program.streams();
        let pool = program.driver.pool_default(0, PoolKind::Device).unwrap();
        unsafe {
            let first = program.driver.allocate_async(0, 512, pool, a).unwrap();
            program.driver.free_async(0, first, a).unwrap();
            let event = program.edge(a, RawStream::PER_THREAD);
            let done = program.driver.event_query(0, event).unwrap();
            let second = program.driver.allocate_async(0, 512, pool, b).unwrap();
            program.driver.fill_async(0, second, FillValue::U8(1), 512, b).unwrap();
            (done, first == second, program.driver.hazards().len())
        }
    });
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [(false, false, 0), (true, true, 0)]);
}

#[test]
fn host_functions_are_steps_as_any_other() {
    let found = outcomes(|program| {
        let [a, b] = program.streams();
        let log = std::sync::mpsc::channel::<u8>();
        for (stream, name) in [(a, 1), (b, 2)] {
            let sender = log.0.clone();
            let note = Box::new(move || sender.send(name).unwrap());
            unsafe { program.driver.stream_host_call(0, stream, note) }.unwrap();
        }
        program.finish();
        log.1.try_iter().collect::<Vec<u8>>()
    });
    assert_eq!(found, BTreeMap::from([(vec![1, 2], 1), (vec![2, 1], 1)]));
}

#[test]
fn a_hazard_is_there_under_every_schedule() {
    let found = outcomes(|program| {
        let [a, b] = program.streams();
        program.fill(a, 0, 1);
        program.fill(b, 0, 2);
        program.finish();
        program.driver.hazards().iter().map(|hazard| hazard.kind()).collect::<Vec<_>>()
    });
    assert_eq!(found, BTreeMap::from([(vec![HazardKind::Race], 2)]));
}

#[test]
fn a_limit_is_kept_and_said() {
    let explored = explore_up_to(5, SimConfig::default(), |driver| {
        let program = Program::new(driver);
        for stream in program.streams::<3>() {
            program.fill(stream, 0, 1);
        }
        program.finish();
    });
    assert_eq!(explored, Explored { schedules: 5, complete: false });
}

fn buggy(driver: &Arc<SimDriver>) {
    let program = Program::new(driver);
    let [a, b, c] = program.streams();
    program.fill(a, 0, 1);
    program.fill(b, 1, 2);
    program.copy(c, 2, 1);
    program.synchronize(c);
    assert_eq!(program.byte(2), 0, "the copy came after the fill");
}

#[test]
fn a_panic_names_its_schedule_which_can_be_replayed() {
    let payload = catch_unwind(|| {
        let _ = explore(SimConfig::default(), buggy);
    });
    let words = payload.unwrap_err().downcast_ref::<String>().unwrap().clone();
    assert!(words.contains("the copy came after the fill"), "{words}");
    let name = words.strip_prefix("under schedule ").and_then(|words| words.split_once(':')).unwrap().0;
    let schedule: Schedule = name.parse().unwrap();
    assert!(catch_unwind(|| replay(SimConfig::default(), &schedule, buggy)).is_err());
    let harmless = "2".parse().unwrap();
    replay(SimConfig::default(), &harmless, buggy);
}

#[test]
fn a_program_that_is_not_deterministic_is_refused() {
    let runs = Cell::new(0);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        explore(SimConfig::default(), |driver| {
            runs.set(runs.get() + 1);
            let program = Program::new(driver);
            let streams = program.streams::<3>();
            for &stream in &streams[..1 + runs.get() % 3] {
                program.fill(stream, 0, 1);
            }
            program.finish();
        })
    }));
    let words = outcome.unwrap_err().downcast_ref::<String>().unwrap().clone();
    assert!(words.contains("not deterministic"), "{words}");
}
