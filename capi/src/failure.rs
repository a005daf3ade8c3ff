//! Which failure does a thread remember?

#![expect(unsafe_code, reason = "reads the name of a status as C has it")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::io::Write as _;

use alluvion::{Error, ErrorKind};

use crate::status::{ALV_OF_PROGRAM, ALV_PANIC, Status, alv_status_name, of_kind};

/// The failure of a call. Its text is made when it is asked for: a failed request costs no formatting.
#[derive(Clone)]
pub(crate) enum Failure {
    Error(Error),
    Panic(Box<str>),
}

impl Failure {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Error(error) => of_kind(error.kind()),
            Self::Panic(_) => ALV_PANIC,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Error(error) => error.to_string(),
            Self::Panic(said) => format!("panic: {said}"),
        }
    }
}

/// A status that a function of the program's has answered.
#[derive(Debug)]
pub(crate) struct FromProgram(pub(crate) Status);

impl FromProgram {
    /// The one that an error was made of.
    pub(crate) fn of(error: &Error) -> Option<Status> {
        error.foreign_error()?.downcast_ref::<Self>().map(|answered| answered.0)
    }
}

impl std::fmt::Display for FromProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 >= ALV_OF_PROGRAM {
            return write!(f, "a function of the program has failed (its number {})", self.0);
        }
        // SAFETY: static text that ends in 0.
        let name = unsafe { CStr::from_ptr(alv_status_name(self.0)) };
        write!(f, "a function of the program answered {} ({})", self.0, name.to_string_lossy())
    }
}

impl std::error::Error for FromProgram {}

struct Last {
    failure: Failure,
    message: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Keeps an error as the last one of this thread, and answers its status.
#[cold]
pub(crate) fn keep(error: Error) -> Status {
    replace(Failure::Error(error))
}

/// Keeps the error of a function that answers no status. A library that looks for mistakes writes a line about it: nobody asks for
/// the failure of a call that cannot fail. What comes of the end of the process, or of a fork, is no mistake.
#[cold]
pub(crate) fn keep_unanswered(function: &str, error: Error) {
    if cfg!(debug_assertions) && error.kind() != ErrorKind::ShutDown {
        let line = format!("alluvion: {function}: {error}\n");
        // Not `eprintln!`, which panics where there is no standard error. In one piece, beside the lines of other threads.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    keep(error);
}

/// Keeps a panic as the last failure of this thread.
#[cold]
pub(crate) fn keep_panic(said: &str) -> Status {
    replace(Failure::Panic(said.into()))
}

fn replace(failure: Failure) -> Status {
    let status = failure.status();
    let last = Some(Last { failure, message: None });
    // A thread that is ending keeps nothing. The one before is dropped while nothing is borrowed: it may hold an error of other
    // code.
    if let Ok(before) = LAST.try_with(|place| place.replace(last)) {
        drop(before);
    }
    status
}

/// The last failure of this thread.
pub(crate) fn last() -> Option<Failure> {
    LAST.try_with(|place| place.borrow().as_ref().map(|last| last.failure.clone())).ok().flatten()
}

/// The text of this thread's last failure: valid until the next one, and static where there is none.
pub(crate) fn message() -> *const c_char {
    let kept = |place: &RefCell<Option<Last>>| {
        let place = place.borrow();
        place.as_ref().map(|last| last.message.as_ref().map(|message| message.as_ptr()))
    };
    match LAST.try_with(kept) {
        Err(_) => c"the thread is ending, and keeps no message".as_ptr(),
        Ok(None) => c"".as_ptr(),
        Ok(Some(Some(message))) => message,
        Ok(Some(None)) => make_message(),
    }
}

/// Makes the text of the last failure while nothing is borrowed: an error of other code writes itself.
fn make_message() -> *const c_char {
    let Some(failure) = last() else { return c"".as_ptr() };
    let mut text = failure.text().into_bytes();
    text.retain(|&byte| byte != 0);
    let message = CString::new(text).unwrap_or_default();
    let stored = LAST.try_with(|place| {
        let mut place = place.borrow_mut();
        let last = place.as_mut()?;
        Some(last.message.insert(message).as_ptr())
    });
    stored.ok().flatten().unwrap_or(c"".as_ptr())
}
