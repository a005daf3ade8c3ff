//! `Purses`: room that threads hold in advance, so that they do not meet at the allowance.

use std::sync::OnceLock;

use crate::stream::Places;
use crate::sync::{AtomicU64, Ordering, Seat};

/// The purse is closed: it holds nothing, and takes nothing. Bytes are counted in whole units of 256, so the bit is free.
const CLOSED: u64 = 1;

/// The purse of one thread: bytes that are counted as taken and that no block has yet.
///
/// One word says both what is in it and whether it is open. Closing it takes what is in it in the same exchange, so there is
/// no moment at which bytes could be put into a purse that was emptied. Two lines of memory, because a processor fetches them
/// in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Purse(AtomicU64);

impl Purse {
    /// Takes `bytes` out, if as many are in it.
    #[inline]
    fn take(&self, bytes: u64) -> bool {
        self.change(|credit| credit.checked_sub(bytes))
    }

    /// Puts `bytes` in, unless there would be more than `most`.
    #[inline]
    fn put(&self, bytes: u64, most: u64) -> bool {
        self.change(|credit| credit.checked_add(bytes).filter(|&sum| sum <= most))
    }

    #[inline]
    fn change(&self, of: impl Fn(u64) -> Option<u64>) -> bool {
        let mut credit = self.0.load(Ordering::Relaxed);
        loop {
            if credit & CLOSED != 0 {
                return false;
            }
            let Some(next) = of(credit) else { return false };
            // Acquire and release: each who takes bytes out comes after those who put bytes in, as at the shared count.
            match self.0.compare_exchange_weak(credit, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => credit = now,
            }
        }
    }

    /// Opens it if it is closed, and puts `bytes` in. By those who have the turn of the tree.
    fn open(&self, bytes: u64) {
        // Relaxed: only those who have the turn open and close. Release: as in `change`.
        let now = self.0.load(Ordering::Relaxed);
        if now & CLOSED == 0 {
            self.0.fetch_add(bytes, Ordering::Release);
        } else {
            self.0.store(bytes, Ordering::Release);
        }
    }

    /// Takes half of what is in it out. By those who have the turn.
    fn halve(&self) -> u64 {
        let credit = self.0.load(Ordering::Relaxed);
        let half = (credit / 2) & !0xFF;
        if credit & CLOSED == 0 && self.take(half) { half } else { 0 }
    }

    /// Closes it. Returns what was in it. By those who have the turn.
    fn close(&self) -> u64 {
        // Acquire: those who take these bytes come after those who put them in. Release: see `open`.
        self.0.swap(CLOSED, Ordering::AcqRel) & !CLOSED
    }

    fn credit(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & !CLOSED
    }
}

/// The purses of one allowance, by the seats of the threads. None is made before threads meet.
#[derive(Debug, Default)]
pub(super) struct Purses(OnceLock<Box<Places<Box<Purse>>>>);

impl Purses {
    #[inline]
    fn mine(&self) -> Option<&Purse> {
        Some(self.0.get()?.get(Seat::number())?)
    }

    /// Takes `bytes` out of the purse of this thread, if as many are in it.
    #[inline]
    pub(super) fn take(&self, bytes: u64) -> bool {
        self.mine().is_some_and(|purse| purse.take(bytes))
    }

    /// Puts `bytes` into the purse of this thread, if it is open and has room under `most`.
    #[inline]
    pub(super) fn put(&self, bytes: u64, most: u64) -> bool {
        self.mine().is_some_and(|purse| purse.put(bytes, most))
    }

    /// Returns `true` if this thread has a purse that is open.
    pub(super) fn is_open(&self) -> bool {
        // Relaxed: a hint. Those who act on it do so with the turn.
        self.mine().is_some_and(|purse| purse.0.load(Ordering::Relaxed) & CLOSED == 0)
    }

    /// Opens the purse of the thread with this seat, and puts `bytes` in.
    pub(super) fn open(&self, seat: u32, bytes: u64) {
        let purses = self.0.get_or_init(Box::default);
        purses.get_or_make(seat, || Box::new(Purse(AtomicU64::new(CLOSED)))).open(bytes);
    }

    /// Takes half of what this thread has in its purse.
    pub(super) fn halve(&self) -> u64 {
        self.mine().map_or(0, Purse::halve)
    }

    /// Closes all. Returns what was in them.
    pub(super) fn close(&self) -> u64 {
        self.all().map(Purse::close).sum()
    }

    /// What is in them at about this moment.
    pub(super) fn credit(&self) -> u64 {
        self.all().map(Purse::credit).sum()
    }

    fn all(&self) -> impl Iterator<Item = &Purse> {
        self.0.get().into_iter().flat_map(|purses| purses.iter()).map(|purse| &**purse)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_purse_holds_what_was_put_in_until_it_is_closed() {
        let purse = Purse(AtomicU64::new(CLOSED));
        assert!(!purse.take(0) && !purse.put(256, 1024), "it is closed");
        purse.open(512);
        assert!(purse.take(256) && !purse.take(512) && purse.put(512, 768) && !purse.put(256, 768));
        purse.open(256);
        assert_eq!((purse.credit(), purse.halve(), purse.credit()), (1024, 512, 512));
        assert_eq!((purse.close(), purse.close(), purse.credit()), (512, 0, 0));
        assert!(!purse.put(256, 1024) && purse.halve() == 0);
    }

    #[test]
    fn each_thread_has_a_purse_of_its_own() {
        let purses = Purses::default();
        assert!(!purses.is_open() && !purses.take(0));
        let seat = Seat::take().expect("there are few threads");
        purses.open(seat, 1024);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                assert!(!purses.is_open() && !purses.take(256));
                purses.open(Seat::take().expect("there are few threads"), 2048);
                purses.take(256)
            });
            assert!(other.join().expect("it does not panic"));
        });
        assert!(purses.is_open() && purses.take(256));
        assert_eq!((purses.credit(), purses.close(), purses.is_open()), (2560, 2560, false));
    }
}
