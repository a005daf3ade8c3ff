//! What `Stats` counts: against a plain count of one thread, against the sum of several, in scopes and by tag.

#![expect(unsafe_code, reason = "frees by hand")]

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use alluvion::adaptor::{Counts, Stats};
use alluvion::source::{Callback, Cuda, Null};
use alluvion::tag::with_tag;
use alluvion::testing::{Bench, Delayed, Faulty};
use alluvion::{AnyResource, DevicePtr, ErrorKind, Layout, Resource, ResourceExt, StreamRef};
use proptest::prelude::*;

use crate::raw_block::{Held, layout_of};
use crate::trials::trials;

/// Live, peak and total of the bytes, then of the allocations.
fn numbers(counts: &Counts) -> [[i64; 3]; 2] {
    [counts.bytes, counts.allocations].map(|counter| [counter.live, counter.peak, counter.total])
}

#[test]
fn what_passes_is_counted() {
    let bench = Bench::sim();
    let (stream, stats) = (bench.stream(), Cuda::new(&bench.device()).stats());
    let first = Held::of(&stats, 1000, stream.as_ref());
    let second = Held::allocate_sync(&stats, layout_of(24)).unwrap();
    first.free(stream.as_ref());
    assert_eq!(numbers(&stats.counts()), [[24, 1024, 1024], [1, 2, 2]]);
    assert_eq!(stats.describe().to_string(), "Stats(24 B) > Cuda(gpu 0)");
    second.free_sync();
    assert_eq!(numbers(&stats.counts()), [[0, 1024, 1024], [0, 2, 2]]);
    bench.check();
}

#[test]
fn zero_bytes_are_not_counted() {
    let bench = Bench::sim();
    let (stream, stats) = (bench.stream(), Cuda::new(&bench.device()).stats());
    Held::of(&stats, 0, stream.as_ref()).free(stream.as_ref());
    Held::allocate_sync(&stats, layout_of(0)).unwrap().free_sync();
    assert_eq!(stats.counts(), Counts::default());
}

#[test]
fn what_is_refused_is_counted_as_such() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let stats = Faulty::nth(Cuda::new(&bench.device()), 2).stats();
    let kept = Held::of(&stats, 64, stream.as_ref());
    let failed = with_tag("doomed", || stats.allocate(layout_of(512), stream.as_ref()));
    assert!(failed.unwrap_err().is_out_of_memory());
    let too_aligned = Layout::new(64, 1 << 40).unwrap();
    assert_eq!(stats.allocate_sync(too_aligned).unwrap_err().kind(), ErrorKind::UnsupportedAlignment);
    let counts = stats.counts();
    assert_eq!((numbers(&counts), counts.failures), ([[64, 64, 64], [1, 1, 1]], 2));
    let by_tag = stats.book().by_tag();
    let failures: Vec<_> = by_tag.iter().map(|of| (of.tag.name(), of.allocations, of.failures)).collect();
    assert_eq!(failures, [("", 1, 1), ("doomed", 0, 1)]);
    kept.free(stream.as_ref());
    bench.check();
}

/// More than a number can hold: sums come out modulo 2^64, and no call unwinds.
#[test]
fn absurd_sizes_break_no_call() {
    let bench = Bench::sim();
    for slack_bytes in [0, 4 << 20, usize::MAX] {
        let stats = Stats::with_slack(Null::new(&bench.device()), slack_bytes);
        let largest = layout_of(isize::MAX as usize - 255);
        let held: Vec<_> =
            (0..5).map(|_| Held::allocate_sync(&stats, largest).expect("it has any size")).collect();
        assert_eq!((stats.counts().allocations.live, stats.book().push().allocations.live), (5, 5));
        held.into_iter().for_each(Held::free_sync);
        stats.book().pop().expect("one is pushed");
        let counts = stats.counts();
        assert_eq!((counts.bytes.live, counts.allocations.live, counts.allocations.total), (0, 0, 5));
    }
}

#[test]
fn the_book_is_closed_before_the_upstream_frees() {
    let bench = Bench::sim();
    let (cuda, freed) = (Cuda::new(&bench.device()), Arc::new(Barrier::new(2)));
    let (to_free, in_free) = (cuda.clone(), Arc::clone(&freed));
    let allocate = move |layout: Layout, stream: StreamRef<'_>| Ok(cuda.allocate(layout, stream)?.address());
    let deallocate = move |block: DevicePtr, layout: Layout, stream: StreamRef<'_>| {
        in_free.wait();
        in_free.wait();
        // SAFETY: what `Callback` promises: the block came from `allocate`, with this layout, and is used no more.
        unsafe { to_free.deallocate(block, layout, stream) }
    };
    // SAFETY: the closures hand out the blocks of a source, and give them back to it.
    let stats = unsafe { Callback::new(&bench.device(), allocate, deallocate) }.stats();
    let home = bench.stream();
    thread::scope(|scope| {
        scope.spawn(|| Held::of(&stats, 4096, home.as_ref()).free(home.as_ref()));
        // The free is in the upstream, and stays there while the book is read.
        freed.wait();
        let counted = stats.counts().bytes.live;
        freed.wait();
        assert_eq!(counted, 0);
    });
}

#[test]
fn scopes_are_those_of_rmm() {
    let bench = Bench::sim();
    let (stream, stats) = (bench.stream(), Null::new(&bench.device()).stats());
    let (stream, tally) = (stream.as_ref(), stats.book());
    let outer = Held::of(&stats, 100, stream);
    Held::of(&stats, 50, stream).free(stream);
    assert_eq!(numbers(&tally.push()), [[100, 150, 150], [1, 2, 2]]);
    assert_eq!(tally.counts(), Counts::default(), "a scope begins with nothing");
    outer.free(stream);
    let inner = Held::of(&stats, 300, stream);
    assert_eq!(numbers(&tally.counts()), [[200, 200, 300], [0, 0, 1]]);
    assert_eq!(numbers(&tally.push()), [[200, 200, 300], [0, 0, 1]]);
    inner.free(stream);
    assert_eq!(numbers(&tally.pop().unwrap()), [[-300, 0, 0], [-1, 0, 0]]);
    assert_eq!(numbers(&tally.pop().unwrap()), [[-100, 200, 300], [-1, 0, 1]]);
    assert_eq!(numbers(&tally.counts()), [[0, 300, 450], [0, 2, 3]], "100 were live below the 200");
    assert_eq!(tally.counts(), tally.whole());
    let error = tally.pop().unwrap_err();
    assert_eq!(error.to_string(), "invalid argument: the scope to pop: none is pushed; push one before");
    assert_eq!(numbers(&tally.counts()), [[0, 300, 450], [0, 2, 3]], "an error changes nothing");
}

#[test]
fn a_held_scope_is_its_owners() {
    let bench = Bench::sim();
    let (stream, stats) = (bench.stream(), Null::new(&bench.device()).stats());
    let (stream, tally) = (stream.as_ref(), stats.book());
    let first = tally.scope();
    Held::of(&stats, 100, stream).free(stream);
    let second = tally.scope();
    tally.push();
    Held::of(&stats, 10, stream).free(stream);
    // In the order in which they began, and not the other way round.
    assert_eq!(numbers(&first.counts()), [[0, 100, 110], [0, 1, 2]]);
    assert_eq!(numbers(&first.end()), [[0, 100, 110], [0, 1, 2]]);
    assert_eq!(numbers(&second.end()), [[0, 10, 10], [0, 1, 1]]);
    std::mem::forget(tally.scope());
    assert_eq!(numbers(&tally.pop().unwrap()), [[0, 10, 10], [0, 1, 1]]);
    assert_eq!(numbers(&tally.whole()), [[0, 100, 110], [0, 1, 2]]);
}

#[test]
fn a_scope_that_unwinds_is_over() {
    let bench = Bench::sim();
    let (stream, stats) = (bench.stream(), Null::new(&bench.device()).stats());
    let thrown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        stats.book().measure(|| std::panic::resume_unwind(Box::new("on purpose")))
    }));
    assert!(thrown.is_err());
    let ((), counts) = stats.book().measure(|| Held::of(&stats, 8, stream.as_ref()).free(stream.as_ref()));
    assert_eq!(numbers(&counts), [[0, 8, 8], [0, 1, 1]]);
}

#[test]
fn tags_add_up() {
    let bench = Bench::sim();
    let (device, stats) = (bench.device(), Null::new(&bench.device()).stats());
    let one = |bytes: usize| {
        let stream = device.stream().unwrap();
        Held::of(&stats, bytes, stream.as_ref()).free(stream.as_ref());
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                one(1);
                with_tag("load", || {
                    one(10);
                    with_tag("decode", || one(100));
                });
            });
        }
    });
    let by_tag = stats.book().by_tag();
    let known: Vec<_> = by_tag.iter().map(|of| (of.tag.to_string(), of.bytes, of.allocations)).collect();
    let of = |name: &str, bytes, allocations| (name.to_owned(), bytes, allocations);
    assert_eq!(known, [of("", 3, 3), of("load", 30, 3), of("load;decode", 300, 3)]);
    let lines = [
        stats.counts().to_string(),
        "  (no tag)            3 B in        3 allocations".into(),
        "  load               30 B in        3 allocations".into(),
        "  load;decode       300 B in        3 allocations".into(),
    ];
    assert_eq!(stats.book().to_string(), lines.join("\n"));
}

#[test]
fn the_book_is_found_through_an_erased_handle() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let resource = AnyResource::new(Delayed::new(Cuda::new(&bench.device()).stats(), Duration::ZERO));
    Held::of(&resource, 100, stream.as_ref()).free(stream.as_ref());
    let tally = resource.find::<Stats>().expect("it is in the stack");
    assert_eq!(numbers(&tally.counts()), [[0, 100, 100], [0, 1, 1]]);
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    Free(usize),
    Push,
    Pop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        // Above and below the slack of the peaks, and beside it.
        5 => prop_oneof![1..2000_usize, (4_usize << 20) - 2..(4 << 20) + 2, 1..(64_usize << 20)].prop_map(Step::Allocate),
        4 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::Push),
        1 => Just(Step::Pop),
    ];
    prop::collection::vec(step, 0..300)
}

/// The counters of one level, as RMM says that they go.
#[derive(Clone, Copy, Default)]
struct Plain([[i64; 3]; 2]);

impl Plain {
    fn add(&mut self, amounts: [i64; 2]) {
        for ([value, peak, total], amount) in self.0.iter_mut().zip(amounts) {
            *value += amount;
            *total += amount.max(0);
            *peak = (*peak).max(*value);
        }
    }

    fn take_in(&mut self, child: Self) {
        for ([value, peak, total], child) in self.0.iter_mut().zip(child.0) {
            *peak = (*peak).max(*value + child[1]);
            *value += child[0];
            *total += child[2];
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: trials(200), ..ProptestConfig::default() })]

    /// One thread: every number is exact at every step, peaks in scopes too, whatever the slack.
    #[test]
    fn one_thread_counts_exactly(steps in steps(), slack in prop_oneof![Just(0_usize), Just(1 << 16), Just(4 << 20)]) {
        let bench = Bench::sim();
        let stream = bench.stream();
        let stats = Stats::with_slack(Null::new(&bench.device()), slack);
        let mut levels = vec![Plain::default()];
        let mut live = Vec::new();
        for step in steps {
            let top = levels.len() - 1;
            match step {
                Step::Allocate(bytes) => {
                    live.push(Held::of(&stats, bytes, stream.as_ref()));
                    levels[top].add([bytes as i64, 1]);
                }
                Step::Free(which) if !live.is_empty() => {
                    let block = live.swap_remove(which % live.len());
                    levels[top].add([-(block.layout.bytes() as i64), -1]);
                    block.free(stream.as_ref());
                }
                Step::Free(_) => {}
                Step::Push => {
                    prop_assert_eq!(numbers(&stats.book().push()), levels[top].0);
                    levels.push(Plain::default());
                }
                Step::Pop if top == 0 => prop_assert!(stats.book().pop().is_err()),
                Step::Pop => {
                    let popped = levels.pop().expect("there is one");
                    prop_assert_eq!(numbers(&stats.book().pop().unwrap()), popped.0);
                    levels[top - 1].take_in(popped);
                }
            }
            prop_assert_eq!(numbers(&stats.counts()), levels[levels.len() - 1].0);
        }
    }
}

/// Threads that hand their blocks to each other, so that most frees are of another thread's: values and totals are exact.
#[test]
fn several_threads_count_exactly_in_the_end() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 2000;
    let bench = Bench::sim();
    let device = bench.device();
    for slack in [0, 1 << 20, 4 << 20] {
        let stats = Stats::with_slack(Null::new(&device), slack);
        let rings: Vec<_> = (0..THREADS).map(|_| std::sync::mpsc::sync_channel(64)).collect();
        let (senders, receivers): (Vec<_>, Vec<_>) = rings.into_iter().unzip();
        // What each has allocated, and what is still on its way to it.
        let told: Vec<_> = thread::scope(|scope| {
            let threads = receivers.into_iter().enumerate().map(|(at, receiver)| {
                let (next, stats, device) = (senders[(at + 1) % THREADS].clone(), &stats, &device);
                scope.spawn(move || {
                    let stream = device.stream().unwrap();
                    let mut allocated = 0;
                    for round in 0..ROUNDS {
                        let bytes = 300_000 + round % 7;
                        allocated += bytes;
                        let (pointer, layout) = Held::of(stats, bytes, stream.as_ref()).into_parts();
                        if next.try_send((pointer, layout)).is_err() {
                            Held::adopt(stats, pointer, layout).free(stream.as_ref());
                        }
                        if let Ok((pointer, layout)) = receiver.try_recv() {
                            Held::adopt(stats, pointer, layout).free(stream.as_ref());
                        }
                    }
                    (allocated, receiver)
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let live: Vec<usize> = told
            .iter()
            .flat_map(|(_, receiver)| receiver.try_iter())
            .map(|(_, layout)| layout.bytes())
            .collect();
        let allocated: usize = told.iter().map(|(allocated, _)| allocated).sum();
        let [bytes, blocks] = numbers(&stats.counts());
        assert_eq!([bytes[0], bytes[2]], [live.iter().sum(), allocated].map(|bytes: usize| bytes as i64));
        assert_eq!([blocks[0], blocks[2]], [live.len(), THREADS * ROUNDS].map(|blocks| blocks as i64));
        assert!(bytes[1] >= bytes[0] && blocks[1] >= blocks[0]);
    }
}

/// How far a peak may be off: threads go up and down in turn, so the true peak is known.
#[test]
fn the_peak_of_several_threads_is_right_to_the_slack() {
    const THREADS: usize = 4;
    const SLACK: usize = 1 << 20;
    // Each thread holds this much; the least favourable is just what need not be told.
    for bytes in [SLACK / 2, SLACK, SLACK + 1, 5 * SLACK] {
        for slack in [0, SLACK] {
            let bench = Bench::sim();
            let stats = Stats::with_slack(Null::new(&bench.device()), slack);
            let (barrier, device) = (Barrier::new(THREADS), bench.device());
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        let stream = device.stream().unwrap();
                        let block = Held::of(&stats, bytes, stream.as_ref());
                        barrier.wait();
                        block.free(stream.as_ref());
                        barrier.wait();
                        Held::of(&stats, 1, stream.as_ref()).free(stream.as_ref());
                    });
                }
            });
            let (counts, truth) = (stats.counts(), (THREADS * bytes) as i64);
            assert_eq!((counts.bytes.live, counts.allocations.live), (0, 0));
            let (most, least) = (counts.bytes.peak, counts.bytes.peak - counts.bytes.peak_error);
            assert!((least..=most).contains(&truth), "{counts:?} where {truth} were live, slack {slack}");
            let allowed = ((2 * THREADS + 1) * slack) as i64;
            assert!(counts.bytes.peak_error <= allowed, "{counts:?}, slack {slack}");
            if slack == 0 {
                // Nothing was freed before all were there.
                assert_eq!((counts.bytes.peak, counts.allocations.peak), (truth, THREADS as i64));
            }
        }
    }
}

/// A thread that takes over the number of one that has ended goes on counting where that stopped.
#[test]
fn threads_come_and_go() {
    let bench = Bench::sim();
    let (device, stats) = (bench.device(), Null::new(&bench.device()).stats());
    for round in 1..=200 {
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let stream = device.stream().unwrap();
                    let kept = Held::of(&stats, 10, stream.as_ref());
                    Held::of(&stats, 5, stream.as_ref()).free(stream.as_ref());
                    drop(kept);
                });
            }
        });
        assert_eq!(stats.counts().bytes.live, 30 * round);
        assert_eq!((stats.counts().bytes.total, stats.counts().allocations.total), (45 * round, 6 * round));
    }
}

/// A destructor of a thread-local that runs when the thread has given its number back counts as well.
#[test]
fn a_thread_that_ends_is_counted() {
    struct FreesWhenDropped(&'static Stats<Null>, DevicePtr);

    impl Drop for FreesWhenDropped {
        fn drop(&mut self) {
            // SAFETY: the block came from there with this layout, and nothing uses it.
            unsafe { self.0.deallocate_sync(self.1, layout_of(77)) };
            let other = self.0.allocate_sync(layout_of(7)).expect("it never fails");
            // SAFETY: as before.
            unsafe { self.0.deallocate_sync(other, layout_of(7)) };
        }
    }

    thread_local! {
        static EARLY: std::cell::RefCell<Option<FreesWhenDropped>> = const { std::cell::RefCell::new(None) };
        static LATE: std::cell::RefCell<Option<FreesWhenDropped>> = const { std::cell::RefCell::new(None) };
    }

    let bench = Bench::sim();
    // For ever, as what a thread-local holds must be.
    let stats: &'static Stats<Null> = Box::leak(Box::new(Null::new(&bench.device()).stats()));
    thread::spawn(move || {
        // One local is there before the thread has a number, and one after: in whatever order they go, one of them goes last.
        EARLY.with(|_| {});
        let block = |bytes| stats.allocate_sync(layout_of(bytes)).expect("it never fails");
        let (first, second) = (block(77), block(77));
        EARLY.set(Some(FreesWhenDropped(stats, first)));
        LATE.set(Some(FreesWhenDropped(stats, second)));
    })
    .join()
    .unwrap();
    assert_eq!(numbers(&stats.counts())[0], [0, 154, 168]);
    assert_eq!(stats.counts().allocations.total, 4);
}
