use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;

const KIB: usize = 1 << 10;

#[test]
fn what_fits_exactly_is_given_and_a_byte_more_is_not() {
    let allowance = Allowance::new("a", KIB);
    let all = allowance.reserve(KIB).unwrap();
    assert_eq!((allowance.used_bytes(), allowance.free_bytes()), (KIB, 0));
    let error = allowance.reserve(1).unwrap_err();
    assert_eq!((error.limit_name(), error.limit(), error.requested_bytes()), (Some("a"), Some(KIB), Some(1)));
    drop(all);
    assert!(allowance.reserve(KIB + 1).is_err());
    assert_eq!((allowance.used_bytes(), allowance.peak_bytes(), allowance.refusals()), (0, KIB, 2));
    let nothing = allowance.reserve(0).unwrap();
    assert_eq!((nothing.bytes(), allowance.used_bytes()), (0, 0));
}

#[test]
fn a_limit_that_is_no_multiple_of_the_unit_is_not_exceeded() {
    let allowance = Allowance::new("a", 1000);
    let most = allowance.reserve(768).unwrap();
    assert!(allowance.reserve(1).is_err(), "a unit is 256 bytes, and 232 are left");
    drop(most);
    assert!(allowance.reserve(769).is_err());
}

#[test]
fn sizes_at_the_end_of_the_number_line_do_not_wrap() {
    let narrow = Allowance::new("narrow", KIB);
    let wide = Allowance::new("wide", usize::MAX);
    let some = wide.reserve(KIB).unwrap();
    for bytes in [usize::MAX, usize::MAX - 254, usize::MAX - 255, isize::MAX as usize + 1] {
        assert!(narrow.reserve(bytes).unwrap_err().is_out_of_memory(), "{bytes}");
    }
    for bytes in [usize::MAX, usize::MAX - 254, usize::MAX - 255] {
        let error = wide.reserve(bytes).unwrap_err();
        assert_eq!(error.requested_bytes(), Some(bytes));
    }
    assert_eq!((narrow.refusals(), wide.refusals(), wide.used_bytes()), (4, 3, KIB));
    let rest = wide.reserve(usize::MAX - 255 - KIB).unwrap();
    assert_eq!(wide.free_bytes(), 255);
    drop((some, rest));
    assert_eq!(wide.used_bytes(), 0);
}

#[test]
fn a_tree_takes_from_all_or_from_none() {
    let root = Allowance::new("root", 8 * KIB);
    let middle = root.child("middle", 6 * KIB);
    let (left, right) = (middle.child("left", 4 * KIB), middle.child("right", 100 * KIB));
    let used = || [&root, &middle, &left, &right].map(|allowance| allowance.used_bytes() / KIB);
    let of_left = left.reserve(4 * KIB).unwrap();
    assert_eq!(used(), [4, 4, 4, 0]);
    let refusals = [(&left, KIB, "left"), (&right, 3 * KIB, "middle"), (&middle, 3 * KIB, "middle")];
    for (asked, bytes, refusing) in refusals {
        assert_eq!(asked.reserve(bytes).unwrap_err().limit_name(), Some(refusing));
        assert_eq!(used(), [4, 4, 4, 0]);
    }
    let of_root = root.reserve(3 * KIB).unwrap();
    assert_eq!(right.reserve(2 * KIB).unwrap_err().limit_name(), Some("root"));
    assert_eq!((used(), right.free_bytes() / KIB), ([7, 4, 4, 0], 1));
    let of_right = right.reserve(KIB).unwrap();
    assert_eq!(used(), [8, 5, 4, 1]);
    drop((of_left, of_root, of_right));
    assert_eq!(used(), [0; 4]);
    assert_eq!([&root, &middle, &left, &right].map(|it| it.peak_bytes() / KIB), [8, 5, 4, 1]);
    assert_eq!([&root, &middle, &left, &right].map(Allowance::refusals), [1, 2, 1, 0]);
    assert!(left.parent().is_some_and(|parent| parent.is_same(&middle)) && !left.is_same(&right));
}

#[test]
fn an_allowance_outlives_its_handles_as_long_as_something_is_out() {
    let root = Allowance::new("root", KIB);
    let reservation = root.child("child", KIB).reserve(512).unwrap();
    assert_eq!((root.used_bytes(), reservation.allowance().name()), (512, "child"));
    drop(reservation);
    assert_eq!(root.used_bytes(), 0);
}

#[test]
fn a_tree_may_be_deeper_than_the_stack() {
    let root = Allowance::new("root", KIB);
    let mut deepest = root.clone();
    for _ in 0..200_000 {
        deepest = deepest.child("one more", KIB);
    }
    let reservation = deepest.reserve(KIB).unwrap();
    assert_eq!(root.used_bytes(), KIB);
    drop((reservation, deepest));
    assert_eq!(root.used_bytes(), 0);
}

#[test]
fn each_crossing_is_told_once() {
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let allowance = Allowance::new("a", 8 * KIB).soft(4 * KIB).on_soft(|crossing| {
        TOLD.fetch_add(1, Ordering::Relaxed);
        assert_eq!(
            crossing.to_string(),
            "`a` has 5 KiB out, more than the soft limit of 4 KiB; the limit is 8 KiB"
        );
    });
    assert_eq!(allowance.soft_bytes(), Some(4 * KIB));
    let told = || (TOLD.load(Ordering::Relaxed), allowance.crossings());
    let first = allowance.reserve(4 * KIB).unwrap();
    assert_eq!(told(), (0, 0), "reaching it is not crossing it");
    let above = allowance.reserve(KIB).unwrap();
    let _more = allowance.reserve(KIB).unwrap();
    assert_eq!(told(), (1, 1));
    drop((first, above));
    let _again = allowance.reserve(4 * KIB).unwrap();
    assert_eq!(told(), (2, 2));
}

#[test]
fn all_whose_soft_limit_is_crossed_are_told() {
    static TOLD: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let root = Allowance::new("root", KIB).soft(256).on_soft(|crossing| {
        assert_eq!((crossing.allowance.name(), crossing.used_bytes), ("root", 512));
        TOLD[0].fetch_add(1, Ordering::Relaxed);
    });
    let child = root.child("child", KIB).soft(256).on_soft(|crossing| {
        assert_eq!((crossing.allowance.name(), crossing.used_bytes), ("child", 512));
        TOLD[1].fetch_add(1, Ordering::Relaxed);
    });
    let _taken = child.reserve(512).unwrap();
    assert_eq!(TOLD.each_ref().map(|told| told.load(Ordering::Relaxed)), [1, 1]);
    assert!(child.reserve(KIB).is_err());
    assert_eq!([root.crossings(), child.crossings()], [1, 1], "what is refused crosses nothing");
}

#[test]
fn an_observer_may_panic_and_the_next_is_told() {
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let allowance =
        Allowance::new("a", KIB).soft(0).on_soft(|_| resume_unwind(Box::new("on purpose"))).on_soft(|_| {
            TOLD.fetch_add(1, Ordering::Relaxed);
        });
    let reservation = allowance.reserve(256).expect("a panic of an observer is no refusal");
    drop(reservation);
    assert_eq!((TOLD.load(Ordering::Relaxed), allowance.used_bytes()), (1, 0));
    drop(allowance.reserve(256));
    assert_eq!(TOLD.load(Ordering::Relaxed), 2, "this thread is not telling any more");
}

#[test]
fn an_observer_may_take_and_is_not_told_of_it() {
    let allowance = Allowance::new("a", 4 * KIB).soft(KIB).on_soft(|crossing| {
        // Below and above again, which would be without end.
        let taken = crossing.allowance.reserve(KIB).expect("there is room");
        drop(taken);
        drop(crossing.allowance.child("b", KIB).soft(0).reserve(KIB).expect("there is room"));
    });
    let _all = allowance.reserve(2 * KIB).unwrap();
    assert_eq!((allowance.used_bytes(), allowance.crossings()), (2 * KIB, 1));
}

#[test]
fn a_name_is_a_part_of_one_line() {
    let allowance = Allowance::new("two\nlines", KIB);
    assert_eq!(
        (allowance.name(), format!("{allowance:?}")),
        ("two_lines", "Allowance(two_lines: 0 B of 1 KiB)".into())
    );
}

/// Four threads, each of which wants a quarter: nobody is refused, although as many others are, all the time.
#[test]
fn who_fits_is_not_refused_for_the_sake_of_those_who_do_not() {
    const ROUNDS: usize = 20_000;
    let root = Allowance::new("root", 4 * KIB);
    let trees = [root.clone(), root.child("child", 4 * KIB).child("grandchild", 4 * KIB)];
    let together = Barrier::new(8);
    thread::scope(|scope| {
        for at in 0..8 {
            let (allowance, root, together) = (&trees[at / 2 % 2], &root, &together);
            scope.spawn(move || {
                together.wait();
                for _ in 0..ROUNDS {
                    if at < 4 {
                        drop(allowance.reserve(KIB).expect("there is a quarter for each of the four"));
                    } else {
                        assert!(allowance.reserve(5 * KIB).is_err());
                    }
                    assert!(root.used_bytes() <= 4 * KIB);
                }
            });
        }
    });
    assert_eq!(trees.each_ref().map(Allowance::used_bytes), [0; 2]);
    assert!(root.peak_bytes() <= 4 * KIB);
}

const MIB: usize = 1 << 20;

/// Four threads at a limit that holds what three of them want: what is out is never above it.
#[test]
fn a_limit_holds_for_threads_that_meet_below_it() {
    const ROUNDS: usize = 3_000;
    let root = Allowance::new("root", 64 * MIB);
    let leaves = ["left", "right"].map(|name| root.child(name, 48 * MIB));
    let out = AtomicUsize::new(0);
    thread::scope(|scope| {
        for at in 0..4 {
            let (allowance, out) = (&leaves[at % 2], &out);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let bytes = if round % 64 == at * 7 { 40 * MIB } else { (round % 40) * 8 * KIB };
                    let Ok(taken) = allowance.reserve(bytes) else { continue };
                    let before = out.fetch_add(taken.bytes(), Ordering::SeqCst);
                    assert!(before + taken.bytes() <= 64 * MIB);
                    out.fetch_sub(taken.bytes(), Ordering::SeqCst);
                    drop(taken);
                }
            });
        }
    });
    assert_eq!([root.used_bytes(), leaves[0].used_bytes(), leaves[1].used_bytes()], [0; 3]);
    drop(root.reserve(64 * MIB).expect("nothing is out"));
}

/// What is taken at once crosses no soft limit and refuses nothing, at a root and below one, and the counts are those of
/// what is taken as always.
#[test]
fn what_is_taken_at_once_counts_and_tells_nobody() {
    let told = Arc::new(AtomicUsize::new(0));
    let observed = |allowance: Allowance| {
        let told = Arc::clone(&told);
        allowance.soft(4 * KIB).on_soft(move |_| {
            told.fetch_add(1, Ordering::Relaxed);
        })
    };
    let layout = |bytes| Layout::from_bytes(bytes).unwrap();
    let root = observed(Allowance::new("root", 8 * KIB));
    let outer = Allowance::new("outer", 100 * KIB);
    let inner = observed(outer.child("inner", 8 * KIB)).child("innermost", 50 * KIB);
    for allowance in [&root, &inner] {
        let top = allowance.parent().and_then(Allowance::parent).unwrap_or(allowance);
        let first = allowance.take_at_once(layout(3 * KIB + 1)).unwrap();
        assert_eq!((allowance.used_bytes(), top.used_bytes()), (3 * KIB + 256, 3 * KIB + 256));
        assert!(allowance.take_at_once(layout(KIB)).is_none(), "it would cross the soft limit");
        let nothing = allowance.take_at_once(layout(0)).unwrap();
        let second = allowance.take_at_once(layout(512)).unwrap();
        assert!(allowance.take_at_once(layout(usize::MAX / 4)).is_none(), "there is no room");
        let peaks = (allowance.peak_bytes(), top.peak_bytes());
        assert_eq!(peaks, (3 * KIB + 768, 3 * KIB + 768));
        drop((first, nothing));
        assert_eq!((allowance.used_bytes(), top.used_bytes()), (512, 512));
        second.keep();
        allowance.give(512);
        assert_eq!((allowance.used_bytes(), top.used_bytes()), (0, 0));
        let crossed = allowance.upwards().map(|node| node.crossings() + node.refusals()).sum::<u64>();
        assert_eq!((crossed, told.load(Ordering::Relaxed)), (0, 0));
    }
    // While another thread has the turn of the tree, nothing below its root is taken at once.
    let turn = inner.node.turn_for_tests().lock();
    assert!(inner.take_at_once(layout(256)).is_none());
    drop(turn);
    assert!(inner.take_at_once(layout(256)).is_some());
}
