//! The class `DeviceBuffer`.

#![expect(unsafe_code, reason = "prefetches memory of a buffer")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alluvion::Layout;
use alluvion::driver::Location;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use pyo3::{PyTraverseError, intern};

use super::array_interface::ArrayInterface;
use super::asleep::{self, Asleep};
use super::host_buffer::{Direction, HostBuffer};
use super::transfer::{Copy, is_managed, is_pageable};
use super::view::{DeviceView, Form};
use super::{Memory, Snapshot, functions};
use crate::block::Block;
use crate::dlpack;
use crate::error::{During, raise};
use crate::resource::{DeviceMemoryResource, Owner};
use crate::share::Shared;
use crate::stream::{StreamArgument, StreamHandle};
use crate::{current, machine};

/// Memory of a device, with a size that can change.
///
/// >>> import alluvion
/// >>> from alluvion.rmm.pylibrmm.device_buffer import DeviceBuffer
/// >>> with alluvion.simulated():
/// ...     buffer = DeviceBuffer.to_device(b"abc")
/// ...     buffer.tobytes()
/// b'abc'
#[pyclass(subclass, frozen, weakref, module = "alluvion.rmm.pylibrmm.device_buffer")]
pub(crate) struct DeviceBuffer {
    /// Held for a look or an exchange, and never while anything is dropped or waited for.
    state: Mutex<State>,
}

pub(super) struct State {
    /// `None` where nothing was allocated.
    pub(super) memory: Option<Arc<Memory>>,
    pub(super) size: usize,
    /// What the memory is aligned to, also where it moves.
    pub(super) align: usize,
    /// There is no memory while this is there.
    pub(super) asleep: Option<Asleep>,
    pub(super) stream: Arc<StreamHandle>,
    /// Where the memory comes from. `None` for a tensor that another library lent, and where there was no device to ask.
    pub(super) mr: Option<Py<DeviceMemoryResource>>,
}

impl DeviceBuffer {
    fn over(
        memory: Option<Memory>,
        layout: Layout,
        stream: Arc<StreamHandle>,
        mr: Option<Py<DeviceMemoryResource>>,
    ) -> Self {
        let (size, align) = (layout.bytes(), layout.align());
        let memory = memory.map(Arc::new);
        Self { state: Mutex::new(State { memory, size, align, asleep: None, stream, mr }) }
    }

    /// A buffer over a tensor that another library lent.
    pub(crate) fn lent(memory: Option<Memory>, size: usize, stream: Arc<StreamHandle>) -> Self {
        let (memory, align) = (memory.map(Arc::new), Layout::MIN_ALIGN);
        let state = State { memory, size, align, asleep: None, stream, mr: None };
        Self { state: Mutex::new(state) }
    }

    /// A new buffer of a resource, or of the current one.
    pub(super) fn allocated(
        py: Python<'_>,
        layout: Layout,
        stream: Arc<StreamHandle>,
        mr: Option<Py<DeviceMemoryResource>>,
    ) -> PyResult<Self> {
        if layout.is_empty() {
            return Ok(Self::over(None, layout, stream, mr));
        }
        let mr = match mr {
            Some(mr) => mr,
            None => current_object(py)?,
        };
        let (memory, stream) = allocate(py, &mr, layout, stream)?;
        Ok(Self::over(Some(memory), layout, stream, Some(mr)))
    }

    /// A buffer of the current resource of the current device, and the number of the device.
    pub(crate) fn on_current_device(
        py: Python<'_>,
        size: usize,
        stream: Arc<StreamHandle>,
    ) -> PyResult<(Self, u32)> {
        let device = raise(py, machine::device(), During::Other)?;
        let mr = current::object(py, &device)?;
        let layout = raise(py, Layout::from_bytes(size), During::Allocation)?;
        Ok((Self::allocated(py, layout, stream, Some(mr))?, device.ordinal()))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the buffer has now. One that sleeps has nothing to be used.
    pub(crate) fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let state = self.state();
        if state.asleep.is_some() {
            drop(state);
            return Err(asleep::refuse(py));
        }
        Ok(Snapshot { memory: state.memory.clone(), size: state.size, stream: Arc::clone(&state.stream) })
    }

    /// The resource that the buffer was made from, or the current one.
    pub(super) fn resource(&self, py: Python<'_>) -> PyResult<Py<DeviceMemoryResource>> {
        let known = self.state().mr.as_ref().map(|mr| mr.clone_ref(py));
        known.map_or_else(|| current_object(py), Ok)
    }
}

/// The current resource of the current device.
fn current_object(py: Python<'_>) -> PyResult<Py<DeviceMemoryResource>> {
    let device = raise(py, machine::device(), During::Other)?;
    current::object(py, &device)
}

/// New memory of `mr`, and its stream as every thread means it.
pub(super) fn allocate(
    py: Python<'_>,
    mr: &Py<DeviceMemoryResource>,
    layout: Layout,
    stream: Arc<StreamHandle>,
) -> PyResult<(Memory, Arc<StreamHandle>)> {
    let owner: Owner = mr.get().owner(py)?.clone();
    let stream = raise(py, stream.pinned_to_thread(owner.device()), During::Allocation)?;
    let block = raise(py, Block::new(py, owner, layout, Arc::clone(&stream)), During::Allocation)?;
    Ok((Memory::of(block), stream))
}

fn resource_of(object: &Bound<'_, PyAny>) -> PyResult<Py<DeviceMemoryResource>> {
    match object.cast::<DeviceMemoryResource>() {
        Ok(mr) => Ok(mr.clone().unbind()),
        Err(_) => Err(PyTypeError::new_err(format!(
            "Argument 'mr' has incorrect type (expected DeviceMemoryResource, got {})",
            object.get_type().name()?
        ))),
    }
}

fn too_large(given: usize, size: usize) -> PyErr {
    PyValueError::new_err(format!(
        "the source is too large: it has {given} bytes, and the buffer {size}: resize the buffer first"
    ))
}

#[pymethods]
impl DeviceBuffer {
    #[new]
    #[pyo3(
        signature = (*, ptr=0, size=0, stream=StreamArgument::Missing, mr=None, align=0),
        text_signature = "(*, ptr=0, size=0, stream=..., mr=None, align=0)"
    )]
    fn new(
        py: Python<'_>,
        ptr: u64,
        size: usize,
        stream: StreamArgument,
        mr: Option<&Bound<'_, PyAny>>,
        align: usize,
    ) -> PyResult<Self> {
        let layout = raise(py, Layout::of_request(size, align), During::Allocation)?;
        let mr = match mr {
            Some(mr) => Some(resource_of(mr)?),
            // Without a device an empty buffer can be made all the same.
            None if size == 0 => current_object(py).ok(),
            None => None,
        };
        let buffer = Self::allocated(py, layout, stream.into_handle(), mr)?;
        if ptr != 0 && size != 0 {
            let of = buffer.snapshot(py)?;
            let Some(memory) = &of.memory else { return Ok(buffer) };
            let copy = Copy { to: memory.address(), from: ptr, bytes: size };
            let (device, stream) = (memory.device(), &of.stream);
            let copied = py.detach(|| {
                stream.with(device, |named| {
                    if stream.is_default() || is_pageable(device, ptr)? {
                        return copy.run(named).outcome();
                    }
                    copy.submit(named)
                })
            });
            raise(py, copied, During::Copy)?;
        }
        Ok(buffer)
    }

    /// A new buffer with the bytes of `b`, from the current resource.
    #[staticmethod]
    #[pyo3(signature = (b, stream=StreamArgument::Missing), text_signature = "(b, stream=...)")]
    fn to_device(py: Python<'_>, b: &Bound<'_, PyAny>, stream: StreamArgument) -> PyResult<Self> {
        let host = HostBuffer::new(b, "b")?;
        let bytes = host.bytes();
        let mr = if bytes == 0 { current_object(py).ok() } else { None };
        let layout = raise(py, Layout::from_bytes(bytes), During::Allocation)?;
        let buffer = Self::allocated(py, layout, stream.into_handle(), mr)?;
        let of = buffer.snapshot(py)?;
        if let Some(memory) = &of.memory {
            let (address, device) = (memory.address(), memory.device());
            host.copy(py, Direction::ToDevice, address, bytes, Some(memory), &of.stream, device)?;
        }
        Ok(buffer)
    }

    /// The bytes that another library lends by DLPack, without a copy. `stream` is the one that they will be used on.
    #[staticmethod]
    #[pyo3(signature = (obj, stream=StreamArgument::Missing), text_signature = "(obj, stream=...)")]
    fn from_dlpack(py: Python<'_>, obj: &Bound<'_, PyAny>, stream: StreamArgument) -> PyResult<Self> {
        dlpack::import(py, obj, stream.into_handle())
    }

    /// The address: 0 where nothing was allocated.
    #[getter]
    pub(crate) fn ptr(&self) -> u64 {
        let state = self.state();
        match (&state.memory, &state.asleep) {
            (Some(memory), _) => memory.address(),
            (None, asleep) => asleep.as_ref().map_or(0, |asleep| asleep.address),
        }
    }

    /// How many bytes the buffer has.
    #[getter]
    fn size(&self) -> usize {
        self.state().size
    }

    /// How many bytes the buffer has.
    #[getter]
    fn nbytes(&self) -> usize {
        self.state().size
    }

    fn __len__(&self) -> usize {
        self.state().size
    }

    fn __sizeof__(&self) -> usize {
        self.state().size
    }

    /// How many bytes the buffer can have before it moves.
    fn capacity(&self) -> usize {
        let state = self.state();
        match (&state.memory, &state.asleep) {
            (Some(memory), _) => memory.bytes(),
            (None, asleep) => asleep.as_ref().map_or(0, |asleep| asleep.capacity),
        }
    }

    /// Gives the memory back to the device, and keeps the address; and with `keep="host"` the contents, in pinned memory, or with
    /// `keep="disk"` in a file of `folder`. Until `wake` the buffer answers `alluvion.errors.Asleep` to whatever wants its bytes.
    ///
    /// Whoever calls it promises that no work of others uses the buffer, such as a kernel that has its address, from now on until it is awake.
    /// Work of the buffer itself is waited for. The buffer is of a pool over pages, `pool | mapped`, under any layers that pass blocks on.
    ///
    /// >>> import alluvion
    /// >>> with alluvion.simulated():
    /// ...     stack = alluvion.resource("pool | mapped")
    /// ...     with alluvion.using(stack):
    /// ...         weights = alluvion.DeviceBuffer.to_device(b"abc" * 1000000)
    /// ...     address = weights.ptr
    /// ...     weights.sleep()
    /// ...     print(weights.is_asleep, stack.pool_status()["reserved_bytes"])
    /// ...     weights.wake()
    /// ...     print(weights.ptr == address, weights.tobytes()[:3])
    /// ...     del weights, stack
    /// True 0
    /// True b'abc'
    #[pyo3(signature = (*, keep="host", folder=None))]
    fn sleep(&self, py: Python<'_>, keep: &str, folder: Option<PathBuf>) -> PyResult<()> {
        match (keep, folder) {
            ("disk", None) => Err(PyValueError::new_err("keep is \"disk\", which needs a folder")),
            ("disk", folder) => self.fall_asleep(py, false, folder),
            ("host" | "nothing", Some(_)) => {
                Err(PyValueError::new_err(format!("keep is '{keep}', and a folder is for \"disk\"")))
            }
            ("host", None) => self.fall_asleep(py, true, None),
            ("nothing", None) => self.fall_asleep(py, false, None),
            (other, _) => Err(PyValueError::new_err(format!(
                "keep is \"host\", \"disk\" or \"nothing\", and not '{other}'"
            ))),
        }
    }

    /// Gives the buffer memory again, at the address that it had, and restores what was kept. Waits until that is over. Nothing if it is awake.
    /// If memory is short it is a `MemoryError`: the buffer sleeps on, nothing is lost, and it can be called again.
    fn wake(&self, py: Python<'_>) -> PyResult<()> {
        self.awaken(py)
    }

    /// Whether the buffer has no memory now.
    #[getter]
    fn is_asleep(&self) -> bool {
        self.state().asleep.is_some()
    }

    /// The CUDA array interface: unsigned bytes in one dimension.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let of = self.snapshot(py)?;
        let is_read_only = of.memory.as_ref().is_some_and(|memory| memory.is_read_only());
        if let Some(memory) = &of.memory {
            // The memory of a parent process is none of its children.
            raise(py, memory.device().require(memory.device()), During::Other)?;
        }
        let interface = PyDict::new(py);
        interface.set_item(intern!(py, "data"), (of.address(), is_read_only))?;
        interface.set_item(intern!(py, "shape"), (of.size,))?;
        interface.set_item(intern!(py, "strides"), py.None())?;
        interface.set_item(intern!(py, "typestr"), intern!(py, "|u1"))?;
        interface.set_item(intern!(py, "version"), 0)?;
        Ok(interface)
    }

    /// The bytes, on the host.
    #[pyo3(signature = (stream=StreamArgument::Missing), text_signature = "($self, stream=...)")]
    fn tobytes<'py>(&self, py: Python<'py>, stream: StreamArgument) -> PyResult<Bound<'py, PyBytes>> {
        let of = self.snapshot(py)?;
        functions::bytes_of(py, &of, stream.handle())
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.tobytes(py, StreamArgument::Missing)
    }

    /// Copies the bytes into `ary`, or into a new NumPy array, and returns it.
    #[pyo3(signature = (ary=None, stream=StreamArgument::Missing), text_signature = "($self, ary=None, stream=...)")]
    fn copy_to_host<'py>(
        &self,
        py: Python<'py>,
        ary: Option<Bound<'py, PyAny>>,
        stream: StreamArgument,
    ) -> PyResult<Bound<'py, PyAny>> {
        let of = self.snapshot(py)?;
        let ary = match ary {
            Some(ary) => ary,
            None => py
                .import(intern!(py, "numpy"))?
                .call_method1(intern!(py, "empty"), (of.size, intern!(py, "u1")))?,
        };
        let host = HostBuffer::writable(&ary, "ary")?;
        if host.bytes() < of.size {
            return Err(PyValueError::new_err(format!(
                "Argument `ary` is too small. Need space for {} bytes.",
                of.size
            )));
        }
        if let Some(memory) = &of.memory {
            let (address, device) = (memory.address(), memory.device());
            host.copy(py, Direction::ToHost, address, of.size, Some(memory), stream.handle(), device)?;
        }
        Ok(ary)
    }

    /// Copies the bytes of `ary` to the beginning of the buffer.
    #[pyo3(signature = (ary, stream=StreamArgument::Missing), text_signature = "($self, ary, stream=...)")]
    fn copy_from_host(&self, py: Python<'_>, ary: &Bound<'_, PyAny>, stream: StreamArgument) -> PyResult<()> {
        let host = HostBuffer::new(ary, "ary")?;
        let of = self.snapshot(py)?;
        let bytes = host.bytes();
        if bytes > of.size {
            return Err(too_large(bytes, of.size));
        }
        let Some(memory) = &of.memory else { return Ok(()) };
        functions::require_writable(memory)?;
        let (address, device) = (memory.address(), memory.device());
        host.copy(py, Direction::ToDevice, address, bytes, Some(memory), stream.handle(), device)?;
        Ok(())
    }

    /// Copies the bytes of an array of a device to the beginning of the buffer.
    #[pyo3(signature = (cuda_ary, stream=StreamArgument::Missing), text_signature = "($self, cuda_ary, stream=...)")]
    fn copy_from_device(
        &self,
        py: Python<'_>,
        cuda_ary: &Bound<'_, PyAny>,
        stream: StreamArgument,
    ) -> PyResult<()> {
        // One of ours has no stream in its interface: its own order is known here.
        let ours = cuda_ary.cast::<Self>().ok().map(|buffer| buffer.get().snapshot(py)).transpose()?;
        let source = ArrayInterface::of(cuda_ary)?;
        let of = self.snapshot(py)?;
        if source.bytes > of.size {
            return Err(too_large(source.bytes, of.size));
        }
        let Some(memory) = of.memory.as_ref().filter(|_| source.bytes > 0) else { return Ok(()) };
        functions::require_writable(memory)?;
        let from = ours.as_ref().and_then(|ours| ours.memory.as_ref());
        let copy = Copy { to: memory.address(), from: source.address, bytes: source.bytes };
        let stream = stream.handle();
        let copied = py.detach(|| {
            stream.with(memory.device(), |stream| {
                memory.order(stream)?;
                from.map_or(Ok(()), |from| from.order(stream))?;
                source.order(stream)?;
                copy.submit(stream)?;
                memory.used_on(stream);
                if let Some(from) = from {
                    from.used_on(stream);
                }
                Ok(())
            })
        });
        raise(py, copied, During::Copy)
    }

    /// A new buffer with the same bytes and alignment, of the same resource, on the same stream.
    #[pyo3(name = "copy")]
    pub(crate) fn copied(&self, py: Python<'_>) -> PyResult<Self> {
        let of = self.snapshot(py)?;
        let mr = if of.size == 0 {
            self.state().mr.as_ref().map(|mr| mr.clone_ref(py))
        } else {
            Some(self.resource(py)?)
        };
        let layout = Layout::new(of.size, self.state().align);
        let layout = raise(py, layout, During::Allocation)?;
        let copy = Self::allocated(py, layout, Arc::clone(&of.stream), mr)?;
        let to = copy.snapshot(py)?;
        if let (Some(memory), Some(from)) = (&to.memory, &of.memory) {
            let bytes = Copy { to: memory.address(), from: from.address(), bytes: of.size };
            let copied = py.detach(|| {
                to.stream.with(memory.device(), |stream| {
                    from.order(stream)?;
                    bytes.submit(stream)?;
                    from.used_on(stream);
                    if to.stream.is_default() { stream.synchronize() } else { Ok(()) }
                })
            });
            raise(py, copied, During::Copy)?;
        }
        Ok(copy)
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<Self> {
        self.copied(py)
    }

    /// Moves managed memory to a device, -1 for the host, ahead of its use. Other memory is left as it is.
    #[pyo3(signature = (device=None, stream=None))]
    fn prefetch(&self, py: Python<'_>, device: Option<i32>, stream: Option<StreamArgument>) -> PyResult<()> {
        let of = self.snapshot(py)?;
        let Some(memory) = of.memory.as_ref().filter(|_| of.size > 0) else { return Ok(()) };
        let stream = stream.map_or_else(|| Arc::clone(&of.stream), StreamArgument::into_handle);
        let prefetched = py.detach(|| {
            machine::ensure_context(memory.device().machine());
            if !is_managed(memory.device(), memory.address())? {
                return Ok(());
            }
            let to = match device {
                None => Location::Device(machine::device()?.ordinal()),
                Some(-1) => Location::Host,
                Some(ordinal) => Location::Device(machine::active()?.device(ordinal as u32)?.ordinal()),
            };
            stream.with(memory.device(), |stream| {
                memory.order(stream)?;
                let on = stream.device();
                // SAFETY:
                // - the range is live until the prefetch has run: the memory notes the use below;
                // - the stream is borrowed, and the device is its own.
                unsafe {
                    on.driver().prefetch_async(on.ordinal(), memory.address(), of.size, to, stream.raw())
                }?;
                memory.used_on(stream);
                Ok(())
            })
        });
        raise(py, prefetched, During::Other)
    }

    /// Makes room for `new_capacity` bytes. The buffer belongs to `stream` from then on.
    #[pyo3(signature = (new_capacity, stream=StreamArgument::Missing), text_signature = "($self, new_capacity, stream=...)")]
    fn reserve(&self, py: Python<'_>, new_capacity: usize, stream: StreamArgument) -> PyResult<()> {
        self.grow(py, new_capacity, None, stream)
    }

    /// Changes the number of bytes. The buffer belongs to `stream` from then on.
    #[pyo3(signature = (new_size, stream=StreamArgument::Missing), text_signature = "($self, new_size, stream=...)")]
    fn resize(&self, py: Python<'_>, new_size: usize, stream: StreamArgument) -> PyResult<()> {
        self.grow(py, new_size, Some(new_size), stream)
    }

    /// The bytes as elements of another type and shape, without a copy.
    #[pyo3(signature = (dtype, shape=None))]
    fn view(
        slf: &Bound<'_, Self>,
        dtype: &Bound<'_, PyAny>,
        shape: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<DeviceView> {
        DeviceView::of(slf, dtype, shape)
    }

    /// The DLPack device: its type and its number.
    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        let of = self.snapshot(py)?;
        dlpack::device_of(py, &of)
    }

    /// A DLPack capsule of the bytes, which are safe to use on `stream`.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let wish = dlpack::Wish { stream, max_version, dl_device, copy };
        // Apart: the state must not be held during the call.
        let form = Form::bytes(slf.get().size());
        dlpack::export(slf, &form, &wish)
    }

    /// Shares the buffer with other processes, to be read, or to be written as well.
    #[pyo3(signature = (stream=StreamArgument::Missing, writable=false), text_signature = "($self, stream=..., writable=False)")]
    fn share(&self, py: Python<'_>, stream: StreamArgument, writable: bool) -> PyResult<Shared> {
        Shared::of(py, &self.snapshot(py)?, stream, writable)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        // Within `alluvion.sharing()` it is the handle that is pickled.
        let sharing = py.import(intern!(py, "alluvion._sharing"))?;
        let handle = sharing.call_method1(intern!(py, "_reduce_buffer"), (slf,))?;
        if !handle.is_none() {
            return handle.extract();
        }
        // By the name that loads without the shim, whatever the class says of its module.
        let module = py.import(intern!(py, "alluvion.rmm.pylibrmm.device_buffer"))?;
        let host = slf.get().copy_to_host(py, None, StreamArgument::Missing)?;
        Ok((module.getattr(intern!(py, "to_device"))?, PyTuple::new(py, [host])?))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let name = slf.get_type().name()?;
        let buffer = slf.get();
        if buffer.is_asleep() {
            return Ok(format!("{name}(size={}, ptr={:#x}, asleep)", buffer.size(), buffer.ptr()));
        }
        let of = buffer.snapshot(slf.py())?;
        let device = of.memory.as_ref().map(|memory| memory.device().ordinal());
        let stream = of.stream.name();
        let text = match device {
            Some(device) => {
                format!("{name}(size={}, ptr={:#x}, device={device}, stream={stream})", of.size, of.address())
            }
            None => format!("{name}(size=0, ptr=0x0, stream={stream})"),
        };
        Ok(text)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A state that is in use is another thread's at this moment: the buffer is then no garbage.
        match self.state.try_lock() {
            Ok(state) => visit.call(&state.mr),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Not by the state's own drop: the last handle of a stream enters the driver.
        let stream = core::mem::replace(&mut state.stream, StreamArgument::Missing.into_handle());
        // Attached already, wherever the collector runs this. `None` where the interpreter is going: the closure is dropped then,
        // with the memory in it.
        let _ = match (state.memory.take(), state.asleep.take()) {
            (Some(memory), _) => Python::try_attach(|py| memory.release(py, stream)),
            (None, Some(asleep)) => Python::try_attach(|py| asleep.release(py, stream)),
            (None, None) => Python::try_attach(|py| stream.release(py)),
        };
    }
}
