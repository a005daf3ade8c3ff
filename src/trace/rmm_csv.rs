//! `RmmCsv`: reads the log that RMM writes.

use std::io::{BufRead, Read};

use super::Row;
use super::columns::Columns;
use super::event_columns::EventColumns;
use crate::error::Error;

/// No row is longer: RMM's are at most 110 bytes. A file without line ends must not fill the memory.
const LONGEST: usize = 4096;

/// The rows of a log in RMM's format, `Thread,Time,Action,Pointer,Size,Stream`, as its logging adaptor writes it.
///
/// Logs of every age of RMM are read: those whose times have a colon before the microseconds (0.16), addresses that are `0x0`
/// or `(nil)`, and what its C interface kept (up to 0.13), which begins with `Event Type,Device ID,Address`. The latter say
/// nothing about threads, and their times count from the start of the log.
///
/// Columns are found by the names in the heading. Empty lines are passed over; line ends may be those of Windows. After
/// an error there are no more rows.
///
/// # Examples
///
/// ```
/// use alluvion::trace::{Action, RmmCsv};
///
/// let log = "Thread,Time,Action,Pointer,Size,Stream
/// 590,09:12:19.353101,allocate,0x302000000,22532048,0
/// 590,09:12:19.540106,free,0x302000000,22532048,0x7f653d
/// ";
/// let rows = RmmCsv::new(log.as_bytes())?.collect::<Result<Vec<_>, _>>()?;
/// assert_eq!((rows[0].action, rows[0].bytes), (Action::Allocate, 22_532_048));
/// assert_eq!((rows[1].line, rows[1].stream), (3, 0x7f_653d));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Debug)]
pub struct RmmCsv<B> {
    lines: B,
    /// The line that was read last, counted from 1.
    line: usize,
    text: Vec<u8>,
    columns: Heading,
    over: bool,
}

/// What a log begins with, and what its rows are then.
#[derive(Clone, Copy, Debug)]
enum Heading {
    OfAdaptor(Columns),
    OfInterface(EventColumns),
}

impl Heading {
    fn of(text: &str) -> Result<Self, String> {
        match EventColumns::of_heading(text) {
            Some(columns) => Ok(Self::OfInterface(columns)),
            None => Columns::of_heading(text).map(Self::OfAdaptor),
        }
    }

    fn row(&self, line: usize, text: &str) -> Result<Row, String> {
        match self {
            Self::OfAdaptor(columns) => columns.row(line, text),
            Self::OfInterface(columns) => columns.row(line, text),
        }
    }
}

impl<B: BufRead> RmmCsv<B> {
    /// Reads the heading.
    ///
    /// # Errors
    ///
    /// `Malformed` if it lacks a column; `Unreadable` as `lines` says.
    pub fn new(mut lines: B) -> Result<Self, Error> {
        let mut text = Vec::new();
        read_line(&mut lines, 1, &mut text)?;
        let columns = line_of(&text).and_then(Heading::of).map_err(|why| Error::malformed(1, why))?;
        Ok(Self { lines, line: 1, text, columns, over: false })
    }

    fn read_row(&mut self) -> Result<Option<Row>, Error> {
        loop {
            self.line += 1;
            if !read_line(&mut self.lines, self.line, &mut self.text)? {
                return Ok(None);
            }
            let malformed = |why| Error::malformed(self.line, why);
            let text = line_of(&self.text).map_err(malformed)?;
            if !text.is_empty() {
                return self.columns.row(self.line, text).map(Some).map_err(malformed);
            }
        }
    }
}

impl<B: BufRead> Iterator for RmmCsv<B> {
    type Item = Result<Row, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let row = self.read_row().transpose();
        self.over = !matches!(row, Some(Ok(_)));
        row
    }
}

/// Reads a line into `text`. Returns `false` at the end of the file.
fn read_line(lines: &mut impl BufRead, line: usize, text: &mut Vec<u8>) -> Result<bool, Error> {
    text.clear();
    let most = LONGEST as u64 + 1;
    let read = lines.take(most).read_until(b'\n', text).map_err(|error| Error::unreadable(line, &error))?;
    if text.len() > LONGEST {
        return Err(Error::malformed(line, format!("it is longer than {LONGEST} bytes")));
    }
    Ok(read > 0)
}

fn line_of(text: &[u8]) -> Result<&str, String> {
    let text = str::from_utf8(text).map_err(|_| "it is not text".to_owned())?;
    Ok(text.trim_ascii())
}
