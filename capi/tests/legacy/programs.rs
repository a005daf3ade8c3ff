//! Programs in C and C++ over the headers, compiled by the compilers of the system. `gcc` and `g++` must be there.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const C: [&str; 4] = ["c99", "c11", "c17", "gnu11"];
const CPP: [&str; 4] = ["c++11", "c++14", "c++17", "c++20"];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn compiler(standard: &str) -> Command {
    let mut command = Command::new(if standard.starts_with("c++") { "g++" } else { "gcc" });
    command.args(["-Wall", "-Wextra", "-Wshadow", "-pedantic", "-Werror"]).arg(format!("-std={standard}"));
    command.arg("-I").arg(here().join("include"));
    command
}

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("alluvion-legacy-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Compiles files, each with its options, links them with the library and runs the program.
fn run(name: &str, standard: &str, files: &[(&str, &[&str])]) {
    let folder = Folder::new(&format!("{name}-{standard}"));
    let built = std::env::current_exe().expect("this program has a file").with_file_name("libcalluvion.so");
    // By the name that programs are linked with, and by the one that the loader looks for.
    let version =
        concat!("libcalluvion.so.", env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    for link in ["libcalluvion.so", version] {
        std::os::unix::fs::symlink(&built, folder.0.join(link)).expect("a link can be made");
    }
    let mut objects = Vec::<OsString>::new();
    for (number, (file, options)) in files.iter().enumerate() {
        let object = folder.0.join(format!("{number}.o"));
        let language = if standard.starts_with("c++") { "c++" } else { "c" };
        let mut command = compiler(standard);
        command.args(*options).args(["-x", language, "-c"]).arg(here().join("tests").join(file));
        must(command.arg("-o").arg(&object));
        objects.push(object.into());
    }
    let program = folder.0.join("program");
    must(compiler(standard).args(objects).arg("-L").arg(&folder.0).args(["-lcalluvion", "-o"]).arg(&program));
    must(Command::new(program).env("LD_LIBRARY_PATH", &folder.0));
}

fn must(command: &mut Command) {
    let ended = command.output().expect("the program is there");
    let (printed, said) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{command:?}: {}\n{printed}\n{said}", ended.status);
}

/// Whether a text compiles.
fn compiles(standard: &str, text: &str) -> Result<(), String> {
    let language = if standard.starts_with("c++") { "c++" } else { "c" };
    let mut command = compiler(standard);
    command.args(["-fsyntax-only", "-x", language, "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the compiler is there");
    let mut to = child.stdin.take().expect("it was asked for");
    to.write_all(text.as_bytes()).expect("the compiler reads");
    drop(to);
    let ended = child.wait_with_output().expect("it can be waited for");
    if ended.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&ended.stderr).into_owned()) }
}

#[test]
fn the_header_compiles_alone_and_beside_others() {
    let legacy = "#include <alluvion/rmm_legacy.h>\n";
    let cuda = "#define __DRIVER_TYPES_H__\ntypedef struct CUstream_st *cudaStream_t;\n";
    let per_thread = "#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1\n";
    let texts = [
        format!("{legacy}{legacy}"),
        format!("#include <alluvion.h>\n{legacy}"),
        format!("{legacy}#include <alluvion.h>\n"),
        format!(
            "{cuda}{legacy}cudaStream_t stream; rmmError_t f(void) {{ return rmmFree(0, stream, 0, 0); }}\n"
        ),
        format!("{per_thread}{legacy}"),
        format!("#define __CUDA_API_PER_THREAD_DEFAULT_STREAM\n{cuda}{legacy}"),
        format!("{per_thread}#define ALV_NO_INLINE\n{legacy}"),
        format!("#define RMM_NO_OFFSET_T\ntypedef short offset_t;\n{legacy}offset_t a; rmmOffset_t b;\n"),
        format!(
            "#define RMM_TRY(call) return 7 + (int)(call)\n{legacy}int f(void) {{ RMM_TRY(rmmFinalize()); }}\n"
        ),
        // Macros with the names of functions of C, as checkers of leaks have them.
        format!(
            "#define free(p) leaked(p)\n#define realloc(p, n) leaked(p)\n#define alloc(n) leaked(n)\n{legacy}\
             rmmError_t f(void **p) {{ RMM_TRY(RMM_ALLOC(p, 8, 0)); RMM_TRY(RMM_REALLOC(p, 9, 0)); return RMM_FREE(*p, 0); }}\n"
        ),
        // In a branch without braces.
        format!(
            "{legacy}rmmError_t f(int b) {{ if (b) RMM_TRY(rmmFinalize()); else return RMM_SUCCESS; return RMM_ERROR_IO; }}\n"
        ),
    ];
    for standard in C.iter().chain(&CPP) {
        for text in &texts {
            let compiled = compiles(standard, &format!("{text}int main(void) {{ return 0; }}\n"));
            assert_eq!(compiled, Ok(()), "{standard}:\n{text}");
        }
    }
    // The check can fail: both names at once.
    assert!(compiles("c11", &format!("typedef short offset_t;\n{legacy}")).is_err());
}

#[test]
fn the_page_for_users_compiles() {
    let page = fs::read_to_string(here().join("../docs/capi/rmm-legacy.md")).expect("the page is there");
    let texts: Vec<&str> = page.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(texts.len(), 1);
    for standard in C {
        assert_eq!(compiles(standard, texts[0]), Ok(()), "{standard}");
    }
}

#[test]
fn a_program_of_then_runs() {
    for standard in ["c99", "c11"] {
        run("program", standard, &[("c/legacy_program.c", &[])]);
    }
}

#[test]
fn a_program_in_cpp_passes_pointers_of_any_type() {
    for standard in ["c++17", "c++20"] {
        run("types", standard, &[("cpp/legacy.cpp", &[])]);
    }
}

#[test]
fn stream_0_is_that_of_the_calling_file() {
    let device: &[&str] = &[];
    let thread: &[&str] = &["-DOF_THE_THREAD"];
    for standard in ["c99", "c++11"] {
        // A linker keeps the first of two templates: both orders.
        for [first, second] in [[device, thread], [thread, device]] {
            let files =
                [("c/legacy_file.c", first), ("c/legacy_file.c", second), ("c/legacy_streams.c", device)];
            run("streams", standard, &files);
        }
    }
}
