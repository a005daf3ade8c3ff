//! `Held`: counts the locks of the crate that a thread holds, so that tests notice foreign code that runs under one.

#[cfg(all(debug_assertions, not(loom)))]
use core::cell::Cell;

#[cfg(all(debug_assertions, not(loom)))]
thread_local! {
    // No destructor, so it can be changed while the thread's other locals are being dropped.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// One lock that this thread holds. Counted only in builds with debug assertions, and not under loom, whose threads are one thread
/// of the system.
#[derive(Debug)]
pub(super) struct Held(());

impl Held {
    #[inline]
    pub(super) fn begin() -> Self {
        #[cfg(all(debug_assertions, not(loom)))]
        COUNT.set(COUNT.get() + 1);
        Self(())
    }
}

#[cfg(all(debug_assertions, not(loom)))]
impl Drop for Held {
    fn drop(&mut self) {
        COUNT.set(COUNT.get() - 1);
    }
}

/// The number of locks that this thread holds; `None` where they are not counted.
pub(crate) fn locks_held() -> Option<usize> {
    #[cfg(all(debug_assertions, not(loom)))]
    return Some(COUNT.get());
    #[cfg(not(all(debug_assertions, not(loom))))]
    None
}

/// Asserts that this thread holds no lock. To be called before foreign code runs: that may ask for any lock, may panic, and may
/// never return.
///
/// # Panics
///
/// If this thread holds a lock, in builds with debug assertions.
#[inline]
#[track_caller]
pub(crate) fn assert_no_lock_is_held() {
    debug_assert!(
        locks_held().is_none_or(|count| count == 0),
        "code that is not the crate's runs under {} of its locks",
        locks_held().unwrap_or_default()
    );
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Mutex, Token};
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    fn each_lock_counts_while_it_is_held() {
        let (mutex, token) = (Mutex::new(1), Token::<u8>::default());
        assert_eq!(locks_held(), Some(0));
        let first = mutex.lock();
        let second = token.lock();
        assert_eq!(locks_held(), Some(2));
        let elsewhere = std::thread::spawn(locks_held).join().expect("it does not panic");
        assert_eq!(elsewhere, Some(0));
        drop(first);
        assert!(token.try_lock().is_none() && locks_held() == Some(1));
        drop(second);
        assert_eq!(locks_held(), Some(0));
        let lent = mutex.lock_around_foreign_code();
        assert_eq!((*lent, locks_held()), (1, Some(0)));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "runs under 1 of its locks")]
    fn foreign_code_under_a_lock_is_found() {
        let mutex = Mutex::new(());
        let _guard = mutex.lock();
        assert_no_lock_is_held();
    }

    /// The formatter may be foreign code, which may ask for the lock.
    #[test]
    fn debug_does_not_show_the_data_under_a_lock() {
        assert_eq!(format!("{:?}", Mutex::new(7)), "Mutex");
    }
}
