//! What becomes of a thread that must not come back to an interpreter which is ending?
//!
//! Up to Python 3.13 a thread that wants the interpreter while it ends is ended by `pthread_exit`: in a daemon thread that runs code
//! of Python, at any moment. With glibc that unwinds the stack of the thread, and where a function of Rust has called that code,
//! the unwinding aborts the process or drops objects without the interpreter. So such a thread is stopped before the first frame is
//! unwound, for ever, as Python does itself from 3.14 on: the process ends without it.
//!
//! PyO3 does that where a thread attaches. Here it is done for what the thread runs in between: a thread that is about to call Python
//! calls [`prepare`] first.

#![expect(unsafe_code, reason = "registers a handler for the end of a thread, which is a function of C")]

use core::ffi::c_void;
use core::ptr::null_mut;
use std::cell::OnceCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Sees to it that this thread stops where it would be unwound because the interpreter is ending. Called before code of Python is,
/// as often as may be.
#[inline]
pub(crate) fn prepare() {
    thread_local! {
        static PREPARED: OnceCell<Registered> = const { OnceCell::new() };
    }
    // A thread that is ending already calls no Python from Rust but by destructors of its own variables: it is left alone.
    let _ = PREPARED.try_with(|prepared| {
        prepared.get_or_init(Registered::new);
    });
}

/// The struct of a handler, `struct _pthread_cleanup_buffer` of glibc, which only the C library writes to. That of musl, whose
/// `pthread_exit` calls handlers too and unwinds nothing, is smaller.
#[repr(C)]
struct Buffer([*mut c_void; 4]);

/// `_pthread_cleanup_push`: the buffer, the handler, and its argument.
type Push = unsafe extern "C" fn(*mut Buffer, extern "C" fn(*mut c_void), *mut c_void);

/// `_pthread_cleanup_pop`: the buffer, and whether to call its handler.
type Pop = unsafe extern "C" fn(*mut Buffer, i32);

/// A handler of the calling thread, until the end of the thread.
///
/// The C library calls a handler before it unwinds the frame that the handler's buffer lies in. A buffer that lies in no frame, but in
/// memory of the heap, is one of no caller: its handler is called before the first frame is unwound.
struct Registered(Option<*mut Buffer>);

impl Registered {
    #[cold]
    fn new() -> Self {
        Self(functions().map(|(push, _)| {
            let buffer = Box::into_raw(Box::new(Buffer([null_mut(); 4])));
            // SAFETY: the buffer is one that the C library fills, and lives until it is popped. The handler is a function of C.
            unsafe { push(buffer, stop_if_ending, null_mut()) };
            buffer
        }))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let (Some(buffer), Some((_, pop))) = (self.0, functions()) else { return };
        // SAFETY: pushed by this thread. This runs among the destructors of its variables, when none of its frames is left that could
        // have pushed another behind it, or be unwound.
        unsafe { pop(buffer, 0) };
        // SAFETY: boxed in `new`, and nobody else's since it was popped.
        drop(unsafe { Box::from_raw(buffer) });
    }
}

/// The two functions of the C library. `None` where it has none: then nothing is unwound either.
fn functions() -> Option<(Push, Pop)> {
    static FOUND: OnceLock<Option<(Push, Pop)>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: the name ends in null.
        let push = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_pthread_cleanup_push".as_ptr()) };
        // SAFETY: as above.
        let pop = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_pthread_cleanup_pop".as_ptr()) };
        if push.is_null() || pop.is_null() {
            return None;
        }
        // SAFETY: functions of these types have these names in the C libraries that have them.
        let push = unsafe { core::mem::transmute::<*mut c_void, Push>(push) };
        // SAFETY: as above.
        let pop = unsafe { core::mem::transmute::<*mut c_void, Pop>(pop) };
        Some((push, pop))
    })
}

/// Called by the C library where `pthread_exit` ends the thread, before anything is unwound.
extern "C" fn stop_if_ending(_: *mut c_void) {
    // The interpreter ends this thread a moment before it says of itself that it is ending.
    for _ in 0..20 {
        // SAFETY: always to be asked.
        if unsafe { ffi::Py_IsInitialized() } == 0 {
            loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
        }
        // Somebody else's `pthread_exit` waits for 20 ms.
        std::thread::sleep(core::time::Duration::from_millis(1));
    }
}

/// Refuses a second interpreter of the process. The classes of the module, and what it keeps, belong to the first one, which would
/// use objects of the other after that one has ended.
pub(crate) fn refuse_other_interpreters(py: Python<'_>) -> PyResult<()> {
    static FIRST: AtomicI64 = AtomicI64::new(NONE);
    const NONE: i64 = -1;
    // SAFETY: attached.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: the interpreter that the thread is attached to.
    let number = unsafe { ffi::PyInterpreterState_GetID(interpreter) };
    if number < 0 {
        return Err(PyErr::fetch(py));
    }
    // Relaxed: the number is all that is told.
    match FIRST.compare_exchange(NONE, number, Ordering::Relaxed, Ordering::Relaxed) {
        Err(first) if first != number => Err(PyImportError::new_err(
            "alluvion._alluvion is of one interpreter of a process, and another one has imported it before",
        )),
        _ => Ok(()),
    }
}
