//! The ends of a program that logs: its log is whole, however it ends, and a child of a fork writes nothing twice.

#![cfg(unix)]
#![expect(unsafe_code, reason = "forks, and ends processes")]

use std::env;
use std::path::PathBuf;
use std::process::{self, Command, ExitStatus};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use alluvion::adaptor::{Log, LogConfig, Logging};
use alluvion::source::Cuda;
use alluvion::trace::EventKind;
use alluvion::{Resource, ResourceExt, Sim};

use crate::log_files::Scratch;
use crate::raw_block::{Held, layout_of};
use crate::rerun::{CHILD, Ended, is_child, run_child};

/// Names the file that the log of a child goes to.
const FILE: &str = "ALLUVION_LOG_FILE";

/// How many rows each body writes before the end that it is about.
const ROWS: usize = 3000;

/// Runs `body` in a child process, which ends as `ended` has it, and leaves a log with all of its rows.
fn in_child(test: &str, body: impl FnOnce(), ended: impl Fn(ExitStatus) -> bool, rows: usize) {
    if is_child(test) {
        body();
        return;
    }
    let scratch = Scratch::new(&format!("{test}.csv"));
    let Ended { status, printed, said } = run_child(test, &[(FILE, scratch.0.as_ref())]);
    assert!(ended(status), "the child ended with {status}\n{printed}\n{said}");
    let trace = scratch.trace();
    assert_eq!((trace.events.len(), trace.strays, trace.failures), (rows, 0, 0));
    assert!(
        trace
            .events
            .chunks(2)
            .all(|pair| pair[0].kind == EventKind::Allocate && pair[0].block == pair[1].block)
    );
}

/// A stack that is never dropped.
fn in_a_static() -> &'static Logging<Cuda> {
    static SIM: OnceLock<Sim> = OnceLock::new();
    static STACK: OnceLock<Logging<Cuda>> = OnceLock::new();
    STACK.get_or_init(|| {
        let log = Log::from_env().expect("the parent has named a file");
        Cuda::new(&SIM.get_or_init(Sim::new).device(0)).logging(log)
    })
}

fn pairs<R: Resource>(resource: &R, count: usize) {
    for _ in 0..count {
        Held::allocate_sync(resource, layout_of(100)).expect("there is memory").free_sync();
    }
}

/// Writes half of the rows by half, so that some are in the file, some formatted, and some in the queue.
fn use_it() {
    let resource = in_a_static();
    pairs(resource, ROWS / 4);
    thread::sleep(Duration::from_millis(5));
    pairs(resource, ROWS / 4);
}

#[test]
fn a_program_exits_over_a_static() {
    in_child("logging_ends::a_program_exits_over_a_static", use_it, |status| status.success(), ROWS);
}

#[test]
fn a_thread_exits_the_program() {
    let body = || {
        use_it();
        thread::spawn(|| process::exit(7)).join().expect("it never returns");
    };
    in_child("logging_ends::a_thread_exits_the_program", body, |status| status.code() == Some(7), ROWS);
}

/// The writer sleeps by then.
#[test]
fn a_program_exits_after_a_pause() {
    let body = || {
        use_it();
        thread::sleep(Duration::from_millis(300));
        pairs(in_a_static(), 1);
        process::exit(0);
    };
    in_child("logging_ends::a_program_exits_after_a_pause", body, |status| status.success(), ROWS + 2);
}

#[test]
fn a_program_panics() {
    let body = || {
        use_it();
        panic!("on purpose");
    };
    // The test in the child fails.
    in_child("logging_ends::a_program_panics", body, |status| status.code() == Some(101), ROWS);
}

/// A panic that may not unwind aborts the process, as every panic of a program that is built so does: behind the panic hook
/// nothing of the program runs.
#[test]
fn a_panic_aborts_the_program() {
    extern "C" fn must_not_unwind() {
        panic!("on purpose");
    }
    let body = || {
        use_it();
        must_not_unwind();
    };
    let aborted = |status: ExitStatus| {
        use std::os::unix::process::ExitStatusExt;
        status.signal() == Some(libc::SIGABRT)
    };
    in_child("logging_ends::a_panic_aborts_the_program", body, aborted, ROWS);
}

/// The hook that was there before is asked, behind the flush; it may end the process.
#[test]
fn a_panic_hook_of_the_programs_own_exits() {
    let body = || {
        std::panic::set_hook(Box::new(|_| {
            // Not `exit`, which would flush too. SAFETY: it takes a number, and does not return.
            unsafe { libc::_exit(9) };
        }));
        use_it();
        panic!("on purpose");
    };
    in_child(
        "logging_ends::a_panic_hook_of_the_programs_own_exits",
        body,
        |status| status.code() == Some(9),
        ROWS,
    );
}

/// The child of a fork exits, runs what is to be run at exit, and drops its handles: nothing that the parent had not written yet
/// is written by both.
#[test]
fn a_fork_writes_nothing_twice() {
    let body = || {
        let path = PathBuf::from(env::var_os(FILE).expect("the parent has named a file"));
        let sim = Sim::new();
        // No writer gets to it before the fork.
        let resource = Cuda::new(&sim.device(0)).logging(Log::create(path).expect("it can be written"));
        let logs: Vec<_> = (0..2).map(|_| resource.book().clone()).collect();
        pairs(&resource, ROWS / 2);
        // SAFETY: the child calls nothing but what is made to be called there.
        match unsafe { libc::fork() } {
            -1 => panic!("no fork"),
            0 => {
                let log = resource.book().clone();
                let before = (log.rows(), log.dropped());
                // The driver belongs to the parent, so the call fails; its row is dropped.
                let failed = resource.allocate_sync(layout_of(100)).is_err();
                let is_counted = (log.rows(), log.dropped()) == (before.0 + 1, before.1 + 1);
                let is_refused = log.flush().is_err();
                drop((logs, log, resource));
                // SAFETY: as in every program; what is to be run at exit is what the test is about.
                unsafe { libc::exit(i32::from(!(failed && is_counted && is_refused))) };
            }
            child => {
                let mut status = 0;
                // SAFETY: `status` is a place for the status of a child of this process.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0, "the child says that it was right");
                pairs(&resource, ROWS / 2);
                drop((logs, resource));
            }
        }
    };
    in_child("logging_ends::a_fork_writes_nothing_twice", body, |status| status.success(), 2 * ROWS);
}

/// A child that makes a log of its own has a writer of its own.
#[test]
fn a_child_of_a_fork_makes_a_log_of_its_own() {
    let body = || {
        let path = PathBuf::from(env::var_os(FILE).expect("the parent has named a file"));
        // Has the process count its forks.
        drop(LogConfig::default().write_to(std::io::sink()).expect("there is a thread for it"));
        // SAFETY: there is no other thread: the writer has been waited for.
        match unsafe { libc::fork() } {
            -1 => panic!("no fork"),
            0 => {
                let sim = Sim::new();
                let resource =
                    Cuda::new(&sim.device(0)).logging(Log::create(path).expect("it can be written"));
                pairs(&resource, ROWS / 2);
                let flushed = resource.book().flush().is_ok();
                pairs(&resource, 1);
                drop(resource);
                // SAFETY: it takes a number, and does not return.
                unsafe { libc::_exit(i32::from(!flushed)) };
            }
            child => {
                let mut status = 0;
                // SAFETY: `status` is a place for the status of a child of this process.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0, "the child says that it was right");
            }
        }
    };
    in_child(
        "logging_ends::a_child_of_a_fork_makes_a_log_of_its_own",
        body,
        |status| status.success(),
        ROWS + 2,
    );
}

#[test]
fn the_environment_names_the_file() {
    const TEST: &str = "logging_ends::the_environment_names_the_file";
    if is_child(TEST) {
        match Log::from_env() {
            Ok(log) => println!("log={}", log.name()),
            Err(error) => println!("log={error}"),
        }
        return;
    }
    let (ours, rmms) = (Scratch::new("ours.csv"), Scratch::new("rmms.csv"));
    let (ours, rmms) = (ours.0.to_str().expect("it is text"), rmms.0.to_str().expect("it is text"));
    let neither = "neither ALLUVION_LOG_FILE nor RMM_LOG_FILE is set";
    for (own, of_rmm, wanted) in [
        (Some(ours), Some(rmms), ours),
        (Some(ours), None, ours),
        (None, Some(rmms), rmms),
        (Some(""), Some(rmms), rmms),
        (None, None, neither),
        (Some(""), Some(""), neither),
        (Some("/nowhere/at.csv"), Some(rmms), "unwritable: /nowhere/at.csv: No such file"),
    ] {
        let mut child = Command::new(env::current_exe().expect("this program has a file"));
        child.args(["--exact", TEST, "--nocapture", "--test-threads=1"]).env(CHILD, TEST);
        for (name, value) in [(FILE, own), ("RMM_LOG_FILE", of_rmm)] {
            match value {
                Some(value) => child.env(name, value),
                None => child.env_remove(name),
            };
        }
        let output = child.output().expect("this program can be started");
        let printed = String::from_utf8_lossy(&output.stdout);
        let said = printed.split_once("log=").expect("it says something").1;
        assert!(said.contains(wanted), "{said} is not {wanted}");
    }
}
