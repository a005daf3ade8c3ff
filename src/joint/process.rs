//! Whether a process that has let go of its locks is still there, and which others of its user are.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process;

use super::file::user;

/// This process: its number, and when it started, in ticks of the system's clock; 0 where nobody can say.
pub(crate) fn this_process() -> io::Result<(u32, u64)> {
    let number = process::id();
    Ok((number, Stat::read("self")?.map_or(0, |stat| stat.start_of(number))))
}

/// Whether a process that no longer has its lock is about to end: its devices may still be at work.
pub(crate) fn is_dying(number: u32, started: u64) -> bool {
    // A part of this process that gave up its lock alone, and lives; or one of which nobody could say when it started.
    if number == process::id() || started == 0 {
        return false;
    }
    match Stat::of(number) {
        Ok(Some(stat)) => stat.started == started && !stat.is_over(number),
        Ok(None) => false,
        // Who cannot be asked after now is not known to be gone.
        Err(_) => true,
    }
}

/// The other processes of this user that started then or later, and whose end has not come to its end.
pub(super) fn others_since(started: u64) -> io::Result<Vec<OtherProcess>> {
    // In the numbers of that list, which may not be this process's own.
    let mine = Stat::read("self")?.map(|stat| stat.number);
    let (user, mut others) = (user(), Vec::new());
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if Some(number) == mine || !entry.metadata().is_ok_and(|found| found.uid() == user) {
            continue;
        }
        if let Some(stat) = Stat::of(number)?
            && stat.started >= started
            && !stat.is_over(number)
        {
            others.push(OtherProcess { number, stat });
        }
    }
    Ok(others)
}

/// Another process of this user.
pub(super) struct OtherProcess {
    pub(super) number: u32,
    stat: Stat,
}

impl OtherProcess {
    /// Whether it has begun to end: its locks may be gone, and its descriptors not.
    pub(super) fn is_ending(&self) -> bool {
        // The first thread may have ended long before the others, so these are asked.
        self.stat.is_ending() || (self.stat.has_ended() && self.has_a_thread_that_ends())
    }

    fn has_a_thread_that_ends(&self) -> bool {
        let ends = |thread: fs::DirEntry| match fs::read(thread.path().join("stat")) {
            Ok(stat) => Stat::parse(&String::from_utf8_lossy(&stat)).is_some_and(|stat| stat.is_ending()),
            Err(error) => !is_none(&error),
        };
        match fs::read_dir(format!("/proc/{}/task", self.number)) {
            Ok(threads) => threads.flatten().any(ends),
            Err(error) => !is_none(&error),
        }
    }

    /// Its descriptors of files whose paths begin so.
    pub(super) fn descriptors(&self, prefix: &str) -> io::Result<Vec<Descriptor>> {
        match descriptors_of(&self.number.to_string(), prefix) {
            Err(error) if is_none(&error) => Ok(Vec::new()),
            found => found,
        }
    }
}

/// A descriptor, and the file that it is of.
pub(super) struct Descriptor {
    pub(super) number: u64,
    pub(super) path: std::path::PathBuf,
}

/// The descriptors of a process that are of files whose paths begin so.
pub(super) fn descriptors_of(process: &str, prefix: &str) -> io::Result<Vec<Descriptor>> {
    let entries = fs::read_dir(format!("/proc/{process}/fd"))?.flatten();
    let of_files = entries.filter_map(|entry| {
        let path = fs::read_link(entry.path()).ok()?;
        let number = entry.file_name().to_str()?.parse().ok()?;
        path.to_str()?.starts_with(prefix).then_some(Descriptor { number, path })
    });
    Ok(of_files.collect())
}

/// What the system says of a process.
struct Stat {
    /// As the list of processes has it: of another one's, where that of another container is mounted.
    number: u32,
    state: u8,
    flags: u64,
    started: u64,
}

impl Stat {
    /// `None` if there is no such process, or none that this one may see.
    fn of(number: u32) -> io::Result<Option<Self>> {
        Self::read(&number.to_string())
    }

    fn read(process: &str) -> io::Result<Option<Self>> {
        match fs::read(Path::new("/proc").join(process).join("stat")) {
            // The name is cut off behind 15 bytes, which may be in the middle of a letter.
            Ok(bytes) => Ok(Self::parse(&String::from_utf8_lossy(&bytes))),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The number, and behind the name, which may have any letters and ends with the last parenthesis: the state first, the flags
    /// seventh, and the start twentieth.
    fn parse(text: &str) -> Option<Self> {
        let (before, behind) = text.rsplit_once(") ")?;
        let number = before.split(' ').next()?.parse().ok()?;
        let mut words = behind.split(' ');
        let state = *words.next()?.as_bytes().first()?;
        let flags = words.nth(5)?.parse().ok()?;
        Some(Self { number, state, flags, started: words.nth(12)?.parse().ok()? })
    }

    /// When the process of that number started; 0 if this is another one's, of which others would ask in its place.
    fn start_of(&self, number: u32) -> u64 {
        if self.number == number { self.started } else { 0 }
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// It has begun to end, and still has something.
    fn is_ending(&self) -> bool {
        // `PF_EXITING`, of the kernel's `sched.h`: set before the memory of a process is taken from it.
        const EXITING: u64 = 0x4;
        self.flags & EXITING != 0 && !self.has_ended()
    }

    /// It has closed all that it had: nothing is left but its name, and none of its threads.
    fn is_over(&self, number: u32) -> bool {
        self.has_ended() && fs::read_dir(format!("/proc/{number}/task")).is_ok_and(|tasks| tasks.count() <= 1)
    }
}

/// The process has gone, before or after its file was opened, or is not to be seen.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied || is_none(error)
}

/// The process has gone, before or after its file was opened.
fn is_none(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_letters_are_read() {
        let text = "17 (a ) (b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        let stat = Stat::parse(text).expect("it is one");
        assert_eq!((stat.number, stat.state, stat.flags, stat.started), (17, b'R', 6, 4711));
        assert_eq!(
            (stat.start_of(17), stat.start_of(1)),
            (4711, 0),
            "that of another one's number is not its own"
        );
        assert!(Stat::parse("17 (a").is_none() && Stat::parse("17 (a) R 1").is_none());
    }

    #[test]
    fn a_child_is_there_until_it_has_been_killed() {
        let mut child = process::Command::new("sleep").arg("1000").spawn().expect("there is a `sleep`");
        let started = Stat::of(child.id()).expect("it can be asked").expect("it runs").started;
        assert!(is_dying(child.id(), started), "it is there");
        assert!(!is_dying(child.id(), started + 1), "another one had that number");
        assert!(!is_dying(child.id(), 0), "nobody could say");
        let (number, mine) = this_process().expect("it can be asked");
        assert!(mine > 0 && !is_dying(number, mine), "this one lives");
        child.kill().expect("it can be killed");
        while is_dying(child.id(), started) {
            std::thread::yield_now();
        }
        child.wait().expect("it has ended");
        assert!(!is_dying(child.id(), started));
    }
}
