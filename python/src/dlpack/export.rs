//! Tensors of ours for other libraries.

#![expect(
    unsafe_code,
    reason = "hands structs of C to other libraries, and takes them back in their deleters"
)]

use core::ffi::{CStr, c_void};
use std::sync::Arc;

use alluvion::driver::MemoryKind;
use alluvion::{Device, Error};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use super::layout::{
    CPU, CUDA, CUDA_HOST, CUDA_MANAGED, DataType, IS_COPIED, ManagedTensor, ManagedTensorVersioned, OLD,
    READ_ONLY, Tensor, TensorDevice, VERSION, VERSIONED,
};
use crate::buffer::{DeviceBuffer, Form, Memory, Snapshot};
use crate::error::{During, raise};
use crate::stream::StreamHandle;

/// What a consumer asks of `__dlpack__`.
pub(crate) struct Wish<'a, 'py> {
    pub(crate) stream: Option<&'a Bound<'py, PyAny>>,
    pub(crate) max_version: Option<(u32, u32)>,
    pub(crate) dl_device: Option<(i32, i32)>,
    pub(crate) copy: Option<bool>,
}

/// The stream that a consumer uses a tensor on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Consumer {
    /// It takes care itself.
    Unordered,
    /// The host, at once.
    Host,
    /// A stream, by its number.
    Stream(u64),
}

/// The device of the memory of a buffer, as DLPack names it.
pub(crate) fn device_of(py: Python<'_>, of: &Snapshot) -> PyResult<(i32, i32)> {
    let device = raise(py, py.detach(|| tensor_device(of)), During::Other)?;
    Ok((device.kind, device.id))
}

fn tensor_device(of: &Snapshot) -> Result<TensorDevice, Error> {
    let device = of.device()?;
    device.require(&device)?;
    let cuda = TensorDevice { kind: CUDA, id: device.ordinal() as i32 };
    let Some(memory) = &of.memory else { return Ok(cuda) };
    let info = device.driver().pointer_attributes(memory.address())?;
    Ok(match info.map(|info| info.kind) {
        Some(MemoryKind::PinnedHost) => TensorDevice { kind: CUDA_HOST, id: 0 },
        Some(MemoryKind::Managed) => TensorDevice { kind: CUDA_MANAGED, id: 0 },
        Some(_) => cuda,
        None => TensorDevice { kind: CPU, id: 0 },
    })
}

/// A capsule of the memory of `buffer`, in the form `form`.
pub(crate) fn export<'py>(
    buffer: &Bound<'py, DeviceBuffer>,
    form: &Form,
    wish: &Wish<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = buffer.py();
    let of = buffer.get().snapshot(py)?;
    let device = raise(py, py.detach(|| tensor_device(&of)), During::Other)?;
    if let Some((kind, id)) = wish.dl_device
        && (TensorDevice { kind, id }) != device
    {
        return Err(PyBufferError::new_err(format!(
            "the tensor is on DLPack device ({}, {}) and cannot be lent on ({kind}, {id}): copy it there",
            device.kind, device.id
        )));
    }
    let consumer = consumer(wish.stream, device)?;
    let is_read_only = of.memory.as_ref().is_some_and(|memory| memory.is_read_only());
    let is_copied = wish.copy == Some(true);
    let is_versioned = wish.max_version.is_some_and(|(major, _)| major >= 1);
    if is_read_only && !is_copied && !is_versioned {
        return Err(PyBufferError::new_err(
            "the tensor is read-only, which only capsules of version 1 can say: pass max_version=(1, 0), or copy=True",
        ));
    }
    let copied = if is_copied { Some(buffer.get().copied(py)?) } else { None };
    let of = match &copied {
        Some(copy) => copy.snapshot(py)?,
        None => of,
    };
    let stream = raise(py, py.detach(|| make_safe(&of, consumer)), During::Other)?;
    let flags = if is_copied {
        IS_COPIED
    } else if is_read_only {
        READ_ONLY
    } else {
        0
    };
    let lent = Lent::new(of.memory.clone(), form, stream);
    let tensor = lent.tensor(of.address(), device, form);
    if is_versioned {
        let mut versioned = Box::new(Versioned {
            managed: ManagedTensorVersioned {
                version: VERSION,
                manager: core::ptr::null_mut(),
                deleter: Some(delete_versioned),
                flags,
                tensor,
            },
            _lent: lent,
        });
        versioned.managed.manager = core::ptr::from_mut(&mut *versioned).cast();
        capsule(py, Box::into_raw(versioned).cast(), VERSIONED, destroy_versioned, |raw| {
            // SAFETY: the box that was just made, which nobody else has.
            drop(unsafe { Box::from_raw(raw.cast::<Versioned>()) });
        })
    } else {
        let mut old = Box::new(Old {
            managed: ManagedTensor { tensor, manager: core::ptr::null_mut(), deleter: Some(delete_old) },
            _lent: lent,
        });
        old.managed.manager = core::ptr::from_mut(&mut *old).cast();
        capsule(py, Box::into_raw(old).cast(), OLD, destroy_old, |raw| {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(raw.cast::<Old>()) });
        })
    }
}

fn capsule<'py>(
    py: Python<'py>,
    raw: *mut c_void,
    name: &'static CStr,
    destructor: ffi::PyCapsule_Destructor,
    take_back: impl FnOnce(*mut c_void),
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the pointer is not null, the name is static, and the destructor knows what the capsule has by its name.
    let capsule = unsafe { ffi::PyCapsule_New(raw, name.as_ptr(), Some(destructor)) };
    // SAFETY: null with an exception, or a new reference.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.inspect_err(|_| take_back(raw))
}

/// The stream of the consumer, which DLPack has rules for.
fn consumer(stream: Option<&Bound<'_, PyAny>>, device: TensorDevice) -> PyResult<Consumer> {
    let Some(stream) = stream else {
        return Ok(match device.kind {
            // The legacy stream, by the word of DLPack.
            CUDA => Consumer::Stream(1),
            // The host may look at once, at managed memory too.
            _ => Consumer::Host,
        });
    };
    if matches!(device.kind, CPU | CUDA_HOST) {
        return Err(PyValueError::new_err("the tensor is in memory of the host: `stream` must be None"));
    }
    let Ok(number) = stream.extract::<i64>() else {
        return Err(PyTypeError::new_err(format!(
            "Argument 'stream' has incorrect type (expected int or None, got {})",
            stream.get_type().name()?
        )));
    };
    match number {
        -1 => Ok(Consumer::Unordered),
        0 => Err(PyValueError::new_err(
            "stream 0 is ambiguous: pass 1 for the legacy default stream, 2 for the thread's own",
        )),
        1.. => Ok(Consumer::Stream(number as u64)),
        _ => Err(PyValueError::new_err(format!("{number} is no stream: pass -1, 1, 2 or a handle"))),
    }
}

/// Makes the bytes safe to use where the consumer does. Returns the stream that the free waits for once the tensor comes back: a
/// default stream, which there is for ever. The handle of another may be gone by then, and its owner answers for the order.
fn make_safe(of: &Snapshot, consumer: Consumer) -> Result<Option<(StreamHandle, Device)>, Error> {
    let Some(memory) = &of.memory else { return Ok(None) };
    let device = memory.device();
    match consumer {
        Consumer::Unordered => Ok(None),
        Consumer::Host => {
            memory.wait()?;
            of.stream.with(device, |stream| stream.synchronize())?;
            Ok(None)
        }
        Consumer::Stream(number) => {
            let handle = StreamHandle::from_number(number, None);
            handle.with(device, |consumer| {
                of.stream.with(device, |own| {
                    memory.used_on(own);
                    Ok(())
                })?;
                memory.order(consumer)?;
                memory.used_on(consumer);
                Ok(())
            })?;
            Ok((number == 1).then(|| (handle, device.clone())))
        }
    }
}

/// What a tensor of ours keeps.
struct Lent {
    memory: Option<Arc<Memory>>,
    /// See [`make_safe`].
    stream: Option<(StreamHandle, Device)>,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
}

impl Lent {
    fn new(memory: Option<Arc<Memory>>, form: &Form, stream: Option<(StreamHandle, Device)>) -> Self {
        if let Some(memory) = &memory {
            memory.export();
        }
        Self { memory, stream, shape: form.shape.clone().into(), strides: form.strides().into() }
    }

    /// The struct. Its pointers are valid as long as this: the boxes stay where they are.
    fn tensor(&self, address: u64, device: TensorDevice, form: &Form) -> Tensor {
        let is_empty = form.total_bytes().is_none_or(|bytes| bytes == 0);
        let data = if is_empty { 0 } else { address as usize };
        Tensor {
            data: core::ptr::with_exposed_provenance_mut(data),
            device,
            dimensions: form.shape.len() as i32,
            data_type: DataType { code: form.element.code, bits: form.element.bits(), lanes: 1 },
            shape: self.shape.as_ptr().cast_mut(),
            strides: self.strides.as_ptr().cast_mut(),
            byte_offset: 0,
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        if let Some((handle, device)) = self.stream.take() {
            let _ = handle.with(&device, |stream| {
                memory.used_on(stream);
                Ok(())
            });
        }
        memory.end_export();
    }
}

#[repr(C)]
struct Old {
    managed: ManagedTensor,
    _lent: Lent,
}

#[repr(C)]
struct Versioned {
    managed: ManagedTensorVersioned,
    _lent: Lent,
}

/// The deleter of [`Old`]. Needs no interpreter.
///
/// # Safety
///
/// `tensor` is one of ours, and is not used again.
unsafe extern "C" fn delete_old(tensor: *mut ManagedTensor) {
    if tensor.is_null() {
        return;
    }
    // SAFETY: the tensor is the first field of an `Old` that `export` boxed, and its deleter is called once.
    drop(unsafe { Box::from_raw(tensor.cast::<Old>()) });
}

/// The deleter of [`Versioned`]. Needs no interpreter.
///
/// # Safety
///
/// As [`delete_old`].
unsafe extern "C" fn delete_versioned(tensor: *mut ManagedTensorVersioned) {
    if tensor.is_null() {
        return;
    }
    // SAFETY: as in `delete_old`.
    drop(unsafe { Box::from_raw(tensor.cast::<Versioned>()) });
}

/// The destructor of a capsule with an [`Old`]: nobody took the tensor if the name is still that which it was made with.
unsafe extern "C" fn destroy_old(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this with the capsule that goes, attached.
    if let Some(raw) = unsafe { untaken(capsule, OLD) } {
        // SAFETY: the capsule has what `export` put there, and nobody took it.
        detached(move || unsafe { delete_old(raw.into_tensor()) });
    }
}

/// As [`destroy_old`].
unsafe extern "C" fn destroy_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as in `destroy_old`.
    if let Some(raw) = unsafe { untaken(capsule, VERSIONED) } {
        // SAFETY: as in `destroy_old`.
        detached(move || unsafe { delete_versioned(raw.into_tensor()) });
    }
}

/// A pointer that goes into a closure.
struct Raw(*mut c_void);

// SAFETY: a tensor of ours may be deleted by any thread.
unsafe impl Send for Raw {}

impl Raw {
    /// The pointer, as one to the struct that it is known to have. By a method, so that a closure takes all of this.
    fn into_tensor<T>(self) -> *mut T {
        self.0.cast()
    }
}

/// What the capsule has, if nobody took it.
///
/// # Safety
///
/// `capsule` is a capsule, and the thread is attached.
unsafe fn untaken(capsule: *mut ffi::PyObject, name: &CStr) -> Option<Raw> {
    // SAFETY: the caller's promise. The question sets no exception.
    let is_there = unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 1;
    if !is_there {
        return None;
    }
    // SAFETY: the capsule is valid with this name.
    let raw = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
    (!raw.is_null()).then_some(Raw(raw))
}

/// Runs `body` detached, where there is an interpreter to be detached from.
fn detached(body: impl FnOnce() + Send) {
    let mut body = Some(body);
    let _ = Python::try_attach(|py| py.detach(|| body.take().map(|body| body())));
    if let Some(body) = body {
        body();
    }
}
