//! Tensors of other libraries for us.

#![expect(unsafe_code, reason = "takes structs of C from other libraries")]

use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};

use alluvion::Device;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use pyo3::{ffi, intern};

use super::layout::{
    CUDA, CUDA_HOST, CUDA_MANAGED, ManagedTensor, ManagedTensorVersioned, OLD, OLD_USED, READ_ONLY, Tensor,
    TensorDevice, VERSION, VERSIONED, VERSIONED_USED,
};
use crate::buffer::{Deleter, DeviceBuffer, Imported, Memory};
use crate::ending::prepare;
use crate::error::{During, raise};
use crate::machine;
use crate::stream::{StreamArgument, StreamHandle};

/// A buffer over the memory that `obj` lends by DLPack, without a copy. `stream` is the one that it will be used on.
///
/// >>> import alluvion
/// >>> with alluvion.simulated():
/// ...     buffer = alluvion.DeviceBuffer.to_device(b"abc")
/// ...     alluvion.from_dlpack(buffer).tobytes()
/// b'abc'
#[pyfunction]
#[pyo3(signature = (obj, stream=StreamArgument::Missing), text_signature = "(obj, stream=...)")]
pub(crate) fn from_dlpack(
    py: Python<'_>,
    obj: &Bound<'_, PyAny>,
    stream: StreamArgument,
) -> PyResult<DeviceBuffer> {
    import(py, obj, stream.into_handle())
}

/// As [`from_dlpack`].
pub(crate) fn import(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    stream: Arc<StreamHandle>,
) -> PyResult<DeviceBuffer> {
    let capsule = match object.cast::<PyCapsule>() {
        Ok(capsule) => capsule.clone(),
        Err(_) => ask(py, object, &stream)?,
    };
    take(py, &capsule, stream)
}

/// Asks the lender for a capsule.
fn ask<'py>(
    py: Python<'py>,
    object: &Bound<'py, PyAny>,
    stream: &StreamHandle,
) -> PyResult<Bound<'py, PyCapsule>> {
    prepare();
    let method = intern!(py, "__dlpack__");
    let (Some(device), true) =
        (object.getattr_opt(intern!(py, "__dlpack_device__"))?, object.hasattr(method)?)
    else {
        return Err(PyTypeError::new_err(format!(
            "a {} lends nothing by DLPack: it has no `__dlpack__` and `__dlpack_device__`",
            object.get_type().name()?
        )));
    };
    let (kind, id): (i32, i32) = device.call0()?.extract()?;
    device_for(py, TensorDevice { kind, id })?;
    let arguments = PyDict::new(py);
    if kind != CUDA_HOST {
        // 0 is ambiguous there.
        arguments.set_item(intern!(py, "stream"), stream.number().max(1))?;
    }
    let keywords = arguments.copy()?;
    keywords.set_item(intern!(py, "max_version"), (VERSION.major, VERSION.minor))?;
    let answer = match object.call_method(method, (), Some(&keywords)) {
        // A lender of the time before versions.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            object.call_method(method, (), Some(&arguments))
        }
        answer => answer,
    }?;
    answer.cast_into().map_err(|answer| {
        PyTypeError::new_err(format!(
            "__dlpack__ must return a capsule, and returned a {}",
            answer.into_inner().get_type()
        ))
    })
}

/// The device of ours that reaches a tensor.
fn device_for(py: Python<'_>, of: TensorDevice) -> PyResult<Device> {
    let refused = |why: &str| {
        PyBufferError::new_err(format!(
            "a tensor on DLPack device ({}, {}) cannot be a buffer: {why}",
            of.kind, of.id
        ))
    };
    match of.kind {
        CUDA => {
            let ordinal = u32::try_from(of.id).map_err(|_| refused("there is no such device"))?;
            let found = py.detach(|| machine::active()?.device(ordinal));
            found.map_err(|error| refused(&error.to_string()))
        }
        CUDA_HOST | CUDA_MANAGED => raise(py, py.detach(machine::device), During::Other),
        _ => Err(refused("no device of CUDA reaches it: copy it with DeviceBuffer.to_device")),
    }
}

/// Takes the tensor out of a capsule. If it can be no buffer, it stays there.
fn take(py: Python<'_>, capsule: &Bound<'_, PyCapsule>, stream: Arc<StreamHandle>) -> PyResult<DeviceBuffer> {
    // Before anything else: another thread that is given the same capsule must not find the tensor meanwhile.
    let taken = Tensors::out_of(capsule)?;
    match taken.describe(py) {
        Ok(found) => found.into_buffer(py, taken, stream),
        Err(refused) if refused.is_beyond_use => {
            drop(taken.into_deleter());
            Err(refused.why)
        }
        Err(refused) => {
            taken.put_back(capsule)?;
            Err(refused.why)
        }
    }
}

/// What a tensor is.
struct Found {
    address: u64,
    bytes: usize,
    device: Device,
    is_read_only: bool,
}

/// Why a tensor can be no buffer.
struct Refused {
    why: PyErr,
    /// Whether nothing of the struct can be understood but its deleter, which is called then.
    is_beyond_use: bool,
}

impl From<PyErr> for Refused {
    fn from(why: PyErr) -> Self {
        Self { why, is_beyond_use: false }
    }
}

impl Found {
    fn into_buffer(
        self,
        py: Python<'_>,
        taken: Tensors,
        stream: Arc<StreamHandle>,
    ) -> PyResult<DeviceBuffer> {
        let Self { address, bytes, device, is_read_only } = self;
        let deleter = taken.into_deleter();
        if bytes == 0 {
            drop(deleter);
            return Ok(DeviceBuffer::lent(None, 0, stream));
        }
        let stream = raise(py, stream.pinned_to_thread(&device), During::Other)?;
        let lent = Imported::new(address, bytes, device, Arc::clone(&stream), is_read_only, deleter);
        Ok(DeviceBuffer::lent(Some(Memory::lent(lent)), bytes, stream))
    }
}

/// The two kinds of struct in a capsule.
enum Tensors {
    Old(*mut ManagedTensor),
    Versioned(*mut ManagedTensorVersioned),
}

/// Held where a capsule is looked into and renamed, which is one step for a thread that holds the interpreter, and not where threads
/// run beside each other.
static TAKING: Mutex<()> = Mutex::new(());

impl Tensors {
    /// Takes the struct out of a capsule, which is renamed.
    fn out_of(capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, name) = if let Some(raw) = pointer(capsule, OLD) {
            (Self::Old(raw.cast()), OLD_USED)
        } else if let Some(raw) = pointer(capsule, VERSIONED) {
            (Self::Versioned(raw.cast()), VERSIONED_USED)
        } else {
            return Err(PyBufferError::new_err(
                "the capsule has no DLPack tensor: it is named neither 'dltensor' nor 'dltensor_versioned', as after it was taken",
            ));
        };
        rename(capsule, name)?;
        Ok(taken)
    }

    /// Puts the struct back into its capsule.
    fn put_back(self, capsule: &Bound<'_, PyCapsule>) -> PyResult<()> {
        let name = match self {
            Self::Old(_) => OLD,
            Self::Versioned(_) => VERSIONED,
        };
        rename(capsule, name)
    }

    /// What the tensor is.
    fn describe(&self, py: Python<'_>) -> Result<Found, Refused> {
        let (tensor, is_read_only) = match *self {
            // SAFETY: the capsule was named as one of such a struct, which is valid until its deleter is called.
            Self::Old(managed) => (unsafe { (*managed).tensor }, false),
            Self::Versioned(managed) => {
                // SAFETY: as above, and every version of the struct begins with the version.
                let version = unsafe { (*managed).version };
                if version.major != VERSION.major {
                    let why = PyBufferError::new_err(format!(
                        "the tensor is of DLPack {}.{}, and only version {} is known",
                        version.major, version.minor, VERSION.major
                    ));
                    return Err(Refused { why, is_beyond_use: true });
                }
                // SAFETY: as above, and its version is known.
                let flags = unsafe { (*managed).flags };
                // SAFETY: as above.
                (unsafe { (*managed).tensor }, flags & READ_ONLY != 0)
            }
        };
        let device = device_for(py, tensor.device)?;
        // SAFETY: the struct is valid until its deleter is called.
        let bytes = unsafe { bytes_of(&tensor) }?;
        let address = (tensor.data.expose_provenance() as u64).wrapping_add(tensor.byte_offset);
        Ok(Found { address, bytes, device, is_read_only })
    }

    /// What calls the deleter of the struct.
    fn into_deleter(self) -> Deleter {
        let taken = Taken(self);
        Deleter::new(move || taken.delete())
    }
}

fn rename(capsule: &Bound<'_, PyCapsule>, name: &'static CStr) -> PyResult<()> {
    // SAFETY: a capsule, attached; the name is static.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()));
    }
    Ok(())
}

/// A tensor that was taken out of its capsule.
struct Taken(Tensors);

// SAFETY: DLPack lets any thread call the deleter, and nothing else is done with the struct.
unsafe impl Send for Taken {}
// SAFETY: a shared `Taken` can do nothing.
unsafe impl Sync for Taken {}

impl Taken {
    fn delete(self) {
        match self.0 {
            Tensors::Old(managed) => {
                // SAFETY: the struct is valid until its deleter has been called, and it is called here alone, once.
                if let Some(deleter) = unsafe { (*managed).deleter } {
                    // SAFETY: as above.
                    unsafe { deleter(managed) };
                }
            }
            Tensors::Versioned(managed) => {
                // SAFETY: as above; the deleter is in the same place in all versions.
                if let Some(deleter) = unsafe { (*managed).deleter } {
                    // SAFETY: as above.
                    unsafe { deleter(managed) };
                }
            }
        }
    }
}

fn pointer(capsule: &Bound<'_, PyCapsule>, name: &CStr) -> Option<*mut core::ffi::c_void> {
    // SAFETY: a capsule, attached. The question sets no exception.
    let is_named = unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) } == 1;
    if !is_named {
        return None;
    }
    // SAFETY: valid with this name.
    let raw = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
    (!raw.is_null()).then_some(raw)
}

/// The bytes of a tensor that is compact in the order of C.
///
/// # Safety
///
/// The tensor's pointers are as DLPack says.
unsafe fn bytes_of(tensor: &Tensor) -> PyResult<usize> {
    let refused = |why: &str| PyBufferError::new_err(format!("the tensor cannot be a buffer: {why}"));
    let dimensions = usize::try_from(tensor.dimensions).map_err(|_| refused("its rank is negative"))?;
    let bits = usize::from(tensor.data_type.bits) * usize::from(tensor.data_type.lanes);
    if bits == 0 || bits % 8 != 0 {
        return Err(refused("its elements are no whole bytes"));
    }
    let axis = |of: *mut i64, place: usize| {
        // Without a step outside of the array, because `place` is below the number of dimensions.
        let entry = of.wrapping_add(place);
        // SAFETY: the array has an entry for each dimension, by the caller's promise.
        unsafe { entry.read_unaligned() }
    };
    if dimensions > 0 && tensor.shape.is_null() {
        return Err(refused("it has no shape"));
    }
    let mut is_empty = false;
    for place in 0..dimensions {
        let length = axis(tensor.shape, place);
        if length < 0 {
            return Err(refused("a length is negative"));
        }
        is_empty |= length == 0;
    }
    if is_empty {
        return Ok(0);
    }
    let mut count = 1_usize;
    let mut is_compact = true;
    for place in (0..dimensions).rev() {
        let length =
            usize::try_from(axis(tensor.shape, place)).map_err(|_| refused("a length is negative"))?;
        if !tensor.strides.is_null() && length != 1 {
            is_compact &= usize::try_from(axis(tensor.strides, place)).is_ok_and(|stride| stride == count);
        }
        count = count.checked_mul(length).ok_or_else(|| refused("it is too large"))?;
    }
    if !is_compact {
        return Err(refused("its elements are not contiguous in the order of C: make it contiguous first"));
    }
    count.checked_mul(bits / 8).ok_or_else(|| refused("it is too large"))
}
