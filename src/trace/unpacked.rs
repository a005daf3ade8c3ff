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
/// A packed file of more than 256 MiB of text that is more than a hundred times as long as the file is refused, with `InvalidData`: logs
/// and snapshots are packed to a tenth or so, and what is packed to a thousandth is made to fill the memory of whoever reads it.
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
    Packed(Box<io::BufReader<Members<B>>>),
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
        return Ok(Self(Form::Packed(Box::new(io::BufReader::new(Members::new(file))))));
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

/// So much text is unpacked of any file.
#[cfg(feature = "gzip")]
const FREE_BYTES: u64 = 256 << 20;

/// Of more text than that, so many bytes for each that is packed. Logs and snapshots have 5 to 20; gzip has 1,032 at most.
#[cfg(feature = "gzip")]
const MOST_FOR_A_BYTE: u64 = 100;

/// A packed file, and how much of it has been read.
#[cfg(feature = "gzip")]
#[derive(Debug)]
struct Packed<B> {
    file: B,
    bytes: u64,
}

#[cfg(feature = "gzip")]
impl<B: BufRead> Read for Packed<B> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

#[cfg(feature = "gzip")]
impl<B: BufRead> BufRead for Packed<B> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.file.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.file.consume(bytes);
    }
}

/// The members of a gzip file, one after the other. flate2's own reader of several members reports other bytes behind them as a
/// wrong header, and not that all members before were complete.
#[cfg(feature = "gzip")]
#[derive(Debug)]
struct Members<B: BufRead> {
    /// `None` after the last member.
    member: Option<flate2::bufread::GzDecoder<Packed<B>>>,
    unpacked: u64,
    free_bytes: u64,
}

#[cfg(feature = "gzip")]
impl<B: BufRead> Members<B> {
    fn new(file: B) -> Self {
        let member = flate2::bufread::GzDecoder::new(Packed { file, bytes: 0 });
        Self { member: Some(member), unpacked: 0, free_bytes: FREE_BYTES }
    }

    /// Counts what was unpacked, and refuses what is too much for the file.
    fn count(&mut self, read: usize) -> io::Result<usize> {
        self.unpacked += read as u64;
        let packed = self.member.as_ref().map_or(0, |member| member.get_ref().bytes);
        if self.unpacked > self.free_bytes.max(packed.saturating_mul(MOST_FOR_A_BYTE)) {
            let why = format!(
                "what gzip packed has more than {MOST_FOR_A_BYTE} times the bytes of its file, and no log or snapshot has: unpack it, if it is \
                 one"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(read)
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
                read => return self.count(read?),
            }
            let Some(mut file) = self.member.take().map(flate2::bufread::GzDecoder::into_inner) else {
                break;
            };
            match after_zeros(&mut file)? {
                None => {}
                Some(GZIP) => self.member = Some(flate2::bufread::GzDecoder::new(file)),
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

#[cfg(all(test, feature = "gzip", not(loom)))]
mod tests {
    use std::io::Write;

    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(text).expect("there is room");
        packer.finish().expect("there is room")
    }

    fn read(file: &[u8], free_bytes: u64) -> io::Result<usize> {
        let members = Members { free_bytes, ..Members::new(file) };
        io::copy(&mut { members }, &mut io::sink()).map(|bytes| bytes as usize)
    }

    #[test]
    fn text_that_is_long_beside_its_file_is_refused() {
        let spaces = packed(&[b' '; 1 << 20]);
        assert!(spaces.len() < 2000);
        // In one member, and in many.
        for file in [spaces.clone(), spaces.repeat(50)] {
            let members = file.len() / spaces.len();
            let error = read(&file, 200_000).expect_err("it is a thousand times as long");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains("100 times"), "{error}");
            assert_eq!(read(&file, (members << 20) as u64).expect("so much is free"), members << 20);
        }
    }

    #[test]
    fn the_text_of_a_log_is_not() {
        let rows = (0..20_000)
            .map(|row| format!("590,12:00:{:02}.{:06},allocate,0x7f00,256,0x0\n", row / 600, row * 37));
        let log: String = rows.collect();
        assert_eq!(read(&packed(log.as_bytes()), 0).expect("it is a log"), log.len());
    }
}
