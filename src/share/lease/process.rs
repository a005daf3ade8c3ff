//! Whether a process that has let go of its locks is still there.

use std::fs;
use std::io;
use std::process;

/// This process: its number, and when it started, in ticks of the system's clock; 0 where nobody can say.
///
/// # Errors
///
/// If the system could say, and does not now, as without a descriptor to ask it by.
pub(super) fn this_process() -> io::Result<(u32, u64)> {
    let number = process::id();
    Ok((number, Stat::of(number)?.map_or(0, |stat| stat.started)))
}

/// Whether a process that no longer has its lock is about to end: its devices may still be at work.
pub(super) fn is_dying(number: u32, started: u64) -> bool {
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

/// What the system says of a process.
struct Stat {
    state: u8,
    started: u64,
}

impl Stat {
    /// `None` if there is no such process, or none that this one may see.
    fn of(number: u32) -> io::Result<Option<Self>> {
        match fs::read(format!("/proc/{number}/stat")) {
            // The name is cut off behind 15 bytes, which may be in the middle of a letter.
            Ok(bytes) => Ok(Self::parse(&String::from_utf8_lossy(&bytes))),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Behind the name, which may have any letters and ends with the last parenthesis: the state first, and the start twentieth.
    fn parse(text: &str) -> Option<Self> {
        let (_, behind) = text.rsplit_once(") ")?;
        let mut words = behind.split(' ');
        let state = *words.next()?.as_bytes().first()?;
        Some(Self { state, started: words.nth(18)?.parse().ok()? })
    }

    /// It has closed all that it had: nothing is left but its name, and none of its threads.
    fn is_over(&self, number: u32) -> bool {
        let has_ended = matches!(self.state, b'Z' | b'X');
        has_ended && fs::read_dir(format!("/proc/{number}/task")).is_ok_and(|tasks| tasks.count() <= 1)
    }
}

/// The process has gone, before or after its file was opened, or is not to be seen.
fn is_gone(error: &io::Error) -> bool {
    // ESRCH, on Linux, where alone there is such a file.
    const NO_SUCH_PROCESS: i32 = 3;
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
        || error.raw_os_error() == Some(NO_SUCH_PROCESS)
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_letters_are_read() {
        let text = "17 (a ) (b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        let stat = Stat::parse(text).expect("it is one");
        assert_eq!((stat.state, stat.started), (b'R', 4711));
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
