//! A simulated machine, as the Python package sees it.

#![expect(unsafe_code, reason = "launches graphs that a program has captured")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::Sim;
use alluvion::driver::{Call, CaptureMode, Code, DeviceAttribute, RawStream};
use alluvion::sim::{Access, Fault, Hazard, SimConfig, SimDriver};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::argument::Bytes;
use crate::attached::drop_detached;
use crate::error::{During, raise};
use crate::exploration::Exploration;
use crate::stream::StreamArgument;
use crate::{current, machine, pinned};

/// What a device may lack, by name.
const FEATURES: [(&str, DeviceAttribute); 6] = [
    ("memory_pools", DeviceAttribute::MemoryPools),
    ("managed_memory", DeviceAttribute::ManagedMemory),
    ("concurrent_managed_access", DeviceAttribute::ConcurrentManagedAccess),
    ("virtual_memory", DeviceAttribute::VirtualMemory),
    ("unified_addressing", DeviceAttribute::UnifiedAddressing),
    ("host_register", DeviceAttribute::HostRegister),
];

/// What a device may have beyond an H200, by name.
const EXTRAS: [(&str, DeviceAttribute); 2] = [
    ("pageable_memory_access", DeviceAttribute::PageableMemoryAccess),
    ("integrated", DeviceAttribute::Integrated),
];

/// The memory of each device, unless it is said. A `binning` over a source takes 992 MiB at its first request. It costs nothing until it
/// is touched.
const MEMORY_BYTES: usize = 1 << 30;

/// More devices than a host has.
const MOST_DEVICES: u32 = 64;

/// An access for Python: operation, stream, address, bytes, mode, submission.
type AccessRow = (String, String, u64, u64, String, u64);

/// A hazard for Python: its kind, the earlier and the later access, what is missing, and all of it in words.
type HazardRow = (String, Option<AccessRow>, Option<AccessRow>, String, String);

/// A machine with simulated GPUs, which notices every access that no stream orders.
#[pyclass(subclass, frozen, weakref, module = "alluvion")]
pub(crate) struct Simulated {
    sim: Sim,
    /// How often it was entered and not left.
    entered: AtomicUsize,
}

#[pymethods]
impl Simulated {
    #[new]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of a constructor in Python, all of them named there"
    )]
    #[pyo3(signature = (devices=1, memory=None, seed=0, version=13_000, pinned=None, features=Vec::new(), keep_up=false, beside=None, of=None))]
    fn new(
        devices: u32,
        memory: Option<Bytes>,
        seed: u64,
        version: u32,
        pinned: Option<Bytes>,
        features: Vec<(String, bool)>,
        keep_up: bool,
        beside: Option<&Bound<'_, Self>>,
        of: Option<&Bound<'_, Exploration>>,
    ) -> PyResult<Self> {
        if let Some(beside) = beside {
            // Another process on the same devices, which has nothing of its own to say about them.
            return Ok(Self { sim: beside.get().sim.process(), entered: AtomicUsize::new(0) });
        }
        if let Some(exploration) = of {
            let begun = exploration.get().begin();
            let sim = begun.ok_or_else(|| PyRuntimeError::new_err("there is no other schedule"))?;
            return Ok(Self { sim, entered: AtomicUsize::new(0) });
        }
        let config = config(devices, memory, seed, version, pinned, features, keep_up)?;
        Ok(Self { sim: Sim::with_config(config), entered: AtomicUsize::new(0) })
    }

    /// Makes this the machine that every call of the package means, in every thread.
    #[pyo3(name = "_enter")]
    fn enter(&self) {
        self.entered.fetch_add(1, Ordering::Relaxed);
        machine::enter(self.sim.machine().clone());
    }

    /// Ends one `enter`.
    #[pyo3(name = "_leave")]
    fn leave(&self) -> PyResult<()> {
        self.entered
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |entered| entered.checked_sub(1))
            .map_err(|_| PyRuntimeError::new_err("the simulated machine was left more often than entered"))?;
        machine::leave(self.sim.machine());
        Ok(())
    }

    /// Forgets the current resources and the pinned pools of the machine's devices.
    fn forget_resources(&self, py: Python<'_>) {
        current::forget(py, self.sim.machine());
        pinned::forget(py, self.sim.machine());
    }

    /// How many devices the machine has.
    #[getter]
    fn devices(&self) -> usize {
        self.sim.machine().devices().len()
    }

    /// The mistakes so far, as rows. Waits for all work first.
    #[pyo3(name = "_hazard_rows")]
    fn hazard_rows(&self, py: Python<'_>, take: bool) -> Vec<HazardRow> {
        py.detach(|| {
            self.synchronize();
            let hazards = if take { self.sim.take_hazards() } else { self.sim.hazards() };
            hazards.iter().map(hazard_row).collect()
        })
    }

    /// What is still out, as rows. Waits for all work first.
    #[pyo3(name = "_leak_rows")]
    fn leak_rows(&self, py: Python<'_>) -> Vec<HazardRow> {
        py.detach(|| {
            self.synchronize();
            self.sim.leaks().iter().map(hazard_row).collect()
        })
    }

    /// The number of calls that the driver got, all together.
    #[getter]
    fn driver_calls(&self) -> u64 {
        self.sim.calls().total()
    }

    /// How often each kind of call was made, under its name in CUDA.
    #[pyo3(name = "_call_counts")]
    fn call_counts(&self) -> Vec<(&'static str, u64)> {
        self.sim.calls().iter().map(|(call, count)| (call.symbol(), count)).collect()
    }

    /// Fails a coming call: see `alluvion.Simulated.fail`.
    #[pyo3(name = "_inject", signature = (call, nth, code, sticky))]
    fn inject(&self, call: Option<&str>, nth: Option<u64>, code: u32, sticky: bool) -> PyResult<()> {
        let call = call.map(call_named).transpose()?;
        let code = Code(code);
        if code.0 == 0 {
            return Err(PyValueError::new_err(
                "code 0 is success: a fault has another one, such as 2, out of memory",
            ));
        }
        let mut fault = match (call, nth) {
            (_, Some(0)) => {
                return Err(PyValueError::new_err("calls are counted from 1: there is no call 0"));
            }
            (Some(call), Some(nth)) => Fault::nth(call, nth, code),
            (Some(call), None) => Fault::every(call, code),
            (None, Some(nth)) => Fault::nth_call(nth, code),
            (None, None) => {
                return Err(PyValueError::new_err(
                    "every call of every kind cannot fail: name a call, or a number",
                ));
            }
        };
        if sticky {
            fault = fault.sticky();
        }
        self.sim.inject(fault);
        Ok(())
    }

    /// Ends the process as by SIGKILL: see `alluvion.Simulated.kill`.
    fn kill(&self, py: Python<'_>) {
        py.detach(|| self.sim.sim_driver().kill());
    }

    /// Takes all faults back that have not occurred.
    fn clear_faults(&self) {
        self.sim.clear_faults();
    }

    /// How many faults have not occurred yet.
    #[getter]
    fn faults_left(&self) -> usize {
        self.sim.faults_left()
    }

    /// Loses the context of a device: every later call on it fails with `code`.
    #[pyo3(signature = (device=0, code=700))]
    fn lose(&self, py: Python<'_>, device: u32, code: u32) -> PyResult<()> {
        raise(py, self.sim.machine().device(device), During::Other)?;
        if !Code(code).is_sticky() {
            return Err(PyValueError::new_err(format!(
                "code {code} does not lose a context: 700, illegal address, and 719, launch failed, do"
            )));
        }
        py.detach(|| self.sim.poison(device, Code(code)));
        Ok(())
    }

    /// Begins to capture what is submitted to a stream of a device, so that no other thread may do meanwhile what a capture forbids.
    #[pyo3(signature = (stream, device=0))]
    fn begin_capture(&self, stream: StreamArgument, device: u32) -> PyResult<()> {
        let stream = RawStream(stream.handle().number());
        self.sim.begin_capture(device, stream, CaptureMode::Global).map_err(refused)
    }

    /// Ends a capture on the stream that it was begun on, and returns the graph.
    #[pyo3(signature = (stream, device=0))]
    fn end_capture(&self, stream: StreamArgument, device: u32) -> PyResult<SimGraph> {
        let stream = RawStream(stream.handle().number());
        let graph = self.sim.end_capture(device, stream).map_err(refused)?;
        Ok(SimGraph { graph: Some(graph), driver: Arc::clone(self.sim.sim_driver()) })
    }

    fn __repr__(&self) -> String {
        format!("Simulated(devices={})", self.devices())
    }
}

impl Simulated {
    /// Waits for all work. A context that is lost has none.
    fn synchronize(&self) {
        for device in self.sim.machine().devices() {
            let _ = device.synchronize();
        }
    }
}

/// What a stream of a simulated machine has captured.
#[pyclass(frozen, weakref, module = "alluvion")]
pub(crate) struct SimGraph {
    /// `None` in the destructor alone.
    graph: Option<alluvion::sim::SimGraph>,
    driver: Arc<SimDriver>,
}

#[pymethods]
impl SimGraph {
    /// Queues all of the graph on a stream. Whoever calls it promises that all memory that it uses is there.
    #[pyo3(signature = (stream, device=0))]
    fn launch(&self, py: Python<'_>, stream: StreamArgument, device: u32) -> PyResult<()> {
        let Some(graph) = &self.graph else { return Ok(()) };
        let stream = RawStream(stream.handle().number());
        // SAFETY: who calls `launch` in Python promises it, by the method's text: as with every address that a program has there.
        py.detach(|| unsafe { self.driver.launch_graph(device, stream, graph) }).map_err(refused)
    }

    /// The number of operations.
    #[getter]
    fn node_count(&self) -> usize {
        self.graph.as_ref().map_or(0, alluvion::sim::SimGraph::node_count)
    }
}

impl Drop for SimGraph {
    fn drop(&mut self) {
        if let Some(graph) = self.graph.take() {
            // What was captured may be foreign.
            drop_detached(graph);
        }
    }
}

fn refused(code: Code) -> PyErr {
    PyRuntimeError::new_err(format!("the simulated driver has refused it: {code}"))
}

/// The configuration of a machine, of the arguments that say what it has.
pub(crate) fn config(
    devices: u32,
    memory: Option<Bytes>,
    seed: u64,
    version: u32,
    pinned: Option<Bytes>,
    features: Vec<(String, bool)>,
    keep_up: bool,
) -> PyResult<SimConfig> {
    if !(1..=MOST_DEVICES).contains(&devices) {
        return Err(PyValueError::new_err(format!(
            "a simulated machine has 1 to {MOST_DEVICES} devices, and not {devices}"
        )));
    }
    let mut config = SimConfig::default()
        .devices(devices)
        .seed(seed)
        .version(version)
        .streams_keep_up(keep_up)
        .panic_on_unseen_hazards(false);
    if let Some(Bytes(bytes)) = pinned {
        config = config.pinned_bytes(bytes);
    }
    for (name, has) in features {
        config = config.attribute(feature(&name)?, i32::from(has));
    }
    Ok(config.memory_bytes(memory.map_or(MEMORY_BYTES, |Bytes(bytes)| bytes)))
}

fn feature(name: &str) -> PyResult<DeviceAttribute> {
    let known = || FEATURES.iter().chain(&EXTRAS);
    known().find(|(known, _)| *known == name).map(|(_, attribute)| *attribute).ok_or_else(|| {
        let names: Vec<&str> = known().map(|(name, _)| *name).collect();
        PyValueError::new_err(format!("no feature is called '{name}': there are {}", names.join(", ")))
    })
}

/// A kind of call by its name in CUDA.
fn call_named(name: &str) -> PyResult<Call> {
    Call::ALL.iter().copied().find(|call| call.symbol() == name).ok_or_else(|| {
        let names: Vec<&str> = Call::ALL.iter().map(|call| call.symbol()).collect();
        PyValueError::new_err(format!("the driver has no call '{name}': it has {}", names.join(", ")))
    })
}

fn hazard_row(hazard: &Hazard) -> HazardRow {
    (
        hazard.kind().to_string(),
        hazard.first().map(access_row),
        hazard.second().map(access_row),
        hazard.missing().to_owned(),
        hazard.to_string(),
    )
}

fn access_row(access: &Access) -> AccessRow {
    (
        access.operation().to_owned(),
        access.stream().to_string(),
        access.address(),
        access.bytes(),
        access.mode().to_string(),
        access.submission(),
    )
}
