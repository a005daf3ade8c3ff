//! Ranges and marks of the calling thread.

#![expect(unsafe_code, reason = "calls the functions that the tool has put into the slots")]

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_void};
use core::marker::PhantomData;
use core::mem::transmute;

use super::abi::{DomainMark, DomainRangePop, DomainRangePush, EventAttributes};
use super::name::printable;
use super::{load, slots};
use crate::sync::assert_no_lock_is_held;

/// A range of this thread, which ends when this is dropped. Ranges of a thread end in the order in which they began, last first: so
/// this stays where it is, in one block of the code.
#[must_use]
#[derive(Debug)]
pub(crate) struct Range {
    /// The tool has been told of the beginning.
    is_told: bool,
    _of_this_thread: PhantomData<*const ()>,
}

thread_local! {
    /// The scopes of this thread that the tool has been told of. No destructor, so it can be read while the thread's other locals are
    /// being dropped.
    static SCOPES: Cell<usize> = const { Cell::new(0) };
}

/// Begins a range with that name, and a number of bytes.
#[inline]
pub(crate) fn range(name: &'static CStr, bytes: usize) -> Range {
    Range { is_told: hears_ranges() && push(name.as_ptr(), Some(bytes as u64)), _of_this_thread: PhantomData }
}

/// Begins a range with a name of the user's, which [`end_scopes`] ends.
pub(crate) fn begin_scope(name: &str) {
    // A name of which nothing is left is still a scope, which ends.
    let name = printable(name).unwrap_or_default();
    if hears_ranges() && push(name.as_ptr(), None) {
        SCOPES.set(SCOPES.get() + 1);
    }
}

/// Ends the last scopes of this thread, so many of them, as far as the tool was told of their beginning: it may have begun later.
pub(crate) fn end_scopes(scopes: usize) {
    for _ in 0..scopes.min(SCOPES.get()) {
        SCOPES.set(SCOPES.get() - 1);
        pop();
    }
}

/// Tells of something that has happened, with a number of bytes.
#[inline]
pub(crate) fn mark(name: &'static CStr, bytes: usize) {
    if hears_ranges() {
        mark_now(name, bytes as u64);
    }
}

/// Returns `true` if a tool wants to hear of ranges.
#[inline]
pub(crate) fn hears_ranges() -> bool {
    load::heard() & load::RANGES != 0
}

#[cold]
fn mark_now(name: &'static CStr, bytes: u64) {
    let Some(call) = function(slots::DOMAIN_MARK) else { return };
    let event = EventAttributes::new(name.as_ptr(), Some(bytes));
    // SAFETY: the tool has put a function of this type into this slot.
    let call = unsafe { transmute::<*mut c_void, DomainMark>(call) };
    // SAFETY: the event and its text live during the call.
    unsafe { call(load::domain(), &raw const event) };
}

/// Returns `true` if the tool has been told.
#[cold]
fn push(name: *const c_char, bytes: Option<u64>) -> bool {
    let Some(call) = function(slots::DOMAIN_RANGE_PUSH) else { return false };
    let event = EventAttributes::new(name, bytes);
    // SAFETY: the tool has put a function of this type into this slot.
    let call = unsafe { transmute::<*mut c_void, DomainRangePush>(call) };
    // SAFETY: the event and its text live during the call.
    unsafe { call(load::domain(), &raw const event) };
    true
}

/// The function in a slot. The tool's code is about to run, so no lock is held.
fn function(number: usize) -> Option<*mut c_void> {
    assert_no_lock_is_held();
    slots::CORE2[number].function()
}

impl Drop for Range {
    #[inline]
    fn drop(&mut self) {
        if self.is_told && hears_ranges() {
            pop();
        }
    }
}

#[cold]
fn pop() {
    let Some(call) = slots::CORE2[slots::DOMAIN_RANGE_POP].function() else { return };
    // SAFETY: the tool has put a function of this type into this slot.
    let call = unsafe { transmute::<*mut c_void, DomainRangePop>(call) };
    // SAFETY: the handle is the tool's.
    unsafe { call(load::domain()) };
}
