//! Suballocators at their edges: streams that ended badly, upstreams that take long, two frees at once, sizes at the limit.

#![expect(unsafe_code, reason = "frees by hand")]

mod held;

use std::sync::Barrier;
use std::thread;

use alluvion::source::Cuda;
use alluvion::testing::Bench;
use alluvion::{PoolConfig, Resource};
use held::Held;

/// Of two threads that free one block at the same time, one does: with a ledger, and without.
#[test]
fn one_of_two_frees_at_once_is_refused() {
    let bench = Bench::sim();
    for checked in [true, false] {
        let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().checked(checked)).unwrap();
        let streams = [bench.stream(), bench.stream()];
        for round in 0..2_000 {
            let (block, layout) = Held::of(&pool, 1000, streams[0].as_ref()).into_parts();
            let start = Barrier::new(2);
            let freed = thread::scope(|scope| {
                let threads = streams.each_ref().map(|stream| {
                    let (pool, start) = (&pool, &start);
                    scope.spawn(move || {
                        start.wait();
                        // SAFETY: nothing uses the block; that it may be free by then is what is tested.
                        unsafe { pool.try_deallocate(block, layout, stream.as_ref()) }.is_ok()
                    })
                });
                threads.map(|thread| thread.join().unwrap()).iter().filter(|freed| **freed).count()
            });
            assert_eq!(freed, 1, "round {round}, checked: {checked}");
        }
    }
}
