//! `Seat`: a small number of a thread, reused after the thread ends.

use core::cell::Cell;

#[cfg(not(loom))]
use super::Global;
#[cfg(loom)]
use super::{Arc, Mutex};

/// The number of seats. Further threads have none.
const SEATS: u32 = 1 << 20;

/// The number of a thread without a seat. No seat has it.
const NONE: u32 = u32::MAX;

/// A number that no other live thread has: the smallest ones, used again when a thread has ended.
///
/// It indexes arrays of data by thread, in which each element has one writer at a time. So plain loads and stores do, where a
/// shared counter would be a read-modify-write on a contended cache line. A thread that reuses a number comes after all that the
/// thread before it did: the number is released and taken under one lock.
pub(crate) struct Seat;

#[cfg(not(loom))]
thread_local! {
    // No destructor, so it can be read while the thread's other locals are being dropped. A read costs a load.
    static NUMBER: Cell<u32> = const { Cell::new(NONE) };
    static TAKEN: ThreadSeat = ThreadSeat::new();
}

#[cfg(loom)]
loom::thread_local! {
    static NUMBER: Cell<u32> = Cell::new(NONE);
    static TAKEN: ThreadSeat = ThreadSeat::new();
}

impl Seat {
    /// The number of this thread. [`NONE`] if the thread has not taken one, or is ending.
    #[inline]
    pub(crate) fn number() -> u32 {
        #[cfg(not(loom))]
        return NUMBER.get();
        // Under loom every local has a destructor.
        #[cfg(loom)]
        return NUMBER.try_with(Cell::get).unwrap_or(NONE);
    }

    /// The number of this thread, taken now if it has none. `None` in a thread that is ending and has released its number, where a
    /// million threads live, and in a child of a fork that came while another thread took one.
    pub(crate) fn take() -> Option<u32> {
        let number = TAKEN.try_with(|taken| taken.number).ok()?;
        (number < SEATS).then_some(number)
    }
}

/// The numbers that ended threads have released, and the first number that no thread has had.
#[derive(Default)]
struct FreeSeats {
    released: Vec<u32>,
    next: u32,
}

impl FreeSeats {
    fn take(&mut self) -> u32 {
        self.released.pop().unwrap_or_else(|| {
            let next = self.next;
            self.next = SEATS.min(next + 1);
            next
        })
    }
}

/// The number of a thread, until the thread ends.
struct ThreadSeat {
    number: u32,
    free: SeatNumbers,
}

impl ThreadSeat {
    fn new() -> Self {
        let free = SeatNumbers::of_threads();
        let number = free.with(FreeSeats::take).unwrap_or(SEATS);
        let _ = NUMBER.try_with(|mine| mine.set(if number < SEATS { number } else { NONE }));
        Self { number, free }
    }
}

impl Drop for ThreadSeat {
    fn drop(&mut self) {
        // First: other locals that are dropped after this one may still ask for the number.
        let _ = NUMBER.try_with(|mine| mine.set(NONE));
        if self.number < SEATS {
            self.free.with(|free| free.released.push(self.number));
        }
    }
}

#[cfg(not(loom))]
static FREE: Global<FreeSeats> = Global::new(FreeSeats { released: Vec::new(), next: 0 }, in_child);

#[cfg(not(loom))]
extern "C" fn in_child() {
    FREE.look_after_fork();
}

/// The pool of free numbers.
#[cfg(not(loom))]
struct SeatNumbers;

#[cfg(not(loom))]
impl SeatNumbers {
    fn of_threads() -> Self {
        Self
    }

    /// `None` in a child of a fork that has lost the pool: its threads have no seats from then on.
    fn with<T>(&self, look: impl FnOnce(&mut FreeSeats) -> T) -> Option<T> {
        FREE.lock().map(|mut free| look(&mut free))
    }
}

/// The pool of one run of a model.
#[cfg(loom)]
struct SeatNumbers(Arc<Mutex<FreeSeats>>);

#[cfg(loom)]
impl SeatNumbers {
    fn of_threads() -> Self {
        loom::lazy_static! {
            static ref FREE: Arc<Mutex<FreeSeats>> = Arc::default();
        }
        Self(Arc::clone(&FREE))
    }

    fn with<T>(&self, look: impl FnOnce(&mut FreeSeats) -> T) -> Option<T> {
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
        // Threads of other tests run meanwhile, so the hundred threads may differ in number.
        let numbers: BTreeSet<_> =
            (0..100).map(|_| thread::spawn(Seat::take).join().expect("it does not panic")).collect();
        assert!(numbers.len() < 100, "{numbers:?}");
        assert!(!numbers.contains(&None));
    }

    #[test]
    fn a_thread_that_ends_has_none() {
        struct TakesSeatWhenDropped(std::sync::mpsc::Sender<(u32, Option<u32>)>);

        impl Drop for TakesSeatWhenDropped {
            fn drop(&mut self) {
                let _ = self.0.send((Seat::number(), Seat::take()));
            }
        }

        thread_local! {
            static LAST: Cell<Option<TakesSeatWhenDropped>> = const { Cell::new(None) };
        }

        let (tell, told) = std::sync::mpsc::channel();
        let number = thread::spawn(move || {
            // In either order of the two locals, it asks in a thread that is ending.
            LAST.set(Some(TakesSeatWhenDropped(tell)));
            Seat::take()
        })
        .join()
        .expect("it does not panic");
        let (asked, taken) = told.recv().expect("it was told");
        assert!(taken.is_none() && asked == NONE || taken == number, "{taken:?} of {number:?}");
    }

    #[test]
    fn seats_run_out() {
        let mut free = FreeSeats { released: vec![7], next: SEATS - 1 };
        assert_eq!([free.take(), free.take(), free.take(), free.take()], [7, SEATS - 1, SEATS, SEATS]);
        assert_eq!(free.next, SEATS);
    }
}
