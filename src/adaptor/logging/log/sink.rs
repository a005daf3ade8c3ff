//! `Sink`: the destination of a log's bytes.

use std::io::{self, Write};

/// The destination of a log's bytes. Only the writer thread calls it.
pub(super) trait Sink: Send {
    /// Writes all of these bytes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Passes on the buffered bytes. After that, a reader finds a complete file.
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
/// A gzip file has an end mark, and most programs refuse a file without one. So each flush ends a gzip member, and
/// later bytes begin another: `gzip` and similar programs read several members as one file.
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
            // The fastest level: rows are similar, so they still compress well, and the writer has to keep up.
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
