//! What hurt the users of pools when handlers, several threads or several devices were about.

#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::sync::{Arc, Barrier, Mutex, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use alluvion::relief::Relief;
use alluvion::source::{Cuda, CudaAsync};
use alluvion::testing::{Bench, Shadow, stall};
use alluvion::{AnyResource, DeviceVec, Layout, Pool, PoolConfig, Resource, ResourceExt};

use super::STALL;
use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// A pool of at most 8 MiB, whose handler is told of it.
fn with_handler(
    bench: &Bench,
    handler: impl Fn(&Pool<Cuda>, u32) -> Relief + Send + Sync + 'static,
) -> Arc<Pool<Cuda>> {
    let shared = Arc::new(OnceLock::<Weak<Pool<Cuda>>>::new());
    let known = Arc::clone(&shared);
    let config = PoolConfig::default().maximum(8 * MIB).on_out_of_memory(move |report| {
        let pool = known.get().and_then(Weak::upgrade).expect("it is asked after it was told");
        handler(&pool, report.attempt)
    });
    let pool = Arc::new(Cuda::new(&bench.device()).pool(config).expect("a pool can be made"));
    shared.set(Arc::downgrade(&pool)).expect("it is told once");
    pool
}

/// A handler that frees nothing ends; one that allocates does not lock up; one that frees half is asked until it is enough
/// (spark-rapids 8278, 11742).
pub(crate) fn handlers_end_and_help(bench: &Bench) {
    let stream = bench.stream();
    // It says that it has freed, and has not.
    let idle = with_handler(bench, |_, attempt| {
        assert!(attempt < 100, "no progress is no reason to go on");
        Relief::Freed
    });
    let full = Held::of(&*idle, 8 * MIB, stream.as_ref());
    assert!(idle.allocate(layout_of(MIB), stream.as_ref()).unwrap_err().is_out_of_memory());
    full.free(stream.as_ref());

    // It allocates: what fits, and what does not.
    for bytes in [1000, 4 * MIB] {
        let greedy = with_handler(bench, move |pool, _| {
            let stream = pool.device().stream().expect("a stream can be made");
            if let Ok(block) = Held::allocate(pool, layout_of(bytes), stream.as_ref()) {
                block.free(stream.as_ref());
            }
            Relief::None
        });
        let most = Held::of(&*greedy, 7 * MIB, stream.as_ref());
        assert!(greedy.allocate(layout_of(2 * MIB), stream.as_ref()).unwrap_err().is_out_of_memory());
        most.free(stream.as_ref());
        Held::of(&*greedy, 8 * MIB, stream.as_ref()).free(stream.as_ref());
    }

    // It has blocks of others, and lets go of half of them each time.
    let hoard = Arc::new(Mutex::new(Vec::new()));
    let (hoarded, home) = (Arc::clone(&hoard), stream.clone());
    let generous = with_handler(bench, move |pool, _| {
        let mut hoarded = hoarded.lock().expect("no thread panics");
        let keep = hoarded.len() / 2;
        let go = hoarded.split_off(keep);
        let relief = if go.is_empty() { Relief::None } else { Relief::Freed };
        for pointer in go {
            Held::adopt(pool, pointer, layout_of(MIB)).free(home.as_ref());
        }
        relief
    });
    // Before the lock is taken: the handler takes it.
    let blocks: Vec<_> = (0..8).map(|_| Held::of(&*generous, MIB, stream.as_ref()).into_parts().0).collect();
    hoard.lock().expect("no thread panics").extend(blocks);
    hoard.lock().expect("no thread panics").sort();
    let large = Held::of(&*generous, 7 * MIB, stream.as_ref());
    large.fill(1, stream.as_ref());
    large.check(1, stream.as_ref());
    large.free(stream.as_ref());
    let left = hoard.lock().expect("no thread panics").len();
    assert!(left <= 1, "{left} blocks of 1 MiB are left beside 7 MiB of 8");
    for pointer in hoard.lock().expect("no thread panics").drain(..) {
        Held::adopt(&*generous, pointer, layout_of(MIB)).free(stream.as_ref());
    }
    bench.check();
}

/// Four threads allocate and free the same sizes, zero bytes too: the books of a layer above said that a block was not theirs,
/// because the address had a new owner before the old one's entry was closed (rmm 2303, 2312).
pub(crate) fn the_books_of_four_threads_are_exact(bench: &Bench) {
    const THREADS: usize = 4;
    const ROUNDS: usize = 500;
    let device = bench.device();
    let config = PoolConfig::default().maximum(16 * MIB).checked(true);
    let pool = Shadow::new(Cuda::new(&device).pool(config).expect("a pool can be made"));
    let together = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let stream = device.stream().expect("a stream can be made");
                together.wait();
                for round in 0..ROUNDS {
                    let bytes = [0, 256, 1000, 0, 70_000][round % 5];
                    let block = Held::of(&pool, bytes, stream.as_ref());
                    if round % 7 == 0 {
                        let sync = Held::allocate_sync(&pool, layout_of(bytes)).expect("there is room");
                        sync.free_sync();
                    }
                    block.free(stream.as_ref());
                }
            });
        }
    });
    pool.assert_clean();
    let status = pool.upstream().status();
    assert_eq!((status.live_bytes, status.live_blocks), (0, 0), "{status:?}");
    assert_eq!(status.free_bytes + status.cached_bytes, status.reserved_bytes, "{status:?}");
    bench.check();
}

/// A pool is trimmed while a copy from it to another device is queued, and while one of that device is to it (torch 196257).
pub(crate) fn trimming_a_pool_spares_queued_copies(bench: &Bench) {
    const COUNT: usize = 200_000;
    let device = bench.device();
    let to = bench.second_device().unwrap_or_else(|| device.clone());
    let (here, there) = (bench.stream(), to.stream().unwrap());
    let pools = |device: &alluvion::Device| {
        let over_async = CudaAsync::new(device).unwrap().pool(PoolConfig::default()).unwrap();
        let over_cuda = Cuda::new(device).pool(PoolConfig::default()).unwrap();
        [AnyResource::new(over_async), AnyResource::new(over_cuda)]
    };
    for (near, far) in pools(&device).into_iter().zip(pools(&to)) {
        let mut target = DeviceVec::<u32, _>::zeroed_in(COUNT, there.as_ref(), far.clone()).unwrap();
        let source = DeviceVec::filled_in(COUNT, 9_u32, here.as_ref(), near.clone()).unwrap();
        here.wait_for_stream(&there).unwrap();
        if !bench.is_simulated() {
            stall(here.as_ref(), STALL);
        }
        target.copy_from(source.as_slice(), here.as_ref()).unwrap();
        drop(source);
        near.trim(0).unwrap();
        far.trim(0).unwrap();
        // Whoever takes what was the source's, and whoever takes what was never given back.
        let other = bench.stream();
        let next = DeviceVec::filled_in(COUNT, 1_u32, other.as_ref(), near.clone()).unwrap();
        let beside = DeviceVec::filled_in(COUNT, 2_u32, there.as_ref(), far.clone()).unwrap();
        here.synchronize().unwrap();
        assert_eq!(target.to_vec(there.as_ref()).unwrap(), vec![9; COUNT], "{near:?}");
        drop((next, beside, target));
        device.synchronize().unwrap();
        to.synchronize().unwrap();
        near.trim(0).unwrap();
        far.trim(0).unwrap();
    }
    bench.check();
}

/// Two threads, each on its default stream, whose handles are one number: the pool has room for one block, and hands what one
/// thread has freed to the other behind a wait (cupy 5069).
pub(crate) fn default_streams_of_threads_are_apart(bench: &Bench) {
    let device = bench.device();
    let pool = Cuda::new(&device).pool(PoolConfig::default().initial(MIB).maximum(MIB)).unwrap();
    let turn = Barrier::new(2);
    let simulated = bench.is_simulated();
    thread::scope(|scope| {
        let (pool, device, turn) = (&pool, &device, &turn);
        for me in 0..2_u32 {
            scope.spawn(move || {
                let mine = device.per_thread_stream().unwrap();
                for round in 0..20 {
                    let word = (round << 8) | me;
                    if me == round % 2 {
                        if !simulated {
                            stall(mine.as_ref(), Duration::from_millis(2));
                        }
                        let block = Held::of(pool, MIB, mine.as_ref());
                        block.fill(!word, mine.as_ref());
                        block.free(mine.as_ref());
                        turn.wait();
                    } else {
                        turn.wait();
                        let block = Held::of(pool, MIB, mine.as_ref());
                        block.fill(word, mine.as_ref());
                        block.check(word, mine.as_ref());
                        block.free(mine.as_ref());
                    }
                    turn.wait();
                }
            });
        }
    });
    bench.check();
}

/// Default streams of threads, streams that were made, and a pool that is defragmented meanwhile (rmm 1393).
pub(crate) fn defragmenting_spares_default_streams(bench: &Bench) {
    const THREADS: u32 = 3;
    let device = bench.device();
    let config = PoolConfig::default().initial(4 * MIB).maximum(8 * MIB);
    let pool = Cuda::new(&device).pool(config).unwrap();
    let turn = Barrier::new(THREADS as usize + 1);
    thread::scope(|scope| {
        let (pool, device, turn) = (&pool, &device, &turn);
        for me in 0..THREADS {
            scope.spawn(move || {
                let made = device.stream().unwrap();
                let default = device.per_thread_stream().unwrap();
                turn.wait();
                for round in 0..60 {
                    let word = (round << 8) | me;
                    let stream = if round % 2 == 0 { default.as_ref() } else { made.as_ref() };
                    let layout = Layout::from_bytes([300, 5_000, 100_000, MIB][round as usize % 4]).unwrap();
                    let block =
                        Held::allocate(pool, layout, stream).expect("an eighth of the pool is enough");
                    block.fill(word, stream);
                    if round % 3 == 0 {
                        block.check(word, stream);
                    }
                    block.free(stream);
                }
            });
        }
        turn.wait();
        for round in 0..30 {
            pool.defragment().unwrap();
            if round % 8 == 0 {
                pool.trim(MIB).unwrap();
            }
            thread::yield_now();
        }
    });
    device.synchronize().unwrap();
    pool.defragment().unwrap();
    let status = pool.status();
    assert_eq!((status.live_bytes, status.cached_bytes, status.pending_bytes), (0, 0, 0), "{status:?}");
    bench.check();
}
