//! `Behind`: the bytes of a block, which another thread writes meanwhile.

use core::fmt;
use std::io;

use super::beside::Lane;
use super::checksum::Checksum;
use crate::error::Error;

/// The buffers that may wait to be written. With one that is being copied to and one that is full they are four, 16 MiB of 4 MiB each.
const WAITING: usize = 2;

/// Buffers whose bytes a thread writes behind each other: see [`Saver::write_behind`](super::Saver::write_behind).
pub struct Behind<'a, B> {
    lane: Lane<'a, B>,
    left: u64,
    sum: Checksum,
    /// Says of what file an error is.
    unwritable: &'a dyn Fn(&io::Error) -> Error,
}

impl<'a, B: AsRef<[u8]>> Behind<'a, B> {
    pub(super) fn new(
        lane: Lane<'a, B>,
        left: u64,
        sum: Checksum,
        unwritable: &'a dyn Fn(&io::Error) -> Error,
    ) -> Self {
        Self { lane, left, sum, unwritable }
    }

    /// Has the first bytes of a buffer written, as the next ones of the block. Returns a buffer that was written, as soon as two others wait.
    ///
    /// # Errors
    ///
    /// `LengthMismatch` for more than the block was begun with, or than the buffer has; `Unwritable`, which may be of a buffer before.
    pub fn write(&mut self, buffer: B, bytes: usize) -> Result<Option<B>, Error> {
        let has = buffer.as_ref().len();
        let Some(part) = buffer.as_ref().get(..bytes) else { return Err(Error::length_mismatch(has, bytes)) };
        if bytes as u64 > self.left {
            return Err(Error::length_mismatch(self.left as usize, bytes));
        }
        self.sum.add(part);
        self.left -= bytes as u64;
        self.lane.send(buffer, bytes);
        if self.lane.under_way() <= WAITING { Ok(None) } else { self.written().map(Some) }
    }

    /// Waits until all is written. What is left of the block, and the checksum of what is not.
    pub(super) fn end(mut self) -> Result<(u64, Checksum), Error> {
        while self.lane.under_way() > 0 {
            self.written()?;
        }
        Ok((self.left, self.sum))
    }

    fn written(&mut self) -> Result<B, Error> {
        self.lane.receive().map(|(buffer, _)| buffer).map_err(|error| (self.unwritable)(&error))
    }
}

impl<B> fmt::Debug for Behind<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Behind({} bytes left, {} buffers are being written)", self.left, self.lane.under_way())
    }
}
