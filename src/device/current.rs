//! The current resource of each device.

use core::cell::RefCell;
use std::env;
use std::sync::OnceLock;

use super::{Device, Machine};
use crate::error::Error;
use crate::recipe::{Recipe, default_source};
use crate::resource::AnyResource;
use crate::sync::Mutex;

/// The variable of the environment with the recipe of every device's initial resource.
const VARIABLE: &str = "ALLUVION_RESOURCE";

/// What one device's containers allocate from. Empty until somebody asks or sets.
pub(super) struct CurrentResource {
    set: Mutex<Option<AnyResource>>,
    /// What the environment says, read when the first initial resource is made, and not again.
    recipe: OnceLock<Option<Result<Recipe, Error>>>,
}

thread_local! {
    /// What `with_resource` has put over the current ones on this thread, innermost last.
    static OVERRIDES: RefCell<Vec<(Machine, u32, AnyResource)>> = const { RefCell::new(Vec::new()) };
}

impl CurrentResource {
    pub(super) fn new() -> Self {
        Self { set: Mutex::new(None), recipe: OnceLock::new() }
    }

    pub(super) fn resource(&self, device: &Device) -> Result<AnyResource, Error> {
        if let Some(over) = override_for(device) {
            return Ok(over);
        }
        if let Some(resource) = self.set.lock().clone() {
            return Ok(resource);
        }
        // Made without the lock, because it calls the driver. Who comes second drops what it made, without the lock as well.
        let initial = self.initial(device)?;
        Ok(self.set.lock().get_or_insert_with(|| initial.clone()).clone())
    }

    pub(super) fn set(&self, device: &Device, resource: AnyResource) -> Result<AnyResource, Error> {
        device.require(resource.device())?;
        // Made first: if that fails, nothing has changed.
        let is_first = self.set.lock().is_none();
        let initial = if is_first { Some(self.initial(device)?) } else { None };
        let known = self.set.lock().replace(resource);
        match known.or(initial) {
            Some(before) => Ok(before),
            // Taken in between.
            None => self.initial(device),
        }
    }

    pub(super) fn reset(&self, device: &Device) -> Result<AnyResource, Error> {
        let initial = self.initial(device)?;
        Ok(self.set.lock().replace(initial.clone()).unwrap_or(initial))
    }

    pub(super) fn take(&self) -> Option<AnyResource> {
        self.set.lock().take()
    }

    /// What is current before anybody has said so: by the recipe in the environment, if there is one.
    fn initial(&self, device: &Device) -> Result<AnyResource, Error> {
        match self.recipe.get_or_init(from_environment) {
            None => default_source(device),
            Some(Ok(recipe)) => recipe.build(device),
            Some(Err(error)) => Err(error.clone()),
        }
    }
}

/// The recipe in the environment. An empty one is none.
fn from_environment() -> Option<Result<Recipe, Error>> {
    let line = env::var_os(VARIABLE)?;
    // What is no text has a character in it that no recipe has, and the error points there.
    let line = line.to_string_lossy();
    (!line.trim().is_empty()).then(|| line.parse())
}

fn override_for(device: &Device) -> Option<AnyResource> {
    // `try_with`: a container may be made while the thread's locals are being dropped; nothing is overridden then.
    let found = OVERRIDES.try_with(|overrides| {
        let overrides = overrides.borrow();
        let mut matching = overrides
            .iter()
            .rev()
            .filter(|(machine, ordinal, _)| *ordinal == device.ordinal() && machine == device.machine());
        matching.next().map(|(_, _, resource)| resource.clone())
    });
    found.ok().flatten()
}

pub(super) fn with_resource<T>(
    device: &Device,
    resource: AnyResource,
    body: impl FnOnce() -> T,
) -> Result<T, Error> {
    /// Takes the override off again, however `body` ends.
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            // Dropped after the borrow ends: the resource may be the last of its kind and call the driver.
            drop(OVERRIDES.try_with(|overrides| overrides.borrow_mut().pop()));
        }
    }
    device.require(resource.device())?;
    let over = (device.machine().clone(), device.ordinal(), resource);
    if OVERRIDES.try_with(|overrides| overrides.borrow_mut().push(over)).is_err() {
        return Err(Error::unsupported(
            "another current resource for a while",
            "the thread is ending, and has let go of what it kept",
            "name the resource in each call",
        ));
    }
    let _restore = Restore;
    Ok(body())
}
