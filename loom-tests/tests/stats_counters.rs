//! The counters of `Stats`: a thread counts for itself, with plain loads and stores, and the sum is exact once who reads comes
//! after who counted. A thread that takes over the place of one that has ended goes on where that stopped.

#![expect(unsafe_code, reason = "gives back what it allocates")]

use std::sync::Arc;

use alluvion::adaptor::{Counts, Stats};
use alluvion::source::Null;
use alluvion::{DevicePtr, Layout, Resource};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom_tests::{Rig, Seen, explore, explore_bounded, spawn};

fn layout(bytes: usize) -> Layout {
    Layout::from_bytes(bytes).expect("it is small")
}

fn take(stats: &Stats<Null>, bytes: usize) -> DevicePtr {
    stats.allocate_sync(layout(bytes)).expect("the source never fails")
}

fn give(stats: &Stats<Null>, block: DevicePtr, bytes: usize) {
    // SAFETY: the block came from there with this layout, and nothing uses it.
    unsafe { stats.deallocate_sync(block, layout(bytes)) };
}

/// Value and total of the bytes, and of the allocations.
fn numbers(counts: &Counts) -> [i64; 4] {
    let Counts { bytes, allocations, .. } = counts;
    [bytes.live, bytes.total, allocations.live, allocations.total]
}

fn stats(slack_bytes: usize) -> Arc<Stats<Null>> {
    Arc::new(Stats::with_slack(Null::new(&Rig::new().device), slack_bytes))
}

/// Two threads, one of which frees what the other has allocated. With no slack the highest points are exact, too.
#[test]
fn two_threads_count_exactly() {
    for slack_bytes in [4 << 20, 0] {
        explore_bounded(Some(3), move || {
            let stats = stats(slack_bytes);
            let ours = take(&stats, 100);
            let other = spawn({
                let stats = Arc::clone(&stats);
                move || {
                    give(&stats, ours, 100);
                    take(&stats, 10);
                }
            });
            let mine = take(&stats, 1);
            give(&stats, mine, 1);
            other.join().unwrap();
            let counts = stats.counts();
            assert_eq!(numbers(&counts), [10, 111, 1, 3]);
            if slack_bytes == 0 {
                let peak = counts.bytes.peak;
                assert!((100..=111).contains(&peak), "{peak}");
            }
        });
    }
}

/// Somebody looks while another counts: what it sees has been, or is about to be.
#[test]
fn a_reader_sees_no_more_than_there_is() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    explore(|| {
        let stats = stats(4 << 20);
        let other = spawn({
            let stats = Arc::clone(&stats);
            move || {
                let block = take(&stats, 8);
                give(&stats, block, 8);
            }
        });
        let counts = stats.counts();
        assert!([0, 8].contains(&counts.bytes.live), "{counts:?}");
        SEEN[usize::from(counts.bytes.total == 8)].note(true);
        other.join().unwrap();
        assert_eq!(numbers(&stats.counts()), [0, 8, 0, 1]);
        assert_eq!(stats.counts().bytes.peak, 8);
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// A scope begins while another thread allocates: the block is counted before it or in it, and its end folds it back.
#[test]
fn a_scope_begins_beside_an_allocation() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    explore_bounded(Some(3), || {
        let stats = stats(0);
        take(&stats, 100);
        let other = spawn({
            let stats = Arc::clone(&stats);
            move || take(&stats, 8)
        });
        let outer = stats.book().push();
        other.join().unwrap();
        let inner = stats.book().pop().expect("it was pushed");
        assert_eq!(outer.bytes.total + inner.bytes.total, 108);
        assert_eq!(inner.bytes.peak, inner.bytes.live);
        SEEN[usize::from(inner.bytes.total == 8)].note(true);
        let whole = stats.counts();
        assert_eq!((numbers(&whole), whole.bytes.peak), ([108, 108, 2, 2], 108));
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// Threads end and begin: the place of one is another's, which comes after all that the first has counted.
#[test]
fn a_place_changes_hands() {
    explore_bounded(Some(3), || {
        let stats = stats(4 << 20);
        let count = |stats: &Arc<Stats<Null>>| {
            let stats = Arc::clone(stats);
            spawn(move || {
                take(&stats, 1);
            })
        };
        let (first, second) = (count(&stats), count(&stats));
        first.join().unwrap();
        // The first may have ended by now, or not.
        count(&stats).join().unwrap();
        second.join().unwrap();
        assert_eq!(numbers(&stats.counts()), [3, 3, 3, 3]);
    });
}

/// The protocol written down once more: a place that is given back under a lock, or by a word that orders nothing.
fn change_hands(under_a_lock: bool) {
    explore(move || {
        let place = Arc::new((Mutex::new(false), AtomicU64::new(0), AtomicU64::new(0)));
        let bump = |count: &AtomicU64| {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        };
        let first = spawn({
            let place = Arc::clone(&place);
            move || {
                let (lock, word, count) = &*place;
                bump(count);
                if under_a_lock {
                    *lock.lock().unwrap() = true;
                } else {
                    word.store(1, Ordering::Relaxed);
                }
            }
        });
        let (lock, word, count) = &*place;
        let is_free = if under_a_lock { *lock.lock().unwrap() } else { word.load(Ordering::Relaxed) == 1 };
        if is_free {
            bump(count);
        }
        first.join().unwrap();
        let counted = count.load(Ordering::Relaxed);
        assert!(counted == 1 + u64::from(is_free), "a count was lost: {counted}");
    });
}

#[test]
fn a_lock_keeps_the_count() {
    change_hands(true);
}

/// Shows that the model can see the mistake that it is there for.
#[test]
#[should_panic(expected = "a count was lost")]
fn a_word_that_orders_nothing_is_caught() {
    change_hands(false);
}

/// The protocol written down once more: two threads that share one counter, as plain loads and stores.
#[test]
#[should_panic(expected = "a count was lost")]
fn a_place_with_two_writers_is_caught() {
    explore(|| {
        let count = Arc::new(AtomicU64::new(0));
        let bump = |count: &AtomicU64| count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let other = spawn({
            let count = Arc::clone(&count);
            move || bump(&count)
        });
        bump(&count);
        other.join().unwrap();
        assert!(count.load(Ordering::Relaxed) == 2, "a count was lost");
    });
}
