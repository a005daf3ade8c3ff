//! The lease of what is shared, where much happens at once: processes that are about to end, forks, and no descriptor that is free.

#![expect(unsafe_code, reason = "forks, locks a file and limits descriptors")]

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use alluvion::ErrorKind;
use alluvion::share::lease::{Hold, Lease, LeaseName};

use crate::rerun::{is_child, run_child};
use crate::shared_directory::SharedDirectory;

/// Where the seats are in the file of a lease: two words each, of which the first is the process and when it started, and the second
/// the mark of its kin.
const AT_SEATS: u64 = 64 * 8;
const SEATS: u64 = 224;

fn message(name: LeaseName) -> Vec<u8> {
    name.0.to_vec()
}

fn begin(directory: &SharedDirectory) -> Lease {
    Lease::begin(directory.path(), message).expect("there is room")
}

fn join(directory: &SharedDirectory, lease: &Lease) -> Result<Hold, alluvion::Error> {
    Hold::join(directory.path(), lease.name(), &message(lease.name()))
}

fn file_of(directory: &SharedDirectory, lease: &Lease) -> File {
    let path = directory.file(&format!("{:?}", lease.name()));
    File::options().read(true).write(true).open(path).expect("it is there")
}

/// The number of the file of marks, which is made by whoever joins first.
fn marks_of(directory: &SharedDirectory, lease: &Lease) -> u64 {
    join(directory, lease).expect("it is live").end();
    fs::metadata(directory.room().join(".kin")).expect("it is there").ino()
}

/// A process that has let go of its lock, and is still there: as one that was killed, whose devices the kernel has not closed yet.
struct Dying(Child);

impl Dying {
    fn new() -> Self {
        let quiet = || Stdio::null();
        let sleeps = Command::new("sleep").arg("1000").stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
        Self(sleeps.expect("there is a `sleep`"))
    }

    /// Leaves a seat as it does.
    fn sits_at(&self, seat: u64, file: &File, marks: u64) {
        let number = self.0.id();
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).expect("it runs");
        let (_, behind) = stat.rsplit_once(") ").expect("it has a name");
        let started: u64 =
            behind.split(' ').nth(19).and_then(|word| word.parse().ok()).expect("it has begun");
        // The mark of a process that has none of its kin left: of this file of marks, and nobody has it.
        let kin = (marks & ((1 << 22) - 1)) << 40 | 1;
        let words = [started << 22 | u64::from(number), kin].map(u64::to_ne_bytes).concat();
        file.write_all_at(&words, AT_SEATS + 16 * seat).expect("it can be written");
    }

    fn end(self) {}
}

impl Drop for Dying {
    fn drop(&mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it ends");
    }
}

#[test]
fn the_seat_of_a_process_that_is_about_to_end_is_nobody_elses() {
    let directory = SharedDirectory::new();
    let mut lease = begin(&directory);
    let dying = Dying::new();
    dying.sits_at(0, &file_of(&directory, &lease), marks_of(&directory, &lease));
    assert!(!lease.try_end().expect("the file is there"));
    // Whoever took its seat would be the one that the seat names.
    join(&directory, &lease).expect("there are other seats").end();
    assert!(!lease.try_end().expect("the file is there"), "its devices may be at work");
    dying.end();
    assert!(lease.try_end().expect("the file is there"));
}

#[test]
fn who_comes_while_all_are_about_to_end_waits_for_one_of_them() {
    let directory = SharedDirectory::new();
    let mut lease = begin(&directory);
    let dying = Dying::new();
    let marks = marks_of(&directory, &lease);
    (0..SEATS).for_each(|seat| dying.sits_at(seat, &file_of(&directory, &lease), marks));
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let joins = scope.spawn(|| {
            let hold = join(&directory, &lease);
            (has_ended.load(Ordering::SeqCst), hold)
        });
        give_time_for_a_mistake(&joins);
        has_ended.store(true, Ordering::SeqCst);
        dying.end();
        let (has_ended, hold) = joins.join().expect("it does not panic");
        assert!(has_ended);
        hold.expect("there is a seat").end();
    });
    assert!(lease.try_end().expect("the file is there"));
}

/// Time in which a thread that should wait could come to its end. A thread that is slow makes no difference.
fn give_time_for_a_mistake<T>(waits: &ScopedJoinHandle<'_, T>) {
    for _ in 0..50 {
        thread::sleep(Duration::from_millis(1));
        assert!(!waits.is_finished(), "it does not wait");
    }
}

/// The exporter locks all seats while it asks whether it may end the lease.
#[test]
fn who_comes_while_the_exporter_asks_waits_for_the_answer() {
    let directory = SharedDirectory::new();
    let mut lease = begin(&directory);
    for is_over in [false, true] {
        let asks = file_of(&directory, &lease);
        let lock = |kind: i32| {
            // SAFETY: a `flock` is numbers, of which all zeros are a value.
            let mut range: libc::flock = unsafe { std::mem::zeroed() };
            (range.l_type, range.l_start, range.l_len) = (kind as i16, 1, SEATS as i64);
            // SAFETY: the descriptor is open, and the `flock` lives until the call returns.
            assert_eq!(unsafe { libc::fcntl(asks.as_raw_fd(), libc::F_OFD_SETLK, &raw mut range) }, 0);
        };
        lock(libc::F_WRLCK);
        thread::scope(|scope| {
            let joins = scope.spawn(|| join(&directory, &lease));
            give_time_for_a_mistake(&joins);
            if is_over {
                asks.write_all_at(&2_u64.to_ne_bytes(), 16).expect("it can be written");
            }
            lock(libc::F_UNLCK);
            let joined = joins.join().expect("it does not panic");
            match joined {
                Ok(hold) => {
                    assert!(!is_over);
                    hold.end();
                }
                Err(error) => assert!(is_over && error.is_stale(), "{error}"),
            }
        });
    }
    assert!(lease.try_end().expect("the file is there"));
}

/// Children that begin while leases and holds begin keep none of them, for as long as they live.
#[test]
fn a_fork_takes_no_lock_with_it() {
    const TEST: &str = "lease_crowd::a_fork_takes_no_lock_with_it";
    const CHILDREN: u32 = 200;
    if !is_child(TEST) {
        let ended = run_child(TEST, &[]);
        assert!(ended.status.success(), "{}{}", ended.printed, ended.said);
        return;
    }
    let directory = SharedDirectory::new();
    let (rounds, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let (children, kept) = thread::scope(|scope| {
        let forks = scope.spawn(|| {
            let fork = |round: u32| {
                // One in each of some rounds, at any step of it.
                while rounds.load(Ordering::SeqCst) < 3 * round {
                    std::hint::spin_loop();
                }
                // SAFETY: the child waits for its end, and calls nothing else.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    loop {
                        // SAFETY: it waits for a signal.
                        unsafe { libc::pause() };
                    }
                }
                child
            };
            let children: Vec<_> = (0..CHILDREN).map(fork).collect();
            is_over.store(true, Ordering::SeqCst);
            children
        });
        let mut kept = 0;
        while !is_over.load(Ordering::SeqCst) {
            let mut lease = begin(&directory);
            rounds.fetch_add(1, Ordering::SeqCst);
            join(&directory, &lease).expect("it is live").end();
            kept += usize::from(!lease.try_end().expect("the file is there"));
            rounds.fetch_add(1, Ordering::SeqCst);
            let lease = begin(&directory);
            let hold = join(&directory, &lease).expect("it is live");
            drop(lease);
            kept += usize::from(hold.exporter_lives());
            hold.end();
        }
        (forks.join().expect("it does not panic"), kept)
    });
    for child in children {
        assert!(child > 0, "a process can be forked");
        // SAFETY: the child is this process's.
        unsafe { libc::kill(child, libc::SIGKILL) };
        let mut status = 0;
        // SAFETY: as above, and `status` is a number.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
    }
    assert_eq!(kept, 0, "children keep locks");
}

/// Every number of free descriptors, from none: a call says that there are too few, or does its work, and leaves no file.
#[test]
fn too_few_descriptors_are_an_error_and_lose_nothing() {
    const TEST: &str = "lease_crowd::too_few_descriptors_are_an_error_and_lose_nothing";
    if !is_child(TEST) {
        let ended = run_child(TEST, &[]);
        assert!(ended.status.success(), "{}{}", ended.printed, ended.said);
        return;
    }
    let directory = SharedDirectory::new();
    let mut lease = begin(&directory);
    let hold = join(&directory, &lease).expect("it is live");
    let mut done = [0; 5];
    for free in 0..6 {
        let begun = with_free(free, || Lease::begin(directory.path(), message));
        match begun {
            Ok(lease) => {
                done[0] += 1;
                drop(lease);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unwritable, "{error}"),
        }
        assert_eq!(directory.files(), 1, "the file of a lease that was refused, with {free} free");
        match with_free(free, || join(&directory, &lease)) {
            Ok(hold) => {
                done[1] += 1;
                hold.end();
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unwritable, "{error}"),
        }
        assert_eq!(lease.holders().expect("the file is there"), 1, "with {free} free");
        done[2] += usize::from(with_free(free, || lease.holders().is_ok()));
        assert!(with_free(free, || hold.exporter_lives()), "it lives, with {free} free");
    }
    hold.end();
    let dying = Dying::new();
    dying.sits_at(7, &file_of(&directory, &lease), marks_of(&directory, &lease));
    for free in 0..6 {
        let ended = with_free(free, || lease.try_end());
        assert!(ended.as_ref().is_ok_and(|ended| !ended) || ended.is_err(), "with {free} free");
        done[3] += usize::from(ended.is_ok());
    }
    dying.end();
    for free in 0..6 {
        done[4] += usize::from(with_free(free, || lease.try_end()).is_ok_and(|ended| ended));
    }
    assert!(done.iter().all(|&done| (1..6).contains(&done)), "{done:?}");
    assert_eq!(directory.files(), 0);
}

/// Runs something with so many descriptors that are free.
fn with_free<T>(free: usize, run: impl FnOnce() -> T) -> T {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    let few = libc::rlimit { rlim_cur: 64, ..limit };
    // SAFETY: `few` is a limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    taken.truncate(taken.len() - free);
    let outcome = run();
    drop(taken);
    // SAFETY: it is what it was.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    outcome
}

/// A directory that is named from where the process is stays the one that it was.
#[test]
fn a_process_may_go_elsewhere_meanwhile() {
    const TEST: &str = "lease_crowd::a_process_may_go_elsewhere_meanwhile";
    if !is_child(TEST) {
        let ended = run_child(TEST, &[]);
        assert!(ended.status.success(), "{}{}", ended.printed, ended.said);
        return;
    }
    let directory = SharedDirectory::new();
    std::env::set_current_dir(directory.path()).expect("it is there");
    let mut lease = Lease::begin(Path::new("."), message).expect("there is room");
    let hold = Hold::join(Path::new("."), lease.name(), &message(lease.name())).expect("it is live");
    std::env::set_current_dir("/").expect("it is there");
    assert!(hold.exporter_lives());
    assert_eq!(lease.holders().expect("the file is there"), 1);
    hold.end();
    assert!(lease.try_end().expect("the file is there"));
    assert_eq!(directory.files(), 0);
}
