//! A source of your own, and the proof that it keeps the contract.
//!
//! `Slabs` takes slabs of 1 MiB from an upstream and hands them out in blocks of one size. A free block remembers
//! what its next use must come after, so no free makes a driver call and no reuse is too early.

#![expect(unsafe_code, reason = "implements the contract of resources")]
#![expect(clippy::disallowed_types, reason = "an example has no model to be seen by")]

mod machine;

use std::fmt;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use alluvion::source::Cuda;
use alluvion::testing::{Bench, suite};
use alluvion::{
    AnyResource, Device, DeviceAccessible, DevicePtr, DeviceVec, Error, Frontier, Layout, Resource,
    ResourceId, StreamRef,
};

const BLOCK_BYTES: usize = 64 << 10;
const SLAB_BLOCKS: usize = 16;

/// Blocks of 64 KiB, from slabs of sixteen.
struct Slabs<U: Resource> {
    upstream: U,
    /// Of one slab.
    layout: Layout,
    id: ResourceId,
    slabs: Mutex<Vec<Slab>>,
}

struct Slab {
    start: DevicePtr,
    free: Vec<FreeBlock>,
}

struct FreeBlock {
    block: DevicePtr,
    /// What the next use must come after.
    frontier: Frontier,
}

impl<U: Resource> Slabs<U> {
    fn new(upstream: U) -> Result<Self, Error> {
        let layout = Layout::from_bytes(BLOCK_BYTES * SLAB_BLOCKS)?;
        Ok(Self { upstream, layout, id: ResourceId::unique(), slabs: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Slab>> {
        self.slabs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free block: one that the stream may use at once if there is one, else any.
    fn take(&self, stream: StreamRef<'_>) -> Option<FreeBlock> {
        let mut slabs = self.lock();
        let ready = slabs.iter_mut().find_map(|slab| {
            let at = slab.free.iter().position(|free| stream.may_reuse(&free.frontier))?;
            Some(slab.free.swap_remove(at))
        });
        ready.or_else(|| slabs.iter_mut().find_map(|slab| slab.free.pop()))
    }

    /// Takes a slab from the upstream, and a block from it. No lock is held while the upstream works.
    fn grow(&self) -> Result<FreeBlock, Error> {
        let start = self.upstream.allocate_sync(self.layout)?;
        let fresh =
            |index| FreeBlock { block: start.offset(index * BLOCK_BYTES), frontier: Frontier::quiescent() };
        let slab = Slab { start, free: (1..SLAB_BLOCKS).map(fresh).collect() };
        self.lock().push(slab);
        Ok(fresh(0))
    }

    fn put_back(&self, free: FreeBlock) {
        let mut slabs = self.lock();
        // A slab with a live block is in the list: only whole ones leave it.
        let has_it =
            |slab: &Slab| slab.start <= free.block && free.block < slab.start.offset(self.layout.bytes());
        if let Some(slab) = slabs.iter_mut().find(|slab| has_it(slab)) {
            slab.free.push(free);
        }
    }

    /// Gives a slab back if all of its blocks are free and what used them is over: only quiescent memory may go.
    fn release(&self, slab: Slab, is_over: impl Fn(&Frontier) -> bool) -> Result<(), Slab> {
        if slab.free.len() < SLAB_BLOCKS || !slab.free.iter().all(|free| is_over(&free.frontier)) {
            return Err(slab);
        }
        // SAFETY: the slab came from the upstream with this layout; nobody has a block of it, and every use is over.
        unsafe { self.upstream.deallocate_sync(slab.start, self.layout) };
        Ok(())
    }
}

// SAFETY: blocks are disjoint parts of slabs of the upstream, aligned as those are and to a multiple of 64 KiB
// inside of them. A block is in `free` or it is live, never both. It is handed out when the stream has been made to
// follow its frontier, and stays valid until its slab goes, which has no live block then, wherever the value is
// moved. The id is unique. Nothing here unwinds.
unsafe impl<U: Resource> Resource for Slabs<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device().require(stream.device())?;
        layout.require_align(self.max_align())?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        if layout.bytes() > BLOCK_BYTES {
            return Err(Error::over_limit(layout.bytes(), BLOCK_BYTES));
        }
        let free = match self.take(stream) {
            Some(free) => free,
            None => self.grow()?,
        };
        match stream.wait_for(&free.frontier) {
            Ok(()) => Ok(free.block),
            Err(error) => {
                self.put_back(free);
                Err(error)
            }
        }
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if !layout.is_empty() {
            self.put_back(FreeBlock { block, frontier: Frontier::of(stream.release()) });
        }
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slabs({} of {} bytes)", self.lock().len(), self.layout.bytes())
    }

    fn max_align(&self) -> usize {
        Layout::MIN_ALIGN
    }

    fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        let machine = self.device().machine();
        let (mut held_bytes, whole) = {
            let mut slabs = self.lock();
            let held_bytes = slabs.len() * self.layout.bytes();
            let whole: Vec<_> = slabs.extract_if(.., |slab| slab.free.len() == SLAB_BLOCKS).collect();
            (held_bytes, whole)
        };
        let (mut kept, mut released_bytes) = (Vec::new(), 0);
        // No lock is held here: asking for what is over calls the driver.
        for slab in whole {
            let too_many = held_bytes > keep_bytes;
            match self.release(slab, |frontier| too_many && machine.is_quiescent(frontier).unwrap_or(false)) {
                Ok(()) => {
                    held_bytes -= self.layout.bytes();
                    released_bytes += self.layout.bytes();
                }
                Err(slab) => kept.push(slab),
            }
        }
        self.lock().append(&mut kept);
        self.upstream.trim(keep_bytes)?;
        Ok(released_bytes)
    }

    // `device`, `upstream` and `memory_info`, and what the contract gets later.
    alluvion::forward_resource!(upstream, except allocate, deallocate, id, fmt_layer, max_align, trim);
}

// SAFETY: the blocks are the upstream's.
unsafe impl<U: DeviceAccessible> DeviceAccessible for Slabs<U> {}

impl<U: Resource> Drop for Slabs<U> {
    fn drop(&mut self) {
        let machine = self.device().machine().clone();
        let slabs = mem::take(self.slabs.get_mut().unwrap_or_else(PoisonError::into_inner));
        for slab in slabs {
            // Refused, and so leaked, is a slab with a block that a leaked container had, or whose last use
            // nobody can wait for, because the context is lost.
            let _ = self.release(slab, |frontier| machine.wait_quiescent(frontier).is_ok());
        }
    }
}

fn main() -> Result<(), Error> {
    let machine::Chosen { device, sim: _sim } = machine::choose()?;
    let stream = device.stream()?;

    // It is a resource like any other.
    let slabs = AnyResource::new(Slabs::new(Cuda::new(&device))?);

    let numbers = DeviceVec::from_slice_in(&[1, 2, 3], &stream, slabs.clone())?;
    assert_eq!(numbers.to_vec(&stream)?, [1, 2, 3]);
    let refused = DeviceVec::<u8, _>::uninit_in(BLOCK_BYTES + 1, &stream, slabs.clone()).unwrap_err();
    println!("{}; as expected: {refused}", slabs.describe());

    // Does it keep the contract? Some clauses of the suite; below, `resource_suite!` stamps a test for each.
    let make = |device: &Device| Slabs::new(Cuda::new(device)).expect("1 MiB is a size");
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
alluvion::resource_suite!(slabs on sim(Bench::sim().largest_bytes(BLOCK_BYTES)), |device| {
    Slabs::new(Cuda::new(device)).expect("1 MiB is a size")
});
