//! Who holds what C has a pointer to?
//!
//! A handle is one count of an `Arc`. A debug build notices a handle that was released for good and is used again.

#![expect(unsafe_code, reason = "turns pointers into counts and back")]

use std::ops::Deref;
use std::sync::Arc;

use alluvion::Error;

use crate::boundary::null;

/// A type that C has counted pointers to.
pub(crate) trait Handle: Send + Sync + 'static {
    /// The name of the parameter, for errors.
    const NAME: &'static str;
}

/// A value that is counted, at the address of the value.
#[repr(transparent)]
struct Counted<T: Handle>(T);

impl<T: Handle> Drop for Counted<T> {
    fn drop(&mut self) {
        // Before the value goes: its destructor may be foreign code, and its place in memory another handle's afterwards.
        seen::gone(&raw const self.0);
    }
}

/// A count of a handle that the library keeps.
pub(crate) struct Kept<T: Handle>(Arc<Counted<T>>);

impl<T: Handle> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        let handle = Arc::new(Counted(value));
        seen::made(Arc::as_ptr(&handle).cast::<T>());
        Self(handle)
    }

    /// One more count, which is the caller's.
    pub(crate) fn give(&self) -> *mut T {
        Arc::into_raw(Arc::clone(&self.0)).cast_mut().cast::<T>()
    }
}

impl<T: Handle> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.0
    }
}

/// A new handle, with one count that is the caller's.
pub(crate) fn give<T: Handle>(value: T) -> *mut T {
    Arc::into_raw(Kept::new(value).0).cast_mut().cast::<T>()
}

/// Writes a new handle to the caller's place. `value` is made only if there is a place, which is null if it cannot be made.
///
/// # Safety
///
/// `out` is null or writable.
pub(crate) unsafe fn give_to<T: Handle>(
    out: *mut *mut T,
    value: impl FnOnce() -> Result<T, Error>,
) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    unsafe { hand_to(out, || value().map(give)) }
}

/// Writes a count of a handle to the caller's place, as [`give_to`].
///
/// # Safety
///
/// As there.
pub(crate) unsafe fn hand_to<T: Handle>(
    out: *mut *mut T,
    handle: impl FnOnce() -> Result<*mut T, Error>,
) -> Result<(), Error> {
    if out.is_null() {
        return Err(null("out"));
    }
    // SAFETY: not null, so writable.
    unsafe { out.write(std::ptr::null_mut()) };
    let handle = handle()?;
    // SAFETY: as above.
    unsafe { out.write(handle) };
    Ok(())
}

/// What a handle points to, for one call.
///
/// # Safety
///
/// `handle` is null, or has a count that is not released during the call.
#[inline]
pub(crate) unsafe fn lend<'a, T: Handle>(handle: *const T) -> Result<&'a T, Error> {
    if handle.is_null() {
        return Err(null(T::NAME));
    }
    seen::require(handle)?;
    // SAFETY: it has a count, as the caller promises.
    Ok(unsafe { &*handle })
}

/// One more count of a handle; nothing for null.
///
/// # Safety
///
/// As [`lend`].
#[inline]
pub(crate) unsafe fn retain<T: Handle>(handle: *mut T) -> *mut T {
    // SAFETY: the caller's promise.
    if unsafe { lend(handle.cast_const()) }.is_err() {
        return std::ptr::null_mut();
    }
    // SAFETY: it came from `Arc::into_raw` in `give`, and has a count.
    unsafe { Arc::increment_strong_count(handle.cast::<Counted<T>>()) };
    handle
}

/// Takes one count of a handle; nothing for null. The last one drops the value.
///
/// # Safety
///
/// `handle` is null, or has a count that is the caller's.
#[inline]
pub(crate) unsafe fn release<T: Handle>(handle: *mut T) {
    if handle.is_null() || seen::require(handle.cast_const()).is_err() {
        return;
    }
    // SAFETY: it came from `Arc::into_raw` in `give`; the count is the caller's, who gives it up.
    drop(unsafe { Arc::from_raw(handle.cast::<Counted<T>>()) });
}

/// The handles that are alive, in a build that looks for mistakes.
#[cfg(debug_assertions)]
mod seen {
    use std::collections::HashMap;
    use std::sync::{Mutex, PoisonError};

    use super::{Error, Handle};
    use crate::origin::Origin;

    static ALIVE: Mutex<Option<HashMap<usize, &'static str>>> = Mutex::new(None);
    static ORIGIN: Origin = Origin::new();

    /// `None` in a child of the process that made the first handle.
    fn with<T>(body: impl FnOnce(&mut HashMap<usize, &'static str>) -> T) -> Option<T> {
        if !ORIGIN.is_here() {
            return None;
        }
        let mut alive = ALIVE.lock().unwrap_or_else(PoisonError::into_inner);
        Some(body(alive.get_or_insert_default()))
    }

    pub(super) fn made<T: Handle>(handle: *const T) {
        with(|alive| alive.insert(handle.addr(), T::NAME));
    }

    pub(super) fn gone<T: Handle>(handle: *const T) {
        with(|alive| alive.remove(&handle.addr()));
    }

    pub(super) fn require<T: Handle>(handle: *const T) -> Result<(), Error> {
        if with(|alive| alive.get(&handle.addr()) == Some(&T::NAME)).unwrap_or(true) {
            return Ok(());
        }
        Err(Error::invalid_argument(
            T::NAME,
            "it was released, or never was such a handle",
            "retain what you keep",
        ))
    }
}

#[cfg(not(debug_assertions))]
mod seen {
    use super::{Error, Handle};

    pub(super) fn made<T: Handle>(_: *const T) {}

    pub(super) fn gone<T: Handle>(_: *const T) {}

    #[inline]
    #[expect(clippy::unnecessary_wraps, reason = "a build that looks for mistakes may refuse")]
    pub(super) fn require<T: Handle>(_: *const T) -> Result<(), Error> {
        Ok(())
    }
}
