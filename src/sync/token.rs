//! `Token`: a lock of one word, for data that is held for nanoseconds.

#![expect(unsafe_code, reason = "lends the data under a lock, and drops it, but not in a child of a fork")]

use core::fmt;
use core::hint::spin_loop;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use super::cell::{Cell, CellAccess};
use super::held::Held;
use super::process::{MadeIn, lost_lock};
use super::{AtomicBool, Ordering, nap, yield_now};

/// How often `lock` looks again before it lets other threads run: about a microsecond, which is longer than a token is held by a
/// thread that runs. A holder that does not run needs a processor, so spinning longer does not help.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 32 };

/// How often `lock` lets other threads run before it sleeps between looks: about a millisecond, as long as it sleeps then. Under a
/// real-time policy a yield does not let a thread of lower priority run, and such a thread may hold the token.
const YIELDS: u32 = 1024;

/// A mutex of one word, for data that is held for nanoseconds and seldom wanted by two threads.
///
/// Why not [`Mutex`](super::Mutex): its release must check for sleeping threads, so an uncontended round trip is two
/// read-modify-writes, 11 ns on the host of an H200. A token has no queue: locking is one exchange, and releasing a plain store.
/// The price is paid under contention: a waiting thread spins, then yields, then sleeps for a millisecond at a time. So a token is
/// held for a few dozen instructions, across no call to a driver, a resource or a user. Code that can do without the data tries
/// once.
///
/// There is no poisoning: a guard that is dropped while its thread unwinds releases the token. So code under a guard leaves the
/// data whole wherever it may panic.
#[derive(Default)]
pub(crate) struct Token<T> {
    is_out: AtomicBool,
    /// As in [`Mutex`](super::Mutex). Beside the flag, where there is padding.
    made_in: MadeIn,
    data: ManuallyDrop<Cell<T>>,
}

// SAFETY: it owns its data, and hands it out by `&mut` to one thread at a time, which is as good as sending it there.
unsafe impl<T: Send> Send for Token<T> {}
// SAFETY: as above: of all who share it, the one whose exchange succeeded has the data, until its release.
unsafe impl<T: Send> Sync for Token<T> {}

impl<T> Token<T> {
    /// Locks the data, unless it is locked. One read-modify-write; it does not wait, and does not fail spuriously.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<TokenGuard<'_, T>> {
        // Acquire: pairs with the release in `Release`. What the last holder did to the data is visible to this one. A
        // compare-exchange costs as much as a plain exchange, and writes nothing if it fails.
        self.is_out.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let give_back = Release { is_out: &self.is_out };
        Some(TokenGuard { data: self.data.access(), _give_back: give_back, _held: Held::begin() })
    }

    /// As [`try_lock`](Self::try_lock); `None` too in a child of the process that it was made in.
    #[inline]
    pub(crate) fn try_lock_unless_forked(&self) -> Option<TokenGuard<'_, T>> {
        if self.is_forked_child() { None } else { self.try_lock() }
    }

    /// Locks the data. While it is locked, spins at first, then sleeps between looks.
    pub(crate) fn lock(&self) -> TokenGuard<'_, T> {
        let mut waits = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            self.wait(waits);
            waits = waits.saturating_add(1);
        }
    }

    /// Returns `true` in a child of the process that it was made in.
    #[inline]
    pub(crate) fn is_forked_child(&self) -> bool {
        self.made_in.is_parent()
    }

    pub(crate) fn made_in(&self) -> MadeIn {
        self.made_in
    }

    /// As [`lock`](Self::lock); `None` in a child of the process that it was made in.
    pub(crate) fn lock_unless_forked(&self) -> Option<TokenGuard<'_, T>> {
        (!self.is_forked_child()).then(|| self.lock())
    }

    /// Waits a little: longer after more waits (`before`).
    #[cold]
    fn wait(&self, before: u32) {
        if self.is_forked_child() {
            lost_lock();
        }
        #[cfg(all(test, not(loom)))]
        tests::tell_waits();
        for _ in 0..LOOKS {
            spin_loop();
            // Relaxed: it is a hint; the exchange that follows decides. A load leaves the cache line with the core of the holder.
            if !self.is_out.load(Ordering::Relaxed) {
                return;
            }
        }
        if before < YIELDS { yield_now() } else { nap() }
    }
}

impl<T> Drop for Token<T> {
    /// Leaks the data in a child of the process that it was made in, as a [`Mutex`](super::Mutex) does.
    fn drop(&mut self) {
        if !self.is_forked_child() {
            // SAFETY: the data is dropped here alone, once, and nothing reads it after this.
            unsafe { ManuallyDrop::drop(&mut self.data) };
        }
    }
}

impl<T> fmt::Debug for Token<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for the reader of a log.
        let state = if self.is_out.load(Ordering::Relaxed) { "out" } else { "in" };
        write!(f, "Token({state})")
    }
}

/// Access to the data of a [`Token`]. Dropping it releases the token.
///
/// The fields are dropped in order: first the access to the data, then the lock.
pub(crate) struct TokenGuard<'a, T> {
    data: CellAccess<T>,
    _give_back: Release<'a>,
    _held: Held,
}

impl<T> Deref for TokenGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the data lives as long as the token, which the guard borrows. The guard has the token, so nobody else has
        // the data, and it stays on one thread, where what is returned borrows it.
        unsafe { &*self.data.as_ptr() }
    }
}

impl<T> DerefMut for TokenGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and what is returned borrows the guard mutably.
        unsafe { &mut *self.data.as_ptr() }
    }
}

struct Release<'a> {
    is_out: &'a AtomicBool,
}

impl Drop for Release<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire in `try_lock`.
        self.is_out.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use core::cell::RefCell;
    use core::panic::AssertUnwindSafe;
    use std::sync::mpsc;

    use super::super::{Arc, AtomicU64, NAPS};
    use super::*;

    thread_local! {
        static WHEN_IT_WAITS: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    /// Runs `body` when this thread next finds a token locked: so a test sees which locks it holds then.
    pub(crate) fn when_it_waits(body: impl FnOnce() + 'static) {
        WHEN_IT_WAITS.set(Some(Box::new(body)));
    }

    pub(super) fn tell_waits() {
        let body = WHEN_IT_WAITS.take();
        body.into_iter().for_each(|body| body());
    }

    static_assertions::assert_impl_all!(Token<core::cell::Cell<u8>>: Send, Sync);
    static_assertions::assert_not_impl_any!(Token<std::rc::Rc<u8>>: Send, Sync);
    static_assertions::assert_not_impl_any!(TokenGuard<'static, u8>: Send, Sync);
    static_assertions::assert_eq_size!(Token<u64>, [u64; 2]);

    #[test]
    fn one_guard_at_a_time() {
        let token = Token::<u32>::default();
        let guard = token.try_lock().expect("nobody has it");
        assert!(token.try_lock().is_none());
        assert_eq!(format!("{token:?}"), "Token(out)");
        drop(guard);
        *token.lock() += 1;
        assert_eq!(token.try_lock().map(|guard| *guard), Some(1));
        assert_eq!(format!("{token:?}"), "Token(in)");
    }

    #[test]
    fn a_guard_that_unwinds_releases() {
        let token = Token::<Vec<u32>>::default();
        let unwound = std::panic::catch_unwind(AssertUnwindSafe(|| {
            token.lock().push(2);
            let _guard = token.lock();
            std::panic::resume_unwind(Box::new("on purpose"));
        }));
        assert!(unwound.is_err());
        assert_eq!(*token.try_lock().expect("it came back"), [2]);
    }

    #[test]
    fn a_child_of_a_fork_leaks_the_data() {
        let data = Arc::new(());
        let mut token = Token::<Option<Arc<()>>>::default();
        *token.lock() = Some(Arc::clone(&data));
        token.made_in = MadeIn::another();
        drop(token);
        assert_eq!(Arc::strong_count(&data), 2, "it is leaked");
        let token = Token::default();
        *token.lock() = Some(Arc::clone(&data));
        drop(token);
        assert_eq!(Arc::strong_count(&data), 2, "this process does not leak it");
    }

    #[test]
    fn no_increment_is_lost() {
        let token = Token::<[u32; 16]>::default();
        let times = 20_000;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope
                    .spawn(|| (0..times).for_each(|_| token.lock().iter_mut().for_each(|count| *count += 1)));
            }
        });
        assert_eq!(*token.lock(), [4 * times; 16]);
    }

    /// A holder of lower priority runs only while all threads above it sleep.
    #[test]
    fn a_long_wait_sleeps() {
        let token = Token::<u32>::default();
        let count = || naps().load(Ordering::Relaxed);
        let naps = |waits: core::ops::Range<u32>| {
            let before = count();
            waits.for_each(|before| token.wait(before));
            count() - before
        };
        let guard = token.lock();
        assert_eq!((naps(0..YIELDS), naps(YIELDS..YIELDS + 3)), (0, 3));
        drop(guard);
        assert_eq!(naps(YIELDS..YIELDS + 3), 0, "it is back");
    }

    /// The number of naps of this thread, for another thread to read.
    fn naps() -> Arc<AtomicU64> {
        NAPS.with(Arc::clone)
    }

    #[test]
    fn a_waiting_thread_gets_the_token_when_it_is_released() {
        let token = Token::<u32>::default();
        let guard = token.lock();
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                sender.send(naps()).expect("the other end waits for it");
                *token.lock()
            });
            let naps = receiver.recv().expect("the thread sends it");
            while naps.load(Ordering::Relaxed) == 0 {
                yield_now();
            }
            let mut guard = guard;
            *guard = 5;
            drop(guard);
            assert_eq!(waiter.join().expect("it does not panic"), 5);
        });
    }
}
