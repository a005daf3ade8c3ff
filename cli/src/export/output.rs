//! `Output`: where an export goes.

use std::ffi::OsStr;
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
        let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::IsADirectory.into()))?;
        let (partial, file) = partial_of(path, name).map_err(failed)?;
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

/// The most names that somebody else may have taken.
const MOST_TAKEN: usize = 64;

/// Makes the file beside the one that it is to be. Its name can be known in advance, so one that is there is another's: a link would lead
/// elsewhere.
fn partial_of(path: &Path, name: &OsStr) -> io::Result<(PathBuf, File)> {
    let mut taken = 0;
    loop {
        let mut partial = name.to_owned();
        partial.push(format!(".{}-{taken}.partial", std::process::id()));
        let partial = path.with_file_name(partial);
        match File::create_new(&partial) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && taken < MOST_TAKEN => taken += 1,
            made => return made.map(|file| (partial, file)),
        }
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_the_partial_file_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("alluvion-partial-{}", std::process::id()));
        // A process that was killed may have had this number, and left it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("it is not there");
        let (path, theirs) = (folder.join("out.json"), folder.join("theirs"));
        fs::write(&theirs, "as it was").expect("there is room");
        let link = folder.join(format!("out.json.{}-0.partial", std::process::id()));
        std::os::unix::fs::symlink(&theirs, &link).expect("there is room");
        let mut output = Output::open(Some(&path), false).unwrap_or_else(|_| panic!("there is room"));
        output.write_all(b"new").expect("there is room");
        output.finish().unwrap_or_else(|_| panic!("it gets its name"));
        let read = |path| fs::read_to_string(path).expect("it is there");
        assert_eq!((read(&theirs).as_str(), read(&path).as_str()), ("as it was", "new"));
        fs::remove_dir_all(&folder).expect("it is this test's");
    }
}
