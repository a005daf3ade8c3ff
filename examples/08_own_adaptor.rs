//! An adaptor of your own, from outside of the crate: what it does, how it is put on a stack, and the proof that it keeps the
//! contract. Nothing of it is `unsafe`.
//!
//! `Quota` permits a number of blocks at a time, whatever their sizes: the crate's own layers limit bytes. A layer that changes
//! blocks, and not only watches them, implements `Resource` itself: see `alluvion::forward_resource!`.

mod machine;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::adaptor::{Watch, Watched, WatchedRequest};
use alluvion::source::CudaAsync;
use alluvion::testing::{Bench, suite};
use alluvion::{AnyResource, Device, DeviceVec, Error, Layout, PoolConfig, ResourceExt};

// 1. What the layer knows, and what it does with it. `Watched` forwards all else: to whom the blocks are accessible, whether they can
//    sleep or be shared with another process, and what the contract gets later.

/// Permits a number of blocks at a time. Relaxed, because the count alone is shared: the blocks are passed on by the upstream.
struct Quota {
    limit: usize,
    taken: AtomicUsize,
}

impl Watch for Quota {
    // What `find` answers with, and what a free takes along: nothing.
    type Book = Self;
    type Entry = ();

    fn book(&self) -> &Self {
        self
    }

    fn admit(&self, request: &WatchedRequest<'_>) -> Result<(), Error> {
        let more = |taken| (taken < self.limit).then_some(taken + 1);
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::out_of_memory(request.layout().bytes())),
        }
    }

    // The upstream has refused what was admitted.
    fn withdraw(&self, _: &WatchedRequest<'_>) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    // After the upstream has the block: a slot that is free earlier would let one block too many out.
    fn left(&self, _: Layout, (): ()) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({} of {})", self.taken.load(Ordering::Relaxed), self.limit)
    }
}

// 2. How it is put on a stack: `.watched(quota(2))`.

fn quota(limit: usize) -> Quota {
    Quota { limit, taken: AtomicUsize::new(0) }
}

fn main() -> Result<(), Error> {
    let machine::Chosen { device, sim: _sim } = machine::choose()?;
    let stream = device.stream()?;

    // It is a layer like any other: over a pool, under counters, and erased.
    let pool = CudaAsync::new(&device)?.pool(PoolConfig::default())?;
    let stack = AnyResource::new(pool.watched(quota(2)).stats());
    let first = DeviceVec::<f32, _>::zeroed_in(1000, &stream, stack.clone())?;
    let second = DeviceVec::<f32, _>::zeroed_in(1000, &stream, stack.clone())?;
    let refused = DeviceVec::<f32, _>::zeroed_in(1000, &stream, stack.clone()).unwrap_err();
    assert!(refused.is_out_of_memory());
    println!("{stack:?}; as expected: {refused}");

    // Whoever has the stack can ask for the book.
    let book = stack.find::<Watched<Quota>>().expect("there is a quota in the stack");
    assert_eq!(book.taken.load(Ordering::Relaxed), 2);
    drop((first, second));
    assert_eq!(book.taken.load(Ordering::Relaxed), 0);

    // 3. Does it keep the contract? Some clauses of the suite; below, `resource_suite!` stamps a test for each.
    let make = |device: &Device| {
        let pool = CudaAsync::new(device).and_then(|source| source.pool(PoolConfig::default()));
        pool.expect("the simulated device has memory pools").watched(quota(1000))
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
    use alluvion::{Resource, Sim};

    use super::*;

    // Every clause over a source, and, over an upstream of the suite's, those that find a method that is not forwarded.
    alluvion::resource_suite!(over_a_source, |device| CudaAsync::new(device).unwrap().watched(quota(1000)));
    alluvion::resource_suite!(over_any_upstream, unchanged adaptor | upstream | upstream.watched(quota(1000)));

    #[test]
    fn a_block_too_many_is_refused_and_a_free_makes_room() {
        let sim = Sim::new();
        let stream = sim.device(0).stream().unwrap();
        let resource = CudaAsync::new(&sim.device(0)).unwrap().watched(quota(1));
        for _ in 0..3 {
            let block = DeviceVec::<u8, _>::zeroed_in(100, &stream, &resource).unwrap();
            let layout = Layout::from_bytes(100).unwrap();
            assert!(resource.allocate(layout, stream.as_ref()).unwrap_err().is_out_of_memory());
            assert!(resource.allocate_sync(layout).unwrap_err().is_out_of_memory());
            drop(block);
        }
        assert_eq!(resource.book().taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_request_that_the_upstream_refuses_keeps_no_slot() {
        let sim = Sim::new();
        let resource = CudaAsync::new(&sim.device(0)).unwrap().limiting(1 << 20).watched(quota(1));
        assert!(resource.allocate_sync(Layout::from_bytes(2 << 20).unwrap()).is_err());
        assert_eq!(resource.book().taken.load(Ordering::Relaxed), 0);
    }
}
