//! Processes that are killed at a step that they have come to.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use alluvion::share::lease::LeaseName;

use crate::rerun::CHILD;
use crate::shared_directory::SharedDirectory;

/// Where the files are, for a child.
const DIRECTORY: &str = "ALLUVION_TEST_DIRECTORY";
/// The name of the lease, for an importer.
pub(crate) const LEASE: &str = "ALLUVION_TEST_LEASE";

/// A process that runs the test of that name as a child, says a line for each step, and waits for one before the next.
pub(crate) struct Process {
    child: Child,
    steps: std::io::Lines<BufReader<std::process::ChildStdout>>,
    go: ChildStdin,
}

impl Process {
    pub(crate) fn start(test: &str, directory: &SharedDirectory, lease: &str) -> Self {
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
    pub(crate) fn reach(&mut self, step: &str) -> String {
        for line in &mut self.steps {
            let line = line.expect("it is text");
            if let Some((_, said)) = line.split_once(&format!("step {step}:")) {
                return said.to_owned();
            }
        }
        panic!("the child ended without coming to `{step}`");
    }

    pub(crate) fn go_on(&mut self) {
        self.go.write_all(b"\n").expect("the child listens");
    }

    pub(crate) fn kill(self) {
        drop(self.kill_alone());
    }

    /// Kills it, and not what it has forked, which ends when what this returns is dropped.
    pub(crate) fn kill_alone(mut self) -> ChildStdin {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child ends");
        self.go
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.child.id()
    }
}

/// In a child: says that it has come to a step, and waits until it may go on.
pub(crate) fn step(name: &str, said: &str) {
    println!("step {name}:{said}");
    std::io::stdout().flush().expect("the parent listens");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent speaks");
}

pub(crate) fn directory() -> PathBuf {
    env::var_os(DIRECTORY).expect("the parent says where").into()
}

pub(crate) fn name_of(text: &str) -> LeaseName {
    let mut name = [0; 16];
    for (at, byte) in name.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("it is a name");
    }
    LeaseName(name)
}

/// Waits until something is so: the kernel lets go of the locks of a process when the last user of its memory is gone.
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool, what: &str) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(300), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn message(name: LeaseName) -> Vec<u8> {
    name.0.to_vec()
}
