//! What do other processes use?
//!
//! A block that a process shares stays the program's: the library lends it on, and says when nobody has it any more. Memory of another
//! process that is open here is the library's, and is closed with its last handle.

mod begin;
mod figures;
mod lent;
mod message;
mod opened;
mod shared;

pub use begin::*;
pub use figures::*;
pub use lent::SharedHandle;
pub use message::*;
pub use opened::*;
pub use shared::*;

use std::ffi::c_char;
use std::path::PathBuf;

use alluvion::Error;

use crate::text;

/// Refuses bits of `flags` that mean nothing.
fn require_known(flags: u32, known: u32) -> Result<(), Error> {
    if flags & !known == 0 {
        return Ok(());
    }
    Err(Error::invalid_argument(
        "flags",
        "they have a bit that means nothing",
        "pass 0 or the constants of the header",
    ))
}

/// The directory that a program names; `None` for null.
///
/// # Safety
///
/// As [`text::borrow`].
#[expect(unsafe_code, reason = "reads a string of C")]
unsafe fn directory(given: *const c_char) -> Result<Option<PathBuf>, Error> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { text::path(given, "directory") }.map(Some)
}
