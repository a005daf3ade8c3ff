//! `HeldBuffer`: the memory of an object with Python's buffer protocol.
//!
//! PyO3's own type refuses memory whose exporter leaves the strides out, as those of `ctypes` do.

#![expect(unsafe_code, reason = "calls the buffer protocol")]

use std::ffi::{CStr, c_void};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::attached::attach;
use crate::ending::prepare;

/// The memory of an object, which neither moves nor goes while this lives.
pub(crate) struct HeldBuffer {
    /// Boxed, because exporters keep pointers into it.
    raw: Box<ffi::Py_buffer>,
}

// SAFETY: the protocol lets any thread that is attached release a buffer, and the rest is numbers.
unsafe impl Send for HeldBuffer {}
// SAFETY: a shared one can be looked at alone, and nothing of it changes.
unsafe impl Sync for HeldBuffer {}

impl HeldBuffer {
    /// The memory of `object`.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        // An exporter may be a class of Python.
        prepare();
        let mut raw = Box::new(ffi::Py_buffer::new());
        // SAFETY: attached, a live object, and room for the answer, which stays where it is.
        let status = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *raw, ffi::PyBUF_FULL_RO) };
        if status != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Self { raw })
    }

    /// Where the memory begins.
    pub(crate) fn start(&self) -> *mut c_void {
        self.raw.buf
    }

    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> usize {
        self.raw.len.unsigned_abs()
    }

    /// Whether nobody may write to it.
    pub(crate) fn is_read_only(&self) -> bool {
        self.raw.readonly != 0
    }

    /// How many dimensions there are.
    pub(crate) fn dimensions(&self) -> usize {
        self.raw.ndim.unsigned_abs() as usize
    }

    /// The bytes of an element.
    pub(crate) fn item_bytes(&self) -> usize {
        self.raw.itemsize.unsigned_abs()
    }

    /// The type of the elements, as `struct` writes it.
    pub(crate) fn format(&self) -> &CStr {
        if self.raw.format.is_null() {
            return c"B";
        }
        // SAFETY: not null, and a text that lives as long as the buffer, by the protocol.
        unsafe { CStr::from_ptr(self.raw.format) }
    }

    /// Whether the elements follow each other in the order of C.
    pub(crate) fn is_contiguous(&self) -> bool {
        // SAFETY: a buffer that was filled; the question needs no interpreter.
        unsafe {
            ffi::PyBuffer_IsContiguous(&raw const *self.raw, b'C'.cast_signed() as core::ffi::c_char) != 0
        }
    }
}

impl Drop for HeldBuffer {
    fn drop(&mut self) {
        // Where the interpreter is gone, so is the object. A thread that drops one is attached, or may be.
        let _ = attach(|_| {
            // SAFETY: attached; filled by `PyObject_GetBuffer`, and released once.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.raw) };
        });
    }
}
