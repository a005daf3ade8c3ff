//! The layers that limit: nothing is out beyond the limit at any time, nobody is refused for nothing, nothing is lost.

#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]
#![expect(unsafe_code, reason = "maps and releases pages")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use alluvion::adaptor::{Allowance, Budget, Limiting, Reservation};
use alluvion::driver::Code;
use alluvion::resource::LayerBook;
use alluvion::source::{Cuda, CudaAsync, Mapped, Null, Pinned};
use alluvion::suballoc::Growth;
use alluvion::testing::{Bench, Delayed, Faulty, Sweep};
use alluvion::{
    AnyResource, DeviceAccessible, DeviceVec, Error, Layout, PinnedAlloc, PoolConfig, Resource, ResourceExt,
    Sim,
};
use proptest::prelude::*;

use crate::raw_block::{Held, layout_of};
use crate::trials::trials;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// What cached memory has to do with a limit (scenario 5): over a pool the limit is on what is live; under one the pool gives
/// back what it has free before it fails.
#[test]
fn a_pool_with_cached_memory_serves_up_to_the_limit() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    let over = Cuda::new(&device).pool(PoolConfig::default()).unwrap().limiting(20 * MIB);
    for growth in [Growth::Exact, Growth::Spare, Growth::Doubling] {
        let under = Cuda::new(&device).limiting(20 * MIB).pool(PoolConfig::default().growth(growth)).unwrap();
        for bytes in [10 * MIB, 16 * MIB, 20 * MIB, 256] {
            Held::of(&over, bytes, stream.as_ref()).free(stream.as_ref());
            Held::of(&under, bytes, stream.as_ref()).free(stream.as_ref());
            assert_eq!(over.used_bytes(), 0);
            assert!(under.upstream().used_bytes() <= 20 * MIB);
        }
        let error = under.allocate(layout_of(21 * MIB), stream.as_ref()).unwrap_err();
        let report = error.out_of_memory_report().expect("a pool reports");
        let memory = report.upstream_memory.expect("the limit says what it permits");
        assert_eq!((report.cause, memory.total_bytes), (alluvion::error::Cause::TooLarge, 20 * MIB));
        assert_eq!(report.upstream_error.as_ref().and_then(Error::limit_name), Some("Limiting"));
    }
    bench.check();
}

alluvion::pages_suite!(pages_within_a_limit, |device| Mapped::new(device).unwrap().limiting(50 * MIB));
alluvion::pages_suite!(pages_within_a_budget, |device| {
    let all = Allowance::new("all", 40 * MIB);
    Mapped::new(device).unwrap().limiting(1 << 40).budget(all.child("one", 60 * MIB))
});

/// Pages count from their creation to their release, whatever is mapped; addresses count nothing.
#[test]
fn a_limit_counts_pages_and_no_addresses() {
    let sim = Sim::new();
    let limited = Mapped::new(&sim.device(0)).unwrap().limiting(8 * MIB);
    let pages = limited.pages().expect("the upstream has pages");
    let range = pages.reserve(1 << 40).unwrap();
    assert_eq!(limited.used_bytes(), 0);
    let page = pages.create(6 * MIB).unwrap();
    assert_eq!((limited.used_bytes(), limited.memory_info().unwrap().free_bytes), (6 * MIB, 2 * MIB));
    let error = pages.create(4 * MIB).unwrap_err();
    assert_eq!((error.limit(), error.requested_bytes()), (Some(8 * MIB), Some(4 * MIB)), "{error}");
    assert_eq!(error.limit_name(), Some("Limiting"));
    // What is wrong is said before what is lacking.
    assert_eq!(pages.create(4 * MIB + 1).unwrap_err().kind(), alluvion::ErrorKind::InvalidArgument);
    // Blocks and pages share the limit.
    assert!(limited.allocate_sync(layout_of(3 * MIB)).unwrap_err().is_out_of_memory());
    assert_eq!((limited.used_bytes(), limited.book().refusals()), (6 * MIB, 2));
    // SAFETY: nothing is mapped in the range, and the page has no address.
    unsafe { pages.map(page, range) }.unwrap();
    // SAFETY: the page is mapped there, and no work uses it.
    unsafe { pages.unmap(page, range) }.unwrap();
    assert_eq!(limited.used_bytes(), 6 * MIB);
    // SAFETY: the page has no address and is not used again.
    unsafe { pages.release(page) };
    assert_eq!(limited.used_bytes(), 0);
    // SAFETY: the range is empty and not used again.
    unsafe { pages.unreserve(range, 1 << 40) };
    drop(limited);
    sim.assert_clean();
}

/// A limit has pages if its upstream has.
#[test]
fn a_limit_over_blocks_alone_has_no_pages() {
    use alluvion::resource::Pages;

    let sim = Sim::new();
    let limited = Cuda::new(&sim.device(0)).limiting(8 * MIB);
    assert!(limited.pages().is_none());
    assert!(Mapped::new(&sim.device(0)).unwrap().stats().limiting(8 * MIB).pages().is_none());
    for error in
        [limited.create(2 * MIB).map(drop), limited.reserve(2 * MIB).map(drop)].map(Result::unwrap_err)
    {
        assert!(error.is_unsupported() && error.to_string().contains("`Mapped`"), "{error}");
    }
    assert_eq!(limited.used_bytes(), 0);
}

/// The limit under a pool is on the memory that the pool holds.
#[test]
fn a_pool_over_limited_pages_stays_within_the_limit() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let limited = Mapped::new(&bench.device()).unwrap().limiting(20 * MIB);
    let pool = limited.pool(PoolConfig::default()).unwrap();
    for bytes in [10 * MIB, 16 * MIB, 20 * MIB, 256] {
        Held::of(&pool, bytes, stream.as_ref()).free(stream.as_ref());
        assert!(pool.upstream().used_bytes() <= 20 * MIB);
    }
    assert!(pool.allocate(layout_of(21 * MIB), stream.as_ref()).unwrap_err().is_out_of_memory());
    bench.check();
    let limited = pool.upstream().book().clone();
    drop(pool);
    assert_eq!(limited.used_bytes(), 0);
}

/// The books of a stack are found from outside, through every handle.
#[test]
fn the_book_is_found_from_outside() {
    let bench = Bench::sim();
    let jobs = Allowance::new("jobs", 30 * MIB);
    let resource = Cuda::new(&bench.device()).limiting(40 * MIB).budget(jobs.clone());
    let resource = AnyResource::new(Arc::new(resource));
    assert!(resource.find::<Allowance>().is_some_and(|found| found.is_same(&jobs)));
    let under = resource.upstream().expect("there is a layer under it");
    assert_eq!(under.layer().and_then(LayerBook::downcast).map(Allowance::limit_bytes), Some(40 * MIB));
    assert_eq!(resource.describe().to_string(), "Budget(jobs, 30 MiB) > Limiting(40 MiB) > Cuda(gpu 0)");
    let stream = bench.stream();
    let block = Held::of(&resource, MIB, stream.as_ref());
    assert_eq!((jobs.used_bytes(), resource.memory_info().unwrap().free_bytes), (MIB, 29 * MIB));
    block.free(stream.as_ref());
    bench.check();
}

/// The two allowances of a stack are each asked, and what the inner one refuses goes back to the outer.
#[test]
fn what_the_upstream_refuses_goes_back() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let outer = Cuda::new(&bench.device()).limiting(2 * MIB).limiting(5 * MIB);
    let error = outer.allocate(layout_of(4 * MIB), stream.as_ref()).unwrap_err();
    assert_eq!((error.limit(), error.requested_bytes()), (Some(2 * MIB), Some(4 * MIB)));
    assert_eq!((outer.used_bytes(), outer.book().peak_bytes()), (0, 4 * MIB));
    let faulty = Faulty::every_nth(Cuda::new(&bench.device()), 2).limiting(MIB);
    for _ in 0..10 {
        Held::of(&faulty, MIB, stream.as_ref()).free(stream.as_ref());
        assert!(faulty.allocate(layout_of(MIB), stream.as_ref()).unwrap_err().is_out_of_memory());
        assert_eq!(faulty.used_bytes(), 0);
    }
    bench.check();
}

/// Memory of the host keeps its access, and a container in it is limited.
#[test]
fn pinned_memory_within_a_limit_is_still_the_hosts() {
    let bench = Bench::sim();
    let limited = Arc::new(Pinned::new(&bench.device()).unwrap().limiting(MIB));
    let mut numbers = allocator_api2::vec::Vec::new_in(PinnedAlloc::from_resource(Arc::clone(&limited)));
    numbers.extend(0..1000_u32);
    assert!(limited.used_bytes() >= 4000);
    assert!(numbers.try_reserve(MIB).is_err());
    assert_eq!(numbers.iter().sum::<u32>(), 499_500);
    drop(numbers);
    assert_eq!(limited.used_bytes(), 0);
}

/// One allowance over resources of two devices and of the host.
#[test]
fn a_budget_spans_devices() {
    let bench = Bench::sim();
    let (here, there) = (bench.device(), bench.second_device().unwrap());
    let all = Allowance::new("all", 3 * MIB);
    let on_host = Pinned::new(&here).unwrap().budget(all.clone());
    let resources =
        [&here, &there].map(|device| CudaAsync::new(device).unwrap().budget(all.child("gpu", 2 * MIB)));
    let streams = [here.stream().unwrap(), there.stream().unwrap()];
    let vectors = [0, 1].map(|at| {
        DeviceVec::filled_in(MIB, 1_u8, streams[at].as_ref(), &resources[at]).expect("there is room")
    });
    let pinned = Held::of(&on_host, MIB, streams[0].as_ref());
    for (resource, stream) in resources.iter().zip(&streams) {
        let error = resource.allocate(layout_of(1), stream.as_ref()).unwrap_err();
        assert_eq!((error.limit_name(), error.limit()), (Some("all"), Some(3 * MIB)));
    }
    pinned.free(streams[0].as_ref());
    drop(vectors);
    assert_eq!((all.used_bytes(), all.peak_bytes()), (0, 3 * MIB));
    bench.check();
}

/// What the upstream has given out, as it says itself.
struct Truth {
    out: AtomicUsize,
    most: AtomicUsize,
}

/// A resource in whose upstream nothing but this counts: two closures around a source.
fn counted(bench: &Bench, truth: &Arc<Truth>) -> impl DeviceAccessible + Send + Sync + use<> {
    let source = Arc::new(Null::new(&bench.device()));
    let (giving, taking) = (Arc::clone(truth), Arc::clone(truth));
    let allocate = move |layout: Layout, stream: alluvion::StreamRef<'_>| {
        let out = giving.out.fetch_add(layout.rounded_bytes(), Ordering::SeqCst) + layout.rounded_bytes();
        giving.most.fetch_max(out, Ordering::SeqCst);
        Ok(source.allocate(layout, stream)?.address())
    };
    let deallocate = move |_, layout: Layout, _: alluvion::StreamRef<'_>| {
        taking.out.fetch_sub(layout.rounded_bytes(), Ordering::SeqCst);
    };
    #[expect(unsafe_code, reason = "vouches for closures")]
    // SAFETY: the addresses are no memory, are handed out once each, and nobody uses them.
    unsafe {
        alluvion::source::Callback::new(&bench.device(), allocate, deallocate)
    }
}

/// Eight threads, half of which ask for what can never be had. Those who fit are all served, and at no time does the upstream
/// have more out than the limit.
fn never_above<U: Resource + Sync>(resource: &U, allowance: &Allowance, truth: &Truth, bench: &Bench) {
    const THREADS: usize = 8;
    const ROUNDS: usize = 2_000;
    let together = Barrier::new(THREADS);
    let device = bench.device();
    thread::scope(|scope| {
        for me in 0..THREADS {
            let (together, device) = (&together, &device);
            scope.spawn(move || {
                let stream = device.stream().expect("a stream can be made");
                together.wait();
                for round in 0..ROUNDS {
                    // Four with a quarter each, at most; four with more than all.
                    let bytes = if me % 2 == 0 {
                        1 + (me * 7919 + round * 104_729) % (64 * KIB)
                    } else {
                        256 * KIB + 1
                    };
                    match Held::allocate(resource, layout_of(bytes), stream.as_ref()) {
                        Ok(block) => {
                            assert!(me % 2 == 0);
                            block.free(stream.as_ref());
                        }
                        Err(error) => assert!(me % 2 == 1 && error.is_out_of_memory(), "{bytes}: {error}"),
                    }
                    assert!(allowance.used_bytes() <= 256 * KIB);
                }
            });
        }
    });
    assert_eq!((allowance.used_bytes(), truth.out.load(Ordering::SeqCst)), (0, 0));
    assert!(truth.most.load(Ordering::SeqCst) <= 256 * KIB && allowance.peak_bytes() <= 256 * KIB);
    assert!(allowance.refusals() as usize >= THREADS / 2 * ROUNDS);
}

fn truth() -> Arc<Truth> {
    Arc::new(Truth { out: AtomicUsize::new(0), most: AtomicUsize::new(0) })
}

#[test]
fn eight_threads_never_exceed_a_limit_and_are_not_refused_for_nothing() {
    let (bench, truth) = (Bench::sim(), truth());
    let resource = counted(&bench, &truth).limiting(256 * KIB);
    never_above(&resource, resource.book(), &truth, &bench);
    // And where an address is free again before its free has returned.
    let delayed = Delayed::new(counted(&bench, &truth), Duration::ZERO).limiting(256 * KIB);
    never_above(&delayed, delayed.book(), &truth, &bench);
}

#[test]
fn eight_threads_never_exceed_a_tree_and_are_not_refused_for_nothing() {
    let (bench, truth) = (Bench::sim(), truth());
    let root = Allowance::new("root", 256 * KIB);
    let leaf = root.child("middle", 256 * KIB).child("leaf", 256 * KIB);
    let resource = counted(&bench, &truth).budget(leaf.clone());
    never_above(&resource, &leaf, &truth, &bench);
    assert_eq!((root.used_bytes(), root.refusals()), (0, 0), "the leaf has refused");
}

/// A request that the root refuses is in nobody's way at the leaves: there is as much room there as before, at any time.
#[test]
fn what_an_ancestor_refuses_takes_no_room_below() {
    const ROUNDS: usize = 20_000;
    let root = Allowance::new("root", 1024 * KIB);
    let _rest = root.reserve(928 * KIB).unwrap();
    // Of 96 KiB that are left a child may have all. A request of 97 to 128 is within the child, and refused by the root.
    let child = root.child("child", 128 * KIB);
    let together = Barrier::new(4);
    thread::scope(|scope| {
        for me in 0..4 {
            let (child, together) = (&child, &together);
            scope.spawn(move || {
                together.wait();
                for round in 0..ROUNDS {
                    if me % 2 == 0 {
                        drop(child.reserve(48 * KIB).expect("there is half for each of two"));
                    } else {
                        let error = child.reserve((97 + round % 32) * KIB).unwrap_err();
                        assert!(matches!(error.limit_name(), Some("root" | "child")), "{error}");
                    }
                }
            });
        }
    });
    assert_eq!((child.used_bytes(), root.used_bytes()), (0, 928 * KIB));
}

/// What a program does within limits, of whose driver calls each fails once.
fn use_within_limits(sim: &Sim) -> Result<(), Error> {
    let device = sim.device(0);
    let (first, second) = (device.stream()?, device.stream()?);
    let jobs = Allowance::new("jobs", 12 * MIB);
    let source = CudaAsync::new(&device)?.limiting(16 * MIB);
    let pool = source.pool(PoolConfig::default())?.budget(jobs.child("job", 10 * MIB));
    let outcome = use_budget(&pool, &first, &second);
    assert_eq!(jobs.used_bytes(), 0, "a reservation was lost");
    let pool_has = pool.upstream().pool_size();
    assert_eq!(pool.upstream().upstream().used_bytes(), pool_has, "what the pool has is what it was given");
    let trimmed = pool.trim(0);
    let (left, given) = (pool.upstream().pool_size(), pool.upstream().upstream().used_bytes());
    assert_eq!(given, left, "what the pool has is what it was given");
    outcome.and(trimmed.map(drop))
}

fn use_budget<U: DeviceAccessible>(
    jobs: &Budget<U>,
    first: &alluvion::Stream,
    second: &alluvion::Stream,
) -> Result<(), Error> {
    let mut aside = jobs.book().reserve(4 * MIB)?;
    for bytes in [3000, 3 * MIB] {
        let block = Held::allocate(jobs, layout_of(bytes), first.as_ref())?;
        let filled = block.touch(1, first.as_ref());
        block.free(first.as_ref());
        filled?;
        let pointer = jobs.allocate_within(&mut aside, layout_of(bytes), second.as_ref())?;
        let block = Held::adopt(jobs, pointer, layout_of(bytes));
        let filled = block.touch(2, second.as_ref());
        block.free(second.as_ref());
        filled?;
        Held::allocate_sync(jobs, layout_of(bytes))?.free_sync();
    }
    assert!(jobs.allocate(layout_of(11 * MIB), first.as_ref()).is_err());
    first.synchronize()?;
    second.synchronize()
}

#[test]
fn a_call_that_fails_loses_no_reservation() {
    let swept = Sweep::new()
        .codes(&[Code::OUT_OF_MEMORY, Code::NOT_SUPPORTED, Code::ILLEGAL_ADDRESS])
        .run(use_within_limits);
    assert!(swept.calls >= 20 && swept.errors > 0, "{swept}");
    let swept = Sweep::new().run(|sim| {
        let (device, stream) = (sim.device(0), sim.device(0).stream()?);
        let limited = Cuda::new(&device).limiting(MIB);
        let outcome = [256, 1000, MIB].into_iter().try_for_each(|bytes| {
            Held::allocate(&limited, layout_of(bytes), stream.as_ref())?.free(stream.as_ref());
            Held::allocate_sync(&limited, layout_of(bytes)).map(Held::free_sync)
        });
        assert_eq!(limited.used_bytes(), 0, "a reservation was lost");
        outcome
    });
    assert!(swept.errors > 0, "{swept}");
}

/// One step of a random program.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Takes from a node.
    Take { node: usize, bytes: usize },
    /// Gives the n-th reservation back, from the oldest.
    Give(usize),
}

fn step(nodes: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..nodes, 0_usize..6000).prop_map(|(node, bytes)| Step::Take { node, bytes }),
        1 => (0..nodes, prop_oneof![Just(usize::MAX), Just(usize::MAX - 255), Just(isize::MAX as usize)])
            .prop_map(|(node, bytes)| Step::Take { node, bytes }),
        3 => (0_usize..64).prop_map(Step::Give),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(trials(256)))]

    /// Random trees and programs, against sums over what is held.
    #[test]
    fn a_tree_agrees_with_plain_sums(
        limits in prop::collection::vec((0_usize..20_000, any::<prop::sample::Index>()), 1..8),
        steps in prop::collection::vec(step(8), 1..200),
    ) {
        let mut parents: Vec<Option<usize>> = Vec::new();
        let mut nodes: Vec<Allowance> = Vec::new();
        for (at, (limit, parent)) in limits.iter().enumerate() {
            let parent = (at > 0).then(|| parent.index(at));
            let name = format!("n{at}");
            nodes.push(parent.map_or_else(|| Allowance::new(&name, *limit), |parent| nodes[parent].child(&name, *limit)));
            parents.push(parent);
        }
        let upwards = |node: usize| std::iter::successors(Some(node), |node| parents[*node]);
        let mut used = vec![0_usize; nodes.len()];
        let mut peaks = used.clone();
        let mut held: Vec<(usize, Reservation)> = Vec::new();
        for step in steps {
            match step {
                Step::Take { node, bytes } => {
                    let node = node % nodes.len();
                    let whole = bytes.checked_next_multiple_of(256);
                    let fits = |at: usize| whole.is_some_and(|whole| whole <= limits[at].0 - used[at]);
                    match nodes[node].reserve(bytes) {
                        Ok(reservation) => {
                            prop_assert!(upwards(node).all(fits), "{bytes} of n{node}, {used:?} of {limits:?}");
                            for at in upwards(node) {
                                used[at] += reservation.bytes();
                                peaks[at] = peaks[at].max(used[at]);
                            }
                            held.push((node, reservation));
                        }
                        Err(error) => {
                            let can_ever = |at: usize| whole.is_some_and(|whole| whole <= limits[at].0);
                            let guilty = upwards(node).find(|at| !can_ever(*at));
                            let guilty = guilty.or_else(|| upwards(node).find(|at| !fits(*at)));
                            let guilty = guilty.map(|at| format!("n{at}"));
                            prop_assert_eq!(error.limit_name(), guilty.as_deref());
                            prop_assert_eq!(error.requested_bytes(), Some(bytes));
                        }
                    }
                }
                Step::Give(at) if !held.is_empty() => {
                    let (node, reservation) = held.remove(at % held.len());
                    upwards(node).for_each(|at| used[at] -= reservation.bytes());
                }
                Step::Give(_) => {}
            }
            prop_assert_eq!(&used, &nodes.iter().map(Allowance::used_bytes).collect::<Vec<_>>());
        }
        prop_assert_eq!(peaks, nodes.iter().map(Allowance::peak_bytes).collect::<Vec<_>>());
        drop(held);
        prop_assert!(nodes.iter().all(|node| node.used_bytes() == 0));
    }
}

/// Observers are told exactly as often as there are crossings, whoever crosses.
#[test]
fn crossings_of_four_threads_are_told_once_each() {
    const ROUNDS: usize = 5_000;
    let told = Arc::new(Mutex::new(0_u64));
    let tell = Arc::clone(&told);
    let allowance = Allowance::new("all", 4 * KIB).soft(2 * KIB).on_soft(move |crossing| {
        assert!(crossing.used_bytes > 2 * KIB && crossing.used_bytes <= 4 * KIB);
        *tell.lock().unwrap() += 1;
    });
    let leaves = [allowance.clone(), allowance.child("leaf", 4 * KIB)];
    thread::scope(|scope| {
        for me in 0..4 {
            let leaf = &leaves[me % 2];
            scope.spawn(move || (0..ROUNDS).for_each(|_| drop(leaf.reserve(KIB).expect("a quarter each"))));
        }
    });
    assert_eq!(*told.lock().unwrap(), allowance.crossings());
    assert_eq!(allowance.used_bytes(), 0);
}

/// A limit that many threads hit is still one exchange; nobody is refused who comes after the free of another.
#[test]
fn room_that_was_given_is_there_for_whoever_is_told() {
    let bench = Bench::sim();
    let resource: Limiting<Cuda> = Cuda::new(&bench.device()).limiting(MIB);
    let turn = Mutex::new(());
    let device = bench.device();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = device.stream().expect("a stream can be made");
                for _ in 0..500 {
                    let _mine = turn.lock().unwrap();
                    Held::of(&resource, MIB, stream.as_ref()).free(stream.as_ref());
                }
            });
        }
    });
    assert_eq!(resource.book().refusals(), 0);
    bench.check();
}
