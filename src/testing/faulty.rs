//! `Faulty`: a resource that fails on demand.

#![expect(unsafe_code, reason = "forwards the contract of resources")]

use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Error;
use crate::error::OutOfMemory;
use crate::forward_resource;
use crate::resource::{DeviceAccessible, DevicePtr, Layout, Resource, blocks_of_upstream};
use crate::stream::StreamRef;

/// Fails chosen allocations as out of memory, before they reach its upstream.
///
/// To try what a program does when one resource runs out; [`Sweep`](super::Sweep) fails every driver call instead. Zero
/// bytes do not count: they reach nobody.
///
/// # Stream ordering
///
/// As the upstream's.
///
/// # Thread safety
///
/// As the upstream's; the count is one atomic addition.
///
/// # Examples
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::testing::Faulty;
/// use alluvion::{Layout, Resource, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let resource = Faulty::nth(Cuda::new(&sim.device(0)), 2);
/// let layout = Layout::from_bytes(100)?;
/// let block = resource.allocate(layout, stream.as_ref())?;
/// assert!(resource.allocate(layout, stream.as_ref()).unwrap_err().is_out_of_memory());
/// # // SAFETY: the block came from this resource with this layout, and nothing uses it.
/// # unsafe { resource.deallocate(block, layout, stream.as_ref()) };
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Faulty<U> {
    upstream: U,
    asked: AtomicUsize,
    plan: Plan,
}

#[derive(Clone, Copy)]
enum Plan {
    Nth(usize),
    EveryNth(usize),
    From(usize),
}

static_assertions::assert_impl_all!(Faulty<crate::source::Cuda>: Send, Sync, DeviceAccessible);

impl<U> Faulty<U> {
    /// Fails the `n`-th allocation, counted from 1, and no other.
    #[must_use]
    pub fn nth(upstream: U, n: usize) -> Self {
        Self::new(upstream, Plan::Nth(n))
    }

    /// Fails every `n`-th allocation.
    ///
    /// # Panics
    ///
    /// If `n` is 0.
    #[must_use]
    pub fn every_nth(upstream: U, n: usize) -> Self {
        assert!(n > 0, "allocations are counted from 1");
        Self::new(upstream, Plan::EveryNth(n))
    }

    /// Fails the `n`-th allocation, counted from 1, and all after it.
    #[must_use]
    pub fn from_nth(upstream: U, n: usize) -> Self {
        Self::new(upstream, Plan::From(n))
    }

    fn new(upstream: U, plan: Plan) -> Self {
        Self { upstream, asked: AtomicUsize::new(0), plan }
    }

    /// The upstream.
    #[must_use]
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// How many allocations were asked for.
    #[must_use]
    pub fn asked(&self) -> usize {
        // Relaxed: a count, which orders nothing.
        self.asked.load(Ordering::Relaxed)
    }

    fn pass(&self, layout: Layout) -> Result<(), Error> {
        if layout.is_empty() {
            return Ok(());
        }
        // Relaxed: only that each allocation gets another number matters.
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let fails = match self.plan {
            Plan::Nth(n) => number == n,
            Plan::EveryNth(n) => number.is_multiple_of(n),
            Plan::From(n) => number >= n,
        };
        if !fails {
            return Ok(());
        }
        let mut report = OutOfMemory::new("Faulty", layout.bytes());
        report.align = layout.align();
        Err(report.into())
    }
}

// SAFETY: what is not failed is forwarded to the upstream, whose id it has and which keeps the contract.
unsafe impl<U: Resource> Resource for Faulty<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device().require(stream.device())?;
        layout.require_align(self.max_align())?;
        self.pass(layout)?;
        self.upstream.allocate(layout, stream)
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(self.max_align())?;
        self.pass(layout)?;
        self.upstream.allocate_sync(layout)
    }

    forward_resource!(unchanged upstream, except sleeping, allocate, fmt_layer);

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.plan {
            Plan::Nth(n) => write!(f, "Faulty(no. {n})"),
            Plan::EveryNth(n) => write!(f, "Faulty(1 in {n})"),
            Plan::From(n) => write!(f, "Faulty(from {n})"),
        }
    }
}

blocks_of_upstream!(Faulty);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Sim;
    use crate::source::Null;

    #[test]
    fn the_allocations_that_were_chosen_fail() {
        let sim = Sim::new();
        let stream = sim.device(0).stream().unwrap();
        let layout = Layout::from_bytes(1).unwrap();
        let upstream = || Null::new(&sim.device(0));
        let failing = |resource: Faulty<Null>| -> Vec<usize> {
            (1..=6).filter(|_| resource.allocate(layout, stream.as_ref()).is_err()).collect()
        };
        assert_eq!(failing(Faulty::nth(upstream(), 3)), [3]);
        assert_eq!(failing(Faulty::every_nth(upstream(), 2)), [2, 4, 6]);
        assert_eq!(failing(Faulty::from_nth(upstream(), 4)), [4, 5, 6]);
    }

    #[test]
    fn zero_bytes_do_not_count() {
        let sim = Sim::new();
        let resource = Faulty::from_nth(Null::new(&sim.device(0)), 1);
        assert!(resource.allocate_sync(Layout::from_bytes(0).unwrap()).is_ok());
        assert_eq!(resource.asked(), 0);
    }
}
