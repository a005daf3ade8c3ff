//! `Queue`: from the threads that allocate to the one that writes.

use core::fmt;
use core::hint::spin_loop;

use crate::sync::{Apart, AtomicU64, Ordering};

/// A bounded queue of rows of `WORDS` words, for any number of threads that push and one that pops.
///
/// A row has a ticket, and rows leave in the order of their tickets. Of two pushes, one of which comes after the other in
/// whatever way threads can know of each other, the later has the higher ticket: they change one word, and that has one order.
/// So if a free is pushed before the resource gets the block back, and an allocation after the resource has handed one out, the
/// free of an address leaves before the next allocation of it.
///
/// A ticket is drawn only where there is room: a thread with a ticket fills its slot without a wait.
///
/// Everything in it is an atomic, the words of the rows too: a plain store on the machines that there are, and nothing to prove.
pub(super) struct Queue<const WORDS: usize> {
    /// The next ticket. Written by all pushing threads.
    next: Apart<AtomicU64>,
    /// 1 while the thread that pops sleeps, or is about to.
    asleep: Apart<AtomicU64>,
    places: Box<[QueueSlot<WORDS>]>,
}

/// The queue has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Room for a row. With seven words a line of the cache.
#[repr(align(64))]
struct QueueSlot<const WORDS: usize> {
    /// The ticket whose row may be put here; one more once it is there.
    turn: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Queue<WORDS> {
    /// Room for `count` rows, rounded up to a power of two, at least two.
    pub(super) fn new(count: usize) -> Self {
        let count = count.clamp(2, 1 << 30).next_power_of_two();
        let place = |turn| QueueSlot {
            turn: AtomicU64::new(turn as u64),
            words: core::array::from_fn(|_| AtomicU64::new(0)),
        };
        Self {
            next: Apart(AtomicU64::new(0)),
            asleep: Apart(AtomicU64::new(0)),
            places: (0..count).map(place).collect(),
        }
    }

    fn place(&self, ticket: u64) -> &QueueSlot<WORDS> {
        &self.places[ticket as usize & (self.places.len() - 1)]
    }

    /// Puts a row in. Returns `true` if the thread that pops sleeps: the caller wakes it, and no other does.
    #[inline]
    pub(super) fn push(&self, row: [u64; WORDS]) -> Result<bool, Full> {
        // Relaxed: the exchange below decides.
        let mut ticket = self.next.0.load(Ordering::Relaxed);
        let place = loop {
            let place = self.place(ticket);
            // Acquire: pairs with the release in `pop`. The row that was here has been read.
            let turn = place.turn.load(Ordering::Acquire);
            if turn == ticket {
                // Acquire: pairs with the release in `is_empty_for_sleep`; who draws after that sees that the other sleeps.
                // Release: and that one sees what is drawn before. Also pairs with the acquire in `drawn`.
                let drawn = self.next.0.compare_exchange_weak(
                    ticket,
                    ticket + 1,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                match drawn {
                    Ok(_) => break place,
                    Err(next) => ticket = next,
                }
            } else if turn < ticket {
                // The row of a lap ago is still here.
                return Err(Full);
            } else {
                // Somebody else has drawn it meanwhile.
                spin_loop();
                ticket = self.next.0.load(Ordering::Relaxed);
            }
        };
        for (word, value) in place.words.iter().zip(row) {
            // Relaxed: ordered by the store to `turn`.
            word.store(value, Ordering::Relaxed);
        }
        // Release: pairs with the acquire in `pop`, which sees the words.
        place.turn.store(ticket + 1, Ordering::Release);
        // Relaxed: behind the exchange above, which is what it is ordered by; see `is_empty_for_sleep`. Who finds it set by then
        // is the one to unset it, and writes nothing otherwise: an announcement is undone by a call alone.
        let is_asleep = self.asleep.0.load(Ordering::Relaxed) == 1;
        Ok(is_asleep && self.asleep.0.compare_exchange(1, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok())
    }

    /// How many tickets have been drawn: every row that was pushed before this call, as far as the caller knows of it, is one.
    pub(super) fn drawn(&self) -> u64 {
        self.next.0.load(Ordering::Acquire)
    }

    /// The row with that ticket, if it is there. For the thread that pops, which asks for one ticket after the other.
    pub(super) fn pop(&self, ticket: u64) -> Option<[u64; WORDS]> {
        let place = self.place(ticket);
        // Acquire: pairs with the release in `push`.
        if place.turn.load(Ordering::Acquire) != ticket + 1 {
            return None;
        }
        // Relaxed: ordered by `turn`.
        let row = core::array::from_fn(|at| place.words[at].load(Ordering::Relaxed));
        // Release: pairs with the acquire in `push`; the place is free for the ticket of the next lap.
        place.turn.store(ticket + self.places.len() as u64, Ordering::Release);
        Some(row)
    }

    /// Announces that the thread that pops is going to sleep, having popped all tickets below `ticket`. If it returns `false`
    /// more have been drawn meanwhile, and it must not. If it returns `true`, the push that draws the next one wakes it.
    pub(super) fn is_empty_for_sleep(&self, ticket: u64) -> bool {
        self.asleep.0.store(1, Ordering::Relaxed);
        // A change that changes nothing, to have a place in the order of all changes of `next`. Who draws before it is counted
        // here; who draws after it acquires what this releases, and finds `asleep` set.
        let is_empty = self.next.0.fetch_add(0, Ordering::AcqRel) == ticket;
        if !is_empty {
            self.wake_up();
        }
        is_empty
    }

    /// The thread that pops is awake, whoever woke it.
    pub(super) fn wake_up(&self) {
        // Relaxed: at worst somebody wakes it once more.
        self.asleep.0.store(0, Ordering::Relaxed);
    }
}

impl<const WORDS: usize> fmt::Debug for Queue<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({} rows)", self.places.len())
    }
}
