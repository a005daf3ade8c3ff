//! Reservations: what is out is never more than the limit, and nobody is refused for the sake of a request that fails itself; in
//! one allowance, and in a tree of them.

#![expect(unsafe_code, reason = "gives blocks back")]

use std::sync::Arc;

use alluvion::adaptor::{Allowance, Limiting};
use alluvion::{DevicePtr, Layout, Resource, ResourceExt};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom_tests::{Ground, Rig, Seen, explore, spawn};

const UNIT: usize = 256;

fn layout(units: usize) -> Layout {
    Layout::from_bytes(units * UNIT).expect("it is small")
}

fn give(limited: &Limiting<Ground>, block: DevicePtr, layout: Layout) {
    // SAFETY: the block came from there with this layout, and nothing uses memory in a model.
    unsafe { limited.deallocate_sync(block, layout) };
}

/// Two threads, of whose blocks there is room for one and a half, over an upstream that has as much as the limit and not a byte
/// more: it is never asked for what it has not.
#[test]
fn the_upstream_never_has_more_out_than_the_limit() {
    static SEEN: [Seen; 3] = [const { Seen::never() }; 3];
    explore(|| {
        let rig = Rig::new();
        let ground = Ground::new(&rig, 3 * UNIT);
        let limited = Arc::new(ground.clone().limiting(3 * UNIT));
        let try_once = |limited: &Limiting<Ground>| match limited.allocate_sync(layout(2)) {
            Ok(block) => {
                give(limited, block, layout(2));
                1
            }
            Err(error) => {
                assert_eq!(error.limit_name(), Some("Limiting"));
                0
            }
        };
        let other = {
            let limited = Arc::clone(&limited);
            spawn(move || try_once(&limited))
        };
        let had = try_once(&limited) + other.join().expect("it does not panic");
        SEEN[had].note(true);
        assert_eq!((ground.refused(), limited.used_bytes()), (0, 0));
        assert!(limited.book().peak_bytes() == 2 * UNIT);
        ground.assert_whole();
    });
    assert_eq!(SEEN[0].times(), 0, "whoever is refused is so because the other has some");
    assert!(SEEN[1..].iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// Plain memory, of which loom says if two threads are at it and nothing orders them.
#[derive(Debug, Default)]
struct Plain(UnsafeCell<u32>);

// SAFETY: whether two threads meet is what the models find out, on cells that loom watches.
unsafe impl Sync for Plain {}

impl Plain {
    fn count(&self) {
        // SAFETY: loom fails the model before two threads have it at once.
        self.0.with_mut(|count| unsafe { *count += 1 });
    }
}

/// Room for one: the second comes after the free of the first, though nothing but the reservation says so.
fn one_after_the_other(gives_after_the_free: bool) {
    explore(move || {
        let allowance = Allowance::new("one", UNIT);
        let block = Arc::new(Plain::default());
        let use_once = move |allowance: &Allowance, block: &Plain| {
            let Ok(reservation) = allowance.reserve(UNIT) else { return };
            block.count();
            if gives_after_the_free {
                block.count();
                drop(reservation);
            } else {
                drop(reservation);
                block.count();
            }
        };
        let other = {
            let (allowance, block) = (allowance.clone(), Arc::clone(&block));
            spawn(move || use_once(&allowance, &block))
        };
        use_once(&allowance, &block);
        other.join().expect("it says what is wrong itself");
        assert_eq!(allowance.used_bytes(), 0);
    });
}

#[test]
fn what_goes_back_after_the_free_is_enough() {
    one_after_the_other(true);
}

/// Shows that the model can see the mistake that it is there for: the order of books of addresses is the wrong one here.
#[test]
#[should_panic(expected = "Causality violation")]
fn what_goes_back_before_the_free_is_caught() {
    one_after_the_other(false);
}

/// One asks for what can never be had, the other for all that there is, and has it.
#[test]
fn who_fits_is_served_whoever_fails_beside() {
    explore(|| {
        let allowance = Allowance::new("one", 2 * UNIT);
        let failing = {
            let allowance = allowance.clone();
            spawn(move || assert!(allowance.reserve(3 * UNIT).is_err()))
        };
        for _ in 0..2 {
            drop(allowance.reserve(2 * UNIT).expect("nobody has any of it"));
        }
        failing.join().expect("it says what is wrong itself");
        assert_eq!((allowance.used_bytes(), allowance.refusals()), (0, 1));
    });
}

/// As above in a tree: what the root refuses takes no room below it, at no time.
#[test]
fn what_the_root_refuses_is_in_nobodys_way() {
    explore(|| {
        let root = Allowance::new("root", 4 * UNIT);
        let rest = root.reserve(3 * UNIT).expect("nobody has any of it");
        // It might have two, but one is left above.
        let child = root.child("child", 2 * UNIT);
        let failing = {
            let child = child.clone();
            spawn(move || {
                let error = child.reserve(2 * UNIT).expect_err("the root has one");
                assert!(matches!(error.limit_name(), Some("root" | "child")), "{error}");
            })
        };
        drop(child.reserve(UNIT).expect("one is left, here and above"));
        failing.join().expect("it says what is wrong itself");
        drop(rest);
        assert_eq!([root.used_bytes(), child.used_bytes()], [0; 2]);
    });
}

/// One takes from the root, the other from below it; there is room for one of them at a time.
#[test]
fn those_above_and_those_below_share_the_root() {
    static SEEN: [Seen; 3] = [const { Seen::never() }; 3];
    explore(|| {
        let root = Allowance::new("root", 3 * UNIT);
        let leaf = root.child("middle", 3 * UNIT).child("leaf", 2 * UNIT);
        let block = Arc::new(Plain::default());
        let use_once = |allowance: &Allowance, block: &Plain| match allowance.reserve(2 * UNIT) {
            Ok(reservation) => {
                block.count();
                drop(reservation);
                1
            }
            Err(error) => {
                assert_eq!(error.limit_name(), Some("root"));
                0
            }
        };
        let above = {
            let (root, block) = (root.clone(), Arc::clone(&block));
            spawn(move || use_once(&root, &block))
        };
        let had = use_once(&leaf, &block) + above.join().expect("it says what is wrong itself");
        SEEN[had].note(true);
        assert_eq!([root.used_bytes(), leaf.used_bytes()], [0; 2]);
    });
    assert_eq!(SEEN[0].times(), 0, "whoever is refused is so because the other has some");
    assert!(SEEN[1..].iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// Two below one root: what one has is not the other's, and the sums agree.
#[test]
fn siblings_share_their_parent() {
    explore(|| {
        let root = Allowance::new("root", 3 * UNIT);
        let leaves = ["left", "right"].map(|name| root.child(name, 3 * UNIT));
        let other = {
            let leaf = leaves[1].clone();
            spawn(move || leaf.reserve(2 * UNIT).ok())
        };
        let mine = leaves[0].reserve(2 * UNIT).ok();
        let theirs = other.join().expect("it does not panic");
        assert_ne!(mine.is_some(), theirs.is_some(), "nobody gives anything back: one of them has it");
        assert_eq!((root.used_bytes(), root.peak_bytes(), root.refusals()), (2 * UNIT, 2 * UNIT, 1));
        drop((mine, theirs));
        assert_eq!(root.used_bytes() + leaves.iter().map(Allowance::used_bytes).sum::<usize>(), 0);
    });
}

/// Two threads cross the soft limit together: it is crossed once, and told once.
#[test]
fn a_crossing_is_told_by_one() {
    explore(|| {
        let told = Arc::new(AtomicU64::new(0));
        let tell = Arc::clone(&told);
        let allowance = Allowance::new("one", 2 * UNIT).soft(UNIT).on_soft(move |crossing| {
            assert_eq!(crossing.used_bytes, 2 * UNIT);
            tell.fetch_add(1, Ordering::Relaxed);
        });
        let other = {
            let allowance = allowance.clone();
            spawn(move || allowance.reserve(UNIT).expect("there is one for each"))
        };
        let mine = allowance.reserve(UNIT).expect("there is one for each");
        let theirs = other.join().expect("it does not panic");
        assert_eq!((told.load(Ordering::Relaxed), allowance.crossings()), (1, 1));
        drop((mine, theirs));
    });
}

/// The protocol written down once more, as it is and in the ways in which it is wrong.
#[derive(Clone, Copy)]
enum Way {
    /// One exchange looks and takes.
    Exchange,
    /// Adds, looks, and takes back what was too much.
    AddThenLook,
    /// Looks, and then writes.
    LookThenWrite,
}

fn take(used: &AtomicU64, way: Way, wanted: u64, limit: u64) -> bool {
    match way {
        Way::Exchange => {
            let fits = |used: u64| Some(used + wanted).filter(|sum| *sum <= limit);
            used.fetch_update(Ordering::Acquire, Ordering::Relaxed, fits).is_ok()
        }
        Way::AddThenLook => {
            let fits = used.fetch_add(wanted, Ordering::Acquire) + wanted <= limit;
            if !fits {
                used.fetch_sub(wanted, Ordering::Release);
            }
            fits
        }
        Way::LookThenWrite => {
            let now = used.load(Ordering::Acquire);
            let fits = now + wanted <= limit;
            if fits {
                used.store(now + wanted, Ordering::Release);
            }
            fits
        }
    }
}

/// One wants more than there is; two want half each.
fn by_hand(way: Way) {
    explore(move || {
        let (used, out) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
        let want = move |used: &AtomicU64, out: &AtomicUsize, wanted: u64| {
            let had = take(used, way, wanted, 2);
            if had {
                let before = out.fetch_add(wanted as usize, Ordering::Relaxed);
                assert!(before + wanted as usize <= 2, "more is out than the limit");
            }
            had
        };
        let other = {
            let (used, out) = (Arc::clone(&used), Arc::clone(&out));
            spawn(move || (want(&used, &out, 3), want(&used, &out, 2)))
        };
        let mine = want(&used, &out, 2);
        let (absurd, theirs) = other.join().expect("it says what is wrong itself");
        assert!(!absurd, "three of two");
        assert!(mine || theirs, "who fits was refused");
    });
}

#[test]
fn an_exchange_is_enough() {
    by_hand(Way::Exchange);
}

/// As RMM does it.
#[test]
#[should_panic(expected = "who fits was refused")]
fn adding_before_looking_is_caught() {
    by_hand(Way::AddThenLook);
}

#[test]
#[should_panic(expected = "more is out than the limit")]
fn looking_before_writing_is_caught() {
    by_hand(Way::LookThenWrite);
}

/// A tree by hand, without turns: from below upwards, and back where an ancestor refuses.
#[test]
#[should_panic(expected = "one is left, here and above")]
fn taking_back_from_a_tree_is_caught() {
    explore(|| {
        let tree = Arc::new([AtomicU64::new(3), AtomicU64::new(0)]);
        let reserve = |[root, child]: &[AtomicU64; 2], wanted: u64| {
            if !take(child, Way::Exchange, wanted, 2) {
                return false;
            }
            let fits = take(root, Way::Exchange, wanted, 4);
            if !fits {
                child.fetch_sub(wanted, Ordering::Release);
            }
            fits
        };
        let failing = {
            let tree = Arc::clone(&tree);
            spawn(move || assert!(!reserve(&tree, 2)))
        };
        assert!(reserve(&tree, 1), "one is left, here and above");
        failing.join().expect("it says what is wrong itself");
    });
}
