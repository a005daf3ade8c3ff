//! The environment variables that the crate reads.

#![expect(unsafe_code, reason = "asks the C library whether the process has more rights than its parent")]

use std::env;
use std::ffi::OsString;

/// A variable that configures the crate. `None` if it is not set, and in a process that does not [trust](is_trusted) its
/// environment.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    if is_trusted() { env::var_os(name) } else { None }
}

/// Returns `false` in a process with raised privileges, such as a program with the set-user-id bit or with capabilities. Its
/// environment was written by its parent, which may name a file there that the parent itself may not write.
pub(crate) fn is_trusted() -> bool {
    !has_raised_privileges()
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn has_raised_privileges() -> bool {
    // SAFETY: `getauxval` takes a number, reads the auxiliary vector of the process, and writes nothing but `errno`.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn has_raised_privileges() -> bool {
    // SAFETY: it takes nothing, and cannot fail.
    let user = unsafe { libc::getuid() };
    // SAFETY: as above.
    let effective_user = unsafe { libc::geteuid() };
    // SAFETY: as above.
    let group = unsafe { libc::getgid() };
    // SAFETY: as above.
    let effective_group = unsafe { libc::getegid() };
    (user, group) != (effective_user, effective_group)
}

#[cfg(not(unix))]
fn has_raised_privileges() -> bool {
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The tests run with the rights of their parent. `tests/process/privileges.rs` runs a program with more.
    #[test]
    fn an_ordinary_process_reads_its_environment() {
        assert!(is_trusted());
        assert_eq!(variable("PATH"), env::var_os("PATH"));
        assert_eq!(variable("ALLUVION_NO_SUCH_VARIABLE"), None);
    }
}
