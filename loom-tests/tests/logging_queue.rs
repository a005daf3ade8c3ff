//! The queue of a log: no row is lost or torn, and none overtakes one that came before it. Its writer has models of its own, in
//! `logging.rs`.
//!
//! It is a type of the crate's own, so its file is included here, with the facade that it is written against.

#[path = "../../src/adaptor/logging/log/queue.rs"]
mod queue;

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use loom_tests::{Seen, explore, explore_bounded};
use queue::{Full, Queue};

/// Of two words, so that a torn row shows.
type Rows = Queue<2>;

/// The smallest that there is: two places, so that the third row is in the place of the first.
fn rows() -> Arc<Rows> {
    Arc::new(Rows::new(2))
}

/// Where the writer sleeps. Not loom's own `park`: that lets an `unpark` wake a thread out of whatever else it waits for.
#[derive(Default)]
struct Bed(Mutex<bool>, Condvar);

impl Bed {
    fn sleep(&self) {
        let mut is_called = self.0.lock().unwrap();
        while !*is_called {
            is_called = self.1.wait(is_called).unwrap();
        }
        *is_called = false;
    }

    fn call(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

fn row(number: u64) -> [u64; 2] {
    [number, number + 100]
}

/// Pushes a row, as soon as there is room. Returns `true` if there was none at first.
fn push(rows: &Rows, number: u64) -> bool {
    let mut waited = false;
    loop {
        match rows.push(row(number)) {
            Ok(_) => return waited,
            Err(Full) => {
                waited = true;
                thread::yield_now();
            }
        }
    }
}

/// Pops all that have been drawn, as the writer does.
fn pop_drawn(rows: &Rows, popped: &mut Vec<u64>) {
    let drawn = rows.drawn();
    while (popped.len() as u64) < drawn {
        match rows.pop(popped.len() as u64) {
            Some([number, more]) => {
                assert_eq!(more, number + 100, "a row is torn");
                popped.push(number);
            }
            None => thread::yield_now(),
        }
    }
}

#[test]
fn rows_of_two_threads_are_whole_and_in_the_order_of_each() {
    static FIRST: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(|| {
        let rows = rows();
        let pushing = {
            let rows = Arc::clone(&rows);
            thread::spawn(move || push(&rows, 10))
        };
        push(&rows, 20);
        let mut popped = Vec::new();
        pop_drawn(&rows, &mut popped);
        pushing.join().unwrap();
        push(&rows, 21);
        pop_drawn(&rows, &mut popped);
        FIRST[usize::from(popped[0] == 10)].note(true);
        popped.retain(|number| *number >= 20);
        assert_eq!(popped, [20, 21]);
    });
    assert!(FIRST.iter().all(|first| first.times() > 0), "{FIRST:?}");
}

#[test]
fn a_full_queue_makes_the_pushing_thread_wait_and_loses_nothing() {
    static WAITED: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(Some(3), || {
        let rows = rows();
        let pushing = {
            let rows = Arc::clone(&rows);
            thread::spawn(move || (0..4).filter(|number| push(&rows, *number)).count())
        };
        let mut popped = Vec::new();
        while popped.len() < 4 {
            pop_drawn(&rows, &mut popped);
            thread::yield_now();
        }
        WAITED[usize::from(pushing.join().unwrap() > 0)].note(true);
        assert_eq!(popped, [0, 1, 2, 3]);
    });
    assert!(WAITED.iter().all(|waited| waited.times() > 0), "{WAITED:?}");
}

/// Two threads meet at the last place: one draws it.
#[test]
fn the_last_place_is_drawn_once() {
    explore(|| {
        let rows = rows();
        push(&rows, 0);
        let pushing = {
            let rows = Arc::clone(&rows);
            thread::spawn(move || rows.push(row(10)).is_ok())
        };
        let here = rows.push(row(20)).is_ok();
        let there = pushing.join().unwrap();
        assert!(here != there, "two threads have one place, or none has it");
        let mut popped = Vec::new();
        pop_drawn(&rows, &mut popped);
        assert_eq!(popped, [0, if here { 20 } else { 10 }]);
    });
}

const FREE: u64 = 1;
const ALLOCATE: u64 = 2;

/// A thread frees a block; another is handed its address, if it is free by then. The upstream is behind a lock.
fn address_reused(free_is_logged_first: bool) {
    static REUSED: Seen = Seen::never();
    explore(move || {
        let rows = rows();
        let is_free = Arc::new(Mutex::new(false));
        let freeing = {
            let (rows, is_free) = (Arc::clone(&rows), Arc::clone(&is_free));
            thread::spawn(move || {
                let give_back = || *is_free.lock().unwrap() = true;
                if free_is_logged_first {
                    push(&rows, FREE);
                    give_back();
                } else {
                    give_back();
                    push(&rows, FREE);
                }
            })
        };
        let is_mine = *is_free.lock().unwrap();
        if is_mine {
            push(&rows, ALLOCATE);
        }
        freeing.join().unwrap();
        let mut popped = Vec::new();
        pop_drawn(&rows, &mut popped);
        REUSED.note(is_mine);
        let wanted: &[u64] = if is_mine { &[FREE, ALLOCATE] } else { &[FREE] };
        assert_eq!(popped, wanted, "an address is allocated twice without a free between");
    });
    assert!(REUSED.times() > 0);
}

#[test]
fn a_free_leaves_before_the_next_allocation_of_its_address() {
    address_reused(true);
}

/// Shows that the model can see the mistake that it is there for.
#[test]
#[should_panic(expected = "without a free between")]
fn a_free_that_is_logged_behind_the_upstream_is_caught() {
    address_reused(false);
}

/// The thread that pops says that it is going to sleep while another one pushes: either it finds the row, or it is woken. One that
/// sleeps on is a deadlock, which loom reports.
#[test]
fn a_push_wakes_who_sleeps() {
    static SLEPT: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(|| {
        let (rows, bed) = (rows(), Arc::new(Bed::default()));
        let pushing = {
            let (rows, bed) = (Arc::clone(&rows), Arc::clone(&bed));
            thread::spawn(move || {
                if rows.push(row(10)).expect("there is room") {
                    bed.call();
                }
            })
        };
        let sleeps = rows.is_empty_for_sleep(0);
        if sleeps {
            bed.sleep();
            rows.wake_up();
        }
        let mut popped = Vec::new();
        pop_drawn(&rows, &mut popped);
        assert_eq!(popped, [10], "it wakes for nothing");
        pushing.join().unwrap();
        SLEPT[usize::from(sleeps)].note(true);
    });
    assert!(SLEPT.iter().all(|slept| slept.times() > 0), "{SLEPT:?}");
}

/// The protocol of sleeping written down once more. Who announces it and then only looks has no place in the order of what is drawn:
/// both may miss each other.
fn sleep_by_hand(takes_a_place: bool) {
    explore(move || {
        let next = Arc::new(AtomicU64::new(0));
        let asleep = Arc::new(AtomicU64::new(0));
        let bed = Arc::new(Bed::default());
        let pushing = {
            let (next, asleep, bed) = (Arc::clone(&next), Arc::clone(&asleep), Arc::clone(&bed));
            thread::spawn(move || {
                next.fetch_add(1, Ordering::AcqRel);
                if asleep.load(Ordering::Relaxed) == 1 {
                    bed.call();
                }
            })
        };
        asleep.store(1, Ordering::Relaxed);
        let drawn =
            if takes_a_place { next.fetch_add(0, Ordering::AcqRel) } else { next.load(Ordering::Acquire) };
        if drawn == 0 {
            bed.sleep();
        }
        pushing.join().unwrap();
    });
}

#[test]
fn taking_a_place_in_the_order_is_enough() {
    sleep_by_hand(true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn only_looking_is_caught() {
    sleep_by_hand(false);
}
