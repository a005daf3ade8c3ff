//! What do compiled doors call?
//!
//! A door is a compiled module of another package which hands our memory to a framework: its source needs `alluvion/door.h` and links
//! nothing. It takes the [`Table`] out of a capsule of this module, and the handle of a stack out of a capsule of the stack. A function of
//! the table needs the interpreter only where the stack has a function of Python's; none unwinds, and a handle holds no object of Python.

#![expect(unsafe_code, reason = "makes capsules of bare pointers")]

mod calls;
mod failure;
mod handle;
mod status;
mod table;
mod unattached;

use core::ffi::CStr;
use core::ptr::NonNull;

use alluvion::AnyResource;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::attached::beside_an_exception;
use crate::error::{During, raise};
use crate::resource::Owner;
use handle::Handle;
use table::{TABLE, Table};

/// The name of the capsule with the table, by which `PyCapsule_Import` finds it.
const TABLE_NAME: &CStr = c"alluvion._alluvion._C_API";

/// The name of a capsule with a handle.
const HANDLE_NAME: &CStr = c"alluvion.handle";

/// The capsule with the table.
pub(crate) fn table_capsule(py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
    let table = NonNull::from(&TABLE).cast();
    // SAFETY: the table is static, and so is the name of the capsule.
    unsafe { PyCapsule::new_with_pointer(py, table, TABLE_NAME) }
}

/// A capsule with a new handle of a stack, which the capsule has one count of. In a child of a fork, and where the device is lost, there
/// is none.
pub(crate) fn handle_capsule<'py>(py: Python<'py>, owner: &Owner) -> PyResult<Bound<'py, PyCapsule>> {
    // What fails here would fail at the first request, where a framework may not say why.
    raise(py, py.detach(|| owner.device().memory_info()), During::Other)?;
    let handle = Handle::give(AnyResource::clone(owner));
    // SAFETY: the destructor knows what the capsule has by its name, which is static.
    let capsule =
        unsafe { PyCapsule::new_with_pointer_and_destructor(py, handle.cast(), HANDLE_NAME, Some(let_go)) };
    // SAFETY: there is no capsule that has the count.
    capsule.inspect_err(|_| unsafe { Handle::release(handle.as_ptr()) })
}

/// Gives the count of a capsule back.
unsafe extern "C" fn let_go(capsule: *mut ffi::PyObject) {
    // SAFETY: a destructor of the interpreter's is called by a thread that has it.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: a capsule that is going, with the name that `handle_capsule` gave. Under another name, which somebody has given it, the
    // exception is dropped: the count is lost, and nothing is freed that is in use.
    let handle =
        beside_an_exception(py, || unsafe { ffi::PyCapsule_GetPointer(capsule, HANDLE_NAME.as_ptr()) });
    if handle.is_null() {
        return;
    }
    // SAFETY: the capsule's own count, which nobody else gives back.
    unsafe { (Table::RELEASE)(handle.cast()) };
}
