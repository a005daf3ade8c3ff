//! What gdb says of the suballocators of a program, by `gdb/alluvion.py`: the same as their snapshots do, live and in a core dump, with
//! debug information and without a symbol.
//!
//! `ci/gdb` runs it, which installs gdb, and builds it with debug information.

#![cfg(target_os = "linux")]

mod target;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of the program that is stopped: it writes its snapshots there.
const FOLDER: &str = "ALLUVION_DEBUGGER_FOLDER";

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debugger").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// gdb with the script, and then `check.py`, which ends with a line of its own if all is as it must be.
fn gdb(mode: &str, folder: &Path, arguments: &[&str]) {
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-x"])
        .arg(repository().join("gdb/alluvion.py"))
        .arg("-x")
        .arg(repository().join("tests/debugger/check.py"))
        .args(arguments)
        .env("ALLUVION_CHECK", mode)
        .env(FOLDER, folder)
        // Else gdb asks a server for the debug information of the system.
        .env_remove("DEBUGINFOD_URLS")
        .output()
        .expect("gdb is installed: `ci/gdb` does that");
    assert!(said(&output).contains("\nall is as it must be"), "{}", said(&output));
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said)).join("")
}

/// Looks at a program that is stopped, and then at the core dump that it leaves.
fn look_at(program: &Path, folder: &Path, symbols: &str) {
    let program = program.to_str().expect("cargo's names are text");
    let target = ["--args", program, "--ignored", "--exact", "stops_here", "--nocapture", "--test-threads=1"];
    gdb(&format!("live {symbols}"), folder, &target);
    let core = folder.join("core");
    gdb(&format!("core {symbols}"), folder, &[program, core.to_str().expect("as above")]);
}

#[test]
#[ignore = "needs gdb: `ci/gdb` runs it"]
fn gdb_says_what_snapshots_do() {
    let program = std::env::current_exe().expect("the system says it");
    look_at(&program, &folder("whole"), "symbols");
}

#[test]
#[ignore = "needs gdb: `ci/gdb` runs it"]
fn gdb_needs_no_symbol() {
    let folder = folder("stripped");
    let program = folder.join("program");
    let whole = std::env::current_exe().expect("the system says it");
    let stripped = Command::new("strip").arg("--strip-all").arg("-o").arg(&program).arg(whole).status();
    assert!(stripped.expect("binutils are installed").success());
    look_at(&program, &folder, "none");
}

/// The program that gdb looks at.
#[test]
#[ignore = "stops itself, where gdb is"]
fn stops_here() {
    let folder = std::env::var_os(FOLDER).map(PathBuf::from);
    target::work(folder.as_deref());
}
