//! The lease of what is shared: importers and exporters that are killed at every step of a hand-over, and forks.

#![expect(unsafe_code, reason = "forks")]

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use alluvion::share::lease::{Hold, Lease, LeaseName, sweep};
use alluvion::share::{Import, ShareConfig, Shared};
use alluvion::source::Cuda;
use alluvion::{AnyResource, DeviceVec, Sim};

use crate::rerun::{CHILD, is_child};
use crate::shared_directory::SharedDirectory;
use crate::wait_for_fork::wait_for_fork;

/// Where the files are, for a child.
const DIRECTORY: &str = "ALLUVION_TEST_DIRECTORY";
/// The name of the lease, for an importer.
const LEASE: &str = "ALLUVION_TEST_LEASE";

/// A process that runs the test of that name as a child, says a line for each step, and waits for one before the next.
struct Process {
    child: Child,
    steps: std::io::Lines<BufReader<std::process::ChildStdout>>,
    go: ChildStdin,
}

impl Process {
    fn start(test: &str, directory: &SharedDirectory, lease: &str) -> Self {
        let mut child = Command::new(env::current_exe().expect("this program has a file"))
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(CHILD, test)
            .env(DIRECTORY, directory.path())
            .env(LEASE, lease)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let steps = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        let go = child.stdin.take().expect("it is a pipe");
        Self { child, steps, go }
    }

    /// Waits until it has come to a step, and returns what it says of it.
    #[track_caller]
    fn reach(&mut self, step: &str) -> String {
        for line in &mut self.steps {
            let line = line.expect("it is text");
            if let Some((_, said)) = line.split_once(&format!("step {step}:")) {
                return said.to_owned();
            }
        }
        panic!("the child ended without coming to `{step}`");
    }

    fn go_on(&mut self) {
        self.go.write_all(b"\n").expect("the child listens");
    }

    fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child ends");
    }
}

/// In a child: says that it has come to a step, and waits until it may go on.
fn step(name: &str, said: &str) {
    println!("step {name}:{said}");
    std::io::stdout().flush().expect("the parent listens");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent speaks");
}

fn directory() -> PathBuf {
    env::var_os(DIRECTORY).expect("the parent says where").into()
}

fn name_of(text: &str) -> LeaseName {
    let mut name = [0; 16];
    for (at, byte) in name.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("it is a name");
    }
    LeaseName(name)
}

/// Waits until something is so: the kernel lets go of the locks of a process when the last user of its memory is gone.
fn eventually(mut is_so: impl FnMut() -> bool, what: &str) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(300), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn message(name: LeaseName) -> Vec<u8> {
    name.0.to_vec()
}

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
                    assert!(join().expect_err("its exporter is dead").is_stale());
                    hold.end();
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
        let is_refused = lease.is_of_parent()
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
    assert!(hold.exporter_lives() && !lease.is_of_parent());
    hold.end();
    assert!(lease.try_end().expect("the file is there"), "the child, which lives, has no lock");
    assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 0);
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
