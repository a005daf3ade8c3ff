//! What does a device allocate from?
//!
//! One answer for everything: the current resource of the device, in the library. Here it has its object, the very one that was
//! set. Where Rust code sets another resource, an object is made for it.

use std::sync::{Mutex, PoisonError};

use alluvion::{AnyResource, Device, Machine};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::error::{During, raise};
use crate::machine;
use crate::resource::{CudaMemoryResource, DeviceMemoryResource, Owner};
use crate::scoped;

/// The object of a device's current resource.
struct Entry {
    device: Device,
    /// What the library had when the entry was made, to notice that it has another now.
    resource: AnyResource,
    object: Py<DeviceMemoryResource>,
}

/// One entry a device that was asked about. Held for a look or an exchange, and never while anything is dropped or waited for.
static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// The variable that names the initial resource of every device, as a recipe.
const RECIPE_VARIABLE: &str = "ALLUVION_RESOURCE";

fn known(py: Python<'_>, device: &Device) -> Option<(AnyResource, Py<DeviceMemoryResource>)> {
    let entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = entries.iter().find(|entry| entry.device == *device)?;
    Some((entry.resource.clone(), entry.object.clone_ref(py)))
}

fn remember(device: &Device, resource: AnyResource, object: Py<DeviceMemoryResource>) -> Option<Entry> {
    let entry = Entry { device: device.clone(), resource, object };
    let mut entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    match entries.iter_mut().find(|known| known.device == *device) {
        Some(known) => Some(core::mem::replace(known, entry)),
        None => {
            entries.push(entry);
            None
        }
    }
}

/// The object of the current resource of `device`. The first look at a device sets a `CudaMemoryResource`, as RMM does, unless the
/// environment names a recipe.
pub(crate) fn object(py: Python<'_>, device: &Device) -> PyResult<Py<DeviceMemoryResource>> {
    if let Some(chosen) = scoped::resource(py, device)? {
        return Ok(chosen);
    }
    match known(py, device) {
        Some((resource, object)) => {
            let now = raise(py, device.current_resource(), During::Other)?;
            if now.is_same(&resource) { Ok(object) } else { adopt(py, device, now) }
        }
        None if std::env::var_os(RECIPE_VARIABLE).is_some() => {
            let now = raise(py, py.detach(|| device.current_resource()), During::Construction)?;
            adopt(py, device, now)
        }
        None => {
            let object = Bound::new(py, CudaMemoryResource::of(device))?.into_super().unbind();
            set(py, device, object.clone_ref(py))?;
            Ok(object)
        }
    }
}

/// An object for a resource that was not set by Python.
fn adopt(py: Python<'_>, device: &Device, now: AnyResource) -> PyResult<Py<DeviceMemoryResource>> {
    let object = Py::new(py, DeviceMemoryResource::over(Owner::of(now.clone())))?;
    drop(remember(device, now, object.clone_ref(py)));
    Ok(object)
}

fn set(py: Python<'_>, device: &Device, object: Py<DeviceMemoryResource>) -> PyResult<()> {
    let resource = AnyResource::clone(object.get().owner_on(py, device)?);
    let before = py.detach(|| device.set_current_resource(resource.clone()));
    let before = raise(py, before, During::Other)?;
    let known = remember(device, resource, object);
    // The entry's object is dropped while attached, and knows what to do; the library's handle may be the last one.
    py.detach(|| drop(before));
    drop(known);
    Ok(())
}

/// The devices of a machine whose current resource has been asked for or set, by their numbers.
pub(crate) fn devices(machine: &Machine) -> Vec<Device> {
    let entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    let of_machine = entries.iter().map(|entry| &entry.device).filter(|device| device.machine() == machine);
    let mut devices: Vec<Device> = of_machine.cloned().collect();
    drop(entries);
    devices.sort_by_key(Device::ordinal);
    devices
}

/// Forgets the devices of a machine that was left.
pub(crate) fn forget(py: Python<'_>, machine: &Machine) {
    let gone: Vec<Entry> = {
        let mut entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
        entries.extract_if(.., |entry| entry.device.machine() == machine).collect()
    };
    py.detach(|| machine.reset_current_resources());
    drop(gone);
}

/// The memory resource that a device allocates from, as the object that was set.
#[pyfunction]
#[pyo3(signature = (device=None))]
pub(crate) fn current_resource(py: Python<'_>, device: Option<u32>) -> PyResult<Py<DeviceMemoryResource>> {
    let device = raise(py, machine::device_or_current(device), During::Other)?;
    object(py, &device)
}

/// Makes a device allocate from another memory resource.
#[pyfunction]
#[pyo3(signature = (resource, device=None))]
pub(crate) fn set_current_resource(
    py: Python<'_>,
    resource: &Bound<'_, PyAny>,
    device: Option<u32>,
) -> PyResult<()> {
    let Ok(resource) = resource.cast::<DeviceMemoryResource>() else {
        return Err(PyTypeError::new_err(format!(
            "Argument 'mr' has incorrect type (expected DeviceMemoryResource, got {})",
            resource.get_type().name()?
        )));
    };
    let device = raise(py, machine::device_or_current(device), During::Other)?;
    set(py, &device, resource.clone().unbind())
}

/// Puts the initial resource of a device back, and forgets what was set.
#[pyfunction]
#[pyo3(signature = (device=None))]
pub(crate) fn reset_current_resource(py: Python<'_>, device: Option<u32>) -> PyResult<()> {
    let device = raise(py, machine::device_or_current(device), During::Other)?;
    let known = {
        let mut entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().position(|entry| entry.device == device).map(|place| entries.swap_remove(place))
    };
    let before = raise(py, py.detach(|| device.reset_current_resource()), During::Other)?;
    py.detach(|| drop(before));
    drop(known);
    Ok(())
}

/// The numbers of the devices whose current resource was set or asked about, in order.
#[pyfunction]
pub(crate) fn known_devices(py: Python<'_>) -> Vec<u32> {
    let Ok(machine) = py.detach(machine::active) else { return Vec::new() };
    let entries = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    let of_machine = entries.iter().filter(|entry| *entry.device.machine() == machine);
    let mut ordinals: Vec<u32> = of_machine.map(|entry| entry.device.ordinal()).collect();
    ordinals.sort_unstable();
    ordinals
}
