//! This test program again, as a child: for what ends a process or its context.

use std::ffi::OsStr;

use crate::rerun::{Ended, is_child, run_child};

/// Runs `body` in a child process, `runs` times one after another. Each must end with status 0 and say that the body has run,
/// in time.
///
/// `test` is the name of the calling test: the child runs this program with that test alone.
pub(crate) fn in_child(test: &str, runs: usize, body: impl FnOnce()) {
    in_child_with(test, &[], runs, body);
}

/// As [`in_child`], with these variables in the child's environment.
pub(crate) fn in_child_with(test: &str, variables: &[(&str, &OsStr)], runs: usize, body: impl FnOnce()) {
    if is_child(test) {
        body();
        return;
    }
    for run in 0..runs {
        let Ended { status, printed, said } = run_child(test, variables);
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
