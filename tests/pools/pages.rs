//! A pool over pages: how it grows in place, moves what is free, and gives back what no live block touches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use alluvion::adaptor::Limiting;
use alluvion::driver::{Call, Code};
use alluvion::error::Cause;
use alluvion::relief::Relief;
use alluvion::sim::{Fault, SimConfig};
use alluvion::source::Mapped;
use alluvion::suballoc::{PageBudget, Reuse};
use alluvion::testing::Stall;
use alluvion::{ErrorKind, Pool, PoolConfig, Recipe, Resource, ResourceExt, Sim, Stream};

use crate::paged::{MIB, PAGE, exact, free_all, machine, machine_without_aliases, pool};
use crate::raw_block::{Held, layout_of};

/// Counts how often it is asked.
fn counting(config: PoolConfig, answer: Relief) -> (PoolConfig, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let config = config.on_out_of_memory(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        answer
    });
    (config, asked)
}

/// `count` blocks of a page each, of which every second one is free again, and the last one is not. Their work is over.
fn with_holes<'p, R: alluvion::DeviceAccessible>(
    pool: &'p R,
    count: usize,
    stream: &Stream,
) -> Vec<Held<'p, R>> {
    let mut blocks: Vec<_> = (0..count).map(|_| Held::of(pool, PAGE, stream.as_ref())).collect();
    blocks.sort_by_key(|block| block.pointer);
    let mut kept = Vec::new();
    for (at, block) in blocks.into_iter().enumerate() {
        if at % 2 == 1 { kept.push(block) } else { block.free(stream.as_ref()) }
    }
    stream.synchronize().expect("nothing fails");
    kept
}

/// The pages that blocks touch.
fn touched<R: Resource>(blocks: &[Held<'_, R>]) -> usize {
    let pages = blocks.iter().flat_map(|block| {
        let (from, to) = block.range();
        from / PAGE as u64..to.div_ceil(PAGE as u64)
    });
    pages.collect::<BTreeSet<_>>().len()
}

/// What is mapped on the machine is what the pool says that it has.
#[track_caller]
fn assert_mapped<R: Resource>(sim: &Sim, pool: &Pool<R>, pages: usize) {
    let (live, status) = (sim.live(), pool.status());
    assert_eq!(
        (live.physical, status.pages, status.reserved_bytes),
        (pages, pages, pages * PAGE),
        "{status:?}"
    );
    // A page that has moved may be mapped where it was, too.
    assert!(live.mappings == pages || live.mappings > pages && status.moves > 0, "{live}: {status:?}");
}

/// Numbers without a pattern: xorshift.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

#[test]
fn what_came_in_many_growths_is_one_block() {
    let sim = machine(32);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, exact());
    let blocks: Vec<_> = (0..8).map(|_| Held::of(&pool, 3 * MIB, stream.as_ref())).collect();
    assert_mapped(&sim, &pool, 12);
    assert_eq!(pool.snapshot().segments.len(), 1, "one growth begins where another one ends");
    let calls = pool.status().upstream_calls;
    free_all(blocks, &stream);
    Held::of(&pool, 24 * MIB, stream.as_ref()).free(stream.as_ref());
    assert_eq!(pool.status().upstream_calls, calls, "nothing was asked of the source");
    drop((pool, stream));
    sim.assert_clean();
}

#[test]
fn a_request_grows_by_what_misses_beside_free_memory() {
    let sim = machine(32);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, exact());
    let first = Held::of(&pool, MIB, stream.as_ref());
    // One MiB is free behind: six pages and a half need six more.
    let second = Held::of(&pool, 13 * MIB, stream.as_ref());
    assert_mapped(&sim, &pool, 7);
    assert_eq!(second.range().0, first.range().1);
    free_all(vec![first, second], &stream);
}

#[test]
fn a_steady_round_calls_no_driver() {
    let sim = machine(64);
    let stream = sim.device(0).stream().unwrap();
    for config in [PoolConfig::default(), exact(), exact().budget(PageBudget::TimesPeak(3.0))] {
        let pool = pool(&sim, config.checked(false));
        let round = || {
            let mut numbers = Numbers(0x1234_5678_9abc_def1);
            let mut out = Vec::new();
            for _ in 0..400 {
                if out.len() > 20 {
                    let pick = numbers.below(out.len());
                    let block: Held<'_, _> = out.swap_remove(pick);
                    block.free(stream.as_ref());
                }
                let most = 1 << (8 + numbers.below(14));
                out.push(Held::of(&pool, 1 + numbers.below(most), stream.as_ref()));
            }
            free_all(out, &stream);
        };
        (0..3).for_each(|_| round());
        let (calls, moves) = (sim.calls(), pool.status().moves);
        round();
        let made = sim.calls() - calls;
        assert_eq!((made.total(), pool.status().moves - moves), (0, 0), "{made:?}");
    }
}

#[test]
fn after_a_trim_to_nothing_no_page_is_mapped_that_no_live_block_touches() {
    let sim = machine(64);
    let device = sim.device(0);
    let streams: Vec<Stream> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for round in 0..60 {
        let config = if round % 2 == 0 { PoolConfig::default() } else { exact() };
        let config = if round % 3 == 0 { config.budget(PageBudget::TimesPeak(1.05)) } else { config };
        let pool = pool(&sim, config);
        let mut out: Vec<(Held<'_, _>, usize)> = Vec::new();
        for _ in 0..numbers.below(80) {
            let on = numbers.below(3);
            if numbers.below(5) > 1 || out.is_empty() {
                let most = 1 << (12 + numbers.below(11));
                let bytes = 1 + numbers.below(most);
                if let Ok(block) = Held::allocate(&pool, layout_of(bytes), streams[on].as_ref()) {
                    block.touch(round, streams[on].as_ref()).unwrap();
                    out.push((block, on));
                }
            } else {
                let (block, on) = {
                    let pick = numbers.below(out.len());
                    out.swap_remove(pick)
                };
                block.free(streams[on].as_ref());
            }
        }
        device.synchronize().unwrap();
        let before = pool.pool_size();
        let gone = pool.trim(0).unwrap();
        let blocks: Vec<_> = out.into_iter().map(|(block, _)| block).collect();
        assert_mapped(&sim, &pool, touched(&blocks));
        assert_eq!(pool.pool_size(), before - gone, "round {round}");
        // What is live still has its memory.
        blocks.iter().for_each(|block| block.touch(round, streams[0].as_ref()).unwrap());
        device.synchronize().unwrap();
        free_all(blocks, &streams[0]);
        device.synchronize().unwrap();
        pool.trim(0).unwrap();
        assert_mapped(&sim, &pool, 0);
    }
    drop(streams);
    sim.assert_clean();
}

#[test]
fn what_work_may_still_use_stays_mapped() {
    let sim = machine(32);
    let (stream, other) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
    let pool = pool(&sim, exact());
    let [busy, idle] = [&stream, &other].map(|stream| Held::of(&pool, 4 * PAGE, stream.as_ref()));
    let stall = Stall::on(stream.as_ref());
    busy.free(stream.as_ref());
    idle.free(other.as_ref());
    assert_eq!(pool.trim(0).unwrap(), 4 * PAGE);
    assert_mapped(&sim, &pool, 4);
    drop(stall);
    stream.synchronize().unwrap();
    assert_eq!(pool.trim(0).unwrap(), 4 * PAGE);
    drop((pool, stream, other));
    sim.assert_clean();
}

#[test]
fn a_trim_keeps_what_it_is_to_keep() {
    let sim = machine(32);
    let stream = sim.device(0).stream().unwrap();
    for keep in [0, 1, PAGE - 1, PAGE, PAGE + 1, 5 * MIB, 16 * PAGE - 1, 16 * PAGE, 17 * PAGE, usize::MAX] {
        for holes in [false, true] {
            let pool = pool(&sim, exact());
            let kept = if holes { with_holes(&pool, 16, &stream) } else { Vec::new() };
            if !holes {
                Held::of(&pool, 16 * PAGE, stream.as_ref()).free(stream.as_ref());
                stream.synchronize().unwrap();
            }
            let gone = pool.trim(keep).unwrap();
            let least = kept.len() * PAGE;
            let expected = keep.div_ceil(PAGE).clamp(least / PAGE, 16);
            assert_mapped(&sim, &pool, expected);
            assert_eq!(gone, (16 - expected) * PAGE, "keep {keep}, holes {holes}");
            free_all(kept, &stream);
            stream.synchronize().unwrap();
        }
    }
}

#[test]
fn within_a_budget_free_pages_move_instead_of_growing() {
    let sim = machine(64);
    let stream = sim.device(0).stream().unwrap();
    // 16 pages were live at most when 8 of them make room for 8: no more than 16 are needed.
    for (budget, pages, moves) in [
        (None, 24, 0),
        (Some(PageBudget::TimesPeak(1.0)), 16, 8),
        (Some(PageBudget::TimesPeak(1.25)), 20, 4),
        (Some(PageBudget::TimesPeak(9.0)), 24, 0),
        (Some(PageBudget::Bytes(0)), 16, 8),
        (Some(PageBudget::Bytes(18 * PAGE)), 18, 6),
        (Some(PageBudget::Bytes(usize::MAX)), 24, 0),
    ] {
        let config = budget.map_or_else(exact, |budget| exact().budget(budget));
        let pool = pool(&sim, config);
        let mut kept = with_holes(&pool, 16, &stream);
        kept.push(Held::of(&pool, 8 * PAGE, stream.as_ref()));
        assert_mapped(&sim, &pool, pages);
        let status = pool.status();
        assert_eq!((status.moves, status.moved_bytes), (moves, moves * PAGE as u64), "{budget:?}");
        assert_eq!(status.peak_reserved_bytes, pages * PAGE, "{budget:?}");
        kept.iter().for_each(|block| block.touch(7, stream.as_ref()).unwrap());
        free_all(kept, &stream);
        stream.synchronize().unwrap();
    }
    drop(stream);
    sim.assert_clean();
}

/// A budget that is never reached costs nothing, and one that nearly is, far less than a page of the smallest size for each.
#[test]
fn pages_are_short_against_what_the_budget_leaves() {
    const GIB: usize = 1 << 30;
    let pages = |budget: Option<PageBudget>| {
        let sim = Sim::with_config(SimConfig::default().memory_bytes(16 * GIB));
        let pool = pool(&sim, budget.map_or_else(exact, |budget| exact().budget(budget)));
        let stream = sim.device(0).stream().unwrap();
        let held: Vec<_> = (0..16).map(|_| Held::of(&pool, 128 * MIB, stream.as_ref())).collect();
        let status = pool.status();
        assert_eq!((status.reserved_bytes, status.moves), (2 * GIB, 0), "{budget:?}");
        free_all(held, &stream);
        status.pages
    };
    // Of the memory, 1/1024 are 16 MiB; a gap of 128 MiB has eight pages at least, where the budget leaves as much.
    let times = |times| Some(PageBudget::TimesPeak(times));
    assert_eq!([None, times(1e30), times(100.0), times(2.0)].map(pages), [128; 4]);
    let tight = pages(times(1.1));
    assert!((128..=400).contains(&tight), "{tight}");
    // Where nothing is left to move within, 1/512 of the peak so far: 4 MiB once 2 GiB are live.
    // The first GiB of the third one is within the budget.
    let passed = [PageBudget::TimesPeak(1.0), PageBudget::Bytes(0), PageBudget::Bytes(GIB)];
    assert_eq!(passed.map(|budget| pages(Some(budget))), [720, 720, 328]);
    // The initial size counts as the peak.
    let sim = Sim::with_config(SimConfig::default().memory_bytes(16 * GIB));
    let full = pool(&sim, exact().initial(8 * GIB).budget(PageBudget::Bytes(8 * GIB)));
    assert_eq!((full.status().reserved_bytes, full.status().pages), (8 * GIB, 512));
}

#[test]
fn a_pool_grows_past_its_budget_rather_than_wait() {
    let sim = machine(64);
    let (busy, stream) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
    for reuse in [Reuse::Own, Reuse::Completed, Reuse::Wait] {
        let pool = pool(&sim, exact().reuse(reuse).budget(PageBudget::TimesPeak(1.0)));
        let block = Held::of(&pool, 8 * PAGE, busy.as_ref());
        let stall = Stall::on(busy.as_ref());
        block.free(busy.as_ref());
        let other = Held::of(&pool, 8 * PAGE, stream.as_ref());
        assert!(!stall.is_over());
        let status = pool.status();
        assert_eq!((status.pages, status.moves, status.waits, status.steals), (16, 0, 0, 0), "{reuse:?}");
        drop(stall);
        other.free(stream.as_ref());
        sim.device(0).synchronize().unwrap();
    }
}

/// Holes that are quiescent, and as much on a busy stream, which would fit at once.
fn with_a_busy_stream<R: alluvion::DeviceAccessible>(pool: &Pool<R>, sim: &Sim, asked: &AtomicU32) {
    let (busy, stream) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
    let pending = Held::of(pool, 4 * PAGE, busy.as_ref());
    let mut kept = with_holes(pool, 8, &stream);
    let stall = Stall::on(busy.as_ref());
    pending.free(busy.as_ref());
    kept.push(Held::of(pool, 4 * PAGE, stream.as_ref()));
    assert!(!stall.is_over());
    let status = pool.status();
    assert_eq!((status.moves, status.waits, status.steals), (4, 0, 0), "{status:?}");
    assert_eq!(status.peak_reserved_bytes, 12 * PAGE, "{status:?}");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    drop(stall);
    free_all(kept, &stream);
    sim.device(0).synchronize().unwrap();
}

#[test]
fn under_a_maximum_pages_move_before_any_stream_waits() {
    let sim = machine(64);
    let (config, asked) = counting(exact().maximum(12 * PAGE), Relief::None);
    with_a_busy_stream(&pool(&sim, config), &sim, &asked);
    sim.assert_clean();
}

#[test]
fn on_a_full_device_pages_move_before_any_stream_waits() {
    let sim = machine(12);
    let (config, asked) = counting(exact(), Relief::None);
    with_a_busy_stream(&pool(&sim, config), &sim, &asked);
    sim.assert_clean();
}

#[test]
fn under_a_limit_pages_move_before_any_stream_waits() {
    let sim = machine(64);
    let (config, asked) = counting(exact(), Relief::None);
    let limited: Limiting<Mapped> = Mapped::new(&sim.device(0)).unwrap().limiting(12 * PAGE);
    with_a_busy_stream(&limited.pool(config).unwrap(), &sim, &asked);
    sim.assert_clean();
}

/// What is free is in use until the host has waited: then its pages move.
#[test]
fn pages_of_work_that_is_not_over_move_after_a_wait() {
    for (reuse, full) in
        [(Reuse::Own, false), (Reuse::Completed, false), (Reuse::Wait, false), (Reuse::Wait, true)]
    {
        let sim = machine(if full { 12 } else { 64 });
        let (busy, stream) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
        let config = if full { exact() } else { exact().maximum(12 * PAGE) };
        let (config, asked) = counting(config.reuse(reuse), Relief::None);
        let pool = pool(&sim, config);
        let mut blocks: Vec<_> = (0..12).map(|_| Held::of(&pool, PAGE, busy.as_ref())).collect();
        blocks.sort_by_key(|block| block.pointer);
        let mut stall = Stall::on(busy.as_ref());
        let mut kept = Vec::new();
        for (at, block) in blocks.into_iter().enumerate() {
            if at % 2 == 1 { kept.push(block) } else { block.free(busy.as_ref()) }
        }
        stall.let_go_soon();
        let long = Held::of(&pool, 6 * PAGE, stream.as_ref());
        let status = pool.status();
        assert_eq!((status.moves, status.pages), (6, 12), "{reuse:?}, {full}: {status:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        long.free(stream.as_ref());
        drop(stall);
        free_all(kept, &busy);
        sim.device(0).synchronize().unwrap();
        drop((pool, busy, stream));
        sim.assert_clean();
    }
}

#[test]
fn handlers_are_asked_when_nothing_can_move() {
    let sim = machine(8);
    let stream = sim.device(0).stream().unwrap();
    let (config, asked) = counting(exact(), Relief::None);
    let pool = pool(&sim, config);
    let kept = with_holes(&pool, 8, &stream);
    let error = pool.allocate(layout_of(5 * PAGE), stream.as_ref()).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    // Nothing was lost by trying.
    let long = Held::of(&pool, 4 * PAGE, stream.as_ref());
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_mapped(&sim, &pool, 8);
    free_all(kept, &stream);
    long.free(stream.as_ref());
    Held::of(&pool, 8 * PAGE, stream.as_ref()).free(stream.as_ref());
    drop((pool, stream));
    sim.assert_clean();
}

/// A page of the pool is eight of the machine's here, and the device has three left: these and five free ones do.
#[test]
fn what_is_left_of_a_device_is_used_beside_what_moves() {
    for left in 0..=8 {
        let sim = Sim::with_config(SimConfig::default().devices(1).memory_bytes(16 << 30));
        let stream = sim.device(0).stream().unwrap();
        let all = sim.device(0).memory_info().unwrap().free_bytes / PAGE;
        let pool = pool(&sim, exact());
        let hole = Held::of(&pool, (8 - left).max(1) * PAGE, stream.as_ref());
        let mut kept = vec![Held::of(&pool, PAGE, stream.as_ref())];
        let rest = all - (8 - left).max(1) - 1 - left;
        kept.push(Held::of(&pool, rest * PAGE, stream.as_ref()));
        hole.free(stream.as_ref());
        stream.synchronize().unwrap();
        assert_eq!(pool.pool_size(), (all - left) * PAGE);
        kept.push(Held::of(&pool, 8 * PAGE, stream.as_ref()));
        assert!(pool.pool_size() <= all * PAGE);
        free_all(kept, &stream);
        stream.synchronize().unwrap();
        drop((pool, stream));
        sim.assert_clean();
    }
}

#[test]
fn the_initial_bytes_are_mapped_at_once() {
    let sim = machine(32);
    let stream = sim.device(0).stream().unwrap();
    for (initial, pages) in [(1, 1), (PAGE, 1), (PAGE + 1, 2), (32 * PAGE, 32)] {
        let pool = pool(&sim, exact().initial(initial));
        assert_mapped(&sim, &pool, pages);
        let calls = sim.calls();
        Held::of(&pool, initial, stream.as_ref()).free(stream.as_ref());
        assert_eq!((sim.calls() - calls)[Call::MemoryCreate], 0);
        assert_mapped(&sim, &pool, pages);
    }
    let refused = Mapped::new(&sim.device(0)).unwrap().pool(exact().initial(33 * PAGE)).unwrap_err();
    assert!(refused.is_out_of_memory(), "{refused}");
    drop(stream);
    sim.assert_clean();
}

/// Every eighth page of the range is live, so that no run of addresses is as long as the request.
#[test]
fn where_a_range_has_no_run_of_addresses_another_is_reserved() {
    let sim = machine(32);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, exact());
    let mut kept = Vec::new();
    for _ in 0..15 {
        Held::of(&pool, 8 * PAGE, stream.as_ref()).free(stream.as_ref());
        let mut pages: Vec<_> = (0..8).map(|_| Held::of(&pool, PAGE, stream.as_ref())).collect();
        pages.sort_by_key(|block| block.pointer);
        kept.extend(pages.pop());
        free_all(pages, &stream);
        stream.synchronize().unwrap();
        pool.trim(0).unwrap();
    }
    assert_mapped(&sim, &pool, 15);
    // With 16 MiB and more, short blocks have a range of their own.
    assert_eq!(sim.live().reservations, 2);
    let long = Held::of(&pool, 17 * PAGE, stream.as_ref());
    assert_eq!(sim.live().reservations, 3);
    assert_mapped(&sim, &pool, 32);
    long.touch(1, stream.as_ref()).unwrap();
    long.free(stream.as_ref());
    free_all(kept, &stream);
    stream.synchronize().unwrap();
    pool.trim(0).unwrap();
    assert_mapped(&sim, &pool, 0);
    Held::of(&pool, 32 * PAGE, stream.as_ref()).free(stream.as_ref());
    assert_eq!(sim.live().reservations, 3, "the ranges are there still");
    drop((pool, stream));
    sim.assert_clean();
}

#[test]
fn a_maximum_that_holds_no_page_is_refused() {
    let sim = machine(32);
    let make = |config: PoolConfig| Mapped::new(&sim.device(0)).and_then(|source| source.pool(config));
    for maximum in [256, MIB, PAGE - 1] {
        let error = make(exact().maximum(maximum)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let words = error.to_string();
        assert!(
            words.contains(&format!("a maximum of {maximum} bytes over pages of {PAGE} bytes")),
            "{words}"
        );
        assert!(words.contains(&format!("pass {PAGE} or more")), "{words}");
    }
    // The same below a limit, which has the pages of its upstream, and by a recipe.
    let limited = Mapped::new(&sim.device(0)).unwrap().limiting(8 * PAGE);
    assert_eq!(limited.pool(exact().maximum(PAGE - 1)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let recipe: Recipe = "pool(maximum=1MiB) | mapped".parse().unwrap();
    assert_eq!(recipe.build(&sim.device(0)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    // Two pages do not fit below three MiB.
    let error = make(exact().initial(PAGE + 1).maximum(3 * MIB)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("takes 2 pages"), "{error}");
    assert_eq!((sim.live().reservations, sim.live().physical), (0, 0), "{}", sim.live());
}

#[test]
fn a_maximum_is_rounded_down_to_whole_pages() {
    let sim = machine(32);
    let stream = sim.device(0).stream().unwrap();
    for (maximum, pages) in [(PAGE, 1), (PAGE + 1, 1), (2 * PAGE - 1, 1), (3 * PAGE + MIB, 3)] {
        let pool = pool(&sim, exact().maximum(maximum));
        Held::of(&pool, pages * PAGE, stream.as_ref()).free(stream.as_ref());
        assert_mapped(&sim, &pool, pages);
        let error = pool.allocate(layout_of(pages * PAGE + 1), stream.as_ref()).unwrap_err();
        let report = error.out_of_memory_report().expect("a pool says why");
        assert_eq!((report.cause, report.maximum_bytes), (Cause::TooLarge, Some(pages * PAGE)), "{error}");
    }
}

/// A page that stays where it is counts against the maximum, and is no reason to make another one in its place.
#[test]
fn a_page_that_cannot_be_unmapped_takes_no_pool_beyond_its_maximum() {
    let sim = machine_without_aliases(40);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, exact().maximum(16 * PAGE));
    let kept = with_holes(&pool, 16, &stream);
    assert_mapped(&sim, &pool, 16);
    sim.inject(Fault::every(Call::MemoryUnmap, Code::NOT_PERMITTED));
    // The pages of the holes would have to move.
    let error = Held::allocate(&pool, layout_of(8 * PAGE), stream.as_ref()).map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Some(Code::NOT_PERMITTED), "{error}");
    assert_mapped(&sim, &pool, 16);
    // Some pages move, and others do not.
    sim.clear_faults();
    sim.inject(Fault::nth(Call::MemoryUnmap, 3, Code::NOT_PERMITTED));
    let first = Held::allocate(&pool, layout_of(6 * PAGE), stream.as_ref());
    assert!(pool.pool_size() <= 16 * PAGE, "{} pages of 16", pool.pool_size() / PAGE);
    sim.clear_faults();
    first.into_iter().for_each(|block| block.free(stream.as_ref()));
    stream.synchronize().unwrap();
    // Nothing is lost: all of them move now.
    let long = Held::of(&pool, 8 * PAGE, stream.as_ref());
    assert_mapped(&sim, &pool, 16);
    long.free(stream.as_ref());
    free_all(kept, &stream);
}

/// Where there is room, new pages stand in for those that stay.
#[test]
fn a_page_that_cannot_be_unmapped_for_a_budget_is_no_refusal() {
    let sim = machine_without_aliases(40);
    let stream = sim.device(0).stream().unwrap();
    let pool = pool(&sim, exact().budget(PageBudget::TimesPeak(1.0)));
    let kept = with_holes(&pool, 16, &stream);
    sim.inject(Fault::every(Call::MemoryUnmap, Code::NOT_PERMITTED));
    let long = Held::of(&pool, 8 * PAGE, stream.as_ref());
    assert_mapped(&sim, &pool, 24);
    sim.clear_faults();
    long.free(stream.as_ref());
    free_all(kept, &stream);
}
