//! `Tower`: what a resource object stands on, so that no request goes round in a ring, or deeper than the stack of a thread.
//!
//! A layer calls the one beneath it, and drops it. So the height of a tower is bounded where it is built: by the constructors, and
//! where a bin is put under resources that stand already.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use alluvion::{AnyResource, Resource};
use pyo3::prelude::*;

use crate::error::named;

/// The most layers. Programs have ten; one layer takes a few hundred bytes of a thread's stack, and up to 8 KiB without
/// optimization.
const MOST_LAYERS: u32 = 256;

/// The layers of one resource object, and those of the objects beneath it.
pub(crate) struct Tower {
    own: u32,
    beneath: Mutex<Vec<Arc<Tower>>>,
    /// The most layers that have stood on it at a time. That some are gone is not noticed.
    above: AtomicU32,
}

/// Held by whoever looks at more than one tower, so that none of them grows meanwhile. No Python is called under it.
static LOOKING: Mutex<()> = Mutex::new(());

impl Tower {
    /// The tower of a resource that stands on no other object.
    pub(crate) fn of(resource: &AnyResource) -> Arc<Self> {
        Arc::new(Self::new(layers(resource), Vec::new()))
    }

    /// The tower of a resource that is made at its first use.
    pub(crate) fn of_source() -> Arc<Self> {
        Arc::new(Self::new(1, Vec::new()))
    }

    /// The tower of `own` layers over another.
    pub(crate) fn over(py: Python<'_>, beneath: &Arc<Self>, own: u32) -> PyResult<Arc<Self>> {
        let _looking = LOOKING.lock().unwrap_or_else(PoisonError::into_inner);
        let height = own.saturating_add(beneath.height(&mut HashMap::new()));
        if height > MOST_LAYERS {
            return Err(too_high(py, height));
        }
        beneath.raise(own);
        Ok(Arc::new(Self::new(own, vec![Arc::clone(beneath)])))
    }

    /// Puts another tower under this one.
    pub(super) fn put_under(&self, py: Python<'_>, bin: &Arc<Self>) -> PyResult<()> {
        let _looking = LOOKING.lock().unwrap_or_else(PoisonError::into_inner);
        if bin.stands_on(self, &mut HashSet::new()) {
            let message = "invalid argument: a bin that stands on the resource which it is to serve: a request would go round for ever";
            return Err(named(py, "InvalidArgument", message));
        }
        let upper = self.above.load(Ordering::Relaxed).saturating_add(self.own);
        let height = upper.saturating_add(bin.height(&mut HashMap::new()));
        if height > MOST_LAYERS {
            return Err(too_high(py, height));
        }
        bin.raise(upper);
        self.beneath().push(Arc::clone(bin));
        Ok(())
    }

    /// Takes a tower out that was put under this one.
    pub(super) fn take_out(&self, bin: &Arc<Self>) {
        let mut beneath = self.beneath();
        if let Some(place) = beneath.iter().rposition(|tower| Arc::ptr_eq(tower, bin)) {
            beneath.remove(place);
        }
    }

    fn new(own: u32, beneath: Vec<Arc<Self>>) -> Self {
        Self { own, beneath: Mutex::new(beneath), above: AtomicU32::new(0) }
    }

    fn beneath(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Self>>> {
        self.beneath.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most layers from this one down.
    fn height(&self, known: &mut HashMap<*const Self, u32>) -> u32 {
        if let Some(height) = known.get(&core::ptr::from_ref(self)) {
            return *height;
        }
        let beneath = self.beneath().iter().map(|tower| tower.height(known)).max().unwrap_or(0);
        let height = self.own.saturating_add(beneath);
        known.insert(self, height);
        height
    }

    fn stands_on(&self, other: &Self, seen: &mut HashSet<*const Self>) -> bool {
        core::ptr::eq(self, other)
            || (seen.insert(self) && self.beneath().iter().any(|tower| tower.stands_on(other, seen)))
    }

    /// Notes that `above` layers stand on it. Each tower is raised at most as often as it may have layers above.
    fn raise(&self, above: u32) {
        if above > self.above.load(Ordering::Relaxed) {
            self.above.store(above, Ordering::Relaxed);
            self.beneath().iter().for_each(|tower| tower.raise(above.saturating_add(self.own)));
        }
    }
}

/// The layers of a resource down to its source, the bins of one not counted.
pub(crate) fn layers(resource: &AnyResource) -> u32 {
    let mut layers = 1;
    let mut at = resource.upstream();
    while let Some(upstream) = at {
        layers += 1;
        at = upstream.upstream();
    }
    layers
}

fn too_high(py: Python<'_>, height: u32) -> PyErr {
    let message = format!(
        "a tower of {height} resources: a request calls them all, and the stack of a thread is sure to hold {MOST_LAYERS}"
    );
    named(py, "ConstructionFailed", &message)
}
