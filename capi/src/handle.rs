//! Who holds what C has a pointer to?
//!
//! A handle is one count of an `Arc`. A debug build notices a handle that was released for good and is used again, and says so
//! also where a function answers no status.

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
        seen::made(&handle);
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

/// As [`lend`], for a function whose text allows null.
///
/// # Safety
///
/// As there.
pub(crate) unsafe fn lend_or_null<'a, T: Handle>(handle: *const T) -> Result<Option<&'a T>, Error> {
    if handle.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { lend(handle) }.map(Some)
}

/// One more count of a handle; nothing for null.
///
/// # Safety
///
/// As [`lend`].
#[inline]
pub(crate) unsafe fn retain<T: Handle>(handle: *mut T) -> Result<*mut T, Error> {
    if !handle.is_null() {
        seen::require(handle.cast_const())?;
        // SAFETY: it came from `Arc::into_raw` in `give`, and has a count.
        unsafe { Arc::increment_strong_count(handle.cast::<Counted<T>>()) };
    }
    Ok(handle)
}

/// Takes one count of a handle; nothing for null. The last one drops the value.
///
/// # Safety
///
/// `handle` is null, or has a count that is the caller's.
#[inline]
pub(crate) unsafe fn release<T: Handle>(handle: *mut T) -> Result<(), Error> {
    if !handle.is_null() {
        seen::require(handle.cast_const())?;
        // SAFETY: it came from `Arc::into_raw` in `give`; the count is the caller's, who gives it up.
        drop(unsafe { Arc::from_raw(handle.cast::<Counted<T>>()) });
    }
    Ok(())
}

/// The same for the bodies of exported functions, which return the error: what C passes keeps the contract of pointers.
pub(crate) mod by_contract {
    macro_rules! lend {
        ($handle:expr) => {{
            let handle = $handle;
            // SAFETY: the contract of pointers.
            unsafe { $crate::handle::lend(handle) }?
        }};
    }

    macro_rules! lend_or_null {
        ($handle:expr) => {{
            let handle = $handle;
            // SAFETY: the contract of pointers.
            unsafe { $crate::handle::lend_or_null(handle) }?
        }};
    }

    macro_rules! give_to {
        ($out:expr, $make:expr) => {{
            let (out, make) = ($out, $make);
            // SAFETY: the contract of pointers.
            unsafe { $crate::handle::give_to(out, make) }
        }};
    }

    pub(crate) use {give_to, lend, lend_or_null};
}

/// The handles that are alive, and those that went last, in a build that looks for mistakes.
#[cfg(debug_assertions)]
mod seen {
    use std::any::Any;
    use std::collections::{HashMap, VecDeque};
    use std::sync::{Arc, Mutex, PoisonError, Weak};

    use super::{Counted, Error, Handle};
    use crate::origin::Origin;

    /// So many handles that have gone keep their addresses, so that none is taken for a newer one: some 10 MB at most.
    const GONE: usize = 1 << 16;

    static HANDLES: Mutex<Option<Handles>> = Mutex::new(None);
    static ORIGIN: Origin = Origin::new();

    #[derive(Default)]
    struct Handles {
        places: HashMap<usize, Place>,
        /// The places of those that have gone, the oldest first.
        gone: VecDeque<usize>,
    }

    struct Place {
        name: &'static str,
        is_alive: bool,
        /// No other handle gets the address while this is held.
        _memory: Weak<dyn Any + Send + Sync>,
    }

    /// `None` in a child of the process that made the first handle.
    fn with<T>(body: impl FnOnce(&mut Handles) -> T) -> Option<T> {
        if !ORIGIN.is_here() {
            return None;
        }
        let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
        Some(body(handles.get_or_insert_default()))
    }

    pub(super) fn made<T: Handle>(handle: &Arc<Counted<T>>) {
        let place = Place { name: T::NAME, is_alive: true, _memory: Arc::downgrade(handle) as _ };
        with(|handles| handles.places.insert(Arc::as_ptr(handle).addr(), place));
    }

    pub(super) fn gone<T: Handle>(handle: *const T) {
        with(|handles| {
            if let Some(place) = handles.places.get_mut(&handle.addr()) {
                place.is_alive = false;
                handles.gone.push_back(handle.addr());
            }
            if handles.gone.len() > GONE
                && let Some(oldest) = handles.gone.pop_front()
            {
                // Its value has gone, or is going on another thread, which holds the memory until then: nothing foreign runs here.
                handles.places.remove(&oldest);
            }
        });
    }

    pub(super) fn require<T: Handle>(handle: *const T) -> Result<(), Error> {
        let found =
            with(|handles| handles.places.get(&handle.addr()).map(|place| (place.name, place.is_alive)));
        let Some(found) = found else { return Ok(()) };
        let (why, instead) = match found {
            Some((name, true)) if name == T::NAME => return Ok(()),
            Some((name, false)) if name == T::NAME => {
                ("it was released for good before", "retain what you keep")
            }
            Some(_) => ("it is a handle of another kind", "pass what a function for this kind gave"),
            None => ("it is no handle, or was released long ago", "pass what a function of the library gave"),
        };
        Err(Error::invalid_argument(T::NAME, why, instead))
    }
}

#[cfg(not(debug_assertions))]
mod seen {
    use std::sync::Arc;

    use super::{Counted, Error, Handle};

    pub(super) fn made<T: Handle>(_: &Arc<Counted<T>>) {}

    pub(super) fn gone<T: Handle>(_: *const T) {}

    #[inline]
    #[expect(clippy::unnecessary_wraps, reason = "a build that looks for mistakes may refuse")]
    pub(super) fn require<T: Handle>(_: *const T) -> Result<(), Error> {
        Ok(())
    }
}
