//! How do strings come in and go out?

#![expect(unsafe_code, reason = "reads strings of C, and calls a function of C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::path::PathBuf;

use alluvion::Error;

use crate::boundary::null;

/// A function that takes a long text in pieces. It answers 0, or another number to stop. It must not throw.
pub type Write = Option<unsafe extern "C" fn(user: *mut c_void, bytes: *const c_char, n: usize) -> c_int>;

/// A string of C, borrowed for the call.
///
/// # Safety
///
/// `text` is null, or ends in 0 and stays as it is during the call.
pub(crate) unsafe fn borrow<'a>(text: *const c_char, what: &'static str) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, so it ends in 0, as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::invalid_argument(what, "it is not UTF-8", "pass UTF-8"))
}

/// The path that a string of C names. A path need not be UTF-8.
///
/// # Safety
///
/// As [`borrow`].
pub(crate) unsafe fn path(text: *const c_char, what: &'static str) -> Result<PathBuf, Error> {
    use std::os::unix::ffi::OsStrExt as _;
    if text.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, so it ends in 0, as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    if text.is_empty() {
        return Err(Error::invalid_argument(what, "it is empty", "name a file"));
    }
    Ok(std::ffi::OsStr::from_bytes(text.to_bytes()).into())
}

/// Copies a text into a buffer of the caller's, ended by 0 and cut where there is no room.
///
/// # Safety
///
/// `buffer` is null, or has `room` writable bytes; `needed` is null or writable.
pub(crate) unsafe fn copy_out(
    text: &str,
    buffer: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> Result<(), Error> {
    if !needed.is_null() {
        // SAFETY: not null, so writable.
        unsafe { needed.write(text.len()) };
    }
    if room == 0 {
        return Ok(());
    }
    if buffer.is_null() {
        return Err(Error::invalid_argument(
            "buffer",
            "it is null, though `room` is not 0",
            "pass a buffer, or no room",
        ));
    }
    let mut end = text.len().min(room - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: `end` is less than `room`, and the text is the library's own.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, end) };
    // SAFETY: `end` is less than `room`.
    unsafe { buffer.wrapping_add(end).write(0) };
    Ok(())
}

/// The caller's function, as a place to write to.
pub(crate) struct Writer {
    write: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> c_int,
    user: *mut c_void,
}

impl Writer {
    /// # Safety
    ///
    /// `write` may be called with `user` until the writer is dropped.
    pub(crate) unsafe fn new(write: Write, user: *mut c_void) -> Result<Self, Error> {
        let write = write.ok_or_else(|| null("write"))?;
        Ok(Self { write, user })
    }
}

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        // SAFETY: the maker's promise. The bytes are borrowed for the call.
        let stop = unsafe { (self.write)(self.user, bytes.as_ptr().cast(), bytes.len()) };
        if stop == 0 {
            Ok(bytes.len())
        } else {
            Err(io::Error::other(format!("the function that writes answered {stop}")))
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
