//! `Unpacked`: the text of a file that gzip may have packed.

use std::io::{self, BufRead, Read};

use crate::error::Error;

/// The first byte of a gzip file. No text begins with it.
const GZIP: u8 = 0x1f;

/// The text of a file, unpacked if gzip has packed it. The name of the file does not matter.
///
/// A packed file that was cut off reads as far as it goes, and then fails with `UnexpectedEof`. So does one with other bytes after
/// the end of the gzip data; zeros, with which some tools pad a file, are skipped.
///
/// # Examples
///
/// ```
/// use alluvion::trace::{Trace, Unpacked};
///
/// let log = "Thread,Time,Action,Pointer,Size,Stream\n";
/// let trace = Trace::from_rmm_csv(Unpacked::new(log.as_bytes())?)?;
/// assert!(trace.events.is_empty() && trace.cut.is_none());
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Debug)]
pub struct Unpacked<B: BufRead>(Form<B>);

#[derive(Debug)]
enum Form<B: BufRead> {
    Plain(B),
    #[cfg(feature = "gzip")]
    Packed(io::BufReader<Members<B>>),
}

impl<B: BufRead> Unpacked<B> {
    /// Looks at the first byte.
    ///
    /// # Errors
    ///
    /// `Unreadable` at line 0 as `file` says; `Unsupported` for gzip without the feature `gzip`.
    pub fn new(mut file: B) -> Result<Self, Error> {
        let start = file.fill_buf().map_err(|error| Error::unreadable(0, &error))?;
        if start.first() != Some(&GZIP) {
            return Ok(Self(Form::Plain(file)));
        }
        #[cfg(feature = "gzip")]
        return Ok(Self(Form::Packed(io::BufReader::new(Members::new(file)))));
        #[cfg(not(feature = "gzip"))]
        Err(Error::unsupported(
            "a log packed by gzip",
            "the library was built without its feature `gzip`",
            "build it with that feature, or unpack the file",
        ))
    }
}

impl<B: BufRead> Read for Unpacked<B> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Form::Plain(file) => file.read(into),
            #[cfg(feature = "gzip")]
            Form::Packed(file) => file.read(into),
        }
    }
}

impl<B: BufRead> BufRead for Unpacked<B> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match &mut self.0 {
            Form::Plain(file) => file.fill_buf(),
            #[cfg(feature = "gzip")]
            Form::Packed(file) => file.fill_buf(),
        }
    }

    fn consume(&mut self, bytes: usize) {
        match &mut self.0 {
            Form::Plain(file) => file.consume(bytes),
            #[cfg(feature = "gzip")]
            Form::Packed(file) => file.consume(bytes),
        }
    }
}

/// The members of a gzip file, one after the other. flate2's own reader of several members reports other bytes behind them as a
/// wrong header, and not that all members before were complete.
#[cfg(feature = "gzip")]
#[derive(Debug)]
struct Members<B: BufRead> {
    /// `None` after the last member.
    member: Option<flate2::bufread::GzDecoder<B>>,
}

#[cfg(feature = "gzip")]
impl<B: BufRead> Members<B> {
    fn new(file: B) -> Self {
        Self { member: Some(flate2::bufread::GzDecoder::new(file)) }
    }
}

#[cfg(feature = "gzip")]
impl<B: BufRead> Read for Members<B> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let ended = |why| io::Error::new(io::ErrorKind::UnexpectedEof, why);
        while let Some(member) = &mut self.member {
            match member.read(into) {
                Ok(0) if !into.is_empty() => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(ended("what gzip packed has no end"));
                }
                read => return read,
            }
            let Some(mut file) = self.member.take().map(flate2::bufread::GzDecoder::into_inner) else {
                break;
            };
            match after_zeros(&mut file)? {
                None => {}
                Some(GZIP) => *self = Self::new(file),
                Some(_) => return Err(ended("after the end of what gzip packed there are other bytes")),
            }
        }
        Ok(0)
    }
}

/// The next byte that is not zero, without consuming it.
#[cfg(feature = "gzip")]
fn after_zeros(file: &mut impl BufRead) -> io::Result<Option<u8>> {
    loop {
        let bytes = file.fill_buf()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        if zeros == bytes.len() && zeros > 0 {
            file.consume(zeros);
            continue;
        }
        let next = bytes.get(zeros).copied();
        file.consume(zeros);
        return Ok(next);
    }
}
