//! How is it doing now? The figures of stacks, as a page for Prometheus.

use alluvion::metrics::Metrics;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{During, raise};
use crate::resource::{DeviceMemoryResource, Owner};
use crate::{current, machine};

/// The figures of memory resources, in the text format that Prometheus reads: of those in the dict `resources`, by their names
/// there; without it, of the current resource of each device that has been asked about, by the name `current`.
///
/// >>> import alluvion
/// >>> with alluvion.simulated():
/// ...     page = alluvion.metrics()
/// >>> 'alluvion_memory_total_bytes{resource="current",device="0"}' in page
/// True
#[pyfunction]
#[pyo3(signature = (resources=None))]
pub(crate) fn metrics(py: Python<'_>, resources: Option<&Bound<'_, PyDict>>) -> PyResult<String> {
    let mut stacks: Vec<(String, Owner)> = Vec::new();
    match resources {
        Some(resources) => {
            // A list of its own: a resource that is made at its first use lets other threads run, which may change the dict.
            for (name, resource) in
                resources.items().extract::<Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>>()?
            {
                let resource = resource.cast::<DeviceMemoryResource>()?;
                stacks.push((name.extract()?, resource.get().owner(py)?.clone()));
            }
        }
        None => {
            let mut devices = current::devices(&raise(py, machine::active(), During::Other)?);
            if devices.is_empty() {
                devices.push(raise(py, py.detach(machine::device), During::Other)?);
            }
            for device in devices {
                let resource = current::object(py, &device)?;
                stacks.push(("current".into(), resource.get().owner(py)?.clone()));
            }
        }
    }
    Ok(py.detach(|| {
        let mut page = Metrics::new();
        for (name, stack) in &stacks {
            page.add_stack(name, &**stack);
        }
        // The last handle of a stack may wait, so it goes while detached.
        drop(stacks);
        page.to_string()
    }))
}
