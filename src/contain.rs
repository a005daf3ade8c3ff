//! What is done about functions of the user's: they run with no lock held, their panics end here, and they are not run within
//! themselves.

use core::cell::Cell;
use core::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::LocalKey;

use crate::sync::assert_no_lock_is_held;

/// Runs a function of the user's, or a destructor. `None` if it panicked.
///
/// What the function leaves half done is its own; nothing of the crate's may be in the middle of anything.
pub(crate) fn contain<T>(function: impl FnOnce() -> T) -> Option<T> {
    contain_and_read(function, |_| ()).ok()
}

/// As [`contain`], for who wants to read what it threw.
pub(crate) fn contain_and_read<T, W>(
    function: impl FnOnce() -> T,
    read: impl FnOnce(&(dyn core::any::Any + Send)) -> W,
) -> Result<T, W> {
    assert_no_lock_is_held();
    catch_unwind(AssertUnwindSafe(function)).map_err(|thrown| {
        let read = read(&*thrown);
        // Dropping it runs code of the user's, which may panic in its turn.
        mem::forget(thrown);
        read
    })
}

/// The time in which this thread runs functions of one kind: while it lasts, nobody enters again.
pub(crate) struct Inside(&'static LocalKey<Cell<bool>>);

impl Inside {
    /// `None` if this thread is inside already. Where there is no thread left to speak of, it counts as inside.
    pub(crate) fn enter(kind: &'static LocalKey<Cell<bool>>) -> Option<Self> {
        let was_inside = kind.try_with(|is_inside| is_inside.replace(true)).unwrap_or(true);
        (!was_inside).then_some(Self(kind))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = self.0.try_with(|is_inside| is_inside.set(false));
    }
}
