//! A ledger that threads share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;

use alluvion::source::Cuda;
use alluvion::testing::Bench;
use alluvion::{DevicePtr, ErrorKind, Ledger, Pool, PoolConfig, ResourceExt};

use crate::answers::free;
use crate::raw_block::{Held, layout_of};

const THREADS: usize = 8;

fn ledger(bench: &Bench) -> Ledger<Pool<Cuda>> {
    Ledger::new(Cuda::new(&bench.device()).pool(PoolConfig::default()).expect("there is memory"))
}

/// Each block is freed by the thread after the one that allocated it, on another stream, and asked for meanwhile.
#[test]
fn blocks_are_freed_by_other_threads() {
    let bench = Bench::sim();
    let ledger = ledger(&bench);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel::<DevicePtr>()).unzip();
    thread::scope(|scope| {
        for (at, receiver) in receivers.into_iter().enumerate() {
            let (next, ledger, stream) = (senders[(at + 1) % THREADS].clone(), &ledger, bench.stream());
            scope.spawn(move || {
                for turn in 0..100 {
                    let bytes = 256 + 64 * turn + at;
                    let block = ledger.allocate(layout_of(bytes), stream.as_ref()).expect("there is memory");
                    Held::adopt(ledger.resource(), block, layout_of(bytes)).fill(at as u32, stream.as_ref());
                    let found = ledger.containing(block.offset(bytes - 1)).expect("it is out");
                    assert_eq!((found.block, found.layout.bytes()), (block, bytes));
                    stream.synchronize().expect("all work succeeds");
                    next.send(block).expect("the next thread takes as many as it is sent");
                    let received = receiver.recv().expect("the thread before sends as many as this one");
                    free(ledger, received, &stream).expect("it is out, and nobody else frees it");
                }
            });
        }
    });
    drop(senders);
    assert_eq!((ledger.live_blocks(), ledger.live_bytes()), (0, 0));
    drop(ledger);
    bench.check();
}

/// Of threads that free one block at once one does, and the others are told.
#[test]
fn of_many_frees_of_a_block_one_succeeds() {
    let bench = Bench::sim();
    let ledger = ledger(&bench);
    let begin = Barrier::new(THREADS);
    let stream = bench.stream();
    let blocks: Vec<_> = (0..200)
        .map(|_| ledger.allocate(layout_of(1000), stream.as_ref()).expect("there is memory"))
        .collect();
    let freed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (stream, ledger, begin, blocks, freed) = (bench.stream(), &ledger, &begin, &blocks, &freed);
            scope.spawn(move || {
                begin.wait();
                for &block in blocks {
                    match free(ledger, block, &stream) {
                        Ok(bytes) => {
                            assert_eq!(bytes, 1000);
                            freed.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Misuse),
                    }
                }
            });
        }
    });
    assert_eq!(freed.into_inner(), blocks.len());
    assert_eq!(ledger.live_blocks(), 0);
    drop((ledger, stream));
    bench.check();
}
