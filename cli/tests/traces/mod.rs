//! The logs that the program's tests use, and the objects that come of them.

#![allow(dead_code, reason = "each test needs a part of it")]

use serde_json::Value;

use super::program::{alluvion, text};

/// A log of a real program.
pub(crate) fn trace(name: &str) -> String {
    format!("{}/../tests/traces/{name}.csv.gz", env!("CARGO_MANIFEST_DIR"))
}

/// What the program prints when all is well, an object a line.
#[track_caller]
pub(crate) fn objects(arguments: &[&str]) -> Vec<Value> {
    let object = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    text(arguments).lines().map(object).collect()
}

/// What it prints when all is well, and what it says beside that.
#[track_caller]
pub(crate) fn printed(arguments: &[&str]) -> (String, String) {
    let output = alluvion(arguments);
    let notes = String::from_utf8(output.stderr).expect("it says text");
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {notes}");
    (String::from_utf8(output.stdout).expect("it prints text"), notes)
}
