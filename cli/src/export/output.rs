//! `Output`: where an export goes.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Where an export goes. A file gets its name when all of it is there: what had that name before stays until then.
#[derive(Debug)]
pub(super) struct Output {
    to: BufWriter<To>,
    /// The name that the file has until it is whole, and the one that it gets.
    names: Option<(PathBuf, PathBuf)>,
}

#[derive(Debug)]
enum To {
    Stdout(StdoutLock<'static>),
    File(File),
}

/// So much is written at once: a pipe holds 64 KiB.
const BUFFER_BYTES: usize = 64 << 10;

impl Output {
    /// Opens the file, or the standard output stream where none is named.
    pub(super) fn open(path: Option<&Path>, is_binary: bool) -> Result<Self, Failure> {
        let Some(path) = path else {
            let stdout = io::stdout().lock();
            if is_binary && stdout.is_terminal() {
                return Err(Failure::usage("this format is not for a terminal: name a file with -o FILE"));
            }
            return Ok(Self::of(To::Stdout(stdout), None));
        };
        let failed = |error: io::Error| Failure::of_file(path, error);
        // A pipe or a device has no name to give away.
        if fs::metadata(path).is_ok_and(|about| !about.is_file()) {
            let file = File::options().write(true).open(path).map_err(failed)?;
            return Ok(Self::of(To::File(file), None));
        }
        let mut partial =
            path.file_name().ok_or_else(|| failed(io::ErrorKind::IsADirectory.into()))?.to_owned();
        partial.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(partial);
        let file = File::create(&partial).map_err(failed)?;
        Ok(Self::of(To::File(file), Some((partial, path.to_owned()))))
    }

    fn of(to: To, names: Option<(PathBuf, PathBuf)>) -> Self {
        Self { to: BufWriter::with_capacity(BUFFER_BYTES, to), names }
    }

    /// Everything is written.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.to.flush().map_err(unwritten)?;
        if let Some((partial, path)) = self.names.take()
            && let Err(error) = fs::rename(&partial, &path)
        {
            let _ = fs::remove_file(&partial);
            return Err(Failure::of_file(&path, error));
        }
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // It is not whole.
        if let Some((partial, _)) = &self.names {
            let _ = fs::remove_file(partial);
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Write for To {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(stdout) => stdout.write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(stdout) => stdout.flush(),
            Self::File(file) => file.flush(),
        }
    }
}

/// What it means that something could not be written.
pub(super) fn unwritten(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::Unread
    } else {
        Failure::while_doing("writing the export", error)
    }
}
