//! `Sink`: where the bytes of a log go.

use std::io::{self, Write};

/// Where the bytes of a log go. It is called by the writer thread alone.
pub(super) trait Sink: Send {
    /// Takes all of these.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Passes on what it has kept back. Whoever reads the file then finds a whole one.
    fn flush(&mut self) -> io::Result<()>;
}

/// Bytes as they are.
pub(super) struct PlainSink<W>(pub(super) W);

impl<W: Write + Send> Sink for PlainSink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Bytes packed by gzip.
///
/// A file of gzip has an end, and one without it is refused by most programs. So each flush ends a member, and what comes later
/// begins another: `gzip` and all that is like it read several as one.
#[cfg(feature = "gzip")]
pub(super) struct GzipSink<W: Write> {
    to: Option<W>,
    member: Option<flate2::write::GzEncoder<W>>,
}

#[cfg(feature = "gzip")]
impl<W: Write> GzipSink<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to: Some(to), member: None }
    }
}

#[cfg(feature = "gzip")]
impl<W: Write + Send> Sink for GzipSink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let gone = || io::Error::other("it has failed before");
        if self.member.is_none() {
            // The fastest: rows are alike enough for that, and the writer has to keep up.
            let to = self.to.take().ok_or_else(gone)?;
            self.member = Some(flate2::write::GzEncoder::new(to, flate2::Compression::fast()));
        }
        self.member.as_mut().ok_or_else(gone)?.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(member) = self.member.take() {
            self.to = Some(member.finish()?);
        }
        self.to.as_mut().map_or(Ok(()), Write::flush)
    }
}
