//! Blocks of more than 1 MiB over pages: the core decides where they lie, and a pair of calls does not ask it twice.

#![expect(unsafe_code, reason = "frees what is no live block")]

use alluvion::error::{MisuseKind, freeing};
use alluvion::testing::Bench;
use alluvion::{DevicePtr, Layout, PoolConfig, Resource, Sim};

use crate::paged::{MIB, PAGE, exact, machine, pool};
use crate::raw_block::Held;

#[test]
fn a_pair_of_a_large_block_is_served_by_the_cache() {
    let sim = machine(64);
    let stream = sim.device(0).stream().unwrap();
    for config in [PoolConfig::default(), exact(), PoolConfig::default().checked(true)] {
        let pool = pool(&sim, config);
        let small = Held::of(&pool, 3 * MIB, stream.as_ref());
        let beside: Vec<_> = (0..4).map(|_| Held::of(&pool, PAGE + 256, stream.as_ref())).collect();
        small.free(stream.as_ref());
        // The first pair may come from a hole that another one fits better.
        for _ in 0..2 {
            Held::of(&pool, 20 * MIB, stream.as_ref()).free(stream.as_ref());
        }
        let before = pool.status();
        for _ in 0..100 {
            let block = Held::of(&pool, 20 * MIB, stream.as_ref());
            let live = pool.status();
            assert_eq!(live.cached_bytes, before.cached_bytes - 20 * MIB, "{live:?}");
            block.free(stream.as_ref());
        }
        let after = pool.status();
        assert_eq!((after.hits - before.hits, after.misses - before.misses), (100, 0), "{after:?}");
        beside.into_iter().for_each(|block| block.free(stream.as_ref()));
    }
}

/// A longer request of the same stream has it merged with what lies beside it, and so has one of another stream.
#[test]
fn a_block_in_place_is_there_for_every_other_request() {
    let sim = machine(64);
    let device = sim.device(0);
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    for by_other in [false, true] {
        let pool = pool(&sim, exact().maximum(12 * PAGE));
        for _ in 0..3 {
            Held::of(&pool, 10 * PAGE, stream.as_ref()).free(stream.as_ref());
        }
        assert_eq!(pool.status().cached_bytes, 10 * PAGE);
        stream.synchronize().unwrap();
        let requester = if by_other { &other } else { &stream };
        // There is no room for it beside the block.
        let long = Held::of(&pool, 11 * PAGE, requester.as_ref());
        assert_eq!((pool.status().cached_bytes, pool.status().reserved_bytes), (0, 11 * PAGE));
        long.free(requester.as_ref());
    }
}

/// Two blocks that are freed one after the other are one: the first is given back to the core before the second is put in place.
#[test]
fn one_block_at_a_time_lies_in_place() {
    let sim = machine(64);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, exact().maximum(12 * PAGE));
    for _ in 0..3 {
        let blocks = [(); 2].map(|()| Held::of(&pool, 4 * PAGE, stream.as_ref()));
        blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
        assert!(pool.status().cached_bytes <= 4 * PAGE);
    }
    let both = Held::of(&pool, 8 * PAGE, stream.as_ref());
    assert_eq!(pool.status().reserved_bytes, 8 * PAGE);
    both.free(stream.as_ref());
}

/// What lies in place goes with a trim, and a pool that ends has it.
#[test]
fn a_block_in_place_is_trimmed() {
    let sim = machine(64);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, exact());
    for _ in 0..3 {
        Held::of(&pool, 10 * PAGE, stream.as_ref()).free(stream.as_ref());
    }
    assert_eq!(pool.status().cached_bytes, 10 * PAGE);
    stream.synchronize().unwrap();
    pool.trim(0).unwrap();
    assert_eq!((pool.status().cached_bytes, pool.status().reserved_bytes), (0, 0));
    for _ in 0..3 {
        Held::of(&pool, 10 * PAGE, stream.as_ref()).free(stream.as_ref());
    }
    drop((pool, stream));
    sim.assert_clean();
}

/// The block that was cut last may lie in place, and any other goes to the core: a free that is wrong is noticed of either.
#[test]
fn a_wrong_free_of_a_large_block_is_noticed() {
    let sim = Sim::with_config(Bench::config().devices(1).memory_bytes(64 * PAGE).watch_blocks(false));
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, exact().checked(false));
    let [earlier, last] = [(); 2].map(|()| Held::of(&pool, 4 * PAGE, stream.as_ref()));
    let refused = |block: DevicePtr, bytes| {
        // SAFETY: it is no live block of that length, which is noticed.
        let free = || unsafe { pool.deallocate(block, Layout::from_bytes(bytes).unwrap(), stream.as_ref()) };
        freeing(free).expect_err("it is wrong").misuse().expect("a misuse").what
    };
    for block in [earlier.pointer, last.pointer] {
        let wrong_size = MisuseKind::WrongSize { allocated_bytes: 4 * PAGE };
        assert_eq!(refused(block, 4 * PAGE - 256), wrong_size);
        assert_eq!(refused(block, 6 * PAGE), wrong_size);
        assert_eq!(refused(block.offset(PAGE), 4 * PAGE), MisuseKind::InteriorPointer { block });
    }
    let pointers = [earlier.pointer, last.pointer];
    earlier.free(stream.as_ref());
    last.free(stream.as_ref());
    for block in pointers {
        assert!(matches!(
            refused(block, 4 * PAGE),
            MisuseKind::DoubleFree | MisuseKind::InteriorPointer { .. }
        ));
    }
    assert_eq!((pool.status().wrong_frees, pool.status().live_blocks), (8, 0));
}
