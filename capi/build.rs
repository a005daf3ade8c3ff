//! Gives a shared library that cargo links its name for the loader, and keeps it loaded. `ci/install-capi` links one that has versions
//! of symbols, too.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let part = |name: &str| std::env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap_or_default();
    // Before 1.0 a minor version may break programs.
    let version = match part("MAJOR").as_str() {
        "0" => format!("0.{}", part("MINOR")),
        major => major.to_owned(),
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcalluvion.so.{version}");
    // Threads, handlers of forks and of the exit, and destructors of thread-locals would run code that is not there any more.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
