//! `Record`: what a debugger is told of one suballocator.

use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{Plan, ShownAddress, ShownArray, ShownCache, Text};
use crate::device::Device;

/// What the memory is for.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(in crate::suballoc) enum Kind {
    /// Requests.
    Suballocator = 0,
    /// Graphs: its segments are blocks of another suballocator.
    Graphs = 1,
}

/// What a debugger is told of one suballocator.
#[repr(C)]
pub(in crate::suballoc) struct Record {
    /// Its own address: else it is none, or no more.
    itself: AtomicUsize,
    /// The address of the plan.
    plan: usize,
    kind: Kind,
    machine: u32,
    device: u32,
    /// The suballocator and the layers below it, as they were when it was made.
    text: Text,
    maximum_bytes: u64,
    /// The addresses of the arrays of nodes and of owners.
    nodes: usize,
    owners: usize,
    /// The first cache, by its `ShownCache`.
    caches: ShownAddress,
}

impl Record {
    pub(in crate::suballoc) fn new(kind: Kind, text: Text, device: &Device, maximum_bytes: u64) -> Self {
        Self {
            itself: AtomicUsize::new(0),
            plan: 0,
            kind,
            machine: device.machine_number(),
            device: device.ordinal(),
            text,
            maximum_bytes,
            nodes: 0,
            owners: 0,
            caches: ShownAddress::nowhere(),
        }
    }

    /// Says where the data lies. That stays there from now on, and so does this.
    pub(in crate::suballoc) fn lead_to(&mut self, plan: &'static Plan, [nodes, owners]: [&ShownArray; 2]) {
        self.plan = core::ptr::from_ref(plan).addr();
        self.nodes = core::ptr::from_ref(nodes).addr();
        self.owners = core::ptr::from_ref(owners).addr();
        self.itself = AtomicUsize::new(core::ptr::from_ref(self).addr());
    }

    /// The address of what is shown of the first cache, or 0.
    pub(in crate::suballoc) fn first_cache(&self) -> usize {
        // It is written under the mutex, which the caller has.
        self.caches.address()
    }

    /// Makes a cache the first.
    pub(in crate::suballoc) fn begin_with(&self, cache: &ShownCache) {
        self.caches.lead_to(cache);
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // Release: before the memory is used for something else.
        self.itself.store(0, Ordering::Release);
    }
}
