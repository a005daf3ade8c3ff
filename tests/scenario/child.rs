//! This test program again, as a child: for what ends a process or its context.

use std::env;
use std::ffi::OsStr;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Set in the child, to the name of the test.
const CHILD: &str = "ALLUVION_TEST_CHILD";

/// A child that takes longer hangs: a hundred times what one takes on a busy machine of two cores.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `body` in a child process, `runs` times one after another. Each must end with status 0 and say that the body has run,
/// in time.
///
/// `test` is the name of the calling test: the child runs this program with that test alone.
pub(crate) fn in_child(test: &str, runs: usize, body: impl FnOnce()) {
    in_child_with(test, &[], runs, body);
}

/// As [`in_child`], with these variables in the child's environment.
pub(crate) fn in_child_with(test: &str, variables: &[(&str, &OsStr)], runs: usize, body: impl FnOnce()) {
    if env::var_os(CHILD).is_some_and(|name| name == test) {
        body();
        return;
    }
    for run in 0..runs {
        let mut child = Command::new(env::current_exe().expect("this program has a file"))
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(CHILD, test)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                child.kill().expect("a child can be killed");
                child.wait().expect("a killed child ends");
                panic!("run {run}: the child hangs");
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let (mut printed, mut said) = (String::new(), String::new());
        child.stdout.take().map(|mut out| out.read_to_string(&mut printed));
        child.stderr.take().map(|mut err| err.read_to_string(&mut said));
        assert!(status.success(), "run {run}: the child ended with {status}\n{printed}\n{said}");
        assert!(printed.contains(DONE), "run {run}: the body did not run to its end\n{printed}\n{said}");
    }
}

/// What a body says when it has run to its end: a child whose test was filtered out would end with status 0, too.
const DONE: &str = "the body has run";

/// To be called at the end of a body.
pub(crate) fn done() {
    println!("{DONE}");
}
