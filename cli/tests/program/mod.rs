//! The program from outside.

#![allow(dead_code, reason = "each test needs a part of it")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

pub(crate) fn alluvion(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_alluvion")).args(arguments).output().expect("the program starts")
}

/// What it prints when all is well.
#[track_caller]
pub(crate) fn printed(arguments: &[&str]) -> Vec<u8> {
    let output = alluvion(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
    output.stdout
}

#[track_caller]
pub(crate) fn text(arguments: &[&str]) -> String {
    String::from_utf8(printed(arguments)).expect("it prints text")
}

/// What it says when it ends with that code, and prints nothing else.
#[track_caller]
pub(crate) fn refused(code: i32, arguments: &[&str]) -> String {
    let output = alluvion(arguments);
    let errors = String::from_utf8(output.stderr).expect("it prints text");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed {}", String::from_utf8_lossy(&output.stdout));
    assert!(!errors.contains("panicked"), "{errors}");
    errors
}

/// A folder of a test's own, gone when the test is over.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("alluvion-{name}-{}", std::process::id()));
        // A process that was killed may have had this number, and left it.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder for temporary files");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the folder's name is text").to_owned()
    }

    /// Writes a file, and returns its path.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).expect("the folder takes files");
        path
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let files = fs::read_dir(&self.0).expect("the folder is there");
        let mut names: Vec<_> =
            files.map(|file| file.expect("a file").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
