//! The base classes: `DeviceMemoryResource`, and `UpstreamResourceAdaptor` of those that have an upstream.

#![expect(unsafe_code, reason = "frees blocks that a caller names by their addresses")]

use std::sync::{Arc, OnceLock};

use alluvion::driver::RawPool;
use alluvion::error::freeing;
use alluvion::{AnyResource, Device, DeviceAccessible, DevicePtr, Error, Layout, Resource, StreamRef};
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyException, PyRuntimeError, PyTypeError};
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::{Owner, Tower};
use crate::error::{During, raise};
use crate::machine;
use crate::stream::StreamArgument;

/// A source of memory of a device: what every class of `rmm.mr` derives from.
#[pyclass(subclass, frozen, weakref, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct DeviceMemoryResource {
    /// The stack. Made at the first use if the class can be constructed without a driver.
    made: OnceLock<Made>,
    /// How the stack is made at its first use, if it is not there yet.
    make: Option<Make>,
    /// The number of the device that was current when the object was made, if there was a machine then.
    ordinal: Option<u32>,
    tower: Arc<Tower>,
}

/// The stack of an object, and the pool of the driver that it is, if it is one.
pub(crate) struct Made {
    owner: Owner,
    pool: Option<RawPool>,
}

impl Made {
    /// A stack that is a pool of the driver.
    pub(super) fn of_pool<R: DeviceAccessible + Send + Sync + 'static>(resource: R, pool: RawPool) -> Self {
        Self { owner: Owner::new(resource), pool: Some(pool) }
    }
}

impl From<Owner> for Made {
    fn from(owner: Owner) -> Self {
        Self { owner, pool: None }
    }
}

/// Refuses arguments of a class that takes none, unless a class that derives from it takes them by an `__init__` of its own.
/// RMM's classes without arguments do so, too.
pub(super) fn refuse_arguments(
    class: &Bound<'_, PyType>,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let given = args.len() + kwargs.map_or(0, PyDictMethods::len);
    let init = intern!(class.py(), "__init__");
    if given == 0 || !class.getattr(init)?.is(class.py().get_type::<PyAny>().getattr(init)?) {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!("{} takes no arguments, and {given} were given", class.name()?)))
}

/// Makes the stack of a class for a device.
type Make = Box<dyn Fn(&Device) -> Result<Made, Error> + Send + Sync>;

impl DeviceMemoryResource {
    /// The base of a class that has its stack.
    pub(crate) fn over(made: impl Into<Made>) -> Self {
        let made = made.into();
        Self { tower: Tower::of(&made.owner), made: OnceLock::from(made), make: None, ordinal: None }
    }

    /// As [`over`](Self::over), where the stack stands on those of other objects.
    pub(crate) fn on(tower: Arc<Tower>, owner: Owner) -> Self {
        Self { made: OnceLock::from(Made::from(owner)), make: None, ordinal: None, tower }
    }

    /// What the stack stands on.
    pub(crate) fn tower(&self) -> &Arc<Tower> {
        &self.tower
    }

    /// The base of a class whose stack is made at its first use, for the device that is current now.
    pub(super) fn later(make: impl Fn(&Device) -> Result<Made, Error> + Send + Sync + 'static) -> Self {
        let ordinal = machine::device().ok().map(|device| device.ordinal());
        Self { made: OnceLock::new(), make: Some(Box::new(make)), ordinal, tower: Tower::of_source() }
    }

    /// The stack.
    pub(crate) fn owner(&self, py: Python<'_>) -> PyResult<&Owner> {
        self.stack(py).map(|made| &made.owner)
    }

    /// The driver's handle of the pool that it is; 0 if it is none.
    pub(super) fn pool_handle(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.stack(py)?.pool.map_or(0, |pool| pool.0))
    }

    fn stack(&self, py: Python<'_>) -> PyResult<&Made> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let Some(make) = &self.make else {
            return Err(PyRuntimeError::new_err(
                "DeviceMemoryResource has no memory of its own: use a class that derives from it, such as CudaMemoryResource, \
                 or CallbackMemoryResource for one written in Python",
            ));
        };
        let made = py.detach(|| make(&machine::device_or_current(self.ordinal)?));
        Ok(self.first(raise(py, made, During::Construction)?))
    }

    /// The stack, which is made for `device` if it is not there yet: such a class is of no device before its first use.
    pub(crate) fn owner_on(&self, py: Python<'_>, device: &Device) -> PyResult<&Owner> {
        match (self.made.get(), &self.make) {
            (None, Some(make)) => {
                Ok(&self.first(raise(py, py.detach(|| make(device)), During::Construction)?).owner)
            }
            _ => self.owner(py),
        }
    }

    /// The base of a class whose stack is [given](Self::give) later.
    pub(super) fn without_memory() -> Self {
        Self { made: OnceLock::new(), make: None, ordinal: None, tower: Tower::of_source() }
    }

    /// Gives it the stack of one layer that it was made without.
    pub(super) fn give(&self, owner: Owner) -> PyResult<()> {
        self.made
            .set(owner.into())
            .map_err(|_| PyRuntimeError::new_err("the resource has its memory already"))
    }

    fn first(&self, made: Made) -> &Made {
        // Of two threads that make one, the second takes that of the first; a source without blocks is dropped without a wait.
        self.made.get_or_init(|| made)
    }
}

#[pymethods]
impl DeviceMemoryResource {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self::without_memory()
    }

    /// Allocates `nbytes` bytes on `stream`, and returns their address: 0 for no bytes. It is a multiple of `align`, a power of two; up to 256
    /// all are one, and 0 means that one.
    #[pyo3(
        signature = (nbytes, stream=StreamArgument::Missing, *, align=0),
        text_signature = "($self, nbytes, stream=..., *, align=0)"
    )]
    fn allocate(&self, py: Python<'_>, nbytes: usize, stream: StreamArgument, align: usize) -> PyResult<u64> {
        let owner = self.owner(py)?;
        let allocated = Layout::of_request(nbytes, align).and_then(|layout| {
            let block = owner.allocate_attached(py, layout, stream.handle())?;
            Ok(if layout.is_empty() { 0 } else { block.address() })
        });
        raise(py, allocated, During::Allocation)
    }

    /// Gives the block back that `allocate` returned for `nbytes` bytes and this alignment, behind the work on `stream`, which its allocation and its
    /// uses come before.
    ///
    /// A block that is free already, or was allocated with another size, is `alluvion.errors.Misuse`, a `ValueError`, wherever a pool,
    /// another suballocator, a `tracking` or `guard` layer or the driver knows it.
    #[pyo3(
        signature = (ptr, nbytes, stream=StreamArgument::Missing, *, align=0),
        text_signature = "($self, ptr, nbytes, stream=..., *, align=0)"
    )]
    fn deallocate(
        &self,
        py: Python<'_>,
        ptr: u64,
        nbytes: usize,
        stream: StreamArgument,
        align: usize,
    ) -> PyResult<()> {
        let owner = self.owner(py)?;
        let stream = stream.handle();
        let freed = Layout::of_request(nbytes, align).and_then(|layout| {
            let device = owner.device();
            // A block of no bytes goes down the stack, where it was counted. No block has the address 0.
            let block = if layout.is_empty() { Some(layout.dangling()) } else { DevicePtr::new(ptr) };
            let Some(block) = block else { return Ok(()) };
            machine::ensure_context(device.machine());
            // SAFETY: the caller says that the block came from this resource with this size: an address that was made up is the
            // caller's fault, as the documentation of the class says.
            let at_once = |stream: StreamRef<'_>| unsafe { owner.deallocate_at_once(block, layout, stream) };
            // SAFETY: the closure does nothing else with the stream.
            if unsafe { stream.visit(device, at_once) } {
                return Ok(());
            }
            py.detach(|| {
                stream.with(device, |stream| {
                    // SAFETY: as above; the attempt before this one did nothing.
                    let freed = freeing(|| unsafe { owner.deallocate(block, layout, stream) });
                    // Where a function of the program's frees within the free of a stack over it, the block of that one is refused, too.
                    freed.inspect_err(|refused| {
                        // SAFETY: where a free is under way around this one, its block is left alone, because this one was refused.
                        unsafe { refused.clone().tell_who_frees() }
                    })
                })
            })
        });
        raise(py, freed, During::Other)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        match self.made.get() {
            Some(made) => Ok(py.detach(|| on_a_line(&made.owner))),
            None if self.make.is_some() => self.owner(py).map(on_a_line),
            None => Ok("DeviceMemoryResource()".into()),
        }
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        let name = slf.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "a {name} cannot be pickled or copied: it is memory of this process"
        )))
    }

    /// Visits nothing, in code of its own.
    ///
    /// An optimizer that folds equal functions would otherwise give this class and those over `UpstreamResourceAdaptor` that visit
    /// nothing one function. PyO3 finds the base of a class by the address of that function, and would go from the adaptor back to
    /// the class, without end.
    fn __traverse__(&self, _visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        core::hint::black_box(self);
        Ok(())
    }
}

/// A stack as a recipe writes it, outermost first, each layer as it stands now.
fn on_a_line(owner: &Owner) -> String {
    format!("{:#}", owner.describe()).replace("\n> ", " | ")
}

impl Drop for DeviceMemoryResource {
    fn drop(&mut self) {
        let Some(Made { owner, .. }) = self.made.take() else { return };
        if owner.is_shared() {
            return;
        }
        // Attached already, wherever the collector runs this; `None` where the interpreter is going, which nobody waits for then.
        if Python::try_attach(|py| py.detach(|| drop(owner))).is_none() {
            // The closure was dropped with the owner in it.
        }
    }
}

/// The base of every class that has an upstream.
#[pyclass(extends = DeviceMemoryResource, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct UpstreamResourceAdaptor {
    upstream: Py<PyAny>,
}

impl UpstreamResourceAdaptor {
    /// The base of a class over the resource object `upstream`, whose own stack is `owner`, and stands on `tower`.
    pub(crate) fn over(
        tower: Arc<Tower>,
        owner: Owner,
        upstream: &Bound<'_, PyAny>,
    ) -> PyClassInitializer<Self> {
        PyClassInitializer::from(DeviceMemoryResource::on(tower, owner))
            .add_subclass(Self { upstream: upstream.clone().unbind() })
    }
}

/// The base of a class without an upstream, whose stack `make` makes for the current device.
pub(super) fn leaf<R: DeviceAccessible + Send + Sync + 'static>(
    py: Python<'_>,
    make: impl FnOnce(&Device) -> Result<R, Error> + Send,
) -> PyResult<PyClassInitializer<DeviceMemoryResource>> {
    leaf_of(py, |device| Ok(Owner::new(make(device)?)))
}

/// The same, of a stack that may be a pool of the driver.
pub(super) fn leaf_of<M: Into<Made> + Send>(
    py: Python<'_>,
    make: impl FnOnce(&Device) -> Result<M, Error> + Send,
) -> PyResult<PyClassInitializer<DeviceMemoryResource>> {
    let made = py.detach(|| make(&machine::device_in_context()?));
    Ok(PyClassInitializer::from(DeviceMemoryResource::over(raise(py, made, During::Construction)?)))
}

/// The base of a class over the resource object `upstream`, whose stack `make` makes over that of the upstream.
pub(super) fn layer<R: DeviceAccessible + Send + Sync + 'static>(
    upstream: &Bound<'_, PyAny>,
    make: impl FnOnce(AnyResource) -> Result<R, Error> + Send,
) -> PyResult<PyClassInitializer<UpstreamResourceAdaptor>> {
    let (py, under) = (upstream.py(), AnyResource::clone(upstream_of(upstream)?));
    let tower = tower_over(upstream, 1)?;
    let made = py.detach(|| {
        machine::ensure_context(under.device().machine());
        Ok(Owner::new(make(under)?))
    });
    Ok(UpstreamResourceAdaptor::over(tower, raise(py, made, During::Construction)?, upstream))
}

/// The stack of an object of a class that derives from the base.
pub(super) fn owner_of<'a, T>(object: &'a Bound<'_, T>) -> PyResult<&'a Owner> {
    object.as_any().cast::<DeviceMemoryResource>()?.get().owner(object.py())
}

/// The stack of the resource object that a caller passed as an upstream.
pub(crate) fn upstream_of<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a Owner> {
    if object.is_none() {
        return Err(PyException::new_err("Argument `upstream_mr` must not be None"));
    }
    resource_of(object, "upstream_mr")
}

/// The tower of a class of `layers` layers over the resource object `upstream`.
pub(super) fn tower_over(upstream: &Bound<'_, PyAny>, layers: u32) -> PyResult<Arc<Tower>> {
    Tower::over(upstream.py(), upstream.cast::<DeviceMemoryResource>()?.get().tower(), layers)
}

/// The stack of the resource object that a caller passed as the argument `name`.
pub(super) fn resource_of<'a>(object: &'a Bound<'_, PyAny>, name: &str) -> PyResult<&'a Owner> {
    match object.cast::<DeviceMemoryResource>() {
        Ok(resource) => resource.get().owner(object.py()),
        Err(_) => Err(PyTypeError::new_err(format!(
            "Argument '{name}' has incorrect type (expected DeviceMemoryResource, got {})",
            object.get_type().name()?
        ))),
    }
}

#[pymethods]
impl UpstreamResourceAdaptor {
    #[new]
    #[pyo3(signature = (upstream_mr, *_args, **_kwargs))]
    fn new(
        upstream_mr: &Bound<'_, PyAny>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let owner = upstream_of(upstream_mr)?.clone();
        Ok(Self::over(tower_over(upstream_mr, 1)?, owner, upstream_mr))
    }

    /// The resource object that this one was made over.
    #[getter]
    fn upstream_mr(&self, py: Python<'_>) -> Py<PyAny> {
        self.upstream.clone_ref(py)
    }

    /// The resource object that this one was made over.
    fn get_upstream(&self, py: Python<'_>) -> Py<PyAny> {
        self.upstream.clone_ref(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.upstream)
    }
}
