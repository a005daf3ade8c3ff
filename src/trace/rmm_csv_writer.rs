//! `RmmCsvWriter`: writes a log as RMM does.

use std::io::Write;

use super::Row;
use super::columns::MOST_DEVICES;
use super::row_format::{Fields, LONGEST_TAG, RowFormat, is_time_of_day};
use crate::error::Error;

/// The number of bytes that are buffered before they are written: a system call takes as long as formatting twenty rows.
const GATHERED: usize = 64 << 10;

/// Writes a log in RMM's format, byte for byte: the heading `Thread,Time,Action,Pointer,Size,Stream`, and a line for each
/// row. [`RmmCsv`](super::RmmCsv) reads the same rows back.
///
/// A null pointer is `(nil)`, a null stream `0`, all others are hexadecimal, as in RMM.
///
/// # Examples
///
/// ```
/// use alluvion::trace::{RmmCsv, RmmCsvWriter};
///
/// let log = "Thread,Time,Action,Pointer,Size,Stream
/// 590,09:12:19.353101,allocate,0x302000000,22532048,0
/// 590,09:12:19.353144,allocate failure,(nil),1099511627776,0x1
/// ";
/// let mut writer = RmmCsvWriter::new(Vec::new());
/// for row in RmmCsv::new(log.as_bytes())? {
///     writer.write(&row?)?;
/// }
/// assert_eq!(writer.finish()?, log.as_bytes());
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Debug)]
pub struct RmmCsvWriter<W: Write> {
    to: W,
    format: RowFormat,
    gathered: Vec<u8>,
}

impl<W: Write> RmmCsvWriter<W> {
    /// Writes RMM's six columns.
    #[must_use]
    pub fn new(to: W) -> Self {
        Self::with_format(to, RowFormat::default())
    }

    /// Writes RMM's six columns, and `Tag` and `Reserved`, which RMM's own reader skips.
    #[must_use]
    pub fn with_tags_and_reserved(to: W) -> Self {
        Self::with_format(to, RowFormat { tags: true, reserved: true, ..RowFormat::default() })
    }

    /// Writes RMM's six columns, and `Device`, `Tag` and `Reserved`, which RMM's own reader skips.
    #[must_use]
    pub fn with_every_column(to: W) -> Self {
        Self::with_format(to, RowFormat { devices: true, tags: true, reserved: true })
    }

    fn with_format(to: W, format: RowFormat) -> Self {
        let mut gathered = Vec::new();
        format.heading(&mut gathered);
        Self { to, format, gathered }
    }

    /// Writes a row. Fields without a column in the log are left out, and `line` always.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a row that cannot be written, of which nothing is then written: a time after the end of the day, a device from 4096 on, or a
    /// tag with a comma, a line end, spaces around it, or more than 2048 bytes. `Unwritable` as the writer says.
    pub fn write(&mut self, row: &Row) -> Result<(), Error> {
        let refused = |why, instead| Err(Error::invalid_argument("a row of a log", why, instead));
        if !is_time_of_day(row.microseconds) {
            return refused("its time is after the end of the day", "give microseconds since midnight");
        }
        if self.format.devices && row.device.is_some_and(|ordinal| ordinal >= MOST_DEVICES) {
            return refused("its device is none that a machine has", "give a number below 4096");
        }
        if self.format.tags {
            if row.tag.contains([',', '\n', '\r']) || row.tag.trim() != &*row.tag {
                return refused(
                    "its tag has a comma, a line end, or spaces around it",
                    "replace them, as `Tag` does",
                );
            }
            if row.tag.len() > LONGEST_TAG {
                return refused("its tag has more than 2048 bytes", "shorten it");
            }
        }
        let Row { line: _, thread, microseconds, action, address, bytes, stream, device, .. } = *row;
        let Row { ref tag, reserved_bytes, .. } = *row;
        let fields =
            Fields { thread, microseconds, action, address, bytes, stream, device, tag, reserved_bytes };
        self.format.row(&fields, &mut self.gathered);
        if self.gathered.len() >= GATHERED { self.write_buffer() } else { Ok(()) }
    }

    /// Writes the buffered rows, and flushes the writer under this one.
    ///
    /// # Errors
    ///
    /// `Unwritable` as the writer says.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.write_buffer()?;
        self.to.flush().map_err(|error| Error::unwritable("the log", &error))
    }

    /// As [`flush`](Self::flush), and returns the writer. A writer that is dropped without a flush loses its last rows.
    ///
    /// # Errors
    ///
    /// `Unwritable` as the writer says.
    pub fn finish(mut self) -> Result<W, Error> {
        self.flush()?;
        Ok(self.to)
    }

    fn write_buffer(&mut self) -> Result<(), Error> {
        let written = self.to.write_all(&self.gathered);
        // After a partial write it is unknown where the rows end, so they are not written again.
        self.gathered.clear();
        written.map_err(|error| Error::unwritable("the log", &error))
    }
}
