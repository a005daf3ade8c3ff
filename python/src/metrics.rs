//! How is it doing now? The figures of stacks, as a page for Prometheus.

use alluvion::metrics::Metrics;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};

use crate::error::{During, raise};
use crate::resource::{DeviceMemoryResource, Owner};
use crate::{current, machine};

/// The figures of memory resources, in the text format that Prometheus reads: of those in the dict `resources`, by their names
/// there, each a resource or the stacks of several devices (`alluvion.per_device`), which the label `device` tells apart; without it, of the current resource of each device that has been asked about, by the name `current`. And for each device
/// of them what it shares with other processes, as `sharing_figures` counts it.
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
                let name: String = name.extract()?;
                for resource in each_of(&resource)? {
                    let resource = resource.cast::<DeviceMemoryResource>()?;
                    stacks.push((name.clone(), resource.get().owner(py)?.clone()));
                }
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
        // Of two stacks of one device it is the same, and is written once.
        for (_, stack) in &stacks {
            page.add_sharing(stack.device());
        }
        // The last handle of a stack may wait, so it goes while detached.
        drop(stacks);
        page.to_string()
    }))
}

/// A resource; or those of a mapping, such as the stacks of several devices.
fn each_of<'py>(resource: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match resource.cast::<PyMapping>() {
        // Some mappings have values in a view, others in a list.
        Ok(mapping) => mapping.values()?.try_iter()?.collect(),
        Err(_) => Ok(vec![resource.clone()]),
    }
}
