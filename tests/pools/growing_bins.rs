//! Bins that are added while a program runs: each block goes back to where it came from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use alluvion::source::Cuda;
use alluvion::suballoc::Binning;
use alluvion::testing::{Bench, Op, Shadow, run_ops};
use alluvion::{AnyResource, Layout, PoolConfig, Resource, ResourceExt};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

type Watched = Arc<Shadow<Cuda>>;

fn watched(bench: &Bench) -> Watched {
    Arc::new(Shadow::new(Cuda::new(&bench.device())))
}

/// Bins of the user's, over an upstream of the user's, each of which refuses a block that is not its own.
fn bins(upstream: &Watched) -> Binning<Watched, Watched> {
    Binning::<Watched, Watched>::with_given_bins(Arc::clone(upstream)).build().unwrap()
}

#[track_caller]
fn live_of(all: &[&Watched]) -> Vec<usize> {
    all.iter().map(|one| one.live().len()).collect()
}

/// Before the first request and after it, smaller and larger ones, and equal ones: the smallest that fits serves, and of equal ones
/// the first.
#[test]
fn each_block_goes_back_to_where_it_came_from() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let all: Vec<_> = (0..7).map(|_| watched(&bench)).collect();
    let [upstream, first, twin, small, larger, late_twin, smallest] =
        [0, 1, 2, 3, 4, 5, 6].map(|at| &all[at]);
    let everybody = [upstream, first, twin, small, larger, late_twin, smallest];
    let bins = bins(upstream);
    let add = |bytes, bin: &Watched| bins.add_bin_over(bytes, Arc::clone(bin)).unwrap();
    add(4096, first);
    add(4096, twin);
    let mut held = vec![Held::of(&bins, 1000, stream.as_ref()), Held::of(&bins, 5000, stream.as_ref())];
    assert_eq!(live_of(&everybody), [1, 1, 0, 0, 0, 0, 0]);
    add(2000, small);
    add(8000, larger);
    add(2000, late_twin);
    held.extend([1000, 2048, 2049, 4096, 8192, 8193].map(|bytes| Held::of(&bins, bytes, stream.as_ref())));
    assert_eq!(live_of(&everybody), [2, 3, 0, 2, 1, 0, 0]);
    add(100, smallest);
    held.extend([1, 256, 257].map(|bytes| Held::of(&bins, bytes, stream.as_ref())));
    assert_eq!(live_of(&everybody), [2, 3, 0, 3, 1, 0, 2]);
    assert_eq!(bins.bins().collect::<Vec<_>>(), [256, 2048, 2048, 4096, 4096, 8192]);
    assert_eq!(bins.describe().to_string().split(" > ").next(), Some("Binning(6 bins, 256 B to 8 KiB)"));
    // Every other one first, and each through the way that it likes.
    let (even, odd): (Vec<_>, Vec<_>) = held.into_iter().enumerate().partition(|(at, _)| at % 2 == 0);
    for (_, block) in even.into_iter().chain(odd) {
        block.free(stream.as_ref());
    }
    all.iter().for_each(|one| one.assert_clean());
    bench.check();
}

/// A bin that does not honour an alignment is passed by, at the request and at the free.
#[test]
fn an_alignment_passes_by_the_bins_that_do_not_honour_it() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let pool = || AnyResource::new(Cuda::new(&bench.device()).pool(PoolConfig::default()).unwrap());
    for served_before in [false, true] {
        let bins = Binning::<AnyResource, AnyResource>::with_given_bins(pool()).build().unwrap();
        let honours = bins.max_align();
        if served_before {
            Held::of(&bins, 1000, stream.as_ref()).free(stream.as_ref());
        }
        let plain = watched(&bench);
        bins.add_bin_over(4096, AnyResource::new(Arc::clone(&plain))).unwrap();
        assert_eq!(bins.max_align(), honours, "it does not change");
        let coarse = Layout::new(1000, 64 << 10).unwrap();
        let blocks =
            [layout_of(1000), coarse].map(|layout| (bins.allocate(layout, stream.as_ref()).unwrap(), layout));
        assert_eq!(plain.live().len(), 1);
        for (block, layout) in blocks {
            assert!(block.is_aligned_to(layout.block_align()));
            #[expect(unsafe_code, reason = "gives a block back")]
            // SAFETY: the block came from this resource with this layout, and nothing uses it.
            unsafe {
                bins.deallocate(block, layout, stream.as_ref());
            }
        }
        plain.assert_clean();
    }
    bench.check();
}

/// Own bins: one of a size that is there takes nothing, one that cannot be had changes nothing.
#[test]
fn own_bins_are_taken_at_once_and_once() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let upstream = watched(&bench);
    let bins = Arc::clone(&upstream).binning().blocks(4).range(5..=10).build().unwrap();
    assert_eq!(bins.bins().collect::<Vec<_>>(), [256, 512, 1024], "the powers below 256 make one");
    assert_eq!(upstream.live().len(), 3);
    bins.add_bin(1000).unwrap();
    assert_eq!(upstream.live().len(), 3, "there is one of 1 KiB");
    let first = Held::of(&bins, 3000, stream.as_ref());
    assert_eq!(upstream.live().len(), 4);
    bins.add_bin(3000).unwrap();
    let second = Held::of(&bins, 3000, stream.as_ref());
    assert_eq!((upstream.live().len(), bins.bins().len()), (5, 4), "the block is of the bin");
    assert!(bins.add_bin(0).is_err() && bins.add_bin(usize::MAX).is_err());
    assert!(bins.add_bin(32 * MIB).unwrap_err().is_out_of_memory());
    assert_eq!((upstream.live().len(), bins.bins().len()), (5, 4));
    first.free(stream.as_ref());
    second.free(stream.as_ref());
    let elsewhere = Cuda::new(&bench.second_device().unwrap());
    let given = Binning::<Watched, Cuda>::with_given_bins(watched(&bench)).build().unwrap();
    assert!(given.add_bin_over(4096, elsewhere).unwrap_err().is_device_mismatch());
    drop(bins);
    upstream.assert_clean();
    bench.check();
}

/// What comes and goes at once is of the bin that serves it, too.
#[test]
fn added_bins_serve_at_once() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let bins = Cuda::new(&bench.device()).binning().blocks(4).bin(4096).build().unwrap();
    let old = Held::of(&bins, 1000, stream.as_ref());
    bins.add_bin(2048).unwrap();
    Held::of(&bins, 1000, stream.as_ref()).free(stream.as_ref());
    let layout = layout_of(1000);
    let block = bins.allocate_at_once(layout, stream.as_ref()).expect("the cache of the bin has it");
    #[expect(unsafe_code, reason = "gives a block back")]
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    let freed = unsafe { bins.deallocate_at_once(block, layout, stream.as_ref()) };
    assert!(freed);
    // A stream that has no cache yet: nothing has happened, and the block finds its bin.
    let block = bins.allocate_at_once(layout, stream.as_ref()).expect("as before");
    let fresh = bench.stream();
    #[expect(unsafe_code, reason = "gives a block back")]
    // SAFETY: as above.
    let freed = unsafe { bins.deallocate_at_once(block, layout, fresh.as_ref()) };
    assert!(!freed);
    #[expect(unsafe_code, reason = "gives a block back")]
    // SAFETY: as above.
    unsafe {
        bins.deallocate(block, layout, fresh.as_ref());
    }
    old.free(stream.as_ref());
    bench.check();
}

/// Random programs while another thread adds bins of all sizes.
#[test]
fn bins_are_added_while_others_allocate() {
    let bench = Bench::sim();
    let upstream = watched(&bench);
    let bins = bins(&upstream);
    let all: Vec<_> = (0..24).map(|_| watched(&bench)).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let programs: Vec<_> = (0..2)
            .map(|seed| {
                let (bins, is_over) = (&bins, &is_over);
                scope.spawn(move || {
                    let mut rounds = 0;
                    // At least one round after the last bin was added.
                    loop {
                        let is_last = is_over.load(Ordering::Acquire);
                        let ops: Vec<_> = Op::random(seed + 2 * rounds)
                            .take(150)
                            .map(|op| op.limited(1 << 15, 256))
                            .collect();
                        let summary = run_ops(bins, &ops).unwrap();
                        assert!(summary.served > 0);
                        rounds += 1;
                        if is_last {
                            break;
                        }
                    }
                })
            })
            .collect();
        for (at, bin) in all.iter().enumerate() {
            // From the largest, so that each takes requests away from another.
            bins.add_bin_over((24 - at) * 1300, Arc::clone(bin)).unwrap();
            thread::yield_now();
        }
        is_over.store(true, Ordering::Release);
        programs.into_iter().for_each(|program| program.join().unwrap());
    });
    assert_eq!(bins.bins().len(), 24);
    drop(bins);
    all.iter().chain([&upstream]).for_each(|one| one.assert_clean());
    bench.check();
}
