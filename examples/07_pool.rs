//! A pool over what the machine has: two streams share it, it shows what it holds, and when it is full it asks for help.

#![expect(clippy::disallowed_types, reason = "an example has no model to be seen by")]

mod machine;

use std::sync::{Arc, Mutex, PoisonError};

use alluvion::relief::Relief;
use alluvion::source::Cuda;
use alluvion::suballoc::BlockState;
use alluvion::{AnyResource, Device, DeviceVec, Error, Pool, PoolConfig, Resource, ResourceExt, Stream};

const MIB: usize = 1 << 20;

fn main() -> Result<(), Error> {
    let machine::Chosen { device, sim } = machine::choose()?;

    // Over the device's current resource, in whose place it is put. The count is for us, who want to look at it.
    let under = device.current_resource()?;
    let pool = Arc::new(under.clone().pool(PoolConfig::default())?);
    device.set_current_resource(AnyResource::from_arc(Arc::clone(&pool)))?;
    println!("containers allocate from {}", pool.describe());

    let (first, second) = (device.stream()?, device.stream()?);
    two_streams(&pool, &first, &second)?;
    what_it_holds(&pool, &first)?;
    // Once the device is idle, all that is free is nobody's, and can go.
    device.synchronize()?;
    println!("trimmed: {} MiB went back, {} stay", pool.trim(0)? / MIB, pool.pool_size() / MIB);
    device.set_current_resource(under)?;

    help(&device, &first)?;

    if let Some(sim) = sim {
        device.synchronize()?;
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
    }
    Ok(())
}

/// Each stream gets back first what it has freed itself, from a cache of its own.
fn two_streams(pool: &Pool<AnyResource>, first: &Stream, second: &Stream) -> Result<(), Error> {
    for round in 0..100_u8 {
        for stream in [first, second] {
            let filled = DeviceVec::filled(MIB, round, stream)?;
            // It goes back at once, behind the fill, and nobody waits.
            drop(filled);
        }
    }
    let status = pool.status();
    println!(
        "allocations from the caches of the streams: {}; from behind them: {}; calls to what is under the pool: {}",
        status.hits, status.misses, status.upstream_calls
    );
    assert_eq!((status.hits, status.misses, status.waits), (198, 2, 0));
    Ok(())
}

/// Figures, and a picture of every block.
fn what_it_holds(pool: &Pool<AnyResource>, stream: &Stream) -> Result<(), Error> {
    let weights = DeviceVec::<f32>::zeroed(MIB, stream)?;
    let status = pool.status();
    println!(
        "{} MiB reserved: {} live, {} cached, {} free",
        status.reserved_bytes / MIB,
        status.live_bytes / MIB,
        status.cached_bytes / MIB,
        status.free_bytes / MIB
    );
    assert_eq!(status.live_bytes, weights.len() * size_of::<f32>());
    assert_eq!(status.reserved_bytes, status.live_bytes + status.cached_bytes + status.free_bytes);

    for block in pool.snapshot().blocks {
        let state = match block.state {
            BlockState::Live => "live".to_owned(),
            BlockState::Cached(Some(stream)) => format!("free, in the cache of stream {stream}"),
            BlockState::Pending(stamp) => format!("free, behind a point of stream {}", stamp.stream()),
            BlockState::Free => "free for anybody".to_owned(),
            other => format!("{other:?}"),
        };
        println!("  {}: {:>8} KiB {state}", block.address, block.bytes >> 10);
    }
    Ok(())
}

/// A pool of 8 MiB, full of results that could be computed again, and a handler that lets go of them.
fn help(device: &Device, stream: &Stream) -> Result<(), Error> {
    let results = Arc::new(Mutex::new(Vec::new()));
    let let_go = Arc::clone(&results);
    let config = PoolConfig::default().maximum(8 * MIB).on_out_of_memory(move |report| {
        println!("out of memory: {report}");
        if report.maximum_bytes.is_some_and(|maximum| report.requested_bytes > maximum) {
            return Relief::None;
        }
        // No lock of the pool is held while it runs, so it may free; the lock of the results is let go first.
        let freed = let_go.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if freed.is_some() { Relief::Freed } else { Relief::None }
    });
    let pool = AnyResource::new(Cuda::new(device).pool(config)?);
    for value in 0..4_u8 {
        let result = DeviceVec::filled_in(2 * MIB, value, stream, pool.clone())?;
        results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
    }

    // There is room for it once two of them have gone.
    let large = DeviceVec::filled_in(4 * MIB, 9_u8, stream, pool.clone())?;
    let kept = results.lock().unwrap_or_else(PoisonError::into_inner).len();
    println!("{} MiB were found, and {kept} results are left", large.len() / MIB);
    assert_eq!(kept, 2);

    // Where no handler can help, the error says why.
    let refused = DeviceVec::filled_in(9 * MIB, 0_u8, stream, pool).unwrap_err();
    println!("as expected: {refused}");
    // The handler has what it would free in this very pool, so it goes before the pool can.
    results.lock().unwrap_or_else(PoisonError::into_inner).clear();
    Ok(())
}
