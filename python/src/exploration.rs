//! What if a program runs under every schedule?

use std::sync::{Mutex, MutexGuard, PoisonError};

use alluvion::Sim;
use alluvion::sim::{Exploration as Schedules, Ran, Schedule};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::argument::Bytes;
use crate::simulated::config;

/// The schedules of a program, one after the other, each with a simulated machine of its own.
#[pyclass(frozen, weakref, module = "alluvion._alluvion")]
pub(crate) struct Exploration {
    /// Held for a step, which runs no work and calls nobody.
    schedules: Mutex<Schedules>,
}

impl Exploration {
    fn schedules(&self) -> MutexGuard<'_, Schedules> {
        self.schedules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine of the next schedule.
    pub(crate) fn begin(&self) -> Option<Sim> {
        self.schedules().begin().map(Sim::with_driver)
    }
}

#[pymethods]
impl Exploration {
    #[new]
    #[pyo3(signature = (schedule=None, devices=1, memory=None, version=13_000, pinned=None, features=Vec::new()))]
    fn new(
        schedule: Option<&str>,
        devices: u32,
        memory: Option<Bytes>,
        version: u32,
        pinned: Option<Bytes>,
        features: Vec<(String, bool)>,
    ) -> PyResult<Self> {
        let config = config(devices, memory, 0, version, pinned, features, false)?;
        let schedules = match schedule {
            None => Schedules::new(config),
            Some(text) => {
                let schedule: Schedule = text.parse().map_err(|_| {
                    PyValueError::new_err(format!(
                        "a schedule is numbers with dots between them, and not {text:?}"
                    ))
                })?;
                Schedules::of_schedule(config, &schedule)
            }
        };
        Ok(Self { schedules: Mutex::new(schedules) })
    }

    /// Ends the schedule that has begun: the choices that were made, and whether the program had those that it had before.
    fn end(&self) -> Option<(String, bool)> {
        let Ran { schedule, is_deterministic, .. } = self.schedules().end()?;
        Some((schedule.to_string(), is_deterministic))
    }

    /// How many schedules have begun.
    #[getter]
    fn schedules_begun(&self) -> u64 {
        self.schedules().schedules()
    }

    /// Whether there are no others.
    #[getter]
    fn is_complete(&self) -> bool {
        self.schedules().is_complete()
    }
}
