//! What it costs a stream to take what another has freed, counted in driver calls.

use alluvion::driver::Call;
use alluvion::source::Cuda;
use alluvion::suballoc::Growth;
use alluvion::testing::{Bench, Stall};
use alluvion::{PoolConfig, ResourceExt};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// What orders one stream behind another: a record there, and a wait here.
const ORDERS: u64 = 2;

/// With those, what says whether either stream captures (34 ns each), and what asks whether the work is over, which is not
/// asked under the strict rule of captures: a query in between two changes of that rule.
const ASKED: u64 = 2 + 3;

/// What was recorded earlier and is not known to be over is asked for again, now and then.
const ASKED_AGAIN: u64 = 9;

/// What a stream takes of another's costs one order when nothing is known, however much was freed there before.
#[test]
fn a_steal_costs_one_order() {
    for bytes in [1000, 100_000, 3 * MIB] {
        for pending in [1, 10, 100] {
            let bench = Bench::sim();
            let sim = bench.simulated().unwrap();
            let most = pending * layout_of(bytes).rounded_bytes().next_power_of_two();
            if most > 48 * MIB {
                continue;
            }
            // Nothing is left but what is pending, so that growing is no way out.
            let config = PoolConfig::default().checked(false).growth(Growth::Exact);
            let pool = Cuda::new(&bench.device()).pool(config).unwrap();
            let (first, second) = (bench.stream(), bench.stream());
            let blocks: Vec<_> = (0..pending).map(|_| Held::of(&pool, bytes, first.as_ref())).collect();
            // Not over before the steal is.
            let stall = Stall::on(first.as_ref());
            blocks.into_iter().for_each(|block| block.free(first.as_ref()));
            let full = fill_the_device(&bench);
            let (calls, before) = (sim.calls(), pool.status());
            let taken: Vec<_> = (0..pending).map(|_| Held::of(&pool, bytes, second.as_ref())).collect();
            let (made, after) = (sim.calls() - calls, pool.status());
            let refusals = made[Call::AllocateDevice] + made[Call::MemoryInfo];
            let orders = made[Call::EventRecord] + made[Call::StreamWaitEvent];
            assert_eq!(orders, ORDERS, "{pending} blocks of {bytes} bytes: {made:?}");
            let rest = made.total() - refusals - orders - made[Call::EventCreate];
            assert!(rest <= ASKED + ASKED_AGAIN, "{pending} blocks of {bytes} bytes: {made:?}");
            assert_eq!(after.waits - before.waits, 1, "{pending} blocks of {bytes} bytes: {after:?}");
            assert!(
                (1..=pending as u64).contains(&(after.steals - before.steals)),
                "{bytes} bytes: {after:?}"
            );
            drop(stall);
            taken.into_iter().for_each(|block| block.free(second.as_ref()));
            full.into_iter().for_each(Held::free_sync);
            bench.check();
        }
    }
}

/// Takes what the device has left, a MiB or less at a time.
fn fill_the_device(bench: &Bench) -> Vec<Held<'static, Cuda>> {
    let cuda: &'static Cuda = Box::leak(Box::new(Cuda::new(&bench.device())));
    let mut full = Vec::new();
    for bytes in [MIB, 16_384, 256] {
        while let Ok(block) = Held::allocate_sync(cuda, layout_of(bytes)) {
            full.push(block);
        }
    }
    full
}

/// Two streams that use one block in turn: each time one order, and a few questions.
#[test]
fn streams_in_turn_cost_one_order_each() {
    const TURNS: u64 = 100;
    let bench = Bench::sim();
    let sim = bench.simulated().unwrap();
    let config = PoolConfig::default().checked(false).initial(MIB).maximum(MIB);
    let pool = Cuda::new(&bench.device()).pool(config).unwrap();
    let streams = [bench.stream(), bench.stream()];
    let mut all = 0;
    for turn in 0..TURNS {
        let stream = &streams[turn as usize % 2];
        let calls = sim.calls();
        let block = Held::of(&pool, MIB, stream.as_ref());
        let made = sim.calls() - calls;
        block.fill(1, stream.as_ref());
        block.free(stream.as_ref());
        assert!(made[Call::EventRecord] + made[Call::StreamWaitEvent] <= ORDERS, "turn {turn}: {made:?}");
        let rest = made.total() - made[Call::EventCreate];
        assert!(rest <= ORDERS + ASKED + ASKED_AGAIN, "turn {turn}: {made:?}");
        all += rest;
    }
    println!("{all} calls in {TURNS} turns");
    assert!(all <= TURNS * (ORDERS + ASKED + 2), "{all} calls in {TURNS} turns");
    bench.check();
}

/// What a stream has waited for already, it takes with no driver call, however it came to wait.
#[test]
fn what_was_waited_for_costs_nothing() {
    let bench = Bench::sim();
    let sim = bench.simulated().unwrap();
    let config = PoolConfig::default().checked(false).initial(4 * MIB).maximum(4 * MIB);
    let pool = Cuda::new(&bench.device()).pool(config).unwrap();
    let (first, second) = (bench.stream(), bench.stream());
    for bytes in [1000, 4 * MIB] {
        let blocks: Vec<_> =
            (0..4 * MIB / bytes.max(100_000)).map(|_| Held::of(&pool, bytes, first.as_ref())).collect();
        let count = blocks.len();
        blocks.into_iter().for_each(|block| block.free(first.as_ref()));
        second.wait_for_stream(&first).unwrap();
        let calls = sim.calls();
        let taken: Vec<_> = (0..count).map(|_| Held::of(&pool, bytes, second.as_ref())).collect();
        let made = sim.calls() - calls;
        assert_eq!(made.total(), 0, "{bytes} bytes: {made:?}");
        taken.into_iter().for_each(|block| block.free(second.as_ref()));
        second.synchronize().unwrap();
    }
}
