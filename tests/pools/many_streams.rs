//! What a pool costs a program of many streams: misses, driver calls and bytes, counted.

use alluvion::source::Null;
use alluvion::suballoc::{Binning, SuballocBook};
use alluvion::testing::Bench;
use alluvion::{Pool, PoolConfig, Resource, ResourceExt, Stream};

use crate::raw_block::Held;

const MIB: usize = 1 << 20;

fn pool(bench: &Bench) -> Pool<Null> {
    Null::new(&bench.device()).pool(PoolConfig::default().checked(false)).unwrap()
}

fn streams(bench: &Bench, count: usize) -> Vec<Stream> {
    (0..count).map(|_| bench.stream()).collect()
}

/// Each stream in turn takes a block of this size and gives it back, so often.
fn in_turn(pool: &Pool<Null>, streams: &[Stream], bytes: usize, rounds: usize) {
    for stream in (0..rounds).flat_map(|_| streams) {
        Held::of(pool, bytes, stream.as_ref()).free(stream.as_ref());
    }
}

/// However many streams there are, each has its block in its cache after a few turns, and the pool holds little more than those
/// blocks.
#[test]
fn a_block_in_turn_costs_10_000_streams_what_it_costs_ten() {
    for (bytes, counts) in [(4096, [10, 750, 10_000]), (65_536, [10, 750, 2500])] {
        for count in counts {
            let bench = Bench::sim();
            let sim = bench.simulated().unwrap();
            let (pool, streams) = (pool(&bench), streams(&bench, count));
            in_turn(&pool, &streams, bytes, 6);
            let (calls, before) = (sim.calls(), pool.status());
            in_turn(&pool, &streams, bytes, 2);
            let (made, after) = (sim.calls() - calls, pool.status());
            let what = format!("{bytes} bytes on {count} streams: {after:?}");
            assert_eq!(
                (after.hits - before.hits, after.misses - before.misses),
                (2 * count as u64, 0),
                "{what}"
            );
            assert_eq!(made.total(), 0, "{what}, {made:?}");
            assert_eq!(after.cached_bytes, count * bytes, "{what}");
            // What it grows by at a time, and that again for a growth that was a little early.
            let spare = 2 * (32 * MIB).max(count * bytes / 16);
            assert!(after.reserved_bytes <= count * bytes + spare, "{what}");
            assert!(after.metadata_bytes <= 32 * 1024 + count * 2048, "{what}");
        }
    }
}

/// Getting there costs each stream a bounded number of driver calls, too.
#[test]
fn the_first_turns_of_10_000_streams_cost_a_few_driver_calls_each() {
    let bench = Bench::sim();
    let sim = bench.simulated().unwrap();
    let (pool, streams) = (pool(&bench), streams(&bench, 10_000));
    let calls = sim.calls();
    in_turn(&pool, &streams, 65_536, 1);
    let made = (sim.calls() - calls).total();
    assert!(made <= 10 * 10_000, "{made} driver calls");
}

/// What lies in a cache is at most what the stream had at once of that class, once more.
#[test]
fn a_stream_hoards_no_more_than_it_uses() {
    let bench = Bench::sim();
    for most in [1, 2, 3, 7, 20, 100] {
        let (pool, stream) = (pool(&bench), bench.stream());
        for bytes in [256, 1000, 4096, 16_384] {
            let blocks: Vec<_> = (0..most).map(|_| Held::of(&pool, bytes, stream.as_ref())).collect();
            let status = pool.status();
            assert!(status.cached_bytes <= status.live_bytes, "{most} of {bytes} bytes: {status:?}");
            blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
            pool.defragment().unwrap();
        }
    }
}

/// Memory in the caches of streams that do nothing any more goes to those that need it, and what lies in the caches of those that
/// work stays there.
#[test]
fn what_is_idle_is_found_and_what_is_not_is_left() {
    const BYTES: usize = 65_536;
    const IDLE: usize = 1000;
    let bench = Bench::sim();
    let (pool, all, needing) = (pool(&bench), streams(&bench, IDLE + 100), streams(&bench, 2));
    in_turn(&pool, &all, BYTES, 6);
    let working = &all[IDLE..];
    let (before, mut taken) = (pool.status(), Vec::new());
    assert_eq!(before.cached_bytes, all.len() * BYTES, "{before:?}");
    for index in 0..2 * IDLE {
        taken.push(Held::of(&pool, BYTES, needing[index % 2].as_ref()));
        in_turn(&pool, &working[index % 100..=index % 100], BYTES, 1);
    }
    let after = pool.status();
    let misses = after.misses - before.misses - taken.len() as u64;
    // Of the 2000 blocks that are needed 1000 lie idle, and what it grows by at a time is on top.
    let new = after.reserved_bytes - before.reserved_bytes;
    assert!(new <= IDLE * BYTES + 36 * MIB, "{new} bytes more: {after:?}");
    assert!(misses <= 200, "of 2000 allocations of the working streams {misses} missed: {after:?}");
    taken.into_iter().zip(needing.iter().cycle()).for_each(|(block, stream)| block.free(stream.as_ref()));
}

/// So many blocks of 256 bytes to 1 MiB at random, of which 32 to 64 are live.
struct Walk<'r, R> {
    stream: Stream,
    live: Vec<Held<'r, R>>,
}

impl<'r, R: Resource> Walk<'r, R> {
    fn step(&mut self, resource: &'r R, number: &mut u64) {
        let mut draw = |below: u64| {
            *number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*number >> 33) % below
        };
        if self.live.len() < 32 || (self.live.len() < 64 && draw(2) == 1) {
            self.live.push(Held::of(resource, 256 << draw(13), self.stream.as_ref()));
        } else {
            let place = draw(self.live.len() as u64) as usize;
            self.live.swap_remove(place).free(self.stream.as_ref());
        }
    }
}

/// Sixteen streams that take what they want of bins find it in their caches, and take none of each other's: the bins grow until
/// that is so. A bin has 128 blocks at a time, which is fewer than they have live.
#[test]
fn bins_of_sixteen_streams_have_enough_for_each() {
    let bench = Bench::sim();
    let sim = bench.simulated().unwrap();
    let bins = Binning::over(pool(&bench)).checked(false).range(18..=22).build().unwrap();
    let mut number = 1;
    let mut walks: Vec<_> = (0..16).map(|_| Walk { stream: bench.stream(), live: Vec::new() }).collect();
    let mut walk = |steps: usize| {
        for _ in 0..steps {
            walks.iter_mut().for_each(|walk| walk.step(&bins, &mut number));
        }
    };
    walk(6000);
    let calls = sim.calls();
    walk(2000);
    let made = sim.calls() - calls;
    assert_eq!(made.total(), 0, "{made:?}");
    for walk in walks {
        walk.live.into_iter().for_each(|block| block.free(walk.stream.as_ref()));
    }
    let reserved = bins.upstream().find::<SuballocBook>().unwrap().status().live_bytes;
    assert!(reserved <= 2 * 16 * 64 * (MIB / 4) + 5 * 128 * 4 * MIB, "{reserved} bytes in bins");
}
