//! The lease of what is shared: importers and exporters that are killed at every step of a hand-over, and forks.

#![expect(unsafe_code, reason = "forks")]

use std::env;
use std::io::Write;
use std::thread;
use std::time::Duration;

use alluvion::share::lease::{Hold, Lease, sweep};
use alluvion::share::{Import, ShareConfig, Shared};
use alluvion::source::Cuda;
use alluvion::{AnyResource, DeviceVec, Sim};

use crate::rerun::is_child;
use crate::shared_directory::SharedDirectory;
use crate::steps::{LEASE, Process, directory, eventually, message, name_of, step};
use crate::wait_for_fork::wait_for_fork;

/// 100 importers are killed, each at one of the steps of a hand-over; the exporter always comes to its end.
#[test]
fn importers_that_are_killed_are_gone() {
    const TEST: &str = "lease::importers_that_are_killed_are_gone";
    const STEPS: [&str; 4] = ["started", "joined", "given up", "joined again"];
    if is_child(TEST) {
        let name = name_of(&env::var(LEASE).expect("the parent says which"));
        step(STEPS[0], "");
        let hold = Hold::join(&directory(), name, &message(name)).expect("it is live");
        step(STEPS[1], "");
        hold.end();
        step(STEPS[2], "");
        let _hold = Hold::join(&directory(), name, &message(name)).expect("it is live");
        step(STEPS[3], "");
        unreachable!("the parent kills it here at the latest");
    }
    let directory = SharedDirectory::new();
    for round in 0..25 {
        let mut lease = Lease::begin(directory.path(), message).expect("there is room");
        let others: Vec<_> = (0..STEPS.len())
            .map(|last| {
                let mut other = Process::start(TEST, &directory, &format!("{:?}", lease.name()));
                for name in &STEPS[..last] {
                    other.reach(name);
                    other.go_on();
                }
                other.reach(STEPS[last]);
                other
            })
            .collect();
        assert_eq!(lease.holders().expect("the file is there"), 2, "round {round}: those that have joined");
        assert!(!lease.try_end().expect("the file is there"));
        others.into_iter().for_each(Process::kill);
        eventually(
            || lease.try_end().expect("the file is there"),
            "a process that was killed still has its hold",
        );
        assert_eq!(directory.files(), 0, "round {round}");
    }
}

/// 100 exporters are killed, each at one of the steps; nobody joins what a dead one left, and its file is removed.
#[test]
fn exporters_that_are_killed_leave_nothing() {
    const TEST: &str = "lease::exporters_that_are_killed_leave_nothing";
    const STEPS: [&str; 4] = ["started", "begun", "ended", "begun again"];
    if is_child(TEST) {
        step(STEPS[0], "");
        let mut lease = Lease::begin(&directory(), message).expect("there is room");
        step(STEPS[1], &format!("{:?}", lease.name()));
        assert!(lease.try_end().expect("the file is there"));
        step(STEPS[2], &format!("{:?}", lease.name()));
        let lease = Lease::begin(&directory(), message).expect("there is room");
        step(STEPS[3], &format!("{:?}", lease.name()));
        unreachable!("the parent kills it here at the latest");
    }
    let directory = SharedDirectory::new();
    for round in 0..25 {
        for last in 0..STEPS.len() {
            let mut other = Process::start(TEST, &directory, "");
            for name in &STEPS[..last] {
                other.reach(name);
                other.go_on();
            }
            let said = other.reach(STEPS[last]);
            let join = || Hold::join(directory.path(), name_of(&said), &message(name_of(&said)));
            match last {
                0 => other.kill(),
                2 => {
                    assert!(join().expect_err("it has ended").is_stale());
                    other.kill();
                }
                _ => {
                    let hold = join().expect("it is live");
                    assert!(hold.exporter_lives());
                    other.kill();
                    eventually(|| !hold.exporter_lives(), "an exporter that was killed lives");
                    if round % 2 == 0 {
                        assert!(join().expect_err("its exporter is dead").is_stale());
                        hold.end();
                    } else {
                        hold.end();
                        assert_eq!(directory.files(), 0, "who leaves the last has removed the file");
                    }
                }
            }
            eventually(
                || {
                    sweep(directory.path());
                    directory.files() == 0
                },
                "the file of a dead exporter stays",
            );
            assert_eq!(directory.files(), 0, "round {round}, step {last}");
        }
    }
}

/// A child of a fork keeps neither a lease nor a hold of its parent's, and ends none.
#[test]
fn a_child_of_a_fork_has_no_part() {
    let directory = SharedDirectory::new();
    let mut lease = Lease::begin(directory.path(), message).expect("there is room");
    let hold = Hold::join(directory.path(), lease.name(), &message(lease.name())).expect("it is live");
    // A pipe that is closed when the child has ended.
    let (mut begun, says) = std::io::pipe().expect("there is a pipe");
    // SAFETY: the child drops what it has of its parent, waits and ends, without a lock that another thread may have.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process can be forked");
    if child == 0 {
        let is_shut_down = |error: alluvion::Error| error.is_shut_down();
        let is_refused = lease.is_forked_child()
            && lease.holders().is_err_and(is_shut_down)
            && lease.try_end().is_err_and(is_shut_down);
        drop(lease);
        hold.end();
        let _ = (&says).write_all(if is_refused { b"x" } else { b"?" });
        // Long enough for the parent to end both; it is killed then.
        thread::sleep(Duration::from_secs(600));
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) };
    }
    let mut said = [0];
    std::io::Read::read_exact(&mut begun, &mut said).expect("the child says so");
    assert_eq!(&said, b"x", "it is refused, and nothing panics");
    assert_eq!(lease.holders().expect("the child has removed no file"), 1);
    assert!(hold.exporter_lives() && !lease.is_forked_child());
    hold.end();
    assert!(lease.try_end().expect("the file is there"), "the child, which lives, has no lock");
    assert_eq!(directory.files(), 0);
    // SAFETY: the child is this process's.
    unsafe { libc::kill(child, libc::SIGKILL) };
    let mut status = 0;
    // SAFETY: as above, and `status` is a number.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(libc::WIFSIGNALED(status));
}

/// What a parent shares and has open a child neither frees nor closes, and is refused.
#[test]
fn a_child_of_a_fork_shares_nothing_and_has_nothing_open() {
    let directory = SharedDirectory::new();
    let (first, second) = {
        let first = Sim::new();
        let second = first.process();
        (first, second)
    };
    let (stream, its_stream) =
        (first.device(0).stream().expect("a stream"), second.device(0).stream().expect("a stream"));
    let resource = AnyResource::new(Cuda::new(&first.device(0)));
    let vector = DeviceVec::from_slice_in(&[1, 2, 3], &stream, resource).expect("there is memory");
    let config = ShareConfig::default().directory(directory.path());
    let shared = Shared::with_config(vector, config, &stream).expect("it can be shared");
    let open = || Import::new(shared.message()).directory(directory.path()).open::<i32>(&its_stream);
    let imported = open().expect("it is there");
    // SAFETY: the child asks, drops and ends, without a lock that another thread may have.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process can be forked");
    if child == 0 {
        let is_refused = shared.importers().is_err_and(|error| error.is_shut_down())
            && open().is_err_and(|error| error.is_shut_down())
            && imported.to_vec(&its_stream).is_err();
        drop(imported);
        let is_kept = shared.try_end().is_err();
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(!(is_refused && is_kept))) };
    }
    wait_for_fork(child);
    assert_eq!(shared.importers().expect("the file is there"), 1);
    assert_eq!(imported.to_vec(&its_stream).expect("it is open"), [1, 2, 3]);
    drop(imported);
    drop((shared.try_end().expect("nobody has it"), stream, its_stream));
    first.assert_clean();
    second.assert_clean();
    assert_eq!(directory.files(), 0);
}
