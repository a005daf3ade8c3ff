//! Suballocators announce what they have, and what of it is out.

use std::thread;

use alluvion::adaptor::GuardConfig;
use alluvion::source::{Cuda, Managed, Pinned, PinnedConfig};
use alluvion::suballoc::{Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig, Growth};
use alluvion::tag::with_tag;
use alluvion::{AnyResource, ErrorKind, Layout, PoolConfig, Resource, ResourceExt, Sim, Stream, nvtx};

use crate::raw_block::{Held, layout_of};
use crate::{Picture, announced_sim, log_of, note, told};

const MIB: usize = 1 << 20;

/// Numbers that are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

fn live<R>(block: &Held<'_, R>) {
    note(&format!("live {:x} {}", block.pointer.address(), block.layout.bytes()));
}

/// Allocates and frees at random, on several streams and with none, and says at each step what is so.
fn churn<R: Resource>(resource: &R, streams: &[Stream], largest: usize, seed: u64) {
    churn_beside(resource, streams, largest, seed, true);
}

/// As [`churn`]; where this thread is not alone, another one may have at once what it frees.
fn churn_beside<R: Resource>(resource: &R, streams: &[Stream], largest: usize, seed: u64, is_alone: bool) {
    let mut numbers = Numbers(seed);
    let mut blocks: Vec<Held<'_, R>> = Vec::new();
    for _ in 0..400 {
        let stream = streams[numbers.below(streams.len())].as_ref();
        match numbers.below(20) {
            0 => {
                resource.trim(0).expect("nothing fails");
            }
            1..=11 => {
                let most = if numbers.below(8) == 0 { largest } else { largest / 64 };
                let bytes = 1 + numbers.below(most);
                let layout = match numbers.below(6) {
                    0 => Layout::new(bytes, 512).expect("it is small"),
                    _ => layout_of(bytes),
                };
                let block = match numbers.below(4) {
                    0 => Held::allocate_sync(resource, layout),
                    _ => Held::allocate(resource, layout, stream),
                };
                let Ok(block) = block else { continue };
                live(&block);
                blocks.push(block);
            }
            _ if blocks.is_empty() => {}
            _ => {
                let block = blocks.swap_remove(numbers.below(blocks.len()));
                live(&block);
                let (address, bytes) = (block.pointer.address(), block.layout.bytes());
                match numbers.below(4) {
                    0 => {
                        stream.device().synchronize().expect("nothing fails");
                        block.free_sync();
                    }
                    _ => block.free(stream),
                }
                if is_alone {
                    note(&format!("dead {address:x} {bytes}"));
                }
            }
        }
    }
    for block in blocks {
        live(&block);
        block.free(streams[0].as_ref());
    }
}

/// A machine, and streams of it.
fn rig() -> (Sim, Vec<Stream>) {
    let sim = announced_sim();
    let streams = (0..3).map(|_| sim.device(0).stream().expect("it makes one")).collect();
    (sim, streams)
}

fn assert_whole(picture: &Picture) {
    picture.assert_empty();
    assert!(picture.registers > 100 && picture.most > 5, "{} {}", picture.registers, picture.most);
}

#[test]
fn a_pool_tells_of_each_block() {
    let picture = told("carved::a_pool_tells_of_each_block", "", || {
        let (sim, streams) = rig();
        for (seed, growth) in [(1, Growth::Spare), (2, Growth::Doubling), (3, Growth::Exact)] {
            let config = PoolConfig::default().growth(growth).maximum(64 * MIB);
            churn(&Cuda::new(&sim.device(0)).pool(config).unwrap(), &streams, 4 * MIB, seed);
        }
        churn(&Managed::new(&sim.device(0)).unwrap().pool(PoolConfig::default()).unwrap(), &streams, MIB, 4);
        // What is mapped and registered, and what the driver allocates.
        for (seed, huge) in [(7, 0), (8, usize::MAX)] {
            let pinned = PinnedConfig::default().huge_bytes(huge);
            let pinned = Pinned::with_config(&sim.device(0), pinned).unwrap();
            churn(&pinned.pool(PoolConfig::default()).unwrap(), &streams, MIB, seed);
        }
        let checked = PoolConfig::default().checked(true).initial(8 * MIB);
        churn(&Cuda::new(&sim.device(0)).pool(checked).unwrap(), &streams, MIB, 6);
    });
    let Some(picture) = picture else { return };
    assert_whole(&picture);
    assert!(picture.heaps_seen.len() > 6 && picture.heaps_seen.iter().all(|name| name == "Pool"));
}

#[test]
fn the_other_suballocators_tell_of_each_block() {
    let picture = told("carved::the_other_suballocators_tell_of_each_block", "", || {
        let (sim, streams) = rig();
        let source = || Cuda::new(&sim.device(0));
        churn(&Arena::new(source(), ArenaConfig::default().bytes(32 * MIB)).unwrap(), &streams, MIB, 9);
        let fixed = FixedSizeConfig::default().block(64 << 10).blocks(16).maximum(32 * MIB);
        churn(&FixedSize::new(source(), fixed).unwrap(), &streams, 64 << 10, 10);
    });
    let Some(picture) = picture else { return };
    assert_whole(&picture);
    assert!(picture.heaps_seen.contains(&"Arena".to_owned()));
}

/// What a suballocator carves of another one's block is not that block any more; the tool knows the innermost.
#[test]
fn of_a_block_that_is_carved_the_tool_knows_the_pieces() {
    let picture = told("carved::of_a_block_that_is_carved_the_tool_knows_the_pieces", "", || {
        let (sim, streams) = rig();
        let pool = || Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
        let bins = Binning::over(pool()).blocks(8).range(12..=18).bin(MIB).build().unwrap();
        churn(&bins, &streams, 2 * MIB, 11);
        drop(bins);
        churn(&pool().pool(PoolConfig::default()).unwrap(), &streams, MIB, 12);
        churn(&Arena::new(pool(), ArenaConfig::default().bytes(16 * MIB)).unwrap(), &streams, MIB, 13);
    });
    let Some(picture) = picture else { return };
    assert_whole(&picture);
    assert!(picture.heaps_seen.iter().all(|name| name == "Pool"), "those within are pieces of these");
}

#[test]
fn threads_tell_at_once() {
    let picture = told("carved::threads_tell_at_once", "", || {
        let (sim, _) = rig();
        let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
        thread::scope(|scope| {
            for seed in 20..24 {
                let (pool, sim) = (&pool, &sim);
                scope.spawn(move || {
                    let stream = sim.device(0).stream().unwrap();
                    churn_beside(pool, &[stream], 256 << 10, seed, false);
                });
            }
        });
    });
    let Some(picture) = picture else { return };
    assert_whole(&picture);
}

#[test]
fn tags_are_names() {
    let picture = told("carved::tags_are_names", "", || {
        let (sim, streams) = rig();
        let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
        let stream = streams[0].as_ref();
        for round in 0..3 {
            let block = with_tag("query", || with_tag("jo\u{ef}n", || Held::of(&pool, 1000 + round, stream)));
            note(&format!("live {:x} {} query;jo_n", block.pointer.address(), 1000 + round));
            block.free(stream);
            let block = Held::of(&pool, 1000 + round, stream);
            note(&format!("live {:x} {} ", block.pointer.address(), 1000 + round));
            block.free(stream);
        }
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
}

/// What is refused is left alone: the block is live, and the tool knows it.
#[test]
fn a_free_that_is_refused_changes_nothing() {
    let picture = told("carved::a_free_that_is_refused_changes_nothing", "", || {
        let (sim, streams) = rig();
        let stream = &streams[0];
        for checked in [false, true] {
            let config = PoolConfig::default().checked(checked);
            let pool = Cuda::new(&sim.device(0)).pool(config).unwrap();
            let block = Held::of(&pool, 1000, stream.as_ref());
            let (pointer, layout) = (block.pointer, block.layout);
            crate::foreign::try_free(&pool, pointer, layout_of(70_000), stream)
                .expect_err("it has another size");
            live(&block);
            crate::foreign::try_free(&pool, pointer, layout, stream).expect("it is live");
            note(&format!("dead {:x} 1000", pointer.address()));
            crate::foreign::try_free(&pool, pointer, layout, stream).expect_err("it is free");
            let _ = block.into_parts();
        }
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
}

/// Blocks that nobody has freed end with their pool.
#[test]
fn a_pool_that_ends_takes_its_blocks_along() {
    let picture = told("carved::a_pool_that_ends_takes_its_blocks_along", "", || {
        let (sim, streams) = rig();
        let stream = streams[0].as_ref();
        let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
        let _ = Held::of(&pool, 1000, stream).into_parts();
        drop(pool);
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
}

/// Redzones and what is in the quarantine are off limits; what the guard fills and copies is not meanwhile.
#[test]
fn a_guard_tells_of_the_blocks_within_its_redzones() {
    let picture = told("carved::a_guard_tells_of_the_blocks_within_its_redzones", "", || {
        let (sim, streams) = rig();
        let stream = streams[0].as_ref();
        for kept in [0, 1 << 20] {
            let config = || GuardConfig::default().quarantine(kept);
            let over_cuda = Cuda::new(&sim.device(0)).guard(config()).unwrap();
            let block = Held::of(&over_cuda, 1000, stream);
            let (address, bytes) = (block.pointer.address(), 1000);
            live(&block);
            note(&format!("dead {:x} 256", address - 256));
            note(&format!("dead {:x} 24", address + bytes));
            block.free(stream);
            note(&format!("dead {address:x} {bytes}"));
            churn(&over_cuda, &streams, 64 << 10, 30);
            drop(over_cuda);
            let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
            churn(&pool.guard(config()).unwrap(), &streams, 64 << 10, 31);
            let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
            churn(
                &pool.guard(config()).unwrap().pool(PoolConfig::default()).unwrap(),
                &streams,
                64 << 10,
                32,
            );
        }
    });
    let Some(picture) = picture else { return };
    assert_whole(&picture);
    assert!(picture.heaps_seen.contains(&"Guard".to_owned()));
}

/// A region is unwritten to a tool when it begins. The guard tells of what it reads that it was written: redzones when a block is freed,
/// and what it has put into it when it leaves the quarantine.
#[test]
fn a_guard_vouches_for_what_it_reads() {
    let body = || {
        let (sim, streams) = rig();
        let stream = streams[0].as_ref();
        for config in [GuardConfig::default().quarantine(0), GuardConfig::default().verify(512)] {
            let guard = Cuda::new(&sim.device(0)).guard(config).unwrap();
            let block = Held::of(&guard, 1000, stream);
            note(&format!("mark {} block", block.pointer.address()));
            block.free(stream);
            let block = Held::allocate_sync(&guard, layout_of(1000)).unwrap();
            note(&format!("mark {} block", block.pointer.address()));
            block.free_sync();
            guard.trim(0).unwrap();
        }
    };
    let test = "carved::a_guard_vouches_for_what_it_reads";
    let Some(log) = log_of(test, "", body) else { return };
    let picture = Picture::of(&log);
    picture.assert_empty();
    let blocks = log.lines().filter_map(|line| line.strip_prefix("mark ")?.strip_suffix(" block"));
    let blocks: Vec<u64> = blocks.map(|block| block.parse().unwrap()).collect();
    let redzones = |block: u64| [(block - 256, 256), (block + 1000, 280)];
    let poisoned = |block: u64| [(block, 256), (block + 744, 256)];
    let expected: Vec<(u64, u64)> = [
        redzones(blocks[0]),
        redzones(blocks[1]),
        redzones(blocks[2]),
        redzones(blocks[3]),
        poisoned(blocks[2]),
        poisoned(blocks[3]),
    ]
    .concat();
    assert_eq!(picture.written, expected);
    // A tool that looks for no such reads is not told.
    let picture = told(test, "markless", body).expect("this is the parent");
    picture.assert_empty();
    assert!(picture.written.is_empty() && picture.registers > 4);
}

#[test]
fn a_stack_can_be_chosen() {
    let picture = told("carved::a_stack_can_be_chosen", "", || {
        let (sim, streams) = rig();
        let pool = || Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
        nvtx::announce(nvtx::Announced::Chosen);
        let checked = PoolConfig::default().checked(true);
        let (other, also) = (pool(), Cuda::new(&sim.device(0)).pool(checked).unwrap());
        let (one, another) =
            (Held::of(&other, 1000, streams[0].as_ref()), Held::of(&also, 1000, streams[0].as_ref()));
        let error = Cuda::new(&sim.device(0))
            .pool(PoolConfig::default().initial(2 * MIB))
            .and_then(ResourceExt::announced)
            .expect_err("it has memory");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        for unknown in [one, another] {
            note(&format!("dead {:x} 1000", unknown.pointer.address()));
            unknown.free(streams[0].as_ref());
        }
        // A guard tells of pieces of what is chosen.
        let config = || GuardConfig::default().quarantine(0);
        let unheard = [
            AnyResource::new(pool().guard(config()).unwrap()),
            AnyResource::new(Cuda::new(&sim.device(0)).guard(config()).unwrap()),
        ];
        for resource in unheard {
            let block = Held::of(&resource, 1000, streams[0].as_ref());
            note(&format!("dead {:x} 1000", block.pointer.address()));
            block.free(streams[0].as_ref());
        }
        let heard = pool().announced().unwrap().guard(config()).unwrap();
        let block = Held::of(&heard, 1000, streams[0].as_ref());
        live(&block);
        block.free(streams[0].as_ref());
        churn(&AnyResource::new(pool()).stats().announced().unwrap(), &streams, MIB, 40);
        let bins = Binning::over(pool().announced().unwrap()).blocks(8).range(12..=18).build().unwrap();
        churn(&bins, &streams, 2 * MIB, 41);
    });
    let Some(picture) = picture else { return };
    assert_whole(&picture);
}
