//! Libraries that stand where libcuda should: one with no GPU behind it, and one that is none.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, process};

/// A directory of this program's own, below the one that tests write to.
pub(crate) fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&directory).expect("the directory is writable");
    directory
}

/// Builds `source`, which is libcuda.rs, as the directory's `libcuda.so`. Two runs of this program at once do not disturb each
/// other: the file is put in place whole.
pub(crate) fn build(source: &Path, directory: PathBuf, cfgs: &[&str]) -> PathBuf {
    let unfinished = directory.join(format!("unfinished-{}", process::id()));
    let status = Command::new(option_env!("RUSTC").unwrap_or("rustc"))
        .args(["--edition=2024", "--crate-type=cdylib", "--crate-name=cuda", "-Cpanic=abort", "-Awarnings"])
        .args(cfgs.iter().flat_map(|cfg| ["--cfg", cfg]))
        .arg("-o")
        .arg(&unfinished)
        .arg(source)
        .status()
        .expect("the compiler that built this test is there");
    assert!(status.success());
    fs::rename(unfinished, directory.join("libcuda.so")).expect("the directory is writable");
    directory
}

/// Puts files there that are no libraries: they also hide a real driver, because the linker stops at them.
pub(crate) fn nothing(directory: PathBuf) -> PathBuf {
    for name in ["libcuda.so", "libcuda.so.1"] {
        fs::write(directory.join(name), "not a library").expect("the directory is writable");
    }
    directory
}
