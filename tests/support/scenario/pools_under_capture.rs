//! What hurt the users of pools while somebody recorded a graph.

use alluvion::driver::CaptureMode;
use alluvion::source::{Cuda, CudaAsync, Pinned};
use alluvion::suballoc::Growth;
use alluvion::testing::{Bench, stall};
use alluvion::{AnyResource, Device, Error, PoolConfig, Resource, ResourceExt, Stream};

use super::capture::Recorder;
use super::{STALL, check_but_for_captures};
use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

fn pools(device: &Device) -> Result<[AnyResource; 3], Error> {
    Ok([
        AnyResource::new(Cuda::new(device).pool(PoolConfig::default().initial(1000))?),
        AnyResource::new(CudaAsync::new(device)?.pool(PoolConfig::default())?),
        AnyResource::new(Pinned::new(device)?.pool(PoolConfig::default().maximum(8 * MIB))?),
    ])
}

/// A pool is made, used, shared between streams, trimmed and dropped while a stream captures in the strictest mode, on this
/// thread and on another: nothing of that breaks the capture, and the capture breaks nothing of it (cccl 11360).
pub(crate) fn a_pool_may_begin_beside_a_capture(bench: &Bench) {
    let device = bench.device();
    let (capturing, one, other) = (bench.stream(), bench.stream(), bench.stream());
    let use_pools = || -> Result<(), Error> {
        for pool in pools(&device)? {
            for bytes in [1000, 3 * MIB] {
                for (freed, taken) in [(&one, &other), (&other, &one)] {
                    Held::allocate(&pool, layout_of(bytes), freed.as_ref())?.free(freed.as_ref());
                    Held::allocate(&pool, layout_of(bytes), taken.as_ref())?.free(taken.as_ref());
                }
                Held::allocate_sync(&pool, layout_of(bytes))?.free_sync();
            }
            pool.trim(0)?;
        }
        Ok(())
    };
    let recorder = Recorder::of(bench);
    recorder.is_not_broken_here(&capturing, use_pools);
    recorder.is_not_broken_from_here(&capturing, use_pools);
    bench.check();
}

/// The stream that captures allocates and frees, while what there is lies behind another stream's work: it is served or
/// refused, the capture stays whole, and afterwards all memory is there (torch 190308).
pub(crate) fn a_capturing_stream_may_use_a_pool(bench: &Bench) {
    let device = bench.device();
    for mode in [CaptureMode::Relaxed, CaptureMode::ThreadLocal, CaptureMode::Global] {
        let (capturing, other) = (bench.stream(), bench.stream());
        let config = PoolConfig::default().maximum(8 * MIB).growth(Growth::Exact).checked(true);
        let pool = Cuda::new(&device).pool(config).unwrap();
        let before = Held::of(&pool, MIB, capturing.as_ref());
        let pending = Held::of(&pool, 4 * MIB, other.as_ref());
        if !bench.is_simulated() {
            stall(other.as_ref(), STALL);
        }
        pending.fill(1, other.as_ref());
        pending.free(other.as_ref());

        let recorder = Recorder::of(bench);
        recorder.begin(&capturing, mode);
        before.free(capturing.as_ref());
        let mut served = Vec::new();
        // From what is free at home, from what may still be taken, and from what is behind the other stream.
        for bytes in [MIB, 2 * MIB, 4 * MIB, 1000] {
            match Held::allocate(&pool, layout_of(bytes), capturing.as_ref()) {
                Ok(block) => served.push(block),
                Err(error) => assert!(error.is_out_of_memory() || error.is_capture(), "{mode:?}: {error}"),
            }
        }
        // A stream that does not capture goes on, if there is something left for it.
        work(&pool, &other);
        served.into_iter().for_each(|block| block.free(capturing.as_ref()));
        assert_eq!(recorder.end(&capturing), Ok(()), "{mode:?}: the capture was broken");

        for stream in [&capturing, &other] {
            let whole = Held::of(&pool, 8 * MIB, stream.as_ref());
            whole.fill(2, stream.as_ref());
            whole.check(2, stream.as_ref());
            whole.free(stream.as_ref());
        }
        assert_eq!(pool.status().live_blocks, 0);
        device.synchronize().unwrap();
        pool.trim(0).unwrap();
        assert_eq!(pool.pool_size(), 0, "{mode:?}");
    }
    check_but_for_captures(bench);
}

fn work(pool: &impl Resource, stream: &Stream) {
    match Held::allocate(pool, layout_of(5000), stream.as_ref()) {
        Ok(block) => block.free(stream.as_ref()),
        Err(error) => assert!(error.is_out_of_memory(), "{error}"),
    }
}

/// A capture breaks while a block of a pool is freed in it: the block comes back all the same.
pub(crate) fn a_broken_capture_loses_no_block(bench: &Bench) {
    let (capturing, other) = (bench.stream(), bench.stream());
    let config = PoolConfig::default().initial(4 * MIB).maximum(4 * MIB).checked(true);
    let pool = Cuda::new(&bench.device()).pool(config).unwrap();
    let recorder = Recorder::of(bench);
    for word in 0..4 {
        let block = Held::of(&pool, 4 * MIB, capturing.as_ref());
        block.fill(word, capturing.as_ref());
        recorder.begin(&capturing, CaptureMode::Relaxed);
        block.free(capturing.as_ref());
        recorder.break_off(&capturing);
        let whole = Held::of(&pool, 4 * MIB, other.as_ref());
        whole.fill(!word, other.as_ref());
        whole.check(!word, other.as_ref());
        whole.free(other.as_ref());
    }
    check_but_for_captures(bench);
}
