//! `PrefetchBook`: the book of `Prefetch`.

use crate::driver::Code;
use crate::error::Error;
use crate::resource::Resource;
#[cfg(target_os = "linux")]
use crate::source::System;
use crate::source::{Cuda, CudaAsync, CudaAsyncManaged, Managed, Mapped, Null, Pinned};
use crate::sync::{AtomicU64, Ordering};

/// Whether the memory under a [`Prefetch`](super::Prefetch) migrates, and the number of migrations.
///
/// ```
/// use alluvion::adaptor::Prefetch;
/// use alluvion::{AnyResource, DeviceVec, Resource, ResourceExt, Sim, source::Managed};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let resource = AnyResource::new(Managed::new(&sim.device(0))?.prefetch());
/// let _numbers = DeviceVec::<f32, _>::zeroed_in(1000, &stream, resource.clone())?;
/// let hints = resource.find::<Prefetch>().expect("there is a `Prefetch` in it");
/// assert_eq!((hints.migrates(), hints.queued(), hints.refused()), (Some(true), 1, 0));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Debug)]
pub struct PrefetchBook {
    memory: AtomicU64,
    queued: AtomicU64,
    refused: AtomicU64,
}

const UNKNOWN: u64 = 0;
const MIGRATES: u64 = 1;
const STAYS: u64 = 2;

impl PrefetchBook {
    /// A book for a layer over `resource`.
    pub(super) fn over(resource: &dyn Resource) -> Self {
        let memory = AtomicU64::new(memory_of(resource));
        Self { memory, queued: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    /// Whether the memory migrates. `None` while it is unknown: over a source of your own, until the driver has
    /// answered for its first block.
    #[must_use]
    pub fn migrates(&self) -> Option<bool> {
        // Relaxed: who reads an older answer asks the driver once more.
        match self.memory.load(Ordering::Relaxed) {
            UNKNOWN => None,
            memory => Some(memory == MIGRATES),
        }
    }

    /// The number of queued migrations.
    #[must_use]
    pub fn queued(&self) -> u64 {
        // Relaxed: a figure for people.
        self.queued.load(Ordering::Relaxed)
    }

    /// The number of migrations that the driver has refused. The blocks were served all the same.
    #[must_use]
    pub fn refused(&self) -> u64 {
        // Relaxed: a figure for people.
        self.refused.load(Ordering::Relaxed)
    }

    /// Notes the driver's answer.
    pub(super) fn note(&self, queued: &Result<(), Error>) {
        let (counter, memory) = match queued {
            Ok(()) => (&self.queued, MIGRATES),
            // The driver's answers for memory that cannot migrate. Other errors say nothing about the memory.
            Err(error) if matches!(error.code(), Some(Code::INVALID_VALUE | Code::NOT_SUPPORTED)) => {
                (&self.refused, STAYS)
            }
            Err(_) => (&self.refused, UNKNOWN),
        };
        // Relaxed: figures for people.
        counter.fetch_add(1, Ordering::Relaxed);
        if memory != UNKNOWN {
            // Relaxed: as in `migrates`. What the first answer was stays, so that one strange block does not end it for all.
            let _ = self.memory.compare_exchange(UNKNOWN, memory, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// What the innermost resource of a stack says, if it is one of this crate's.
fn memory_of(resource: &dyn Resource) -> u64 {
    let mut innermost = resource;
    while let Some(upstream) = innermost.upstream() {
        innermost = upstream;
    }
    let Some(source) = innermost.layer() else { return UNKNOWN };
    #[cfg(target_os = "linux")]
    if source.is::<System>() {
        return MIGRATES;
    }
    if source.is::<Managed>() || source.is::<CudaAsyncManaged>() {
        MIGRATES
    } else if source.is::<Cuda>()
        || source.is::<CudaAsync>()
        || source.is::<Mapped>()
        || source.is::<Pinned>()
        || source.is::<Null>()
    {
        STAYS
    } else {
        UNKNOWN
    }
}
