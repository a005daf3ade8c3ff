//! Has this thread the interpreter?
//!
//! PyO3 counts how often it has attached a thread, and takes a thread with a count for attached. Where Python calls a compiled module of
//! another language, which lets go of the interpreter by itself and then calls this library through a door, the count is wrong: so whoever
//! is called from outside of PyO3 asks the interpreter here, and attaches here.

#![expect(unsafe_code, reason = "asks the interpreter by functions that its stable interface does not name")]

use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::ending::prepare;

/// A function of the interpreter by one of its names.
fn find(names: [&CStr; 2]) -> Option<*mut c_void> {
    names.into_iter().find_map(|name| {
        // SAFETY: the name ends in null.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    })
}

/// The state of the thread that has the interpreter; up to Python 3.11 that of whichever thread has it, later of this thread if it does.
fn current_state() -> *mut ffi::PyThreadState {
    type Current = unsafe extern "C" fn() -> *mut ffi::PyThreadState;
    static FOUND: OnceLock<Option<Current>> = OnceLock::new();
    let current = FOUND.get_or_init(|| {
        let found = find([c"PyThreadState_GetUnchecked", c"_PyThreadState_UncheckedGet"])?;
        // SAFETY: the function of either name has this type.
        Some(unsafe { core::mem::transmute::<*mut c_void, Current>(found) })
    });
    // SAFETY: always to be asked.
    current.map_or(null_mut(), |current| unsafe { current() })
}

/// The state that this thread has been given, whether it has the interpreter now or not; null for one that never had it.
fn own_state() -> *mut ffi::PyThreadState {
    // SAFETY: always to be asked.
    unsafe { ffi::PyGILState_GetThisThreadState() }
}

/// Whether the calling thread has the interpreter: without a wait, and without taking it. `PyGILState_Check` says that every thread has, once
/// there was a second interpreter in the process.
pub(crate) fn is_attached() -> bool {
    let own = own_state();
    !own.is_null() && own == current_state()
}

/// Whether frames of Python may be on the calling thread. A thread that was made elsewhere, and never called Python, has none.
pub(crate) fn may_have_frames() -> bool {
    !own_state().is_null()
}

/// Whether the interpreter is there, and not about to end.
fn is_there() -> bool {
    type Finalizing = unsafe extern "C" fn() -> c_int;
    static FOUND: OnceLock<Option<Finalizing>> = OnceLock::new();
    let finalizing = FOUND.get_or_init(|| {
        let found = find([c"Py_IsFinalizing", c"_Py_IsFinalizing"])?;
        // SAFETY: the function of either name has this type.
        Some(unsafe { core::mem::transmute::<*mut c_void, Finalizing>(found) })
    });
    // SAFETY: always to be asked.
    let is_initialized = unsafe { ffi::Py_IsInitialized() } != 0;
    // SAFETY: as above.
    is_initialized && !finalizing.is_some_and(|finalizing| unsafe { finalizing() } != 0)
}

/// The interpreter, for a thread that had it or not. Not by PyO3, which may count this thread for attached.
struct Ensured(ffi::PyGILState_STATE);

impl Drop for Ensured {
    fn drop(&mut self) {
        // SAFETY: ensured by this thread, which has attached and detached in pairs since.
        unsafe { ffi::PyGILState_Release(self.0) };
    }
}

/// An exception that is on its way while something else calls Python: a destructor, in most cases.
struct Pending([*mut ffi::PyObject; 3]);

impl Pending {
    /// Takes the exception off. Attached.
    fn take() -> Self {
        let [mut kind, mut value, mut traceback] = [null_mut(); 3];
        // What replaces it is of Python 3.12.
        // SAFETY: attached, and three places.
        unsafe { ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut traceback) };
        Self([kind, value, traceback])
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let [kind, value, traceback] = self.0;
        // SAFETY: attached still, and the references are those that were taken.
        unsafe { ffi::PyErr_Restore(kind, value, traceback) };
    }
}

/// Attaches to call Python, whatever PyO3 takes the thread for; `None` without an interpreter, and within a traversal of the collector.
/// An exception that is on its way stays there.
pub(crate) fn attach<R>(body: impl for<'py> FnOnce(Python<'py>) -> R) -> Option<R> {
    prepare();
    if !is_there() {
        return None;
    }
    // SAFETY: the interpreter is there. One that begins to end now ends this thread in `PyGILState_Ensure`, or stops it: as `prepare` says.
    let ensured = Ensured(unsafe { ffi::PyGILState_Ensure() });
    let attached = Python::try_attach(|py| {
        let _pending = Pending::take();
        body(py)
    });
    drop(ensured);
    attached
}

/// Runs what may set an exception of its own, while another may be on its way. Attached.
pub(crate) fn beside_an_exception<R>(_py: Python<'_>, body: impl FnOnce() -> R) -> R {
    let _pending = Pending::take();
    body()
}

/// Raises an interrupt of the keyboard in the main thread, soon.
pub(crate) fn interrupt(_py: Python<'_>) {
    // SAFETY: always to be called.
    unsafe { ffi::PyErr_SetInterrupt() };
}

/// Drops what may wait, call the driver, or run foreign code, without the interpreter. The calling thread has it, or the interpreter is going:
/// then the closure is dropped with the value in it.
pub(crate) fn drop_detached<T: Send>(value: T) {
    let _ = Python::try_attach(|py| py.detach(move || drop(value)));
}
