//! `Cut`: the place where a log was cut off.

use core::fmt;

/// The place where a log was cut off: its program was killed, its disk was full, or a copy of the file was interrupted.
///
/// All rows before that place were read. A row counts only if its line has a line end, because half of a number is a number, too.
///
/// # Examples
///
/// ```
/// use alluvion::trace::Trace;
///
/// let log = "Thread,Time,Action,Pointer,Size,Stream
/// 590,09:12:19.353101,allocate,0x302000000,1000,0
/// 590,09:12:19.540106,free,0x30200";
/// let trace = Trace::from_rmm_csv(log.as_bytes())?;
/// assert_eq!(trace.events.len(), 1);
/// let cut = trace.cut.expect("the last line has no end");
/// assert_eq!((cut.line(), cut.byte()), (3, 87));
/// assert_eq!(cut.to_string(), "it ends in line 3, after byte 87: that line has no line end, and is left out");
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub(super) line: usize,
    pub(super) byte: u64,
    pub(super) why: Box<str>,
}

impl Cut {
    /// The line that is not whole, counted from 1.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }

    /// The number of bytes before that line, which were read. For a log packed by gzip, bytes of the unpacked text.
    #[must_use]
    pub const fn byte(&self) -> u64 {
        self.byte
    }

    /// The reason why the log counts as cut.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it ends in line {}, after byte {}: {}", self.line, self.byte, self.why)
    }
}
