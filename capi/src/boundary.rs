//! What may cross between C and Rust?
//!
//! No panic: a body that panics is a call that answers `ALV_PANIC`.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use alluvion::Error;

use crate::failure;
use crate::status::{ALV_OK, Status};

/// Runs the body of a function that answers a status. An error and a panic are kept for `alv_last_error`.
#[inline]
pub(crate) fn call(body: impl FnOnce() -> Result<(), Error>) -> Status {
    // The state of the library is consistent when foreign code runs, and behind locks that are not poisoned otherwise.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => ALV_OK,
        Ok(Err(error)) => failure::keep(error),
        Err(thrown) => failure::keep_panic(&said(thrown)),
    }
}

/// Runs the body of a function that cannot fail. A panic ends the body, and `otherwise` is the answer.
#[inline]
pub(crate) fn contained<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|thrown| {
        failure::keep_panic(&said(thrown));
        otherwise
    })
}

/// Runs the body of a function that answers no status: `otherwise` is its answer to a mistake of the caller, which is kept for
/// `alv_last_error`, and written to the standard error stream by a library that looks for mistakes.
#[inline]
pub(crate) fn unanswered<T>(
    function: &'static str,
    otherwise: T,
    body: impl FnOnce() -> Result<T, Error>,
) -> T {
    let answer = contained(None, || match body() {
        Ok(answer) => Some(answer),
        Err(error) => {
            failure::keep_unanswered(function, error);
            None
        }
    });
    answer.unwrap_or(otherwise)
}

/// The message of a panic.
fn said(thrown: Box<dyn Any + Send>) -> String {
    let text = match (thrown.downcast_ref::<&str>(), thrown.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a message".to_owned(),
    };
    // Dropping the payload runs foreign code, which may panic in its turn.
    mem::forget(thrown);
    text
}

/// That a pointer which must not be null is.
#[cold]
pub(crate) fn null(what: &'static str) -> Error {
    Error::invalid_argument(what, "it is null", "pass a pointer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{ALV_PANIC, ALV_SIZE_OVERFLOW};

    #[test]
    fn an_error_and_a_panic_are_statuses() {
        assert_eq!(call(|| Ok(())), ALV_OK);
        assert_eq!(call(|| Err(Error::size_overflow(7, 8))), ALV_SIZE_OVERFLOW);
        assert_eq!(call(|| std::panic::resume_unwind(Box::new("thrown"))), ALV_PANIC);
        assert_eq!(contained(7, || std::panic::resume_unwind(Box::new(1_u8))), 7);
    }
}
