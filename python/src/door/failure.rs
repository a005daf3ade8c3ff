//! Which failure does a thread remember?

use core::any::Any;
use core::cell::RefCell;
use core::ffi::{CStr, c_char};
use core::panic::AssertUnwindSafe;
use std::ffi::CString;
use std::panic::catch_unwind;

use alluvion::Error;

use super::status::{self, Status};
use crate::error::tell_raised;

/// The last failure of a thread.
struct Last {
    failure: Failure,
    status: Status,
    /// What was asked for; 0 if that is not what failed.
    requested: usize,
    /// Made when it is asked for: a failed request costs no formatting.
    message: Option<CString>,
}

enum Failure {
    /// An error, and what a function of Python's has raised in that request.
    Error(Error, Option<String>),
    Panic(String),
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Runs the body of a function that answers a status. An error and a panic are kept for `last_error_message`.
#[inline]
pub(super) fn call(body: impl FnOnce() -> Result<(), Error>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => status::OK,
        Ok(Err(error)) => keep(error),
        Err(thrown) => keep_panic(thrown),
    }
}

/// Runs the body of a function that answers something else: `otherwise` where the body panics.
#[inline]
pub(super) fn contained<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|thrown| {
        keep_panic(thrown);
        otherwise
    })
}

/// That a pointer which must not be null is.
#[cold]
pub(super) fn null(what: &'static str) -> Error {
    Error::invalid_argument(what, "it is null", "pass a pointer")
}

#[cold]
fn keep(error: Error) -> Status {
    // What a function of Python's has raised is the cause of no exception here, nor of the thread's next one in Python: it is told.
    let raised = catch_unwind(tell_raised).unwrap_or(None);
    let (status, requested) = (status::of_kind(error.kind()), error.requested_bytes().unwrap_or(0));
    replace(Last { failure: Failure::Error(error, raised), status, requested, message: None })
}

#[cold]
fn keep_panic(thrown: Box<dyn Any + Send>) -> Status {
    let said = match (thrown.downcast_ref::<&str>(), thrown.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "without a message".to_owned(),
    };
    // Dropping it runs foreign code, which may panic in its turn.
    core::mem::forget(thrown);
    replace(Last { failure: Failure::Panic(said), status: status::PANIC, requested: 0, message: None })
}

fn replace(last: Last) -> Status {
    let status = last.status;
    // A thread that is ending keeps nothing. The one before is dropped while nothing is borrowed.
    if let Ok(before) = LAST.try_with(|place| place.replace(Some(last))) {
        drop(before);
    }
    status
}

/// The status of this thread's last failure, and the bytes that it had asked for.
pub(super) fn last() -> (Status, usize) {
    let facts = |place: &RefCell<Option<Last>>| {
        place.borrow().as_ref().map_or((status::OK, 0), |last| (last.status, last.requested))
    };
    LAST.try_with(facts).unwrap_or((status::OK, 0))
}

/// The text of this thread's last failure: valid until the next one, and static where there is none.
pub(super) fn message() -> *const c_char {
    const NONE: &CStr = c"";
    let text = LAST.try_with(|place| {
        // An error writes itself without a call of ours, so that the place may stay borrowed.
        let mut place = place.borrow_mut();
        let Some(last) = place.as_mut() else { return NONE.as_ptr() };
        let failure = &last.failure;
        last.message
            .get_or_insert_with(|| {
                let mut text = match failure {
                    Failure::Error(error, None) => error.to_string(),
                    Failure::Error(error, Some(raised)) => {
                        format!("{error}; a function of the stack has raised {raised}")
                    }
                    Failure::Panic(said) => format!("panic: {said}"),
                }
                .into_bytes();
                text.retain(|&byte| byte != 0);
                CString::new(text).unwrap_or_default()
            })
            .as_ptr()
    });
    text.unwrap_or(c"the thread is ending, and keeps no message".as_ptr())
}
