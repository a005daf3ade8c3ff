//! A stack that is written on a line, and what it says of itself.

use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use alluvion::adaptor::{Allowance, Counts, FailureCallback, Logging, Stats, Tracking};
use alluvion::error::OutOfMemory;
use alluvion::metrics::Metrics;
use alluvion::recipe::Recipe;
use alluvion::relief::Relief;
use alluvion::suballoc::SuballocBook;
use alluvion::{AnyResource, Error, Resource, ResourceExt as _};
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::allowance::{self, Reservation};
use crate::attached::attach;
use crate::door;
use crate::error::{During, exception, keep_raised, raise};
use crate::graph_memory::GraphMemory;
use crate::machine;
use crate::resource::{DeviceMemoryResource, Owner, Tower, layers};
use crate::segments;
use crate::sleep::Sleeper;
use crate::stream::StreamArgument;
use crate::violation;

/// A stack of resources: one made by a recipe, or that of another resource object.
#[pyclass(extends = DeviceMemoryResource, subclass, frozen, module = "alluvion._alluvion")]
pub(crate) struct Stack {
    /// The stack calls it by a weak handle, so that the collector sees all that holds it: every object that allocates from the stack
    /// holds this one.
    handler: Option<Arc<Py<PyAny>>>,
    /// The object whose stack it is, or is over: the functions of that one live as long as it does.
    beneath: Option<Py<DeviceMemoryResource>>,
    /// Called by weak handles, as the handler. Held for a look or a push, and never while one runs.
    observers: Mutex<Vec<Arc<Py<PyAny>>>>,
}

impl Stack {
    fn over(
        tower: Arc<Tower>,
        owner: Owner,
        handler: Option<Arc<Py<PyAny>>>,
        beneath: Option<&Bound<'_, DeviceMemoryResource>>,
    ) -> PyClassInitializer<Self> {
        let beneath = beneath.map(|beneath| beneath.clone().unbind());
        let own = Self { handler, beneath, observers: Mutex::default() };
        PyClassInitializer::from(DeviceMemoryResource::on(tower, owner)).add_subclass(own)
    }
}

#[pymethods]
impl Stack {
    #[new]
    #[pyo3(signature = (recipe, device=None, over=None, on_out_of_memory=None))]
    fn new(
        py: Python<'_>,
        recipe: &Bound<'_, PyAny>,
        device: Option<u32>,
        over: Option<&Bound<'_, DeviceMemoryResource>>,
        on_out_of_memory: Option<Py<PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let handler = on_out_of_memory.map(Arc::new);
        let base = match over {
            Some(over) => Some(AnyResource::clone(over.get().owner(py)?)),
            None => None,
        };
        let beneath = over.or_else(|| recipe.cast::<DeviceMemoryResource>().ok());
        let (tower, made) = if let Ok(resource) = recipe.cast::<DeviceMemoryResource>() {
            if base.is_some() || device.is_some() {
                return Err(PyValueError::new_err(
                    "a resource object is over its own upstream, on its own device: leave `over` and `device` out",
                ));
            }
            let owner = resource.get().owner(py)?;
            if handler.is_none() {
                return Ok(Self::over(
                    Arc::clone(resource.get().tower()),
                    owner.clone(),
                    None,
                    Some(resource),
                ));
            }
            (Tower::over(py, resource.get().tower(), 1)?, AnyResource::clone(owner))
        } else if let Ok(text) = recipe.extract::<String>() {
            let beneath = base.as_ref().map_or(0, layers);
            let made = raise(py, py.detach(|| build(&text, device, base)), During::Other)?;
            let own = layers(&made).saturating_sub(beneath);
            py.detach(|| violation::warn_of_what_is_found(&made, own));
            // One for the handler.
            let own = own + 1;
            match tower(py, over, own) {
                Ok(tower) => (tower, made),
                Err(refused) => {
                    py.detach(move || drop(made));
                    return Err(refused);
                }
            }
        } else {
            return Err(PyTypeError::new_err(format!(
                "a recipe is a str, such as 'pool | cuda-async', and not {}",
                recipe.get_type().name()?
            )));
        };
        let owner = match &handler {
            None => Owner::of(made),
            Some(handler) => {
                let handler = Arc::downgrade(handler);
                Owner::new(FailureCallback::new(made, move |report: &OutOfMemory| ask(&handler, report)))
            }
        };
        Ok(Self::over(tower, owner, handler, beneath))
    }

    /// The number of the device that the memory belongs to.
    #[getter]
    fn device(slf: &Bound<'_, Self>) -> PyResult<u32> {
        owner_of(slf).map(|owner| owner.device().ordinal())
    }

    /// The layers, outermost first, each as it stands now.
    #[getter]
    fn layers(slf: &Bound<'_, Self>) -> PyResult<Vec<String>> {
        let owner = owner_of(slf)?;
        Ok(slf.py().detach(|| {
            let described = format!("{:#}", owner.describe());
            described.split("\n> ").map(str::to_owned).collect()
        }))
    }

    /// What the outermost `stats` layer has counted: since it was made, or since the last `push`.
    #[pyo3(name = "_counts")]
    fn counts(slf: &Bound<'_, Self>, whole: bool) -> PyResult<Option<[i64; 7]>> {
        let owner = owner_of(slf)?;
        Ok(slf.py().detach(|| {
            let book = owner.find::<Stats>()?;
            Some(numbers(if whole { book.whole() } else { book.counts() }))
        }))
    }

    /// Begins a scope of the statistics, and returns what was counted around it; `None` without a `stats` layer.
    #[pyo3(name = "_push_counts")]
    fn push_counts(slf: &Bound<'_, Self>) -> PyResult<Option<[i64; 7]>> {
        let owner = owner_of(slf)?;
        Ok(slf.py().detach(|| Some(numbers(owner.find::<Stats>()?.push()))))
    }

    /// Ends a scope of the statistics, and returns what was counted in it; `None` without a `stats` layer or a scope.
    #[pyo3(name = "_pop_counts")]
    fn pop_counts(slf: &Bound<'_, Self>) -> PyResult<Option<[i64; 7]>> {
        let owner = owner_of(slf)?;
        Ok(slf.py().detach(|| owner.find::<Stats>()?.pop().ok().map(numbers)))
    }

    /// The tag, bytes, allocations and failures of everything that was ever allocated; `None` without a `stats` layer.
    #[expect(clippy::type_complexity, reason = "a row for Python, which names its parts")]
    #[pyo3(name = "_counts_by_tag")]
    fn counts_by_tag(slf: &Bound<'_, Self>) -> PyResult<Option<Vec<(String, u64, u64, u64)>>> {
        let owner = owner_of(slf)?;
        Ok(slf.py().detach(|| {
            let rows = owner.find::<Stats>()?.by_tag().into_iter();
            Some(rows.map(|row| (row.tag.to_string(), row.bytes, row.allocations, row.failures)).collect())
        }))
    }

    /// The blocks that are out, oldest first; `None` without a `tracking` layer. Each has its address, bytes, stream, tag, thread,
    /// age in seconds and calls.
    #[expect(clippy::type_complexity, reason = "a row for Python, which names its parts")]
    #[pyo3(name = "_holdings")]
    fn holdings(
        slf: &Bound<'_, Self>,
    ) -> PyResult<
        Option<
            Vec<(u64, usize, Option<String>, String, usize, f64, Vec<(String, Option<String>, Option<u32>)>)>,
        >,
    > {
        let owner = owner_of(slf)?;
        Ok(slf.py().detach(|| {
            let blocks = owner.find::<Tracking>()?.outstanding().blocks;
            let row = |block: alluvion::adaptor::Holding| {
                let calls = block.call_stack().into_iter();
                (
                    block.address.address(),
                    block.bytes,
                    block.stream.map(|stream| stream.to_string()),
                    block.tag.to_string(),
                    block.thread,
                    block.at.as_secs_f64(),
                    calls.map(|call| (call.function, call.file, call.line)).collect(),
                )
            };
            Some(blocks.into_iter().map(row).collect())
        }))
    }

    /// What the outermost `guard` layer has found, all pending checks made; `None` without one.
    #[pyo3(name = "_violations")]
    fn violations(slf: &Bound<'_, Self>) -> PyResult<Option<Vec<violation::Row>>> {
        let (owner, py) = (owner_of(slf)?, slf.py());
        raise(py, py.detach(|| violation::rows(owner)), During::Other)
    }

    /// The report of the `tracking` layer: the most bytes by tag and by line, and the largest blocks.
    #[pyo3(name = "_holdings_report")]
    fn holdings_report(slf: &Bound<'_, Self>) -> PyResult<Option<String>> {
        let owner = owner_of(slf)?;
        Ok(slf.py().detach(|| Some(owner.find::<Tracking>()?.outstanding().to_string())))
    }

    /// The outermost limit: its name, limit, soft limit, used and peak bytes, and refusals; `None` without one.
    #[expect(clippy::type_complexity, reason = "a row for Python, which names its parts")]
    #[pyo3(name = "_allowance")]
    fn allowance(
        slf: &Bound<'_, Self>,
    ) -> PyResult<Option<(String, usize, Option<usize>, usize, usize, u64, u64)>> {
        let owner = owner_of(slf)?;
        Ok(slf.py().detach(|| {
            let allowance = owner.find::<Allowance>()?;
            Some((
                allowance.name().to_owned(),
                allowance.limit_bytes(),
                allowance.soft_bytes(),
                allowance.used_bytes(),
                allowance.peak_bytes(),
                allowance.refusals(),
                allowance.crossings(),
            ))
        }))
    }

    /// Sets bytes of the outermost limit aside; `None` without one.
    #[pyo3(name = "_reserve")]
    fn reserve(slf: &Bound<'_, Self>, bytes: usize) -> PyResult<Option<Reservation>> {
        let (owner, py) = (owner_of(slf)?, slf.py());
        let reserved = py.detach(|| owner.find::<Allowance>().map(|limit| limit.reserve(bytes)).transpose());
        Ok(raise(py, reserved, During::Allocation)?.map(Reservation::of))
    }

    /// Has a function called each time that the soft limit of the outermost limit is crossed, as long as this object lives. `false` without
    /// a limit.
    #[pyo3(name = "_on_soft")]
    fn on_soft(slf: &Bound<'_, Self>, observer: Py<PyAny>, soft: Option<usize>) -> PyResult<bool> {
        let owner = owner_of(slf)?;
        let Some(limit) = owner.find::<Allowance>() else { return Ok(false) };
        let observer = Arc::new(observer);
        slf.py().detach(|| allowance::on_soft(limit, soft, &observer));
        slf.get().observers.lock().unwrap_or_else(PoisonError::into_inner).push(observer);
        Ok(true)
    }

    /// The figures of the outermost suballocator; `None` without one.
    fn pool_status<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (owner, py) = (owner_of(slf)?, slf.py());
        let Some(status) = py.detach(|| owner.find::<SuballocBook>().map(SuballocBook::status)) else {
            return Ok(None);
        };
        let facts = PyDict::new(py);
        let bytes = [
            ("reserved_bytes", status.reserved_bytes),
            ("peak_reserved_bytes", status.peak_reserved_bytes),
            ("live_bytes", status.live_bytes),
            ("live_blocks", status.live_blocks),
            ("cached_bytes", status.cached_bytes),
            ("free_bytes", status.free_bytes),
            ("pending_bytes", status.pending_bytes),
            ("largest_free_bytes", status.largest_free_bytes),
        ];
        for (name, value) in bytes {
            facts.set_item(name, value)?;
        }
        let counts = [
            ("hits", status.hits),
            ("misses", status.misses),
            ("steals", status.steals),
            ("waits", status.waits),
            ("upstream_calls", status.upstream_calls),
        ];
        for (name, value) in counts {
            facts.set_item(name, value)?;
        }
        facts.set_item("fragmentation", status.fragmentation())?;
        Ok(Some(facts))
    }

    /// Every block of the outermost suballocator, as JSON, with the tags that a `tracking` layer knows; `None` without one.
    #[pyo3(name = "_snapshot_json")]
    fn snapshot_json(slf: &Bound<'_, Self>) -> PyResult<Option<String>> {
        let owner = owner_of(slf)?;
        Ok(slf.py().detach(|| {
            let mut snapshot = owner.find::<SuballocBook>()?.snapshot();
            if let Some(book) = owner.find::<Tracking>() {
                snapshot.label_by(book);
            }
            let mut json = Vec::new();
            snapshot.write_json(&mut json).ok()?;
            String::from_utf8(json).ok()
        }))
    }

    /// Gives memory that nobody uses back, down to `keep` bytes. Returns how many bytes went.
    #[pyo3(name = "_trim_to")]
    fn trim_to(slf: &Bound<'_, Self>, keep: usize) -> PyResult<usize> {
        let (owner, py) = (owner_of(slf)?, slf.py());
        raise(py, py.detach(|| owner.trim(keep)), During::Other)
    }

    /// Merges what is free in the outermost suballocator. Returns `false` without one.
    #[pyo3(name = "_defragment")]
    fn defragment(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let (owner, py) = (owner_of(slf)?, slf.py());
        let merged = py.detach(|| match owner.find::<SuballocBook>() {
            Some(book) => book.defragment().map(|()| true),
            None => Ok(false),
        });
        raise(py, merged, During::Other)
    }

    /// Opens memory for the graph that a stream captures: see `alluvion.Stack.capture`.
    #[pyo3(name = "_capture")]
    fn capture(slf: &Bound<'_, Self>, stream: StreamArgument) -> PyResult<GraphMemory> {
        let (owner, py) = (owner_of(slf)?, slf.py());
        let opened = py.detach(|| stream.handle().with(owner.device(), |stream| owner.capture(stream)));
        raise(py, opened, During::Other).map(GraphMemory::of)
    }

    /// Puts the stack to sleep, or what carries a tag.
    #[pyo3(name = "_sleep")]
    fn sleep(
        slf: &Bound<'_, Self>,
        tag: Option<String>,
        keeps: bool,
        folder: Option<PathBuf>,
    ) -> PyResult<Sleeper> {
        let (owner, py) = (owner_of(slf)?, slf.py());
        raise(py, py.detach(|| Sleeper::begin(owner, tag.as_deref(), keeps, folder)), During::Other)
    }

    /// Has the outermost suballocator tell two functions of its segments. `None` without one.
    #[pyo3(name = "_on_segment")]
    fn on_segment(
        slf: &Bound<'_, Self>,
        added: Option<Py<PyAny>>,
        dropped: Option<Py<PyAny>>,
    ) -> PyResult<Option<bool>> {
        let (owner, py) = (owner_of(slf)?, slf.py());
        let set = py.detach(|| segments::set_hooks(owner, added, dropped));
        Ok(raise(py, set, During::Allocation)?.map(|()| true))
    }

    /// The segments of the outermost suballocator: the address and the bytes of each. `None` without one.
    #[pyo3(name = "_segments")]
    fn segments(slf: &Bound<'_, Self>) -> PyResult<Option<Vec<(u64, usize)>>> {
        let owner = owner_of(slf)?;
        Ok(slf.py().detach(|| segments::list(owner)))
    }

    /// A descriptor of a segment: see `alluvion.Stack.export_segment`.
    #[pyo3(name = "_export_segment")]
    fn export_segment(slf: &Bound<'_, Self>, address: u64) -> PyResult<i32> {
        let (owner, py) = (owner_of(slf)?, slf.py());
        let exported = py.detach(|| segments::export(owner, address));
        raise(py, exported, During::Other).map(IntoRawFd::into_raw_fd)
    }

    /// A descriptor of a dma-buf: see `alluvion.Stack.dma_buf`.
    #[pyo3(name = "_dma_buf")]
    fn dma_buf(slf: &Bound<'_, Self>, address: u64, bytes: usize) -> PyResult<i32> {
        let (owner, py) = (owner_of(slf)?, slf.py());
        let lent = py.detach(|| segments::dma_buf(owner, address, bytes));
        raise(py, lent, During::Other).map(IntoRawFd::into_raw_fd)
    }

    /// The outermost suballocator takes no more memory and gives none back. `None` without one.
    #[pyo3(name = "_freeze")]
    fn freeze(slf: &Bound<'_, Self>) -> PyResult<Option<bool>> {
        let owner = owner_of(slf)?;
        Ok(slf.py().detach(|| segments::freeze(owner)).map(|()| true))
    }

    /// The free and the total bytes of the memory that the stack draws on.
    fn memory_info(slf: &Bound<'_, Self>) -> PyResult<(usize, usize)> {
        let (owner, py) = (owner_of(slf)?, slf.py());
        let info = raise(py, py.detach(|| owner.memory_info()), During::Other)?;
        Ok((info.free_bytes, info.total_bytes))
    }

    /// The file of the outermost `logging` layer; `None` without one.
    #[getter]
    fn log_file(slf: &Bound<'_, Self>) -> PyResult<Option<String>> {
        Ok(owner_of(slf)?.find::<Logging>().map(|log| log.name().to_owned()))
    }

    /// Writes the rows of the outermost `logging` layer to its file. Without one there is nothing to do.
    fn flush(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (owner, py) = (owner_of(slf)?, slf.py());
        raise(py, py.detach(|| owner.find::<Logging>().map_or(Ok(()), |log| log.flush())), During::Other)
    }

    /// The figures of every layer, and of what the device shares with other processes, as a page in the text format of Prometheus. The
    /// latter are the same on the page of every stack of the device: `alluvion.metrics` puts several on one page, with these once.
    #[pyo3(signature = (name="stack"))]
    fn metrics(slf: &Bound<'_, Self>, name: &str) -> PyResult<String> {
        let owner = owner_of(slf)?;
        Ok(slf.py().detach(|| {
            let mut page = Metrics::new();
            page.add_stack(name, &**owner);
            page.add_sharing(owner.device());
            page.to_string()
        }))
    }

    /// A capsule named `alluvion.handle` for compiled code, with one count of the stack: see `alluvion/door.h`.
    #[pyo3(name = "__alluvion_handle__")]
    fn handle<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyCapsule>> {
        door::handle_capsule(slf.py(), owner_of(slf)?)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.beneath)?;
        if let Some(handler) = &self.handler {
            visit.call(&**handler)?;
        }
        // A thread that holds the lock adds one just now.
        let Ok(observers) = self.observers.try_lock() else { return Ok(()) };
        observers.iter().try_for_each(|observer| visit.call(&**observer))
    }
}

/// The tower of `own` layers over a resource object, or over nothing.
fn tower(py: Python<'_>, over: Option<&Bound<'_, DeviceMemoryResource>>, own: u32) -> PyResult<Arc<Tower>> {
    match over {
        Some(over) => Tower::over(py, over.get().tower(), own),
        None => Tower::over(py, &Tower::of_source(), own.saturating_sub(1)),
    }
}

/// The stack of the object.
fn owner_of<'a>(slf: &'a Bound<'_, Stack>) -> PyResult<&'a Owner> {
    slf.as_super().get().owner(slf.py())
}

fn build(text: &str, device: Option<u32>, over: Option<AnyResource>) -> Result<AnyResource, Error> {
    // Whoever frees by an address may be mistaken.
    let recipe = text.parse::<Recipe>()?.checked();
    match over {
        Some(over) => recipe.over_device(over),
        None => recipe.build(&machine::device_or_current(device.or(recipe.gpu()))?),
    }
}

fn numbers(counts: Counts) -> [i64; 7] {
    let Counts { bytes, allocations, failures, .. } = counts;
    let failures = i64::try_from(failures).unwrap_or(i64::MAX);
    [bytes.live, bytes.peak, bytes.total, allocations.live, allocations.peak, allocations.total, failures]
}

/// Asks a handler that is written in Python. One that raises has freed nothing, and its exception is the cause of the request's.
fn ask(handler: &Weak<Py<PyAny>>, report: &OutOfMemory) -> Relief {
    let error = Error::from(report.clone());
    let freed = attach(|py| {
        // Gone with the object of the stack, while the stack itself ends.
        let handler = handler.upgrade()?;
        let answer = handler
            .bind(py)
            .call1((exception(py, &error, During::Allocation).into_value(py),))
            .and_then(|answer| answer.is_truthy());
        Some(answer.unwrap_or_else(|raised| {
            keep_raised(raised);
            false
        }))
    });
    if freed.flatten() == Some(true) { Relief::Freed } else { Relief::None }
}

/// What a recipe may have: the ingredients, their arguments and the grammar, for people.
#[pyfunction]
pub(crate) fn recipe_help() -> String {
    alluvion::recipe::help()
}

/// The recipe in its plain form.
#[pyfunction]
pub(crate) fn plain_recipe(py: Python<'_>, recipe: &str) -> PyResult<String> {
    raise(py, recipe.parse::<Recipe>(), During::Other).map(|recipe| recipe.to_string())
}
