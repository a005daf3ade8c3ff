//! What a process leaves that is killed while a child of its fork lives: the driver keeps all that it had, and runs what it had queued,
//! for as long as anybody has its descriptors of the device.

#![expect(unsafe_code, reason = "forks")]

use std::env;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use alluvion::ErrorKind;
use alluvion::adaptor::{Allowance, SharedConfig};
use alluvion::error::Member;
use alluvion::share::lease::{Hold, Lease};

use crate::rerun::is_child;
use crate::shared_directory::SharedDirectory;
use crate::steps::{LEASE, Process, directory, eventually, message, name_of, step};

const BYTES: usize = 64 << 10;

/// Forks a child, which waits until the test ends or lets it go, and has no say before.
fn fork_one_that_waits() {
    // SAFETY: the child waits and ends, without a lock that another thread may have.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process can be forked");
    if child == 0 {
        wait();
    }
}

/// Waits until the other end of the pipe is closed, and ends the process.
fn wait() -> ! {
    let mut byte = 0_u8;
    // SAFETY: the byte is a live local.
    while unsafe { libc::read(0, (&raw mut byte).cast(), 1) } > 0 {}
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(0) }
}

/// What a process leaves behind.
fn leave(kind: &str) {
    match kind {
        "nobody" => {}
        "a child" => fork_one_that_waits(),
        "a grandchild" => {
            // SAFETY: as above.
            let child = unsafe { libc::fork() };
            assert!(child >= 0, "a process can be forked");
            if child == 0 {
                fork_one_that_waits();
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(0) };
            }
            crate::wait_for_fork::wait_for_fork(child);
        }
        "a program" => {
            let cat = Command::new("cat").stdin(Stdio::inherit()).stdout(Stdio::null()).spawn();
            drop(cat.expect("there is a `cat`"));
        }
        other => unreachable!("{other}"),
    }
}

/// Time for a mistake: whoever is slow makes none.
fn for_a_while(is_so: impl Fn() -> bool, what: &str) {
    for _ in 0..50 {
        assert!(is_so(), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// An importer that has forked, before it joined or after, and is killed with its hold or without it.
fn import() {
    let said = env::var(LEASE).expect("the parent says which");
    let [name, before, behind, ends] = said.split(',').collect::<Vec<_>>()[..] else {
        unreachable!("{said}")
    };
    let name = name_of(name);
    leave(before);
    let hold = Hold::join(&directory(), name, &message(name)).expect("it is live");
    leave(behind);
    if ends == "given up" {
        hold.end();
    }
    step("ready", "");
}

#[test]
fn a_lease_does_not_end_before_the_children_of_a_killed_importer() {
    const TEST: &str = "kin::a_lease_does_not_end_before_the_children_of_a_killed_importer";
    if is_child(TEST) {
        return import();
    }
    for kind in ["a child", "a grandchild"] {
        let directory = SharedDirectory::new();
        let mut lease = Lease::begin(directory.path(), message).expect("there is room");
        let mut other = Process::start(TEST, &directory, &format!("{:?},nobody,{kind},killed", lease.name()));
        other.reach("ready");
        let child = other.kill_alone();
        for _ in 0..50 {
            assert!(!lease.try_end().expect("the file is there"), "{kind}: what it had queued may run");
            assert_eq!(lease.holders().expect("the file is there"), 1, "{kind}");
            thread::sleep(Duration::from_millis(1));
        }
        // Another importer gets another seat, and leaves that one as it is.
        Hold::join(directory.path(), lease.name(), &message(lease.name())).expect("it is live").end();
        assert!(!lease.try_end().expect("the file is there"), "{kind}");
        drop(child);
        eventually(|| lease.try_end().expect("the file is there"), "the child has ended");
        assert_eq!((lease.holders().expect("it is over"), directory.files()), (0, 0), "{kind}");
    }
}

/// A child that begins another program has no descriptor of the device any more, nor has one that was forked before there was any. Who
/// has given its hold up has nothing queued.
#[test]
fn children_without_the_device_keep_no_lease() {
    const TEST: &str = "kin::children_without_the_device_keep_no_lease";
    if is_child(TEST) {
        return import();
    }
    for kind in ["nobody,a program,killed", "a child,nobody,killed", "nobody,a child,given up"] {
        let directory = SharedDirectory::new();
        let mut lease = Lease::begin(directory.path(), message).expect("there is room");
        let mut other = Process::start(TEST, &directory, &format!("{:?},{kind}", lease.name()));
        other.reach("ready");
        let child = other.kill_alone();
        eventually(|| lease.try_end().expect("the file is there"), kind);
        drop(child);
    }
}

fn limit(directory: &std::path::Path) -> SharedConfig {
    SharedConfig::new("card", BYTES).directory(directory).guarantee("server", BYTES / 2)
}

fn used(members: &[Member]) -> usize {
    members.iter().map(|member| member.used_bytes).sum()
}

/// A member that has forked, and is killed.
fn take() {
    let said = env::var(LEASE).expect("the parent says which");
    let [before, behind] = said.split(',').collect::<Vec<_>>()[..] else { unreachable!("{said}") };
    leave(before);
    let allowance = Allowance::shared(&limit(&directory()).member("server")).expect("there is room");
    let _part = allowance.reserve(BYTES).expect("nobody has any");
    leave(behind);
    step("ready", "");
}

#[test]
fn what_a_killed_member_had_is_lent_when_its_children_have_ended() {
    const TEST: &str = "kin::what_a_killed_member_had_is_lent_when_its_children_have_ended";
    if is_child(TEST) {
        return take();
    }
    for kind in ["a child", "a grandchild"] {
        let directory = SharedDirectory::new();
        let mine = Allowance::shared(&limit(directory.path())).expect("there is room");
        let mut other = Process::start(TEST, &directory, &format!("nobody,{kind}"));
        other.reach("ready");
        let number = other.number();
        let child = other.kill_alone();
        for_a_while(|| mine.reserve(256).is_err(), "the driver has it still");
        let error = mine.reserve(256).expect_err("all is out").to_string();
        assert!(error.contains(&format!("`server`, process {number}, has 64 KiB")), "{error}");
        assert_eq!(used(&mine.members()), BYTES);
        // Its name has no room for another one, for as long as it is not there.
        let error =
            Allowance::shared(&limit(directory.path()).member("server")).expect_err("its memory is out");
        assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
        let why = format!("process {number} has ended, and a process that it forked keeps its memory");
        assert!(error.to_string().contains(&why), "{error}");
        let larger = SharedConfig::new("card", 2 * BYTES).directory(directory.path());
        assert!(Allowance::shared(&larger).is_err(), "the limit has members");
        drop(child);
        eventually(|| mine.reserve(BYTES / 2).is_ok(), "the child has ended");
        assert_eq!(used(&mine.members()), 0);
        let next = Allowance::shared(&limit(directory.path()).member("server")).expect("nobody is");
        drop(next.reserve(BYTES).expect("all is there"));
    }
}

#[test]
fn children_without_the_device_keep_nothing_of_a_limit() {
    const TEST: &str = "kin::children_without_the_device_keep_nothing_of_a_limit";
    if is_child(TEST) {
        return take();
    }
    for kind in ["nobody,a program", "a child,nobody"] {
        let directory = SharedDirectory::new();
        let mine = Allowance::shared(&limit(directory.path())).expect("there is room");
        let mut other = Process::start(TEST, &directory, kind);
        other.reach("ready");
        let child = other.kill_alone();
        eventually(|| mine.reserve(BYTES / 2).is_ok(), kind);
        drop(child);
    }
}
