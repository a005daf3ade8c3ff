//! What hurt the users of layers when several threads were about.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use alluvion::source::Cuda;
use alluvion::testing::{Bench, Delayed, Shadow};
use alluvion::{PoolConfig, ResourceExt};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// Four threads allocate and free the same sizes, zero bytes too, through a register and a limit over a pool: the register said
/// that a block was not tracked, because its address had a new owner before the old one's entry was gone (rmm 2303), and that
/// one of zero bytes was tracked already (rmm 2312).
pub(crate) fn the_books_of_layers_are_exact(bench: &Bench) {
    const THREADS: usize = 4;
    const ROUNDS: usize = 500;
    const SIZES: [usize; 5] = [0, 256, 1000, 0, 70_000];
    let device = bench.device();
    let config = PoolConfig::default().maximum(16 * MIB).checked(true);
    let pool = Shadow::new(Cuda::new(&device).pool(config).expect("a pool can be made"));
    // A free that dawdles: what is closed too late is closed over somebody else's block.
    let limiting = Delayed::new(pool, Duration::ZERO).limiting(8 * MIB);
    let stack = limiting.tracking().stats();
    // On a stream of their own half of the time, and half of the time on one that all share.
    let (shared, together) = (bench.stream(), Barrier::new(THREADS));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let own = device.stream().expect("a stream can be made");
                together.wait();
                for round in 0..ROUNDS {
                    let bytes = SIZES[round % SIZES.len()];
                    let stream = if round % 2 == 0 { own.as_ref() } else { shared.as_ref() };
                    let block = Held::of(&stack, bytes, stream);
                    if round % 7 == 0 {
                        let sync = Held::allocate_sync(&stack, layout_of(bytes)).expect("there is room");
                        sync.free_sync();
                    }
                    block.free(stream);
                }
            });
        }
    });
    let calls: Vec<_> =
        (0..ROUNDS).map(|round| (SIZES[round % SIZES.len()], if round % 7 == 0 { 2 } else { 1 })).collect();
    let bytes = THREADS * calls.iter().map(|(bytes, times)| bytes * times).sum::<usize>();
    let blocks =
        THREADS * calls.iter().filter(|(bytes, _)| *bytes > 0).map(|(_, times)| times).sum::<usize>();
    let counts = stack.counts();
    assert_eq!((counts.bytes.live, counts.bytes.total), (0, bytes as i64), "{counts}");
    assert_eq!((counts.allocations.live, counts.allocations.total), (0, blocks as i64), "{counts}");
    assert_eq!(counts.failures, 0, "{counts}");
    let tracking = stack.upstream();
    let out = tracking.outstanding();
    assert!(out.is_clean(), "{out}");
    assert_eq!(tracking.upstream().used_bytes(), 0);
    tracking.upstream().upstream().upstream().assert_clean();
    bench.check();
}
