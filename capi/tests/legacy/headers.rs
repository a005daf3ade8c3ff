//! What the headers declare is what the library exports, and what cffi can read.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const NAMES: [&str; 12] = [
    "rmmAlloc",
    "rmmFinalize",
    "rmmFree",
    "rmmGetAllocationOffset",
    "rmmGetErrorString",
    "rmmGetInfo",
    "rmmGetLog",
    "rmmInitialize",
    "rmmIsInitialized",
    "rmmLogSize",
    "rmmRealloc",
    "rmmWriteLog",
];

fn declarations() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text =
        fs::read_to_string(folder.join("include/alluvion/rmm_legacy_cdef.h")).expect("the header is there");
    assert!(text.is_ascii() && !text.contains("/*"), "its comments are lines");
    text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect()
}

/// The words before a parenthesis.
fn declared() -> BTreeSet<String> {
    let text = declarations();
    let before = text.match_indices('(').map(|(place, _)| &text[..place]);
    before
        .filter_map(|text| text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned))
        .collect()
}

#[test]
fn the_header_declares_the_list() {
    assert_eq!(declared(), NAMES.map(str::to_owned).into());
}

#[test]
fn the_library_exports_the_list() {
    let program = std::env::current_exe().expect("this program has a file");
    let library = program.with_file_name("libcalluvion.so");
    let listed = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().expect("nm runs");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).expect("names are UTF-8");
    let exported = listed.lines().filter_map(|line| line.split_whitespace().last());
    let exported: BTreeSet<&str> = exported.filter(|name| name.starts_with("rmm")).collect();
    assert_eq!(exported, NAMES.into());
}

#[test]
fn cffi_can_read_the_declarations() {
    let text = declarations();
    // `cdef` has no preprocessor, and takes no code.
    for forbidden in ["#", "inline", "extern", "__", "return", "\\", "=>"] {
        assert!(!text.contains(forbidden), "{forbidden}");
    }
    // Each brace is that of an enum or a struct.
    assert_eq!(text.matches('{').count(), 3);
    assert_eq!(text.matches("typedef enum {").count() + text.matches("typedef struct {").count(), 3);
    assert_eq!(text.matches("typedef ").count(), 5);
}

#[test]
fn the_header_for_programs_has_the_macros() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(folder.join("include/alluvion/rmm_legacy.h")).expect("the header is there");
    for name in [
        "RMM_ALLOC(ptr, size, stream)",
        "RMM_REALLOC(ptr, new_size, stream)",
        "RMM_FREE(ptr, stream)",
        "RMM_TRY(call)",
    ] {
        assert!(text.contains(&format!("#define {name}")), "{name}");
    }
    assert!(!text.contains("cuda_runtime") && !text.contains("<cuda"), "no header of CUDA");
}
