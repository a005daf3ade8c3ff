//! A test whose body runs in a process of its own, where a stand-in is the vendor's library.

use std::ffi::OsStr;
use std::{env, panic, process};

use crate::rerun::{Ended, is_child, run_child};
use crate::stand_in::StandIn;

/// What a child prints when its body has run to the end.
const DONE: &str = "the body has run";
/// Names the call of [`in_child`] that a child is of: one test may have several.
const CASE: &str = "ALLUVION_TEST_CASE";

/// Runs `body` in a child that finds the stand-in first, with these variables. A panic ends the child at once.
pub(crate) fn in_child(test: &str, stand_in: StandIn, variables: &[(&str, &str)], body: impl FnOnce()) {
    in_child_with(test, &[stand_in], variables, body);
}

/// The same, where several libraries are installed.
pub(crate) fn in_child_with(
    test: &str,
    installed: &[StandIn],
    variables: &[(&str, &str)],
    body: impl FnOnce(),
) {
    let case = format!("{installed:?} {variables:?}");
    if is_child(test) {
        if env::var(CASE).is_ok_and(|of_child| of_child == case) {
            panic::set_hook(Box::new(|panic| {
                eprintln!("{panic}");
                process::abort();
            }));
            body();
            println!("{DONE}");
        }
        return;
    }
    let folders = env::join_paths(installed.iter().map(|stand_in| stand_in.folder()));
    let folders = folders.expect("no folder has a colon in its name");
    let variables: Vec<(&str, &OsStr)> = variables
        .iter()
        .map(|&(name, value)| (name, OsStr::new(value)))
        .chain([("LD_LIBRARY_PATH", folders.as_os_str()), (CASE, OsStr::new(&case))])
        .collect();
    let Ended { status, printed, said } = run_child(test, &variables);
    let text = format!("{status}\n{printed}{said}");
    assert!(status.success() && text.contains(DONE), "{case}: {text}");
}
