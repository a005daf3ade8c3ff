//! `CurrentResources`: the current resources of several devices, until it is dropped.

use core::fmt;

use super::CurrentResource;
use crate::compose::PerDevice;
use crate::device::Device;
use crate::error::Error;
use crate::resource::AnyResource;

impl PerDevice<AnyResource> {
    /// Makes each stack the current resource of its device, for all threads, until the returned value is dropped.
    ///
    /// ```
    /// use alluvion::sim::SimConfig;
    /// use alluvion::{DeviceVec, Recipe, Sim};
    ///
    /// let sim = Sim::with_config(SimConfig::default().devices(2));
    /// let recipe: Recipe = "stats | pool | cuda-async".parse()?;
    /// let stacks = recipe.per_device(sim.machine())?;
    /// {
    ///     let _current = stacks.set_current_resources()?;
    ///     let stream = sim.device(1).stream()?;
    ///     let numbers = DeviceVec::from_slice(&[1, 2, 3], &stream)?; // From the stack of gpu 1.
    ///     assert!(sim.device(1).current_resource()?.is_same(&stacks[1]));
    /// }
    /// assert!(!sim.device(1).current_resource()?.is_same(&stacks[1]));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `DeviceMismatch`, with the device, for a resource of another device, as a [`map`](PerDevice::map) can make it; `ShutDown`
    /// in a child of the process that the machine was made in. Nothing has changed then.
    pub fn set_current_resources(&self) -> Result<CurrentResources, Error> {
        let named = |device: &Device, error: Error| error.on_device(device.ordinal());
        for (device, resource) in self {
            device.require(resource.device()).map_err(|error| named(device, error))?;
        }
        let mut set = CurrentResources { set: Vec::with_capacity(self.len()) };
        for (device, resource) in self {
            // If one fails, `set` is dropped, and puts the others back.
            let before = device.attached::<CurrentResource>().replace(device, resource.clone());
            let before = before.map_err(|error| named(device, error))?;
            set.set.push(Place { device: device.clone(), now: resource.clone(), before });
        }
        Ok(set)
    }
}

/// The stacks that [`PerDevice::set_current_resources`] has made current. Dropping it puts back what was current before on each
/// device: nothing is put back on a device for which somebody has set another one meanwhile.
///
/// Blocks that are live then go back to the resource that they came from: each container holds it.
#[must_use = "what was current before is put back when it is dropped"]
pub struct CurrentResources {
    set: Vec<Place>,
}

static_assertions::assert_impl_all!(CurrentResources: Send, Sync);

struct Place {
    device: Device,
    now: AnyResource,
    /// `None` where nothing had been set yet: the initial resource is made when somebody asks.
    before: Option<AnyResource>,
}

impl CurrentResources {
    /// Leaves the stacks as they are: nothing is put back.
    pub fn keep(mut self) {
        self.set.clear();
    }
}

impl Drop for CurrentResources {
    fn drop(&mut self) {
        for Place { device, now, before } in self.set.drain(..).rev() {
            device.attached::<CurrentResource>().put_back(&now, before);
        }
    }
}

impl fmt::Debug for CurrentResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.set.iter().map(|place| (place.device.ordinal(), &place.now))).finish()
    }
}
