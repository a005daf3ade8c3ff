//! A test program that runs itself again, with one test alone.

#![allow(dead_code, reason = "some tests need a part of it")]

use std::env;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Set in the child, to the name of the test.
pub(crate) const CHILD: &str = "ALLUVION_TEST_CHILD";

/// A child that takes longer hangs: hundreds of times what one takes, on a processor that ten others want.
const PATIENCE: Duration = Duration::from_secs(300);

/// Whether this process is the child of that test.
pub(crate) fn is_child(test: &str) -> bool {
    env::var_os(CHILD).is_some_and(|name| name == test)
}

/// How a child ended, and what it wrote.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) printed: String,
    pub(crate) said: String,
}

/// Runs a child with that test alone, to its end.
pub(crate) fn run_child(test: &str, variables: &[(&str, &OsStr)]) -> Ended {
    run_child_of(&env::current_exe().expect("this program has a file"), test, variables)
}

/// As [`run_child`], where a copy of this program is.
pub(crate) fn run_child_of(program: &Path, test: &str, variables: &[(&str, &OsStr)]) -> Ended {
    let mut command = Command::new(program);
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let begun = Instant::now();
    let mut child = loop {
        match command.spawn() {
            // A copy is open for writing in what another test has forked, until that begins another program.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            started => break started.expect("this program can be started"),
        }
    };
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().expect("a child can be killed");
            child.wait().expect("a killed child ends");
            panic!("the child of {test} hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let (mut printed, mut said) = (String::new(), String::new());
    child.stdout.take().map(|mut out| out.read_to_string(&mut printed));
    child.stderr.take().map(|mut err| err.read_to_string(&mut said));
    Ended { status, printed, said }
}
