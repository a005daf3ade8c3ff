//! How foreign functions are called: with no lock held, with their panics caught, and not within
//! themselves.

use core::cell::Cell;
use core::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::LocalKey;

use crate::sync::assert_no_lock_is_held;

/// Runs a foreign function, or a destructor. `None` if it panicked.
///
/// The crate's own data must be consistent when this is called.
pub(crate) fn contain<T>(function: impl FnOnce() -> T) -> Option<T> {
    contain_and_read(function, |_| ()).ok()
}

/// As [`contain`], and reads the payload of the panic.
pub(crate) fn contain_and_read<T, W>(
    function: impl FnOnce() -> T,
    read: impl FnOnce(&(dyn core::any::Any + Send)) -> W,
) -> Result<T, W> {
    assert_no_lock_is_held();
    catch_unwind(AssertUnwindSafe(function)).map_err(|thrown| {
        let read = read(&*thrown);
        // Dropping the payload runs foreign code, which may panic in its turn.
        mem::forget(thrown);
        read
    })
}

/// Marks that this thread runs functions of one kind. While it lives, `enter` fails.
pub(crate) struct Inside(&'static LocalKey<Cell<bool>>);

impl Inside {
    /// `None` if this thread is inside already, or has dropped its locals.
    pub(crate) fn enter(kind: &'static LocalKey<Cell<bool>>) -> Option<Self> {
        let was_inside = kind.try_with(|is_inside| is_inside.replace(true)).unwrap_or(true);
        // Lazily: an `Inside` that is made and dropped would clear the mark.
        (!was_inside).then(|| Self(kind))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = self.0.try_with(|is_inside| is_inside.set(false));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    thread_local! {
        static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn a_thread_enters_once_however_often_it_tries() {
        let outer = Inside::enter(&IS_INSIDE).expect("nobody is inside");
        for _ in 0..3 {
            assert!(Inside::enter(&IS_INSIDE).is_none());
        }
        drop(outer);
        assert!(Inside::enter(&IS_INSIDE).is_some());
        assert!(!IS_INSIDE.get());
    }

    #[test]
    fn what_was_thrown_is_read_and_not_dropped() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                unreachable!("it is somebody else's");
            }
        }
        let throw = || std::panic::resume_unwind(Box::new(Bomb));
        assert_eq!(contain_and_read(throw, |thrown| thrown.is::<Bomb>()), Err(true));
        assert_eq!((contain(|| 7), contain(throw)), (Some(7), None::<()>));
    }
}
