//! What a tool of NVTX is told: by a library of this program's own, which writes it down. Each body runs in a process of its own, which
//! starts with the library in `NVTX_INJECTION64_PATH`, as under `compute-sanitizer`.

#![cfg(unix)]

mod captured;
mod carved;
mod foreign;
mod headers;
mod picture;
mod ranges;
#[path = "../support/raw_block.rs"]
mod raw_block;
#[path = "../support/rerun.rs"]
mod rerun;
mod unannounced;

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::LazyLock;

use alluvion::Sim;
use alluvion::sim::SimConfig;
use picture::Picture;
use rerun::{is_child, run_child};

/// A machine of whose memory the tool hears.
fn announced_sim() -> Sim {
    // It looks into no pool itself, so that calls cost what they cost beside a GPU.
    Sim::with_config(SimConfig::default().announced(true).watch_blocks(false))
}

/// Where the tool writes.
const LOG: &str = "TOOL_LOG";

/// What a child prints when its body has run to the end.
const DONE: &str = "the body has run";

static TOOL: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvtx");
    fs::create_dir_all(&directory).expect("the directory is writable");
    let (unfinished, library) = (directory.join(format!("{}.so", process::id())), directory.join("tool.so"));
    let built = Command::new("cc")
        .args(["-std=gnu11", "-shared", "-fPIC", "-pthread", "-O1", "-Wall", "-Werror", "-o"])
        .arg(&unfinished)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvtx/tool.c"))
        .status();
    assert!(built.expect("the compiler that programs are linked with is there").success());
    // Whole, if two runs of this program come at once.
    fs::rename(unfinished, &library).expect("the directory is writable");
    library
});

/// Runs `body` in a child under the tool, and returns what it was told. `kind` is what the tool reads of `TOOL`.
fn told(test: &str, kind: &str, body: fn()) -> Option<Picture> {
    log_of(test, kind, body).map(|log| Picture::of(&log))
}

/// As [`told`], line by line.
fn log_of(test: &str, kind: &str, body: fn()) -> Option<String> {
    if is_child(test) {
        body();
        println!("{DONE}");
        return None;
    }
    let name = format!("nvtx-{}-{}", process::id(), test.replace(':', "-"));
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&log, "").expect("the directory is writable");
    let tool = ("NVTX_INJECTION64_PATH", TOOL.as_os_str());
    let ended = run_child(test, &[tool, (LOG, log.as_os_str()), ("TOOL", OsStr::new(kind))]);
    let text = fs::read_to_string(&log).expect("it is there");
    assert!(
        ended.status.success() && ended.printed.contains(DONE),
        "{}\n{}{}",
        ended.status,
        ended.printed,
        ended.said
    );
    fs::remove_file(&log).expect("it is there");
    Some(text)
}

/// Writes a line of the child's own into the log.
fn note(line: &str) {
    let log = std::env::var_os(LOG).expect("this is a child");
    let mut log = OpenOptions::new().append(true).create(true).open(log).expect("it is writable");
    // In one call, as the tool.
    log.write_all(format!("{line}\n").as_bytes()).expect("it is writable");
}
