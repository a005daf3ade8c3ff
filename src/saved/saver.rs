//! `Saver`: writes blocks to a file.

#![expect(unsafe_code, reason = "reads blocks that callers name by their addresses")]

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use super::SavedFile;
use super::behind::Behind;
use super::beside::beside;
use super::checksum::Checksum;
use super::format::{BLOCK_ALIGN, HEADER_BYTES, Header, MOST_NAME_BYTES, Row, encode_table};
use super::through_host::download;
use crate::container::{DeviceCopy, DeviceSlice, Lent};
use crate::error::Error;
use crate::host::PinnedAlloc;
use crate::stream::{OnStream, StreamRef};
use crate::whole_file::WholeFile;

/// How much is summed and then written: what was just read for the one is in the caches of the processor for the other.
const PART: usize = 256 << 10;

/// Writes blocks to a file, each under a name. The file has its name when [`finish`](Self::finish) has returned, and not before: until
/// then, and if the process dies, a file that had the name is there as it was.
///
/// ```
/// use alluvion::saved::{SavedFile, Saver};
/// use alluvion::{DeviceVec, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let path = std::env::temp_dir().join(format!("alluvion-saver-{}", std::process::id()));
/// let weights = DeviceVec::from_slice(&[1_u32, 2, 3], &stream)?;
/// let mut saver = Saver::create(&path)?;
/// saver.save("weights", weights.as_slice(), &stream)?;
/// saver.finish()?;
///
/// // Later, in another process.
/// let mut saved = SavedFile::open(&path)?;
/// let mut restored = DeviceVec::<u32>::uninit(3, &stream)?;
/// saved.restore("weights", restored.as_mut_slice(), &stream)?;
/// assert_eq!(restored.to_vec(&stream)?, [1, 2, 3]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is saved until `finish`"]
pub struct Saver {
    file: WholeFile,
    rows: Vec<Row>,
    /// Where the next block begins.
    next: u64,
    open: Option<OpenBlock>,
}

/// The block that is being written.
#[derive(Debug)]
struct OpenBlock {
    name: String,
    bytes: u64,
    left: u64,
    sum: Checksum,
}

impl Saver {
    /// Begins a file that will be at `path`, beside that place.
    ///
    /// # Errors
    ///
    /// `Unwritable`, with the words of the system.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = WholeFile::create(path).map_err(|error| Error::unwritable(path.display(), &error))?;
        Ok(Self { file, rows: Vec::new(), next: BLOCK_ALIGN, open: None })
    }

    /// Writes the elements of a container, behind what its streams do with it. Waits until they are written. They are copied by way of
    /// 16 MiB of pinned memory, and written by a thread of its own while the next ones are copied and summed.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a name of more than 4096 bytes, and for one that the file has; `Unwritable`; as the driver says. The
    /// blocks before are kept then, and the name can be written again.
    pub fn save<'s, T: DeviceCopy>(
        &mut self,
        name: &str,
        block: DeviceSlice<'_, T>,
        stream: impl OnStream<'s>,
    ) -> Result<(), Error> {
        self.save_through(name, block.cast()?, stream.stream_ref(), None)
    }

    /// As [`save`](Self::save), of a block that is known by its address, behind what `stream` does, by way of this
    /// pinned memory, or of its own.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// The block has so many bytes, on the device of the stream, and nothing writes to them, or frees them, until the call returns. If that is
    /// an error of which nobody can say whether the device has stopped, never.
    #[doc(hidden)]
    pub unsafe fn save_block<'s>(
        &mut self,
        name: &str,
        block: u64,
        bytes: usize,
        stream: impl OnStream<'s>,
        pinned: Option<PinnedAlloc>,
    ) -> Result<(), Error> {
        let stream = stream.stream_ref();
        // SAFETY: the caller's promises.
        let block = unsafe { Lent::new(block, bytes, stream) }?;
        self.save_through(name, block.as_slice(), stream, pinned)
    }

    fn save_through(
        &mut self,
        name: &str,
        bytes: DeviceSlice<'_, u8>,
        stream: StreamRef<'_>,
        pinned: Option<PinnedAlloc>,
    ) -> Result<(), Error> {
        self.begin(name, bytes.len() as u64)?;
        let saved = download(bytes, stream, pinned, self);
        if saved.is_err() {
            self.open = None;
        }
        saved
    }

    /// Begins a block of so many bytes, which [`write`](Self::write) gives. A block before that has fewer than it was begun with is
    /// dropped.
    ///
    /// # Errors
    ///
    /// As [`save`](Self::save).
    pub fn begin(&mut self, name: &str, bytes: u64) -> Result<(), Error> {
        if name.len() > MOST_NAME_BYTES {
            return Err(Error::invalid_argument(
                "a name of more than 4096 bytes for a saved block",
                "a file has none so long",
                "choose a shorter one",
            ));
        }
        if self.rows.iter().any(|row| row.name == name) {
            return Err(Error::invalid_argument(
                "a name that a saved block of the file has",
                "each is found by its name",
                "choose another one",
            ));
        }
        if self.next.checked_add(bytes).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Error::invalid_argument(
                "a saved block of so many bytes",
                "a file has fewer than 2 to the power of 63",
                "pass the number of bytes that follow",
            ));
        }
        self.seek(self.next)?;
        self.open = Some(OpenBlock { name: name.to_owned(), bytes, left: bytes, sum: Checksum::default() });
        self.end_if_whole();
        Ok(())
    }

    /// The next bytes of the block that was begun.
    ///
    /// # Errors
    ///
    /// `LengthMismatch` for more than it was begun with; `Unwritable`. The block is dropped then.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let left = self.open.as_ref().map_or(0, |open| open.left);
        let Some(mut open) = self.open.take().filter(|_| bytes.len() as u64 <= left) else {
            return Err(Error::length_mismatch(left as usize, bytes.len()));
        };
        for part in bytes.chunks(PART) {
            open.sum.add(part);
            self.file.file().write_all(part).map_err(|error| self.unwritable(&error))?;
        }
        open.left -= bytes.len() as u64;
        self.open = Some(open);
        self.end_if_whole();
        Ok(())
    }

    /// Writes the next bytes of the block that was begun on a thread of its own. `with` gives it buffers with these bytes: while they are written,
    /// it fills the next one. Returns when all are written.
    ///
    /// ```
    /// use alluvion::saved::{SavedFile, Saver};
    ///
    /// let path = std::env::temp_dir().join(format!("alluvion-behind-{}", std::process::id()));
    /// let mut saver = Saver::create(&path)?;
    /// saver.begin("numbers", 10)?;
    /// saver.write_behind(|behind| {
    ///     behind.write(b"01234567".to_vec(), 8)?;
    ///     behind.write(b"89 and more".to_vec(), 2)
    /// })?;
    /// saver.finish()?;
    ///
    /// let mut saved = SavedFile::open(&path)?;
    /// let mut read = [0; 10];
    /// saved.begin("numbers")?;
    /// saved.read(&mut read)?;
    /// assert_eq!(&read, b"0123456789");
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `LengthMismatch` if no block was begun, or it is whole; `Unwritable`; those of `with`. The block is dropped then.
    pub fn write_behind<B: AsRef<[u8]> + Send, T>(
        &mut self,
        with: impl FnOnce(&mut Behind<'_, B>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Some(OpenBlock { name, bytes, left, sum }) = self.open.take() else {
            return Err(Error::length_mismatch(0, 0));
        };
        let path = self.file.path().to_owned();
        let unwritable = |error: &io::Error| Error::unwritable(path.display(), error);
        let file = self.file.file();
        let mut write = |buffer: &mut B, bytes: usize| {
            let part = buffer.as_ref().get(..bytes);
            file.write_all(part.ok_or_else(|| io::Error::other("a buffer has become shorter"))?)
        };
        let (answer, left, sum) = beside(left, &mut write, |lane| {
            let mut behind = Behind::new(lane, left, sum, &unwritable);
            let answer = with(&mut behind)?;
            let (left, sum) = behind.end()?;
            Ok::<_, Error>((answer, left, sum))
        })?;
        self.open = Some(OpenBlock { name, bytes, left, sum });
        self.end_if_whole();
        Ok(answer)
    }

    /// Completes the file, and gives it its name. Returns its bytes. A file that had the name is replaced.
    ///
    /// What the system has not written to the disk yet is lost if the power fails, as with any file; [`SavedFile`](super::SavedFile) then
    /// says that it is damaged.
    ///
    /// # Errors
    ///
    /// `LengthMismatch` if the last block has fewer bytes than it was begun with; `Unwritable`. No file is left then.
    pub fn finish(self) -> Result<u64, Error> {
        self.complete(|_| Ok(())).map(|(bytes, ())| bytes)
    }

    /// As [`finish`](Self::finish), and opens the file. It is the one that was written, whoever replaces its name meanwhile.
    pub(super) fn finish_and_open(self) -> Result<SavedFile, Error> {
        let path = self.file.path().to_owned();
        let (_, file) = self.complete(|file| file.try_clone())?;
        SavedFile::of_file(file, path)
    }

    /// Completes the file, and gives it its name if `with` has what it wants of it.
    fn complete<T>(mut self, with: impl FnOnce(&File) -> io::Result<T>) -> Result<(u64, T), Error> {
        if let Some(open) = &self.open {
            return Err(Error::length_mismatch(open.bytes as usize, (open.bytes - open.left) as usize));
        }
        let table = encode_table(&self.rows);
        let header =
            Header { table: self.next, table_bytes: table.len() as u64, table_sum: Checksum::of(&table) };
        let header_bytes: [u8; HEADER_BYTES] = header.encode();
        self.seek(header.table)?;
        self.put(&table)?;
        // What lies behind, of a block that was dropped.
        let end = header.table + header.table_bytes;
        self.file.file().set_len(end).map_err(|error| self.unwritable(&error))?;
        self.seek(0)?;
        self.put(&header_bytes)?;
        let wanted = with(self.file.file()).map_err(|error| self.unwritable(&error))?;
        let path = self.file.path().to_owned();
        self.file.finish().map_err(|error| Error::unwritable(path.display(), &error))?;
        Ok((end, wanted))
    }

    /// Lets nobody but the user of the process read the file, where the system has such rights.
    pub(super) fn make_private(&mut self) -> Result<(), Error> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;

            let only_mine = std::fs::Permissions::from_mode(0o600);
            self.file.file().set_permissions(only_mine).map_err(|error| self.unwritable(&error))?;
        }
        Ok(())
    }

    fn end_if_whole(&mut self) {
        if let Some(open) = self.open.take_if(|open| open.left == 0) {
            let OpenBlock { name, bytes, sum, .. } = open;
            self.rows.push(Row { name, offset: self.next, bytes, sum: sum.value() });
            // `begin` has seen that it is far below the largest number.
            self.next = (self.next + bytes).next_multiple_of(BLOCK_ALIGN);
        }
    }

    fn seek(&mut self, to: u64) -> Result<(), Error> {
        self.file.file().seek(SeekFrom::Start(to)).map(drop).map_err(|error| self.unwritable(&error))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.file().write_all(bytes).map_err(|error| self.unwritable(&error))
    }

    fn unwritable(&self, error: &io::Error) -> Error {
        Error::unwritable(self.file.path().display(), error)
    }
}
