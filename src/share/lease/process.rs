//! Whether a process that has let go of its locks is still there.

use std::fs;
use std::process;

/// This process: its number, and when it started, in ticks of the system's clock; 0 where nobody can say.
pub(super) fn this_process() -> (u32, u64) {
    let number = process::id();
    (number, Stat::of(number).map_or(0, |stat| stat.started))
}

/// Whether a process that no longer has its lock is about to end: its devices may still be at work.
pub(super) fn is_dying(number: u32, started: u64) -> bool {
    // A part of this process that gave up its lock alone, and lives.
    if number == process::id() {
        return false;
    }
    match Stat::of(number) {
        Some(stat) if started != 0 && stat.started == started => !stat.is_over(number),
        _ => false,
    }
}

/// What the system says of a process.
struct Stat {
    state: u8,
    started: u64,
}

impl Stat {
    fn of(number: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?)
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
        let started = Stat::of(child.id()).expect("it runs").started;
        assert!(is_dying(child.id(), started), "it is there");
        assert!(!is_dying(child.id(), started + 1), "another one had that number");
        assert!(!is_dying(child.id(), 0), "nobody could say");
        let (number, mine) = this_process();
        assert!(mine > 0 && !is_dying(number, mine), "this one lives");
        child.kill().expect("it can be killed");
        while is_dying(child.id(), started) {
            std::thread::yield_now();
        }
        child.wait().expect("it has ended");
        assert!(!is_dying(child.id(), started));
    }
}
