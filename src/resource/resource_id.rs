//! `ResourceId`: which resources can free a block.

use core::any::TypeId;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::device::Device;

/// The id of a resource: two resources with the same id free each other's blocks.
///
/// ```
/// use alluvion::{Resource, Sim, source::{Cuda, CudaAsync}};
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// // The driver frees any block of `cuMemAlloc`; a pool frees its own only.
/// assert_eq!(Cuda::new(&device).id(), Cuda::new(&device).id());
/// assert_ne!(CudaAsync::new(&device)?.id(), CudaAsync::new(&device)?.id());
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResourceId {
    kind: Option<TypeId>,
    machine: u32,
    ordinal: u32,
    key: u64,
}

impl ResourceId {
    /// The id of every `R` on `device` with this `key`: for resources that are views of the same memory.
    #[must_use]
    pub fn shared<R: 'static>(device: &Device, key: u64) -> Self {
        Self {
            kind: Some(TypeId::of::<R>()),
            machine: device.machine_number(),
            ordinal: device.ordinal(),
            key,
        }
    }

    /// An id that no other resource has. Take it once, when the resource is made.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: only that the numbers differ matters.
        Self { kind: None, machine: 0, ordinal: 0, key: NEXT.fetch_add(1, Ordering::Relaxed) as u64 }
    }
}
