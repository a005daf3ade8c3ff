//! `LiveBytes`: how much is out, and how much may be.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use alluvion::Error;

/// A power of two. Threads count in stripes of their own as long as there are no more than this.
const STRIPES: usize = 64;

/// The bytes that are out of a device, and a limit.
///
/// Each thread adds and subtracts in a stripe of its own, because all threads would wait for one cache line. A stripe alone may
/// be below 0, where a thread frees what another has allocated; the sum is what counts. It is made only while there is a limit.
#[derive(Debug)]
pub(super) struct LiveBytes {
    stripes: [Stripe; STRIPES],
    /// `u64::MAX` without one.
    limit: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// Bytes of a request that is not over: they are out again when this is dropped, unless the request succeeds.
pub(super) struct Taken<'l> {
    live: &'l LiveBytes,
    bytes: usize,
}

impl LiveBytes {
    pub(super) fn new() -> Self {
        Self { stripes: std::array::from_fn(|_| Stripe::default()), limit: AtomicU64::new(u64::MAX) }
    }

    // Relaxed, all: the numbers order nothing.

    /// Counts a request.
    pub(super) fn take(&self, bytes: usize) -> Result<Taken<'_>, Error> {
        self.stripe().fetch_add(bytes as u64, Ordering::Relaxed);
        let taken = Taken { live: self, bytes };
        let limit = self.limit.load(Ordering::Relaxed);
        if limit != u64::MAX && self.sum() > limit {
            return Err(Error::over_limit(bytes, usize::try_from(limit).unwrap_or(usize::MAX)));
        }
        Ok(taken)
    }

    /// Counts a free.
    pub(super) fn give_back(&self, bytes: usize) {
        self.stripe().fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// `u64::MAX` is no limit.
    pub(super) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// The bytes that are out.
    fn sum(&self) -> u64 {
        let sum = |sum: u64, stripe: &Stripe| sum.wrapping_add(stripe.0.load(Ordering::Relaxed));
        let sum = self.stripes.iter().fold(0, sum);
        // A free may be counted before the request is seen that it belongs to.
        u64::try_from(sum.cast_signed()).unwrap_or(0)
    }

    fn stripe(&self) -> &AtomicU64 {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            // No destructor, so it can be read while the thread's other locals are being dropped.
            static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
        }
        let mut mine = MINE.get();
        if mine == usize::MAX {
            mine = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
            MINE.set(mine);
        }
        &self.stripes[mine].0
    }
}

impl Taken<'_> {
    /// The request has succeeded: the bytes are out.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.live.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_free_for_each_other_count_as_one() {
        let live = LiveBytes::new();
        live.set_limit(1000);
        live.take(900).expect("there is room").keep();
        assert!(live.take(101).is_err_and(|error| error.is_out_of_memory() && error.limit() == Some(1000)));
        assert_eq!(live.sum(), 900, "what is refused is not counted");
        std::thread::scope(|scope| {
            scope.spawn(|| live.give_back(900));
        });
        assert_eq!(live.sum(), 0);
        live.take(1000).expect("there is room").keep();
        drop(live.take(0));
        live.set_limit(u64::MAX);
        live.take(usize::MAX >> 1).expect("there is no limit").keep();
    }

    #[test]
    fn a_request_that_does_not_succeed_is_not_counted() {
        let live = LiveBytes::new();
        drop(live.take(5));
        assert_eq!(live.sum(), 0);
        live.give_back(1);
        assert_eq!(live.sum(), 0, "below 0 is 0");
    }
}
