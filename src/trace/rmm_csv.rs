//! `RmmCsv`: reads logs in RMM's format.

use std::io::{self, BufRead, Read};

use super::columns::Columns;
use super::event_columns::EventColumns;
use super::{Cut, Row, RowFormat};
use crate::error::Error;

/// The longest row that is read: RMM's are at most 110 bytes. A file without line ends must not fill the memory.
const LONGEST: usize = 4096;

/// The byte order mark that some Windows programs write before the text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The rows of a log in RMM's format, `Thread,Time,Action,Pointer,Size,Stream`, as its logging adaptor writes it.
///
/// Logs of every version of RMM are read: those whose times have a colon before the microseconds (0.16), addresses that are `0x0`
/// or `(nil)`, and logs of its C interface (up to 0.13), which begin with `Event Type,Device ID,Address`. The latter do not name
/// threads, and their times count from the start of the log.
///
/// Columns are found by the names in the heading. Empty lines are skipped, and so is a byte order mark before the heading; line
/// ends may be those of Windows. After an error there are no more rows.
///
/// A log that was cut off is read to its last complete line, and [`cut`](Self::cut) says where that is. A reader that fails with
/// `UnexpectedEof`, as those of packed files do, counts as the same.
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
    lines: LogLines<B>,
    /// None after the last row.
    columns: Option<Heading>,
    cut: Option<Cut>,
}

/// The kind of heading of a log, which decides how its rows are read.
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
    /// `Malformed` if it lacks a column, unless a cut has taken it, and if there is nothing at all; `Unreadable` as `lines`
    /// says.
    pub fn new(lines: B) -> Result<Self, Error> {
        let mut lines = LogLines { lines, line: 0, byte: 0, text: Vec::new() };
        let found = lines.next()?;
        let malformed = |why| Error::malformed(1, why);
        let bytes = lines.text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&lines.text);
        let heading = line_of(bytes).map_err(malformed)?;
        if matches!(found, LineRead::End) || (bytes.is_empty() && !lines.text.is_empty()) {
            return Err(malformed("the file is empty: a log has at least its heading".to_owned()));
        }
        let (columns, cut) = match found {
            LineRead::Cut(cut) if is_start_of_heading(heading) => (None, Some(cut)),
            LineRead::Cut(cut) => Heading::of(heading).map(|_| (None, Some(cut))).map_err(malformed)?,
            LineRead::Line | LineRead::End => (Some(Heading::of(heading).map_err(malformed)?), None),
        };
        Ok(Self { lines, columns, cut })
    }

    /// The place where the log was cut off, if it was: known after the last row.
    #[must_use]
    pub const fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    fn read_row(&mut self, columns: Heading) -> Result<Option<Row>, Error> {
        loop {
            match self.lines.next()? {
                LineRead::Line => {}
                LineRead::End => return Ok(None),
                LineRead::Cut(cut) => {
                    self.cut = Some(cut);
                    return Ok(None);
                }
            }
            let line = self.lines.line;
            let malformed = |why| Error::malformed(line, why);
            let text = line_of(&self.lines.text).map_err(malformed)?;
            if !text.is_empty() {
                return columns.row(line, text).map(Some).map_err(malformed);
            }
        }
    }
}

impl<B: BufRead> Iterator for RmmCsv<B> {
    type Item = Result<Row, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.read_row(self.columns?).transpose();
        if !matches!(row, Some(Ok(_))) {
            self.columns = None;
        }
        row
    }
}

/// Reads a file, a line at a time.
#[derive(Debug)]
struct LogLines<B> {
    lines: B,
    /// The number of the line in `text`, counted from 1.
    line: usize,
    /// The number of bytes before that line.
    byte: u64,
    text: Vec<u8>,
}

/// The result of reading the next line.
enum LineRead {
    Line,
    End,
    Cut(Cut),
}

impl<B: BufRead> LogLines<B> {
    fn next(&mut self) -> Result<LineRead, Error> {
        self.line += 1;
        self.byte += self.text.len() as u64;
        self.text.clear();
        let most = LONGEST as u64 + 1;
        let read = (&mut self.lines).take(most).read_until(b'\n', &mut self.text);
        if self.text.len() > LONGEST {
            return Err(Error::malformed(self.line, format!("it is longer than {LONGEST} bytes")));
        }
        let why = match read {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => error.to_string(),
            Err(error) => return Err(Error::unreadable(self.line, &error)),
            Ok(_) if self.text.ends_with(b"\n") => return Ok(LineRead::Line),
            Ok(_) if self.text.trim_ascii().is_empty() => return Ok(LineRead::End),
            Ok(_) => "that line has no line end, and is left out".to_owned(),
        };
        Ok(LineRead::Cut(Cut { line: self.line, byte: self.byte, why: why.into() }))
    }
}

/// Returns `true` if the heading of a log begins like this.
fn is_start_of_heading(text: &str) -> bool {
    let is_start = |format: RowFormat| {
        let mut heading = Vec::new();
        format.heading(&mut heading);
        heading.starts_with(text.as_bytes())
    };
    EventColumns::HEADING.starts_with(text)
        || [(true, true), (true, false), (false, true), (false, false)]
            .into_iter()
            .any(|(devices, tags)| is_start(RowFormat { devices, tags, reserved: true }))
}

fn line_of(text: &[u8]) -> Result<&str, String> {
    let text = str::from_utf8(text).map_err(|_| {
        if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") {
            "it is text in UTF-16: write the file again in UTF-8".to_owned()
        } else {
            "it is not text".to_owned()
        }
    })?;
    Ok(text.trim_ascii())
}
