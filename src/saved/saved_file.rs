//! `SavedFile`: reads blocks from a file.

#![expect(unsafe_code, reason = "writes to blocks that callers name by their addresses")]

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::ahead::{Ahead, Place};
use super::beside::beside;
use super::checksum::Checksum;
use super::format::{HEADER_BYTES, Header, Row, decode_table, require_sum};
use super::through_host::upload;
use crate::container::{DeviceCopy, DeviceSliceMut, Lent};
use crate::error::Error;
use crate::host::PinnedAlloc;
use crate::stream::{OnStream, StreamRef};

/// Blocks that a [`Saver`](super::Saver) has written, on this machine or another one.
#[derive(Debug)]
pub struct SavedFile {
    file: File,
    path: PathBuf,
    rows: Vec<Row>,
    open: Option<ReadBlock>,
}

/// How much is read and then summed: what was just read is in the caches of the processor.
const PART: usize = 256 << 10;

/// The block that is being read.
#[derive(Debug)]
struct ReadBlock {
    row: usize,
    left: u64,
    sum: Checksum,
}

impl SavedFile {
    /// Opens a file, and reads the table of its blocks.
    ///
    /// # Errors
    ///
    /// `Unreadable`, with the words of the system; `Malformed` for a file that was cut short, is damaged, or is no such file: it says
    /// which.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let unreadable = |error: io::Error| Error::unreadable_file(path.display(), &error);
        // Before it is opened: to open a pipe waits for somebody who writes to it.
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            let why = "what is there is no file: a folder, a device, a pipe or a socket has no saved blocks";
            return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        Self::of_file(File::open(path).map_err(unreadable)?, path.to_owned())
    }

    /// As [`open`](Self::open), of a file that is open; the path is for errors.
    pub(super) fn of_file(mut file: File, path: PathBuf) -> Result<Self, Error> {
        let unreadable = |error: io::Error| Error::unreadable_file(path.display(), &error);
        file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        let file_bytes = file.metadata().map_err(unreadable)?.len();
        let malformed = |why: String| Error::malformed_file(format!("{}: {why}", path.display()));
        if file_bytes < HEADER_BYTES as u64 {
            return Err(malformed(format!("{file_bytes} bytes are less than the header of such a file")));
        }
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header).map_err(unreadable)?;
        let header = Header::decode(&header, file_bytes).map_err(malformed)?;
        // Summed before memory is taken for it: the length of a damaged file may be anything, and its holes cost no disk.
        let sum = sum_of(&mut file, header).map_err(unreadable)?;
        require_sum(sum, header).map_err(malformed)?;
        file.seek(SeekFrom::Start(header.table)).map_err(unreadable)?;
        let mut table = Vec::new();
        (&file).take(header.table_bytes).read_to_end(&mut table).map_err(unreadable)?;
        let rows = decode_table(&table, header).map_err(malformed)?;
        Ok(Self { file, path, rows, open: None })
    }

    /// The names of the blocks and their bytes, in the order in which they were saved.
    #[must_use]
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        self.rows.iter().map(|row| (&*row.name, row.bytes))
    }

    /// The bytes of a block; `None` if there is none of that name.
    #[must_use]
    pub fn bytes_of(&self, name: &str) -> Option<u64> {
        self.rows.iter().find(|row| row.name == name).map(|row| row.bytes)
    }

    /// Reads a block into a container of the same length. Waits until it is there. A thread of its own reads, into 16 MiB of pinned memory, while
    /// what it has read is checked and copied.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a name that the file has not; `LengthMismatch`; `Unreadable`; `Malformed` for contents that are damaged;
    /// as the driver says. What the container has is arbitrary then, but for the first two.
    pub fn restore<'s, T: DeviceCopy>(
        &mut self,
        name: &str,
        into: DeviceSliceMut<'_, T>,
        stream: impl OnStream<'s>,
    ) -> Result<(), Error> {
        self.restore_through(name, into.cast_mut()?, stream.stream_ref(), None)
    }

    /// As [`restore`](Self::restore), into a block that is known by its address, behind what `stream` does, by way of this
    /// pinned memory, or of its own.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// The block has so many bytes, on the device of the stream, and nothing uses or frees them until the call returns. If that is an error of
    /// which nobody can say whether the device has stopped, never.
    #[doc(hidden)]
    pub unsafe fn restore_block<'s>(
        &mut self,
        name: &str,
        block: u64,
        bytes: usize,
        stream: impl OnStream<'s>,
        pinned: Option<PinnedAlloc>,
    ) -> Result<(), Error> {
        let stream = stream.stream_ref();
        // SAFETY: the caller's promises.
        let mut block = unsafe { Lent::new(block, bytes, stream) }?;
        self.restore_through(name, block.as_mut_slice(), stream, pinned)
    }

    fn restore_through(
        &mut self,
        name: &str,
        into: DeviceSliceMut<'_, u8>,
        stream: StreamRef<'_>,
        pinned: Option<PinnedAlloc>,
    ) -> Result<(), Error> {
        let bytes = self.begin(name)?;
        if into.len() as u64 != bytes {
            return Err(Error::length_mismatch(into.len(), usize::try_from(bytes).unwrap_or(usize::MAX)));
        }
        upload(into, stream, pinned, self)
    }

    /// Begins to read a block, which [`read`](Self::read) gives. Returns its bytes.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a name that the file has not; `Unreadable`.
    pub fn begin(&mut self, name: &str) -> Result<u64, Error> {
        self.open = None;
        let Some((row, of)) = self.rows.iter().enumerate().find(|(_, row)| row.name == name) else {
            return Err(Error::invalid_argument_that(format!(
                "the name {name:?}: {} has no block of that name; `SavedFile::blocks` says which it has",
                self.path.display()
            )));
        };
        let bytes = of.bytes;
        self.file.seek(SeekFrom::Start(of.offset)).map_err(|error| self.unreadable(&error))?;
        self.open = Some(ReadBlock { row, left: bytes, sum: Checksum::default() });
        Ok(bytes)
    }

    /// The next bytes of the block that was begun. With the last ones the checksum is compared.
    ///
    /// # Errors
    ///
    /// `LengthMismatch` for more than are left; `Unreadable`; `Malformed` if the contents are damaged. The block is to be begun again
    /// then.
    pub fn read(&mut self, into: &mut [u8]) -> Result<(), Error> {
        let left = self.open.as_ref().map_or(0, |open| open.left);
        let Some(mut open) = self.open.take().filter(|_| into.len() as u64 <= left) else {
            return Err(Error::length_mismatch(into.len(), left as usize));
        };
        for part in into.chunks_mut(PART) {
            self.file.read_exact(part).map_err(|error| self.unreadable(&error))?;
            open.sum.add(part);
        }
        open.left -= into.len() as u64;
        let row = &self.rows[open.row];
        if open.left == 0 && open.sum.value() != row.sum {
            return Err(Place { path: &self.path, name: &row.name }.damaged());
        }
        self.open = Some(open);
        Ok(())
    }

    /// Reads the block that was begun, or what is left of it, on a thread of its own. `with` gives it buffers to fill, and takes them when they
    /// are full: while it uses one, the next ones are read. If `with` has not taken all, the block is to be begun again.
    ///
    /// ```
    /// use alluvion::saved::{SavedFile, Saver};
    ///
    /// let path = std::env::temp_dir().join(format!("alluvion-ahead-{}", std::process::id()));
    /// let mut saver = Saver::create(&path)?;
    /// saver.begin("numbers", 10)?;
    /// saver.write(b"0123456789")?;
    /// saver.finish()?;
    ///
    /// let mut saved = SavedFile::open(&path)?;
    /// saved.begin("numbers")?;
    /// let mut read = Vec::new();
    /// saved.read_ahead(|ahead| {
    ///     ahead.give(vec![0; 4])?;
    ///     ahead.give(vec![0; 4])?;
    ///     while let Some((buffer, bytes)) = ahead.take()? {
    ///         read.extend_from_slice(&buffer[..bytes]);
    ///         ahead.give(buffer)?;
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(read, b"0123456789");
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `LengthMismatch` if no block was begun; those of `with`. The block is to be begun again then.
    pub fn read_ahead<B: AsMut<[u8]> + Send, T>(
        &mut self,
        with: impl FnOnce(&mut Ahead<'_, B>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Self { file, path, rows, open } = self;
        let Some(ReadBlock { row: number, left, sum }) = open.take() else {
            return Err(Error::length_mismatch(0, 0));
        };
        let row = &rows[number];
        let place = Place { path, name: &row.name };
        let mut read = |buffer: &mut B, bytes: usize| {
            let part = buffer.as_mut().get_mut(..bytes);
            file.read_exact(part.ok_or_else(|| io::Error::other("a buffer has become shorter"))?)
        };
        let (answer, (left, sum)) = beside(left, &mut read, |lane| {
            let mut ahead = Ahead::new(lane, left, sum, row.sum, place);
            (with(&mut ahead), ahead.end())
        });
        if answer.is_ok() && left == 0 {
            *open = Some(ReadBlock { row: number, left, sum });
        }
        answer
    }

    fn unreadable(&self, error: &io::Error) -> Error {
        Error::unreadable_file(self.path.display(), error)
    }
}

/// The checksum of the table.
fn sum_of(file: &mut File, header: Header) -> io::Result<u64> {
    file.seek(SeekFrom::Start(header.table))?;
    let (mut sum, mut part, mut left) = (Checksum::default(), vec![0; 64 << 10], header.table_bytes);
    while left > 0 {
        let bytes = part.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        file.read_exact(&mut part[..bytes])?;
        sum.add(&part[..bytes]);
        left -= bytes as u64;
    }
    Ok(sum.value())
}
