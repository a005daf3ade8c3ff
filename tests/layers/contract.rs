//! What the layers promise that shape or guard blocks, on simulated machines; and what only these can show: how often the driver
//! is asked, hazards, failures of every call.

use std::thread;
use std::time::Duration;

use alluvion::adaptor::AlignedConfig;
use alluvion::driver::{Call, CaptureMode, Code};
use alluvion::sim::Fault;
use alluvion::source::{Cuda, Managed, Null, Pinned};
use alluvion::testing::{Bench, Delayed, Shadow};
use alluvion::{ErrorKind, Layout, PoolConfig, Resource, ResourceExt};

use crate::adaptor_contract;
use crate::adaptor_contract::Plain;
use crate::raw_block::{Held, layout_of};

adaptor_contract::clauses!(Bench::sim());

#[test]
fn an_alignment_that_is_none_is_refused_at_once() {
    let bench = Bench::sim();
    for alignment in [0, 3, 255, 768, usize::MAX] {
        let error = Cuda::new(&bench.device()).aligned(alignment).expect_err("it is no power of two");
        assert_eq!(error.kind(), ErrorKind::InvalidAlignment, "{error}");
    }
    for alignment in [1, 2, 256, 1 << 63] {
        assert!(Cuda::new(&bench.device()).aligned(alignment).is_ok());
    }
}

/// Where the upstream honours the alignment, it gives exactly what was asked for.
#[test]
fn what_is_honoured_below_wastes_nothing() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let pool =
        Cuda::new(&bench.device()).pool(PoolConfig::default().initial(16 << 20)).expect("there is as much");
    let resource = pool.aligned(1 << 20).expect("a power of two");
    let held: Vec<_> = (0..16).map(|_| Held::of(&resource, 1 << 20, stream.as_ref())).collect();
    let status = resource.upstream().status();
    assert_eq!((status.live_bytes, status.reserved_bytes), (16 << 20, 16 << 20));
    assert_eq!(resource.book().moved_blocks(), 0);
    held.into_iter().for_each(|block| block.free(stream.as_ref()));
    assert_eq!(resource.max_align(), 2 << 20);
}

#[test]
fn what_has_no_room_to_move_is_out_of_memory() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let resource = Shadow::new(Null::new(&bench.device())).aligned(1 << 20).expect("a power of two");
    let largest = layout_of(isize::MAX as usize - 255);
    for refused in [resource.allocate(largest, stream.as_ref()), resource.allocate_sync(largest)] {
        let error = refused.expect_err("there is no room");
        assert!(error.is_out_of_memory() && error.requested_bytes() == Some(largest.bytes()), "{error}");
    }
    let too_aligned = Layout::new(1, 4 << 20).expect("a layout");
    let error = resource.allocate_sync(too_aligned).expect_err("nobody honours that");
    assert_eq!(error.kind(), ErrorKind::UnsupportedAlignment);
    // `Null` has any size: none of them has reached it.
    assert!(resource.upstream().upstream().allocate_sync(largest).is_ok());
    assert_eq!(resource.book().moved_blocks(), 0);
}

/// The book is closed before the upstream frees: another thread may be given the same address at once, and enter it.
#[test]
fn an_address_may_come_back_at_once() {
    let bench = Bench::sim();
    let config = alluvion::suballoc::FixedSizeConfig::default().block(96 << 10).blocks(8).checked(true);
    let tiles = Cuda::new(&bench.device()).fixed_size(config).expect("there is as much");
    let below = Shadow::new(Delayed::new(Plain::over(tiles), Duration::ZERO));
    let resource = below.aligned(64 << 10).expect("a power of two");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let block = Held::allocate_sync(&resource, layout_of(1000)).expect("there are eight");
                    assert!(block.pointer.is_aligned_to(64 << 10));
                    block.free_sync();
                }
            });
        }
    });
    assert_eq!(resource.book().moved_blocks(), 0);
    resource.upstream().assert_clean();
}

#[test]
fn zero_bytes_are_aligned_too() {
    let bench = Bench::sim();
    let config = AlignedConfig::new(4096);
    let pinned = Pinned::new(&bench.device()).expect("there is pinned memory");
    let resource = pinned.aligned(config).expect("a power of two");
    let block = resource.allocate_sync(layout_of(0)).expect("nothing is always there");
    assert!(block.is_aligned_to(4096));
    Held::adopt(&resource, block, layout_of(0)).free_sync();
}

/// How often the driver is asked for a migration, and for whether a stream captures, while `body` runs.
fn asked(bench: &Bench, body: impl FnOnce()) -> (u64, u64) {
    let sim = bench.simulated().expect("it is simulated");
    let before = sim.calls();
    body();
    let made = sim.calls() - before;
    (made[Call::PrefetchAsync], made[Call::StreamCaptureStatus])
}

#[test]
fn a_block_costs_two_calls_and_none_where_nothing_migrates() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let managed = || Managed::new(&bench.device()).expect("there is managed memory");
    let config = PoolConfig::default().initial(16 << 20);
    let pool = managed().pool(config.clone()).expect("there is as much").prefetch();
    let use_ten = |resource: &dyn Resource| {
        for _ in 0..10 {
            Held::of(&resource, 1000, stream.as_ref()).free(stream.as_ref());
        }
    };
    assert_eq!(asked(&bench, || use_ten(&pool)), (10, 10));
    // Synchronous ones, and those of no bytes, are not what a stream waits for.
    let others = || {
        Held::allocate_sync(&pool, layout_of(1000)).expect("there is room").free_sync();
        Held::of(&pool, 0, stream.as_ref()).free(stream.as_ref());
    };
    assert_eq!(asked(&bench, others), (0, 0));
    let stays = Cuda::new(&bench.device()).pool(config).expect("there is as much").prefetch();
    assert_eq!(asked(&bench, || use_ten(&stays)), (0, 0));
    let unknown = Plain::unknown(Cuda::new(&bench.device())).prefetch();
    assert_eq!(asked(&bench, || use_ten(&unknown)), (1, 1));
    bench.check();
}

#[test]
fn a_refused_hint_neither_fails_nor_loses_the_block() {
    let bench = Bench::sim();
    let sim = bench.simulated().expect("it is simulated");
    let stream = bench.stream();
    let resource = Shadow::new(Managed::new(&bench.device()).expect("there is managed memory")).prefetch();
    for code in [Code::INVALID_VALUE, Code::OUT_OF_MEMORY, Code::INVALID_DEVICE] {
        sim.inject(Fault::every(Call::PrefetchAsync, code));
        let block = Held::of(&resource, 1000, stream.as_ref());
        sim.clear_faults();
        block.fill(7, stream.as_ref());
        block.check(7, stream.as_ref());
        block.free(stream.as_ref());
    }
    assert_eq!((resource.book().queued(), resource.book().refused()), (0, 3));
    // What the source is does not hang on what the driver once said.
    assert_eq!(resource.book().migrates(), Some(true));
    Held::of(&resource, 1000, stream.as_ref()).free(stream.as_ref());
    assert_eq!(resource.book().queued(), 1);
    resource.upstream().assert_clean();
    bench.check();
}

#[test]
fn a_capture_is_left_alone() {
    let bench = Bench::sim();
    let sim = bench.simulated().expect("it is simulated");
    let stream = bench.stream();
    let managed = Managed::new(&bench.device()).expect("there is managed memory");
    let pool = managed.pool(PoolConfig::default().initial(1 << 20)).expect("there is as much").prefetch();
    // What is in the cache of the stream needs no driver.
    Held::of(&pool, 1000, stream.as_ref()).free(stream.as_ref());
    let raw = stream.as_ref().raw();
    sim.begin_capture(0, raw, CaptureMode::Global).expect("a stream can capture");
    let block = Held::of(&pool, 1000, stream.as_ref());
    let graph = sim.end_capture(0, raw).expect("the capture is whole");
    assert_eq!((graph.node_count(), pool.book().queued()), (0, 1));
    block.free(stream.as_ref());
    bench.check();
}
