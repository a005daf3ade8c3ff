//! A simulated machine, as the Python package sees it.

use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::Sim;
use alluvion::sim::SimConfig;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::argument::Bytes;
use crate::{current, machine};

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
    #[pyo3(signature = (devices=1, memory=None, seed=0))]
    fn new(devices: u32, memory: Option<Bytes>, seed: u64) -> PyResult<Self> {
        if devices == 0 {
            return Err(PyValueError::new_err("a simulated machine needs at least 1 device"));
        }
        let mut config = SimConfig::default().devices(devices).seed(seed).panic_on_unseen_hazards(false);
        if let Some(Bytes(bytes)) = memory {
            config = config.memory_bytes(bytes);
        }
        Ok(Self { sim: Sim::with_config(config), entered: AtomicUsize::new(0) })
    }

    /// Makes this the machine that every call of the package means, in every thread.
    fn enter(&self) {
        self.entered.fetch_add(1, Ordering::Relaxed);
        machine::enter(self.sim.machine().clone());
    }

    /// Ends one `enter`.
    fn leave(&self) -> PyResult<()> {
        self.entered
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |entered| entered.checked_sub(1))
            .map_err(|_| PyRuntimeError::new_err("the simulated machine was left more often than entered"))?;
        machine::leave(self.sim.machine());
        Ok(())
    }

    /// Forgets the current resources of the machine's devices.
    fn forget_resources(&self, py: Python<'_>) {
        current::forget(py, self.sim.machine());
    }

    /// How many devices the machine has.
    #[getter]
    fn devices(&self) -> usize {
        self.sim.machine().devices().len()
    }

    /// The accesses that no stream orders, a line each. Waits for all work first.
    fn hazards(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| {
            self.settle();
            self.sim.hazards().iter().map(ToString::to_string).collect()
        })
    }

    /// The blocks, streams and pages that are still out, a line each. Waits for all work first.
    fn leaks(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| {
            self.settle();
            self.sim.leaks().iter().map(ToString::to_string).collect()
        })
    }

    /// The number of calls that the driver got, all together.
    #[getter]
    fn driver_calls(&self) -> u64 {
        self.sim.calls().total()
    }

    fn __repr__(&self) -> String {
        format!("Simulated(devices={})", self.devices())
    }
}

impl Simulated {
    /// Waits for all work. A context that is lost has none.
    fn settle(&self) {
        for device in self.sim.machine().devices() {
            let _ = device.synchronize();
        }
    }
}
