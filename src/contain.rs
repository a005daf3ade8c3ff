//! What is done about functions of the user's: their panics end here, and they are not run within themselves.

use core::cell::Cell;
use core::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::LocalKey;

/// Runs a function of the user's. `None` if it panicked.
///
/// What the function leaves half done is its own; nothing of the crate's may be in the middle of anything.
pub(crate) fn contain<T>(function: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(answer) => Some(answer),
        Err(thrown) => {
            // Dropping it runs code of the user's, which may panic in its turn.
            mem::forget(thrown);
            None
        }
    }
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
