//! An adaptor of your own, from outside of the crate: step by step, and the proof that it keeps the contract.
//!
//! `Quota` permits a number of blocks at a time, whatever their sizes: the crate's own layers limit bytes. It shows all that a
//! layer is made of: the struct and its book, the methods that it changes, the line that forwards the others, who may touch its
//! blocks, how it is found in a stack, the method that puts it there, and the tests.

#![expect(unsafe_code, reason = "implements the contract of resources")]

mod machine;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::resource::{Layer, LayerBook, Shareable};
use alluvion::source::CudaAsync;
use alluvion::testing::{Bench, suite};
use alluvion::{
    AnyResource, Device, DeviceAccessible, DevicePtr, DeviceVec, Error, HostAccessible, Layout, PoolConfig,
    Resource, ResourceExt, ResourceId, StreamRef,
};

// 1. The layer owns its upstream, as a type: the stack is one value, and a call through it is no virtual call. The default makes
//    `Quota` alone a type, to ask a stack for.

/// Permits a number of blocks at a time.
struct Quota<U = AnyResource> {
    upstream: U,
    slots: Slots,
    id: ResourceId,
}

// 2. What the layer knows is in a book of its own, a type without a parameter: it can be read when the stack is erased and nobody
//    knows the type of the upstream.

/// The book of a [`Quota`].
struct Slots {
    limit: usize,
    taken: AtomicUsize,
    refused: AtomicUsize,
}

impl Slots {
    /// How many blocks are out.
    fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// How many requests were refused.
    fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Takes a slot, if there is one. Relaxed, because the count alone is shared: the blocks are passed on by the upstream.
    fn take(&self) -> bool {
        let more = |taken| (taken < self.limit).then_some(taken + 1);
        let took = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if !took {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        took
    }

    fn give(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<U> Quota<U> {
    fn new(upstream: U, limit: usize) -> Self {
        let slots = Slots { limit, taken: AtomicUsize::new(0), refused: AtomicUsize::new(0) };
        // An id of its own: a block that did not come through this layer has no slot, so it must not come back through it.
        Self { upstream, slots, id: ResourceId::unique() }
    }
}

impl<U: Resource> Quota<U> {
    /// Both ways to allocate, within the quota. A request that fails has changed nothing.
    fn within(
        &self,
        layout: Layout,
        allocate: impl FnOnce(&U) -> Result<DevicePtr, Error>,
    ) -> Result<DevicePtr, Error> {
        // Zero bytes are no block: the upstream answers without one.
        if layout.is_empty() {
            return allocate(&self.upstream);
        }
        if !self.slots.take() {
            // Wrong requests are refused as wrong, also when there is no room: freeing would not help them.
            layout.require_align(self.max_align())?;
            return Err(Error::out_of_memory(layout.bytes()));
        }
        allocate(&self.upstream).inspect_err(|_| self.slots.give())
    }
}

// 3. The contract: four methods are changed, and two say who this is. `forward_resource!` writes the others, and those that the
//    contract gets later. The blocks are `unchanged`: so what the upstream can do with one, sleep, or show it to other processes, it
//    can do through this layer, too.

// SAFETY: the blocks are the upstream's, which keeps the contract, and go back to it. Only the value itself has its id.
unsafe impl<U: Resource> Resource for Quota<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device().require(stream.device())?;
        self.within(layout, |upstream| upstream.allocate(layout, stream))
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // SAFETY: the caller's promises; a block with this id came from the upstream.
        unsafe { self.upstream.deallocate(block, layout, stream) };
        // After the upstream has the block: a slot that is free earlier would let one block too many out.
        if !layout.is_empty() {
            self.slots.give();
        }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.within(layout, |upstream| upstream.allocate_sync(layout))
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        // SAFETY: as in `deallocate`.
        unsafe { self.upstream.deallocate_sync(block, layout) };
        if !layout.is_empty() {
            self.slots.give();
        }
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({} of {})", self.slots.taken(), self.slots.limit)
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(&self.slots))
    }

    alluvion::forward_resource!(unchanged upstream, except allocate, deallocate, id, fmt_layer);
}

// 4. Who may touch the blocks: whoever may touch the upstream's. So a quota over pinned memory serves the host's `Vec`, and one
//    over device memory does not compile there.

// SAFETY: the blocks are the upstream's.
unsafe impl<U: DeviceAccessible> DeviceAccessible for Quota<U> {}
// SAFETY: the blocks are the upstream's.
unsafe impl<U: HostAccessible> HostAccessible for Quota<U> {}
impl<U: Shareable> Shareable for Quota<U> {}

// 5. How it is found: `stack.find::<Quota>()` answers with the book.

impl<U> Layer for Quota<U> {
    type Book = Slots;
}

// 6. How it is put on a stack: by a method, as the crate's own layers are.

/// The method that makes a [`Quota`].
trait WithQuota: Resource + Sized {
    /// At most `blocks` at a time.
    fn quota(self, blocks: usize) -> Quota<Self> {
        Quota::new(self, blocks)
    }
}

impl<R: Resource> WithQuota for R {}

fn main() -> Result<(), Error> {
    let machine::Chosen { device, sim: _sim } = machine::choose()?;
    let stream = device.stream()?;

    // It is a layer like any other: over a pool, under counters, and erased.
    let stack = AnyResource::new(CudaAsync::new(&device)?.pool(PoolConfig::default())?.quota(2).stats());
    let first = DeviceVec::<f32, _>::zeroed_in(1000, &stream, stack.clone())?;
    let second = DeviceVec::<f32, _>::zeroed_in(1000, &stream, stack.clone())?;
    let refused = DeviceVec::<f32, _>::zeroed_in(1000, &stream, stack.clone()).unwrap_err();
    assert!(refused.is_out_of_memory());
    println!("{stack:?}; as expected: {refused}");

    // Whoever has the stack can ask for the book.
    let slots = stack.find::<Quota>().expect("there is a quota in the stack");
    assert_eq!((slots.taken(), slots.refused()), (2, 1));
    drop((first, second));
    assert_eq!(slots.taken(), 0);

    // 7. Does it keep the contract? Some clauses of the suite; below, `resource_suite!` stamps a test for each.
    let make = |device: &Device| {
        let pool = CudaAsync::new(device).and_then(|source| source.pool(PoolConfig::default()));
        pool.expect("the simulated device has memory pools").quota(1000)
    };
    suite::zero_bytes_reach_nobody(&Bench::sim(), make);
    suite::every_handle_frees_every_block(&Bench::sim(), make);
    suite::four_threads_at_once(&Bench::sim(), make);
    suite::nothing_leaks(&Bench::sim(), make);
    println!("four clauses of the contract hold on the simulator");
    Ok(())
}

#[cfg(test)]
mod tests {
    use alluvion::Sim;

    use super::*;

    // Every clause over a source, and, over an upstream of the suite's, those that find a method that is not forwarded.
    alluvion::resource_suite!(over_a_source, |device| CudaAsync::new(device).unwrap().quota(1000));
    alluvion::resource_suite!(over_any_upstream, adaptor | upstream | upstream.quota(1000));

    #[test]
    fn a_block_too_many_is_refused_and_a_free_makes_room() {
        let sim = Sim::new();
        let stream = sim.device(0).stream().unwrap();
        let quota = CudaAsync::new(&sim.device(0)).unwrap().quota(1);
        let layout = Layout::from_bytes(100).unwrap();
        for _ in 0..3 {
            let block = quota.allocate(layout, stream.as_ref()).unwrap();
            assert!(quota.allocate(layout, stream.as_ref()).unwrap_err().is_out_of_memory());
            assert!(quota.allocate_sync(layout).unwrap_err().is_out_of_memory());
            // SAFETY: the block came from `quota` with this layout, and nothing uses it.
            unsafe { quota.deallocate(block, layout, stream.as_ref()) };
        }
        assert_eq!((quota.slots.taken(), quota.slots.refused()), (0, 6));
    }

    #[test]
    fn a_request_that_the_upstream_refuses_keeps_no_slot() {
        let sim = Sim::new();
        let quota = CudaAsync::new(&sim.device(0)).unwrap().limiting(1 << 20).quota(1);
        let large = Layout::from_bytes(2 << 20).unwrap();
        assert!(quota.allocate_sync(large).is_err());
        assert_eq!((quota.slots.taken(), quota.slots.refused()), (0, 0));
    }
}
