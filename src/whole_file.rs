//! `WholeFile`: a file that has its name once it is complete.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The most names of temporary files that somebody else may have taken.
const MOST_TAKEN: usize = 64;

/// A temporary file beside the place where it will be. It gets its name by [`finish`](Self::finish) alone, so that the named file is
/// always complete, also when the disk is full, or another writer has the same name. Without that it is removed.
#[derive(Debug)]
pub(crate) struct WholeFile {
    file: File,
    beside: PathBuf,
    path: PathBuf,
    /// The process that finishes or removes it: a fork has a copy of this.
    process: u32,
    is_finished: bool,
}

impl WholeFile {
    /// Refuses a place that has something else than a file, such as a device: it would be gone, for every program.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        // A link is replaced itself, and one to a device is as good as the device.
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "what is there is no file: a folder, a device, a pipe or a socket is not replaced",
            ));
        }
        // The process may be in another folder by the end.
        let path = std::path::absolute(path)?;
        let (beside, file) = file_beside(&path)?;
        Ok(Self { file, beside, path, process: std::process::id(), is_finished: false })
    }

    /// To write, or to read what was written.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Where it will be.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name. A file that has the name is replaced. Not in a fork: the file is its parent's.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if self.process != std::process::id() {
            return Err(io::Error::other("the process that began it is another one"));
        }
        fs::rename(&self.beside, &self.path)?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if !self.is_finished && self.process == std::process::id() {
            // If the temporary file cannot be removed either, it stays.
            let _ = fs::remove_file(&self.beside);
        }
    }
}

/// Makes a temporary file. Its name can be known in advance, so one that is there is another's: a link would lead elsewhere.
fn file_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    // Not of `crate::sync`: it lives as long as the process, and no model covers it.
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let mut taken = 0;
    loop {
        // Relaxed: it only gives each temporary file a name of its own.
        let number = BEGUN.fetch_add(1, Ordering::Relaxed);
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}-{number}.partial", std::process::id()));
        let beside = PathBuf::from(beside);
        match File::options().read(true).write(true).create_new(true).open(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && taken < MOST_TAKEN => taken += 1,
            made => return made.map(|file| (beside, file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("alluvion-{name}-{}", std::process::id()));
        // A process that was killed may have had this number, and left it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("it is not there");
        folder
    }

    #[test]
    fn a_file_has_its_name_when_it_is_complete_and_not_before() {
        let folder = folder("whole-files");
        let path = folder.join("file");
        fs::write(&path, "the old one").expect("there is room");
        let mut begun = WholeFile::create(&path).expect("there is room");
        begun.file().write_all(b"half").expect("there is room");
        assert_eq!(fs::read(&path).expect("it is there"), b"the old one");
        drop(begun);
        assert_eq!(
            fs::read_dir(&folder).expect("it is there").count(),
            1,
            "what was not finished is removed"
        );
        let mut whole = WholeFile::create(&path).expect("there is room");
        assert_eq!(whole.path(), path);
        whole.file().write_all(b"whole").expect("there is room");
        whole.finish().expect("it can be replaced");
        assert_eq!(fs::read(&path).expect("it is there"), b"whole");
        fs::remove_dir_all(&folder).expect("it is this test's");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_not_replaced() {
        use std::os::unix::fs::{FileTypeExt, symlink};

        let folder = folder("whole-file-sockets");
        let (socket, link) = (folder.join("socket"), folder.join("link"));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("there is room");
        symlink(&socket, &link).expect("there is room");
        for path in [&socket, &link, &folder] {
            assert_eq!(WholeFile::create(path).expect_err("no file").kind(), io::ErrorKind::InvalidInput);
        }
        assert!(fs::metadata(&link).expect("it is there").file_type().is_socket());
        assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 2, "nothing is left beside it");
        fs::remove_dir_all(&folder).expect("it is this test's");
    }

    /// Somebody knows the names of the next temporary files, and has links there.
    #[cfg(unix)]
    #[test]
    fn a_link_in_the_place_of_a_temporary_file_is_not_followed() {
        let folder = folder("whole-file-links");
        let (path, theirs) = (folder.join("pool.json"), folder.join("theirs"));
        fs::write(&theirs, "as it was").expect("there is room");
        // Other tests may take some of the numbers; fewer than there are tries.
        let (beside, _) = file_beside(&path).expect("there is room");
        let name = beside.to_str().expect("it is text");
        let (before, number) = name.trim_end_matches(".partial").rsplit_once('-').expect("it has a number");
        let number: usize = number.parse().expect("it is a number");
        for next in number + 1..number + 20 {
            std::os::unix::fs::symlink(&theirs, format!("{before}-{next}.partial")).expect("there is room");
        }
        let (next, _) = file_beside(&path).expect("there are more names");
        assert!(fs::symlink_metadata(&next).expect("it is there").is_file(), "{} is a link", next.display());
        assert_eq!(fs::read(&theirs).expect("it is there"), b"as it was");
        fs::remove_dir_all(&folder).expect("it is this test's");
    }
}
