//! A process with raised privileges reads no environment that names files: a copy of this program with the set-user-id bit.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "asks the C library who the process is")]

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use alluvion::adaptor::Log;
use alluvion::{ErrorKind, Sim};

use crate::log_files::Scratch;
use crate::rerun::{is_child, run_child, run_child_of};

/// Nobody, as most systems number them. Not the user that the tests run as, which is enough for the kernel.
const NOBODY: u32 = 65534;

const RESOURCE: &str = "ALLUVION_RESOURCE";
const RECIPE: &str = "pool(initial=8MiB) | cuda";

/// What a process makes of its environment, on one line.
fn say_what_is_read() {
    // SAFETY: it takes a number, and reads what the kernel has left for the process.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let resource = Sim::new().device(0).current_resource().unwrap().describe().to_string();
    let log = match Log::from_env() {
        Ok(log) => log.name().to_owned(),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            error.to_string()
        }
    };
    println!("said: secure={is_secure} resource={resource} log={log}");
}

fn said(printed: &str) -> String {
    let line = printed.lines().find_map(|line| line.split_once("said: "));
    line.unwrap_or_else(|| panic!("it says nothing: {printed}")).1.to_owned()
}

#[test]
fn a_program_with_raised_privileges_reads_no_environment() {
    const TEST: &str = "privileges::a_program_with_raised_privileges_reads_no_environment";
    if is_child(TEST) {
        return say_what_is_read();
    }
    let (program, file) = (Scratch::new("privileged"), Scratch::new("privileged.csv"));
    let name = file.0.to_str().unwrap().to_owned();
    let variables = |log| [(RESOURCE, OsStr::new(RECIPE)), (log, OsStr::new(&name))];

    // As an ordinary program it reads all of it.
    for log in ["ALLUVION_LOG_FILE", "RMM_LOG_FILE"] {
        let ended = run_child(TEST, &variables(log));
        assert!(ended.status.success(), "{}", ended.said);
        let wanted = format!("secure=false resource=Pool(8 MiB) > Cuda(gpu 0) log={name}");
        assert_eq!(said(&ended.printed), wanted);
        fs::remove_file(&name).unwrap();
    }

    fs::copy(std::env::current_exe().unwrap(), &program.0).unwrap();
    if let Err(error) = chown(&program.0, Some(NOBODY), None) {
        println!("skipped: only root can give a program to somebody else: {error}");
        return;
    }
    // Who owns it now can be told apart; the bit is taken away where the owner changes, so it comes behind.
    fs::set_permissions(&program.0, Permissions::from_mode(0o4755)).unwrap();
    for log in ["ALLUVION_LOG_FILE", "RMM_LOG_FILE"] {
        let ended = run_child_of(&program.0, TEST, &variables(log));
        assert!(ended.status.success(), "{}", ended.said);
        let said = said(&ended.printed);
        if said.contains("secure=false") {
            println!("skipped: programs in {} get no privileges", program.0.display());
            return;
        }
        assert!(said.starts_with("secure=true resource=CudaAsync(gpu 0) log="), "{said}");
        assert!(said.contains("the process has raised privileges"), "{said}");
        assert!(!file.0.exists(), "it has made a file that the environment names");
    }
}
