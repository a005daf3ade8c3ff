//! `Ahead`: the bytes of a block, which another thread reads meanwhile.

use core::fmt;

use super::beside::Lane;
use super::checksum::Checksum;
use crate::error::Error;

/// Buffers that a thread fills with what follows in a block: see [`SavedFile::read_ahead`](super::SavedFile::read_ahead).
pub struct Ahead<'a, B> {
    lane: Lane<'a, B>,
    /// Of the block, what no buffer was given for yet.
    unasked: u64,
    /// What no buffer has come back with.
    left: u64,
    sum: Checksum,
    /// The checksum of the whole block.
    expected: u64,
    /// The file and the block, for errors.
    place: Place<'a>,
}

/// What errors name.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) path: &'a std::path::Path,
    pub(super) name: &'a str,
}

impl Place<'_> {
    pub(super) fn damaged(self) -> Error {
        Error::malformed_file(format!("{}: the contents of {:?} are damaged", self.path.display(), self.name))
    }
}

impl<'a, B: AsMut<[u8]>> Ahead<'a, B> {
    pub(super) fn new(lane: Lane<'a, B>, left: u64, sum: Checksum, expected: u64, place: Place<'a>) -> Self {
        Self { lane, unasked: left, left, sum, expected, place }
    }

    /// Has the next bytes of the block read into a buffer: as many as it has, or as there are. One that nothing is left for is dropped.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a buffer without a byte.
    pub fn give(&mut self, mut buffer: B) -> Result<(), Error> {
        let room = buffer.as_mut().len();
        if room == 0 {
            return Err(Error::invalid_argument(
                "a buffer without a byte",
                "nothing can be read into it",
                "give one of some MiB",
            ));
        }
        let bytes = self.unasked.min(room as u64);
        if bytes > 0 {
            self.unasked -= bytes;
            self.lane.send(buffer, bytes as usize);
        }
        Ok(())
    }

    /// The buffer that was given first, and how many of its bytes are the block's; `None` behind the last ones. Waits until it is full. With
    /// the last bytes the checksum is compared.
    ///
    /// # Errors
    ///
    /// `Unreadable`; `Malformed` if the contents are damaged; `InvalidArgument` if no buffer was given for what follows.
    pub fn take(&mut self) -> Result<Option<(B, usize)>, Error> {
        if self.left > 0 && self.lane.under_way() == 0 {
            return Err(Error::invalid_argument(
                "a wait for a buffer",
                "none was given for what follows in the block",
                "give one before",
            ));
        }
        let full = if self.left == 0 {
            None
        } else {
            let (mut buffer, bytes) = self
                .lane
                .receive()
                .map_err(|error| Error::unreadable_file(self.place.path.display(), &error))?;
            // It had as many when it was read into.
            self.sum.add(buffer.as_mut().get(..bytes).unwrap_or(&[]));
            self.left -= bytes as u64;
            Some((buffer, bytes))
        };
        if self.left == 0 && self.sum.value() != self.expected {
            return Err(self.place.damaged());
        }
        Ok(full)
    }

    /// What is left of the block, and the checksum of what is not.
    pub(super) fn end(self) -> (u64, Checksum) {
        (self.left, self.sum)
    }
}

impl<B> fmt::Debug for Ahead<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ahead({} bytes left, {} buffers are being read)", self.left, self.lane.under_way())
    }
}
