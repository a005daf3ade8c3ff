//! Waiting for a child of a fork.

#![expect(unsafe_code, reason = "waits for a child, and ends one that hangs")]

use std::thread;
use std::time::{Duration, Instant};

/// A child that takes longer hangs: a thousand times what one takes on a busy machine of two cores.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits for a child that was forked, which must end with status 0, and not hang.
pub(crate) fn wait_for_fork(child: libc::pid_t) {
    let begun = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: the child is this process's own, and the status goes to a place for one.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        assert!(ended >= 0, "the child can be waited for");
        if ended == child {
            break;
        }
        if begun.elapsed() > PATIENCE {
            // SAFETY: the child is this process's own and has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the forked child hangs");
        }
        thread::sleep(Duration::from_micros(100));
    }
    assert!(libc::WIFEXITED(status), "the forked child died of signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "the forked child failed");
}
