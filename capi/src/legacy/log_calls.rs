//! The functions that read the log.

#![expect(unsafe_code, reason = "exports functions, and writes to a buffer of C")]

use std::ffi::c_char;
use std::fs::File;
use std::io::{self, BufWriter, Write};

use alluvion::Error;

use super::answer::{RmmError, call};
use super::{log, state};
use crate::boundary::{self, null};
use crate::text;

/// Writes the log that there is, which may be none.
fn write(to: &mut impl Write) -> io::Result<()> {
    let session = state::present();
    match session.as_ref().and_then(|session| session.log()) {
        Some(log) => log.write(to),
        None => log::write_none(to),
    }
}

/// Writes the log to a file, as CSV. Without a log it is the header row alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmmWriteLog(filename: *const c_char) -> RmmError {
    call(|| {
        // SAFETY: the contract of pointers.
        let path = unsafe { text::path(filename, "filename") }?;
        let written = File::create(&path).and_then(|file| {
            let mut file = BufWriter::new(file);
            write(&mut file)?;
            file.flush()
        });
        written.map_err(|error| Error::unwritable(path.display(), &error).into())
    })
}

/// The bytes of the log as CSV, without an ending 0.
#[unsafe(no_mangle)]
pub extern "C" fn rmmLogSize() -> usize {
    boundary::contained(0, || {
        let mut count = Count(0);
        // A count takes everything.
        let _ = write(&mut count);
        count.0
    })
}

/// Copies the log, but no more than `buffer_size` bytes of it, and writes no ending 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmmGetLog(buffer: *mut c_char, buffer_size: usize) -> RmmError {
    call(|| {
        if buffer_size == 0 {
            return Ok(());
        }
        if buffer.is_null() {
            return Err(null("buffer").into());
        }
        let mut buffer = Buffer { next: buffer.cast(), room: buffer_size };
        match write(&mut buffer) {
            // No room for the rest, which is as asked for.
            Err(error) if buffer.room > 0 => Err(Error::unwritable("a log", &error).into()),
            _ => Ok(()),
        }
    })
}

/// Counts the bytes that are written to it.
struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The caller's buffer, as far as it is empty: `room` writable bytes from `next` on.
struct Buffer {
    next: *mut u8,
    room: usize,
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.room);
        // SAFETY: so many bytes are readable, and writable from `next` on; the text is the library's own, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.next, taken) };
        self.next = self.next.wrapping_add(taken);
        self.room -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
