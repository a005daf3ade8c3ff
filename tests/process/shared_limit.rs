//! A limit that processes share: processes that are killed at any moment, two services that compete, forks.

#![expect(unsafe_code, reason = "forks, kills, and locks the bytes of a file")]

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use alluvion::adaptor::{Allowance, Reservation, SharedConfig};
use alluvion::error::Member;

use crate::rerun::{CHILD, is_child};
use crate::shared_directory::SharedDirectory;
use crate::wait_for_fork::wait_for_fork;

/// Bytes are counted in units of 256.
const UNIT: usize = 256;
/// The units of the limit.
const UNITS: usize = 64;

/// Where the file is, for a child.
const DIRECTORY: &str = "ALLUVION_TEST_DIRECTORY";

/// Numbers that look random, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// A process that runs the test of that name as a child, and speaks to this one in lines.
struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Process {
    fn start(test: &str, directory: &SharedDirectory) -> Self {
        let mut child = Command::new(env::current_exe().expect("this program has a file"))
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(CHILD, test)
            .env(DIRECTORY, directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        Self { child, lines }
    }

    /// Waits until it says a line that ends with that.
    #[track_caller]
    fn wait_for(&mut self, word: &str) -> String {
        for line in &mut self.lines {
            let line = line.expect("it is text");
            if line.ends_with(word) {
                return line;
            }
        }
        panic!("the child ended without a word of `{word}`");
    }

    /// Kills it, wherever it is, and returns its number.
    fn kill(mut self) -> u32 {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child ends");
        self.child.id()
    }
}

/// Waits until something is so. The kernel gives the lock of a process that has ended back when the last user of its memory is gone:
/// whoever looks at the process, as `ps` does or the kernel itself, is one for a moment.
fn eventually(is_so: impl Fn() -> bool, what: &str) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(300), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until what a process had that has ended has come back.
fn clear(allowance: &Allowance, process: u32) {
    let is_gone = || allowance.members().iter().all(|member| member.process != Some(process));
    eventually(is_gone, "a process that was killed is a member for good");
}

fn say(word: &str) {
    println!("{word}");
    std::io::stdout().flush().expect("the parent listens");
}

fn config(directory: &Path) -> SharedConfig {
    SharedConfig::new("card", UNITS * UNIT).directory(directory)
}

fn config_of_child() -> SharedConfig {
    config(Path::new(&env::var_os(DIRECTORY).expect("the parent says where")))
}

fn join(config: &SharedConfig) -> Allowance {
    Allowance::shared(config).unwrap_or_else(|error| panic!("{error}"))
}

fn used(members: &[Member]) -> usize {
    members.iter().map(|member| member.used_bytes).sum()
}

/// Takes and gives back for ever, some units at a time.
fn take_and_give(allowance: &Allowance) -> ! {
    let mut dice = Dice(std::process::id().into());
    let mut parts: Vec<Reservation> = Vec::new();
    loop {
        if dice.below(2) == 0
            && let Ok(part) = allowance.reserve((1 + dice.below(UNITS / 2)) * UNIT)
        {
            parts.push(part);
        } else if !parts.is_empty() {
            drop(parts.swap_remove(dice.below(parts.len())));
        }
    }
}

/// 120 processes are killed, half of them while they take and give, half while they start or join; others live meanwhile.
#[test]
fn what_killed_processes_had_comes_back() {
    const TEST: &str = "shared_limit::what_killed_processes_had_comes_back";
    if is_child(TEST) {
        let allowance = join(&config_of_child());
        say("joined");
        take_and_give(&allowance);
    }
    let directory = SharedDirectory::new();
    let mine = join(&config(directory.path()));
    let (mut dice, mut lost) = (Dice(1), 0);
    for round in 0..40 {
        let mut others: Vec<_> = (0..3).map(|_| Process::start(TEST, &directory)).collect();
        for (at, other) in others.iter_mut().enumerate() {
            if (round + at) % 2 == 0 {
                other.wait_for("joined");
            }
        }
        for (left, other) in others.into_iter().enumerate().rev() {
            for _ in 0..dice.below(2000) {
                let part = mine.reserve((1 + dice.below(UNITS)) * UNIT);
                let all = used(&mine.members());
                assert!(all <= UNITS * UNIT, "{all} bytes are out");
                assert!(part.is_err() || all >= UNIT);
            }
            clear(&mine, other.kill());
            lost += 1;
            assert!(mine.members().len() <= 1 + left, "{:?}", mine.members());
        }
        assert_eq!((used(&mine.members()), mine.members().len()), (0, 1), "all is clear again");
        drop(mine.reserve(UNITS * UNIT).expect("nobody has any"));
    }
    assert_eq!(lost, 120);
}

/// A refusal finds out that others are dead, without that anybody looks before.
#[test]
fn what_the_dead_had_is_had_before_anybody_is_refused() {
    const TEST: &str = "shared_limit::what_the_dead_had_is_had_before_anybody_is_refused";
    if is_child(TEST) {
        let allowance = join(&config_of_child());
        let _part = allowance.reserve(UNITS * UNIT).expect("nobody has any");
        say("has all");
        loop {
            thread::park();
        }
    }
    let directory = SharedDirectory::new();
    let mine = join(&config(directory.path()));
    for _ in 0..10 {
        let mut other = Process::start(TEST, &directory);
        other.wait_for("has all");
        let error = mine.reserve(UNIT).expect_err("it has all");
        assert!(error.to_string().contains(&format!("process {} has 16 KiB", other.child.id())), "{error}");
        other.kill();
        assert_eq!(mine.free_bytes(), 0, "nobody has looked");
        eventually(|| mine.reserve(UNITS * UNIT).is_ok(), "it is dead");
    }
}

/// The memory of a card, of which the limit is all: units that one process has at a time, which the kernel takes from the dead.
struct Card(File);

impl Card {
    fn open(directory: &Path) -> Self {
        let mut options = OpenOptions::new();
        Self(
            options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(directory.join("units"))
                .expect("it is ours"),
        )
    }

    fn set(&self, at: usize, kind: libc::c_int) -> bool {
        // SAFETY: a `flock` is numbers, of which all zeros are a value.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        (range.l_type, range.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
        (range.l_start, range.l_len) = (at as libc::off_t, 1);
        // SAFETY: the descriptor is open, and the command takes a `flock`, which lives until it returns.
        unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_OFD_SETLK, &raw mut range) == 0 }
    }

    /// Takes `count` units into `held`. They are there: the limit says so, and of two processes each finds what the other has let
    /// go of before it took this, in one look from the first to the last.
    fn take(&self, count: usize, held: &mut Vec<usize>) {
        let before = held.len();
        for at in 0..UNITS {
            // A lock that this process has it would get again.
            if held.len() < before + count && !held.contains(&at) && self.set(at, libc::F_WRLCK) {
                held.push(at);
            }
        }
        assert_eq!(held.len() - before, count, "more is out than there is");
    }

    fn give(&self, count: usize, held: &mut Vec<usize>) {
        for at in held.drain(..count) {
            assert!(self.set(at, libc::F_UNLCK));
        }
    }
}

/// A service: it gets what is guaranteed to it whenever it asks, and takes all that it can beyond.
struct Service {
    allowance: Allowance,
    card: Card,
    held: Vec<usize>,
    parts: Vec<(usize, Reservation)>,
    guaranteed: usize,
    dice: Dice,
}

impl Service {
    fn new(config: SharedConfig, directory: &Path, name: &str, guaranteed: usize) -> Self {
        let config = config.guarantee("server", 24 * UNIT).guarantee("trainer", 16 * UNIT);
        Self {
            allowance: join(&config.member(name)),
            card: Card::open(directory),
            held: Vec::new(),
            parts: Vec::new(),
            guaranteed,
            dice: Dice(7),
        }
    }

    fn give_all(&mut self) {
        self.card.give(self.held.len(), &mut self.held);
        self.parts.clear();
    }

    fn take(&mut self, count: usize) -> bool {
        let Ok(part) = self.allowance.reserve(count * UNIT) else { return false };
        self.card.take(count, &mut self.held);
        self.parts.push((count, part));
        true
    }

    /// Its guarantee in pieces, and then whatever there is.
    fn work(&mut self) {
        self.give_all();
        while self.held.len() < self.guaranteed {
            let left = self.guaranteed - self.held.len();
            let count = 1 + self.dice.below(left);
            assert!(
                self.take(count),
                "it is refused {count} units of its guarantee: {:?}",
                self.allowance.members()
            );
        }
        while self.take(1) {}
        let most = UNITS - if self.guaranteed == 24 { 16 } else { 24 };
        assert!(self.held.len() <= most, "{} units are in one hand", self.held.len());
        while self.held.len() > self.guaranteed && self.dice.below(4) > 0 {
            let at = self.dice.below(self.parts.len());
            let (count, part) = self.parts.swap_remove(at);
            self.card.give(count, &mut self.held);
            drop(part);
        }
    }
}

/// Two services under one limit, one of which is killed and started again: neither starves the other, and what both have is never
/// more than there is.
#[test]
fn two_services_do_not_starve_each_other() {
    const TEST: &str = "shared_limit::two_services_do_not_starve_each_other";
    if is_child(TEST) {
        let directory = env::var_os(DIRECTORY).expect("the parent says where");
        let mut trainer = Service::new(config_of_child(), Path::new(&directory), "trainer", 16);
        loop {
            trainer.work();
            say("worked");
        }
    }
    let directory = SharedDirectory::new();
    let mut server = Service::new(config(directory.path()), directory.path(), "server", 24);
    let mut dice = Dice(3);
    for _ in 0..25 {
        // The trainer starts while the server has all that it can have.
        server.work();
        let mut trainer = Process::start(TEST, &directory);
        for _ in 0..1 + dice.below(5) {
            trainer.wait_for("worked");
            for _ in 0..dice.below(50) {
                server.work();
            }
        }
        clear(&server.allowance, trainer.kill());
    }
    server.give_all();
    let members = server.allowance.members();
    assert_eq!((used(&members), members.len()), (0, 2), "{members:?}");
}

/// A child of a fork has no part, and gets one of its own. What its parent had comes back when both have ended.
#[test]
fn the_child_of_a_fork_has_no_part() {
    const TEST: &str = "shared_limit::the_child_of_a_fork_has_no_part";
    if is_child(TEST) {
        let allowance = join(&config_of_child());
        let part = allowance.reserve(UNITS / 2 * UNIT).expect("nobody has any");
        // SAFETY: the child goes on with this thread alone, and calls what is made for a fork.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "a process can be forked");
        if child == 0 {
            let is_refused = allowance.reserve(UNIT).is_err_and(|error| error.is_shut_down());
            let knows_nobody = allowance.members().is_empty() && allowance.free_bytes() <= UNITS * UNIT;
            drop((part, allowance));
            // It joins as itself.
            let own = join(&config_of_child());
            let gets_its_own = own.reserve(UNIT).is_ok() && own.members().len() == 3;
            drop(own);
            // Not through `println`, whose lock another thread may have had.
            let words = [is_refused, knows_nobody, gets_its_own].map(|it| if it { b'y' } else { b'n' });
            let words = [words[0], words[1], words[2], b'.', b'\n'];
            // SAFETY: the bytes are live, and as many.
            unsafe { libc::write(1, words.as_ptr().cast(), words.len()) };
            // Until the test ends, and with it the other end of the pipe.
            let mut byte = 0_u8;
            // SAFETY: the byte is a live local.
            unsafe { libc::read(0, (&raw mut byte).cast(), 1) };
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(0) };
        }
        loop {
            thread::park();
        }
    }
    let directory = SharedDirectory::new();
    let mine = join(&config(directory.path()));
    let mut other = Process::start(TEST, &directory);
    let child = other.child.stdin.take();
    let words = other.wait_for(".");
    assert!(words.ends_with("yyy."), "is refused, knows nobody, gets its own: {words}");
    assert_eq!(used(&mine.members()), UNITS / 2 * UNIT, "what the child has dropped is its parent's");
    let parent = other.kill();
    assert_eq!(used(&mine.members()), UNITS / 2 * UNIT, "the driver keeps what its parent had for the child");
    drop(child);
    clear(&mine, parent);
    drop(mine.reserve(UNITS * UNIT).expect("both have ended"));
    assert_eq!(mine.members().len(), 1);
}

/// The parent goes on after a fork as before.
#[test]
fn a_fork_changes_nothing_for_the_parent() {
    const TEST: &str = "shared_limit::a_fork_changes_nothing_for_the_parent";
    let directory = SharedDirectory::new();
    crate::child::in_child(TEST, 1, || {
        let mine = join(&config(directory.path()));
        let part = mine.reserve(UNIT).expect("there is room");
        // SAFETY: as above.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "a process can be forked");
        if child == 0 {
            drop((part, mine));
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(0) };
        }
        wait_for_fork(child);
        assert_eq!((used(&mine.members()), mine.members().len()), (UNIT, 1));
        drop(part);
        drop(mine.reserve(UNITS * UNIT).expect("all is there"));
        crate::child::done();
    });
}
