//! `Failure`: why the program ends early.

use std::io::{self, Write};
use std::path::Path;

/// Why the program ends early: what it says, and its exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line asks for something that there is not.
    Usage(String),
    /// Something did not work.
    Failed(String),
    /// Whoever read our output has had enough, as `head` does.
    Unread,
}

impl Failure {
    pub(crate) fn usage(why: impl Into<String>) -> Self {
        Self::Usage(why.into())
    }

    /// What failed while `what` was being done.
    pub(crate) fn while_doing(what: &str, why: impl core::fmt::Display) -> Self {
        Self::Failed(format!("{what}: {why}"))
    }

    pub(crate) fn of_file(path: &Path, why: impl core::fmt::Display) -> Self {
        Self::Failed(format!("{}: {why}", path.display()))
    }

    /// What happened, for whom there is no exit code.
    pub(crate) fn into_words(self) -> String {
        match self {
            Self::Usage(words) | Self::Failed(words) => words,
            Self::Unread => "nobody reads the output".into(),
        }
    }

    /// Says it on the standard error stream, and returns the exit code.
    pub(crate) fn report(self) -> u8 {
        let (words, code) = match self {
            Self::Usage(words) => (format!("error: {words}\n\nFor more information, try '--help'."), 2),
            Self::Failed(words) => (format!("error: {words}"), 1),
            Self::Unread => return 1,
        };
        // Where nobody can hear it, the exit code has to do.
        let _ = writeln!(io::stderr(), "{words}");
        code
    }
}

impl From<alluvion::Error> for Failure {
    fn from(error: alluvion::Error) -> Self {
        Self::Failed(error.to_string())
    }
}
