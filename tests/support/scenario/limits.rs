//! What hurt the users of limits and of handlers: memory that was there and not given, and handlers that were asked for ever.

#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::sync::{Arc, Mutex};

use alluvion::adaptor::{FailureCallback, Limiting};
use alluvion::relief::Relief;
use alluvion::source::Cuda;
use alluvion::suballoc::Growth;
use alluvion::testing::Bench;
use alluvion::{PoolConfig, Resource, ResourceExt};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

type Limited = Arc<Limiting<Cuda>>;

/// At most 8 MiB, and a handler that is told of the limit.
fn asking(
    bench: &Bench,
    handler: impl Fn(&Limited, u32) -> Relief + Send + Sync + 'static,
) -> FailureCallback<Limited> {
    let limited = Arc::new(Cuda::new(&bench.device()).limiting(8 * MIB));
    let known = Arc::clone(&limited);
    limited.failure_callback(move |report| handler(&known, report.attempt))
}

/// A handler that frees nothing, and says that it has, is asked again without end (spark-rapids 8278).
pub(crate) fn a_handler_that_frees_nothing_ends(bench: &Bench) {
    let stream = bench.stream();
    for answer in [Relief::None, Relief::Freed] {
        let resource = asking(bench, move |_, attempt| {
            assert!(attempt < 100, "no progress is no reason to go on");
            answer
        });
        let full = Held::of(&resource, 8 * MIB, stream.as_ref());
        for _ in 0..3 {
            assert!(resource.allocate(layout_of(MIB), stream.as_ref()).unwrap_err().is_out_of_memory());
            assert!(resource.allocate_sync(layout_of(MIB)).unwrap_err().is_out_of_memory());
        }
        assert_eq!((resource.book().failed(), resource.upstream().used_bytes()), (6, 8 * MIB));
        full.free(stream.as_ref());
    }
    bench.check();
}

/// A handler that needs memory to give some back locks up, or is asked for it itself (spark-rapids 11742).
pub(crate) fn a_handler_that_allocates_does_not_lock_up(bench: &Bench) {
    let stream = bench.stream();
    // What fits, and what does not.
    for bytes in [1000, MIB, 4 * MIB] {
        let resource = Arc::new(Mutex::new(None::<Arc<FailureCallback<Limited>>>));
        let within = Arc::clone(&resource);
        let asking = Arc::new(asking(bench, move |limited, _| {
            let itself = within.lock().expect("no thread panics").clone().expect("it was told");
            let stream = limited.device().stream().expect("a stream can be made");
            let staged = Held::allocate(&*itself, layout_of(bytes), stream.as_ref());
            let Ok(staged) = staged else { return Relief::None };
            staged.free(stream.as_ref());
            Relief::Freed
        }));
        *resource.lock().expect("no thread panics") = Some(Arc::clone(&asking));
        let most = Held::of(&*asking, 7 * MIB, stream.as_ref());
        assert!(asking.allocate(layout_of(2 * MIB), stream.as_ref()).unwrap_err().is_out_of_memory());
        most.free(stream.as_ref());
        Held::of(&*asking, 8 * MIB, stream.as_ref()).free(stream.as_ref());
        // The handler knows the resource, and the resource the handler.
        *resource.lock().expect("no thread panics") = None;
    }
    bench.check();
}

/// A handler that lets go of half of what it has each time is asked until it is enough.
pub(crate) fn a_handler_that_frees_half_helps(bench: &Bench) {
    let stream = bench.stream();
    let hoard = Arc::new(Mutex::new(Vec::new()));
    let (hoarded, home) = (Arc::clone(&hoard), stream.clone());
    let resource = asking(bench, move |limited, _| {
        let mut hoarded = hoarded.lock().expect("no thread panics");
        let keep = hoarded.len() / 2;
        let go = hoarded.split_off(keep);
        let relief = if go.is_empty() { Relief::None } else { Relief::Freed };
        go.into_iter().for_each(|pointer| Held::adopt(limited, pointer, layout_of(MIB)).free(home.as_ref()));
        relief
    });
    // Before the lock is taken: the handler takes it, and is asked where the device is full of somebody else's memory.
    let blocks: Vec<_> = (0..8).map(|_| Held::of(&resource, MIB, stream.as_ref()).into_parts().0).collect();
    hoard.lock().expect("no thread panics").extend(blocks);
    let large = Held::of(&resource, 7 * MIB, stream.as_ref());
    large.fill(1, stream.as_ref());
    large.check(1, stream.as_ref());
    assert_eq!(hoard.lock().expect("no thread panics").len(), 1, "8, 4, 2, 1");
    assert_eq!((resource.book().asked(), resource.book().rescued()), (3, 1));
    large.free(stream.as_ref());
    for pointer in hoard.lock().expect("no thread panics").drain(..) {
        Held::adopt(&resource, pointer, layout_of(MIB)).free(stream.as_ref());
    }
    assert_eq!(resource.upstream().used_bytes(), 0);
    bench.check();
}

/// Half of the limit is cached below it or above it, and the request is for more than the other half (cupy 7678).
pub(crate) fn cached_memory_makes_room_within_a_limit(bench: &Bench) {
    let (device, stream) = (bench.device(), bench.stream());
    for growth in [Growth::Exact, Growth::Spare, Growth::Doubling] {
        let pool = || PoolConfig::default().growth(growth);
        let over = Cuda::new(&device).pool(pool()).expect("a pool can be made").limiting(20 * MIB);
        let under = Cuda::new(&device).limiting(20 * MIB).pool(pool()).expect("a pool can be made");
        for bytes in [10 * MIB, 16 * MIB] {
            for resource in [&over as &dyn Resource, &under] {
                let block = Held::of(&resource, bytes, stream.as_ref());
                block.free(stream.as_ref());
            }
        }
        // All that it is about, once more for the one that has nothing of its own.
        over.trim(0).expect("trimming succeeds");
    }
    bench.check();
}
