//! Checks in which order blocks may be used.

use core::time::Duration;
use std::sync::Arc;

use super::super::block::{Block, layout_of};
use super::super::{Bench, Op, run_ops, stall};
use crate::device::{Device, Sim};
use crate::resource::{DeviceAccessible, Resource};
use crate::sim::explore;

/// How long a stream is held up on hardware: longer than a fill and a copy on a stream that does not wait, by far.
const STALL: Duration = Duration::from_millis(30);

/// A stream of another device, or of another machine, is refused as such, and costs nothing.
#[track_caller]
pub fn streams_of_others_are_refused<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let layout = layout_of(bench.at_most(512));
    let other_machine = Bench::sim();
    let devices = bench.second_device().into_iter().chain([other_machine.device()]);
    for device in devices {
        let stream = device.stream().expect("the driver makes a stream");
        let error =
            resource.allocate(layout, stream.as_ref()).expect_err("a stream of another device is refused");
        assert!(error.is_device_mismatch(), "{error}");
    }
    let stream = bench.stream();
    Block::of(&resource, layout.bytes(), stream.as_ref()).free(stream.as_ref());
    bench.check();
}

/// Memory may be used again on the stream that it was freed on, at once and without a wait.
#[track_caller]
pub fn freed_memory_is_reusable_on_its_stream<R: DeviceAccessible>(
    bench: &Bench,
    make: impl Fn(&Device) -> R,
) {
    for seed in bench.seeds() {
        let bench = bench.with_seed(seed);
        let resource = make(&bench.device());
        let stream = bench.stream();
        let mut copies = Vec::new();
        for word in 1..=8 {
            let block = Block::of(&resource, bench.at_most(8192), stream.as_ref());
            block.fill(word, stream.as_ref());
            copies.push((block.copy_out(stream.as_ref()), word));
            block.free(stream.as_ref());
        }
        copies.into_iter().for_each(|(copied, word)| copied.check(word, stream.as_ref()));
        bench.check();
    }
}

/// Memory that was freed behind pending work is never handed to another stream, or to nobody's, before that work is over
/// or waited for.
#[track_caller]
pub fn freed_memory_is_ordered<R: DeviceAccessible>(bench: &Bench, make: impl Fn(&Device) -> R) {
    const OLD: u32 = 0x01D0_01D0;
    for seed in bench.seeds() {
        let bench = bench.with_seed(seed);
        let resource = make(&bench.device());
        let (first, second) = (bench.stream(), bench.stream());
        // On hardware large enough to take time; on the simulator large enough for more than one copy of 16 KiB.
        let largest = if bench.is_simulated() { 20_000 } else { 1 << 20 };
        let bytes = bench.at_most([256, 4096, largest][seed as usize % 3]);
        // Several, so that a resource that prefers what nobody used last has to take one of them in the end.
        let freed: Vec<_> = (0..4).map(|_| Block::of(&resource, bytes, first.as_ref())).collect();
        if !bench.is_simulated() {
            stall(first.as_ref(), STALL);
        }
        freed.iter().for_each(|block| block.fill(OLD, first.as_ref()));
        freed.into_iter().for_each(|block| block.free(first.as_ref()));

        let taken: Vec<_> = (1..=4)
            .map(|word| {
                let block = Block::of(&resource, bytes, second.as_ref());
                block.fill(word, second.as_ref());
                (block, word)
            })
            .collect();
        taken.iter().for_each(|(block, word)| block.check(*word, second.as_ref()));
        // What was held up on the first stream has run by now, and must not have run into the new blocks.
        bench.device().synchronize().expect("all work succeeds");
        taken.iter().for_each(|(block, word)| block.check(*word, second.as_ref()));
        taken.into_iter().for_each(|(block, _)| block.free(second.as_ref()));
        bench.check();
    }
}

/// A block goes from stream to stream to stream, and under *every* schedule the last one finds its own bytes. On a simulated
/// machine alone: hardware shows one schedule.
///
/// # Panics
///
/// On hardware, and if the resource does otherwise.
#[track_caller]
pub fn every_schedule_keeps_the_order<R: DeviceAccessible>(bench: &Bench, make: impl Fn(&Device) -> R) {
    // Two operations and a free on each of the first two streams, two on the last: 560 schedules if nothing waits.
    const BYTES: usize = 256;
    let config = bench.simulated_config().expect("schedules are explored on a simulated machine").clone();
    let explored = explore(config, |driver| {
        let sim = Sim::with_driver(Arc::clone(driver));
        let device = sim.device(0);
        let resource = make(&device);
        let streams = [(); 3].map(|()| device.stream().expect("the driver makes a stream"));
        for (stream, word) in streams[..2].iter().zip(1..) {
            let block = Block::of(&resource, bench.at_most(BYTES), stream.as_ref());
            block.fill(word, stream.as_ref());
            block.free(stream.as_ref());
        }
        let last = streams[2].as_ref();
        let block = Block::of(&resource, bench.at_most(BYTES), last);
        block.fill(3, last);
        device.synchronize().expect("all work succeeds");
        block.check(3, last);
        block.free(last);
        if let Some(hazard) = sim.hazards().first() {
            panic!("{hazard}");
        }
    });
    assert!(explored.complete, "{} schedules were not all", explored.schedules);
}

/// A block that was allocated synchronously is ready for every stream, whatever was pending when it was allocated.
#[track_caller]
pub fn allocating_synchronously_is_synchronous<R: DeviceAccessible>(
    bench: &Bench,
    make: impl Fn(&Device) -> R,
) {
    const OLD: u32 = 0x01D0_01D0;
    for seed in bench.seeds() {
        let bench = bench.with_seed(seed);
        let resource = make(&bench.device());
        let (first, second) = (bench.stream(), bench.stream());
        let bytes = bench.at_most(4096);
        let freed: Vec<_> = (0..4).map(|_| Block::of(&resource, bytes, first.as_ref())).collect();
        if !bench.is_simulated() {
            stall(first.as_ref(), STALL);
        }
        freed.iter().for_each(|block| block.fill(OLD, first.as_ref()));
        freed.into_iter().for_each(|block| block.free(first.as_ref()));

        let taken: Vec<_> = (0..4)
            .map(|_| {
                Block::allocate_sync(&resource, layout_of(bytes)).expect("a synchronous allocation succeeds")
            })
            .collect();
        for (block, word) in taken.iter().zip(1..) {
            // Neither stream has waited for anything.
            let stream = if word % 2 == 0 { &first } else { &second };
            block.fill(word, stream.as_ref());
            block.check(word, stream.as_ref());
        }
        bench.device().synchronize().expect("all work succeeds");
        for (block, word) in taken.into_iter().zip(1..) {
            block.check(word, second.as_ref());
            block.free_sync();
        }
        bench.check();
    }
}

/// Random allocations, uses and frees on streams that come and go agree with the [oracle](crate::testing::run_ops), byte
/// for byte.
#[track_caller]
pub fn random_operations_agree_with_the_oracle<R: DeviceAccessible>(
    bench: &Bench,
    make: impl Fn(&Device) -> R,
) {
    // Larger ones are written and read back elsewhere; here they would cost time and no other order.
    const LARGEST: usize = 20_000;
    for seed in bench.seeds() {
        let bench = bench.with_seed(seed);
        let resource = make(&bench.device());
        let largest = bench.at_most(LARGEST);
        let ops: Vec<Op> =
            Op::random(seed).take(150).map(|op| op.limited(largest, resource.max_align())).collect();
        if let Err(violation) = run_ops(&resource, &ops) {
            panic!("random operations of seed {seed}: {violation}");
        }
        bench.check();
    }
}
