//! A source of your own, and the proof that it keeps the contract.
//!
//! `Slab` takes one allocation from an upstream and hands it out in blocks of one size. A free block remembers
//! what its next use must come after, so no free makes a driver call and no reuse is too early.

#![expect(unsafe_code, reason = "implements the contract of resources")]
#![expect(clippy::disallowed_types, reason = "an example has no model to be seen by")]

mod machine;

use std::any::Any;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use alluvion::source::Cuda;
use alluvion::testing::{Bench, suite};
use alluvion::{
    AnyResource, Device, DeviceAccessible, DevicePtr, DeviceVec, Error, Frontier, Layout, Resource,
    ResourceId, StreamRef,
};

const BLOCK_BYTES: usize = 64 << 10;
const BLOCKS: usize = 256;

/// Blocks of 64 KiB, 256 of them.
struct Slab<U: Resource> {
    upstream: U,
    whole: Layout,
    start: DevicePtr,
    id: ResourceId,
    free: Mutex<Vec<FreeBlock>>,
}

struct FreeBlock {
    block: DevicePtr,
    /// What the next use must come after.
    frontier: Frontier,
}

impl<U: Resource> Slab<U> {
    fn new(upstream: U) -> Result<Self, Error> {
        let whole = Layout::from_bytes(BLOCK_BYTES * BLOCKS)?;
        let start = upstream.allocate_sync(whole)?;
        let free = (0..BLOCKS)
            .map(|index| FreeBlock {
                block: start.offset(index * BLOCK_BYTES),
                frontier: Frontier::quiescent(),
            })
            .collect();
        Ok(Self { upstream, whole, start, id: ResourceId::unique(), free: Mutex::new(free) })
    }

    /// A free block: one that the stream may use at once if there is one, else the one that was freed first.
    fn take(&self, stream: StreamRef<'_>) -> Option<FreeBlock> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free.iter().rposition(|free| stream.may_reuse(&free.frontier)).unwrap_or(0);
        (!free.is_empty()).then(|| free.remove(at))
    }

    fn give_back(&self, free: FreeBlock) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(free);
    }
}

// SAFETY: blocks are disjoint parts of one block of the upstream, aligned as that is and to a multiple of 64
// KiB inside of it. A block is in `free` or it is live, never both. It is handed out when the stream has been
// made to follow its frontier, and stays valid until `Drop`, wherever the slab is moved. The id is unique.
// Nothing here unwinds.
unsafe impl<U: Resource> Resource for Slab<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device().require(stream.device())?;
        layout.require_align(Layout::MIN_ALIGN)?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        if layout.bytes() > BLOCK_BYTES {
            return Err(Error::over_limit(layout.bytes(), BLOCK_BYTES));
        }
        let free = self.take(stream).ok_or_else(|| Error::out_of_memory(layout.bytes()))?;
        // No lock is held here: this may call the driver.
        match stream.wait_for(&free.frontier) {
            Ok(()) => Ok(free.block),
            Err(error) => {
                self.give_back(free);
                Err(error)
            }
        }
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if !layout.is_empty() {
            self.give_back(FreeBlock { block, frontier: Frontier::of(stream.release()) });
        }
    }

    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slab({BLOCKS} x {BLOCK_BYTES} bytes)")
    }

    fn max_align(&self) -> usize {
        Layout::MIN_ALIGN
    }

    /// Nothing can be given back before the slab itself is.
    fn trim(&self, _: usize) -> Result<usize, Error> {
        Ok(0)
    }

    fn upstream(&self) -> Option<&dyn Resource> {
        Some(&self.upstream)
    }

    fn layer(&self) -> Option<&dyn Any> {
        None
    }
}

// SAFETY: the blocks are the upstream's.
unsafe impl<U: DeviceAccessible> DeviceAccessible for Slab<U> {}

impl<U: Resource> Drop for Slab<U> {
    fn drop(&mut self) {
        let machine = self.upstream.device().machine().clone();
        let free = self.free.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Every block is back: what holds one borrows the slab or counts it. Work may still be using them, and
        // only quiescent memory may be given back. Where nobody can tell, because the context is lost, it is
        // leaked.
        if free.iter().all(|free| machine.wait_quiescent(&free.frontier).is_ok()) {
            // SAFETY: the block came from the upstream with this layout; every use of it is over, and nobody
            // has one of its parts.
            unsafe { self.upstream.deallocate_sync(self.start, self.whole) };
        }
    }
}

fn main() -> Result<(), Error> {
    let machine::Chosen { device, sim: _sim } = machine::choose()?;
    let stream = device.stream()?;

    // It is a resource like any other.
    let slab = AnyResource::new(Slab::new(Cuda::new(&device))?);
    println!("{}", slab.describe());
    let numbers = DeviceVec::from_slice_in(&[1, 2, 3], stream.as_ref(), slab.clone())?;
    assert_eq!(numbers.to_vec(stream.as_ref())?, [1, 2, 3]);
    let refused = DeviceVec::<u8, _>::uninit_in(BLOCK_BYTES + 1, stream.as_ref(), slab).unwrap_err();
    println!("as expected: {refused}");

    // Does it keep the contract? Some clauses of the suite; below, `resource_suite!` stamps a test for each.
    let make = |device: &Device| Slab::new(Cuda::new(device)).expect("the device has 16 MiB");
    let bench = || Bench::sim().largest_bytes(BLOCK_BYTES);
    suite::blocks_are_disjoint(&bench(), make);
    suite::blocks_hold_what_is_written(&bench(), make);
    // The one that pools get wrong: another stream must not have a block whose last work it does not follow.
    suite::freed_memory_is_ordered(&bench(), make);
    suite::free_on_another_thread(&bench(), make);
    suite::nothing_leaks(&bench(), make);
    println!("five clauses of the contract hold on the simulator");
    Ok(())
}

#[cfg(test)]
alluvion::resource_suite!(slab on sim(Bench::sim().largest_bytes(BLOCK_BYTES)), |device| {
    Slab::new(Cuda::new(device)).expect("the device has 16 MiB")
});
