//! Calls of the operating system: the number of the thread, the offset of local time, and a hook at exit.

#![expect(
    unsafe_code,
    reason = "asks the C library for the thread's number and the local time, and to be told of the end"
)]

use core::cell::Cell;

use crate::sync::MadeIn;

thread_local! {
    // The number, and the process that asked for it. No destructor, so it can be read while the thread's other
    // locals are being dropped. 0 is no thread's number.
    static NUMBER: Cell<(u64, MadeIn)> = const { Cell::new((0, MadeIn::FIRST)) };
}

/// The number that the operating system has given the calling thread: asked for once, for it is a call of the system, and once
/// more in a child of a fork, which is another thread.
#[inline]
pub(super) fn thread_number() -> u64 {
    match NUMBER.get() {
        (number @ 1.., asked_in) if !asked_in.is_parent() => number,
        _ => ask_thread_number(),
    }
}

#[cold]
fn ask_thread_number() -> u64 {
    #[cfg(target_os = "linux")]
    // By its number: glibc has had a name for it since 2.30, and the library is linked for older ones, too.
    // SAFETY: `gettid` takes nothing, writes nothing and cannot fail.
    let number = u64::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap_or(0);
    // A number of the crate's own is as good within one log.
    #[cfg(not(target_os = "linux"))]
    let number = crate::stream::ThreadToken::current().number() as u64;
    NUMBER.set((number, MadeIn::this_process()));
    number
}

/// The seconds by which local time is ahead of UTC at that time. 0 where it is unknown.
pub(super) fn seconds_ahead_of_utc(seconds_since_1970: u64) -> i64 {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    if let Ok(time) = libc::time_t::try_from(seconds_since_1970) {
        let mut local = core::mem::MaybeUninit::<libc::tm>::zeroed();
        // SAFETY: both pointers are to locals, of their types. It reads the environment, if at all: who changes that while
        // others may read it has promised that nobody does.
        let known = unsafe { libc::localtime_r(&raw const time, local.as_mut_ptr()) };
        if !known.is_null() {
            // SAFETY: a `tm` is numbers and a pointer, of which all bytes zero are a value; it was zeroed, and then filled.
            return unsafe { local.assume_init() }.tm_gmtoff;
        }
    }
    let _ = seconds_since_1970;
    0
}

/// Has `function` called when the process exits, on the thread that exits; other threads still run. Where there is no such
/// thing it is not called.
pub(super) fn at_exit(function: extern "C" fn()) {
    #[cfg(unix)]
    {
        // SAFETY: it takes a function that takes nothing, returns nothing and does not unwind. Failure (no memory) means that
        // it is not called.
        unsafe { libc::atexit(function) };
    }
    #[cfg(not(unix))]
    let _ = function;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_have_numbers() {
        let here = thread_number();
        assert_eq!(here, thread_number());
        let there = std::thread::spawn(thread_number).join().expect("it does not panic");
        assert!(here != 0 && there != 0 && here != there);
        #[cfg(target_os = "linux")]
        assert!(std::path::Path::new(&format!("/proc/self/task/{here}")).exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_child_of_a_fork_is_another_thread() {
        let here = thread_number();
        // SAFETY: the child calls what takes no lock and no memory, and ends.
        match unsafe { libc::fork() } {
            -1 => panic!("no fork"),
            0 => {
                // SAFETY: it takes nothing.
                let own = unsafe { libc::gettid() }.unsigned_abs();
                // SAFETY: it takes a number, and does not return.
                unsafe { libc::_exit(i32::from(thread_number() != u64::from(own))) }
            }
            child => {
                let mut status = 0;
                // SAFETY: `status` is a place for the status of a child of this process.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0, "its thread has a number of its own");
                assert_eq!(thread_number(), here);
            }
        }
    }

    #[test]
    fn the_wall_clock_is_less_than_a_day_ahead_or_behind() {
        assert!(seconds_ahead_of_utc(1_700_000_000).abs() < 24 * 60 * 60);
    }
}
