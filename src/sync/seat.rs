//! `Seat`: a small number that a thread has while it lives.

use core::cell::Cell;

#[cfg(not(loom))]
use super::Global;
#[cfg(loom)]
use super::{Arc, Mutex};

/// More threads than this have none.
const SEATS: u32 = 1 << 20;

/// What a thread has for a number that has none: no seat has it.
const NONE: u32 = u32::MAX;

/// A number that no other live thread has: the smallest ones, used again when a thread has ended.
///
/// What is kept for each thread is an array indexed by it, in which every place has one writer at a time: plain loads and
/// stores, where a counter that threads share would be a read-modify-write on a line that they take from each other. A thread
/// that takes a number over comes after all that the thread before it did: it was given back, and is taken, under one lock.
pub(crate) struct Seat;

#[cfg(not(loom))]
thread_local! {
    // No destructor, so it can be read while the thread's other locals are being dropped, and at the price of a load.
    static NUMBER: Cell<u32> = const { Cell::new(NONE) };
    static TAKEN: Taken = Taken::new();
}

#[cfg(loom)]
loom::thread_local! {
    static NUMBER: Cell<u32> = Cell::new(NONE);
    static TAKEN: Taken = Taken::new();
}

impl Seat {
    /// The number of this thread. If it has none, because it has not asked or because it is ending, a number that is too large
    /// for any thread.
    #[inline]
    pub(crate) fn number() -> u32 {
        #[cfg(not(loom))]
        return NUMBER.get();
        // In a model every local has a destructor.
        #[cfg(loom)]
        return NUMBER.try_with(Cell::get).unwrap_or(NONE);
    }

    /// The number of this thread, taken now if it has none. `None` in a thread that is ending and has given its number back,
    /// where a million threads live, and in a child of a fork that came while another thread took one.
    pub(crate) fn take() -> Option<u32> {
        let number = TAKEN.try_with(|taken| taken.number).ok()?;
        (number < SEATS).then_some(number)
    }
}

/// The numbers that threads have given back, and the first that nobody has had.
#[derive(Default)]
struct Free {
    given_back: Vec<u32>,
    next: u32,
}

impl Free {
    fn take(&mut self) -> u32 {
        self.given_back.pop().unwrap_or_else(|| {
            let next = self.next;
            self.next = SEATS.min(next + 1);
            next
        })
    }
}

/// The number of a thread, until the thread ends.
struct Taken {
    number: u32,
    free: Numbers,
}

impl Taken {
    fn new() -> Self {
        let free = Numbers::of_threads();
        let number = free.with(Free::take).unwrap_or(SEATS);
        let _ = NUMBER.try_with(|mine| mine.set(if number < SEATS { number } else { NONE }));
        Self { number, free }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // First this thread forgets it: other locals that are dropped after this one may still ask.
        let _ = NUMBER.try_with(|mine| mine.set(NONE));
        if self.number < SEATS {
            self.free.with(|free| free.given_back.push(self.number));
        }
    }
}

#[cfg(not(loom))]
static FREE: Global<Free> = Global::new(Free { given_back: Vec::new(), next: 0 }, in_child);

#[cfg(not(loom))]
extern "C" fn in_child() {
    FREE.look_after_fork();
}

/// Where numbers are taken from and go back to.
#[cfg(not(loom))]
struct Numbers;

#[cfg(not(loom))]
impl Numbers {
    fn of_threads() -> Self {
        Self
    }

    /// `None` in a child of a fork that has lost them: its threads have none from then on.
    fn with<T>(&self, look: impl FnOnce(&mut Free) -> T) -> Option<T> {
        FREE.lock().map(|mut free| look(&mut free))
    }
}

/// Of one run of a model, and gone with it.
#[cfg(loom)]
struct Numbers(Arc<Mutex<Free>>);

#[cfg(loom)]
impl Numbers {
    fn of_threads() -> Self {
        loom::lazy_static! {
            static ref FREE: Arc<Mutex<Free>> = Arc::default();
        }
        Self(Arc::clone(&FREE))
    }

    fn with<T>(&self, look: impl FnOnce(&mut Free) -> T) -> Option<T> {
        Some(look(&mut self.0.lock()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_keeps_its_number() {
        thread::spawn(|| {
            assert_eq!(Seat::number(), NONE, "it has not asked");
            let mine = Seat::take();
            assert!(mine.is_some() && Seat::take() == mine);
            assert_eq!(Some(Seat::number()), mine);
        })
        .join()
        .expect("it does not panic");
    }

    #[test]
    fn live_threads_differ() {
        let barrier = Barrier::new(8);
        let take = || {
            let mine = Seat::take().expect("there are few threads");
            barrier.wait();
            mine
        };
        let numbers: BTreeSet<_> = thread::scope(|scope| {
            let workers: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
            workers.into_iter().map(|worker| worker.join().expect("it does not panic")).collect()
        });
        assert_eq!(numbers.len(), 8);
    }

    #[test]
    fn numbers_are_used_again() {
        // Other tests have threads meanwhile, so not each of the hundred has the same.
        let numbers: BTreeSet<_> =
            (0..100).map(|_| thread::spawn(Seat::take).join().expect("it does not panic")).collect();
        assert!(numbers.len() < 100, "{numbers:?}");
        assert!(!numbers.contains(&None));
    }

    #[test]
    fn a_thread_that_ends_has_none() {
        struct AsksWhenDropped(std::sync::mpsc::Sender<(u32, Option<u32>)>);

        impl Drop for AsksWhenDropped {
            fn drop(&mut self) {
                let _ = self.0.send((Seat::number(), Seat::take()));
            }
        }

        thread_local! {
            static LAST: Cell<Option<AsksWhenDropped>> = const { Cell::new(None) };
        }

        let (tell, told) = std::sync::mpsc::channel();
        let number = thread::spawn(move || {
            // Whichever of the two locals goes first, it asks in a thread that ends.
            LAST.set(Some(AsksWhenDropped(tell)));
            Seat::take()
        })
        .join()
        .expect("it does not panic");
        let (asked, taken) = told.recv().expect("it was told");
        assert!(taken.is_none() && asked == NONE || taken == number, "{taken:?} of {number:?}");
    }

    #[test]
    fn there_is_an_end_to_numbers() {
        let mut free = Free { given_back: vec![7], next: SEATS - 1 };
        assert_eq!([free.take(), free.take(), free.take(), free.take()], [7, SEATS - 1, SEATS, SEATS]);
        assert_eq!(free.next, SEATS);
    }
}
