//! The columns on the simulator: what comes out, in which order, and what is left when something fails.

use std::any::Any;
use std::sync::Arc;

use alluvion::prelude::*;
use alluvion::sim::SimConfig;
use alluvion::source::{Cuda, CudaAsync, Pinned};
use alluvion::testing::{Faulty, Sweep};
use alluvion::{
    AnyResource, Device, DeviceVec, Error, PinnedAlloc, PoolConfig, Recipe, ResourceRef, Sim, Stream,
};
use columns::{CHUNK_ROWS, Categories, Column, Kernels, Simulated};

/// Three chunks, the last of them with 52 rows: a fifth of the rows has no name, and the others have one of four.
const ROWS: usize = 2 * CHUNK_ROWS + 52;

/// One for each name. Sums of these are exact, in any order.
const PRICES: [f64; 4] = [0.5, 2.25, 8.0, -1.0];

fn sold() -> Vec<Option<&'static str>> {
    let names = [Some("pear"), Some("fig"), None, Some("plum"), Some("")];
    (0..ROWS).map(|row| names[row % 5]).collect()
}

fn income() -> Vec<Option<f64>> {
    let prices = [Some(PRICES[0]), Some(PRICES[1]), None, Some(PRICES[2]), Some(PRICES[3])];
    (0..ROWS).map(|row| prices[row % 5]).collect()
}

fn total() -> f64 {
    income().into_iter().flatten().sum()
}

/// Loads on one stream, computes on the other, and lets go of everything while work may be under way.
fn sell<R: DeviceAccessible + Clone>(
    kernels: &impl Kernels,
    [loads, computes]: [&Stream; 2],
    staging: &PinnedAlloc,
    resource: R,
    scratch: ResourceRef<'_>,
) -> Result<f64, Error> {
    let sold = Categories::from_host(&sold(), staging, loads, resource.clone())?;
    let prices = DeviceVec::from_slice_in(&PRICES, loads, resource.clone())?;
    let income = sold.look_up(prices.as_slice(), kernels, computes, resource)?;
    drop((sold, prices));
    income.sum(kernels, computes, scratch)
}

/// Runs a test on a machine. When all that it made is dropped, no block and no stream may be out, and nothing have gone wrong.
fn on(sim: &Sim, test: impl FnOnce(Device) -> Result<(), Error>) -> Result<(), Error> {
    test(sim.device(0))?;
    sim.assert_clean();
    Ok(())
}

fn two_streams(device: &Device) -> Result<(Stream, Stream), Error> {
    Ok((device.stream()?, device.stream()?))
}

#[test]
fn what_goes_in_comes_out() -> Result<(), Error> {
    let sim = Sim::new();
    on(&sim, |device| {
        let (stream, staging) = (device.stream()?, PinnedAlloc::new(&device)?);
        let resource = CudaAsync::new(&device)?;
        for rows in [0, 1, 31, 32, 33, ROWS] {
            let names = &sold()[..rows];
            let categories = Categories::from_host(names, &staging, &stream, &resource)?;
            let back = categories.to_host(&stream)?;
            assert_eq!(back.iter().map(Option::as_deref).collect::<Vec<_>>(), names, "{rows} rows");
            let numbers = Column::from_host(&income()[..rows], &staging, &stream, &resource)?;
            assert_eq!(numbers.to_host(&stream)?, income()[..rows], "{rows} rows");
        }
        let all = Categories::from_host(&sold(), &staging, &stream, &resource)?;
        assert_eq!(all.names().to_host(&stream)?, ["pear", "fig", "plum", ""]);
        assert_eq!((all.names().count(), all.codes().rows()), (4, ROWS));

        // No name at all, and a table for none.
        let (kernels, table) = (Simulated::new(&sim), DeviceVec::uninit_in(0, &stream, &resource)?);
        let none = Categories::from_host(&[None; 33], &staging, &stream, &resource)?;
        let none = none.look_up(table.as_slice(), &kernels, &stream, &resource)?;
        assert_eq!(none.to_host(&stream)?, [None; 33]);
        assert_eq!(none.sum(&kernels, &stream, (&resource).into())?, 0.0);
        Ok(())
    })
}

#[test]
fn a_column_on_two_streams_follows_both_whatever_the_machine_runs_first() -> Result<(), Error> {
    // Every row has a name: the copy of a bitmap would put the two streams in order, whatever the kernels do.
    let rows: Vec<_> = sold().into_iter().filter(Option::is_some).collect();
    let incomes: Vec<_> = income().into_iter().filter(Option::is_some).collect();
    for seed in 0..8 {
        let sim = Sim::with_config(SimConfig::default().seed(seed));
        on(&sim, |device| {
            let (loads, computes) = two_streams(&device)?;
            let (kernels, staging) = (Simulated::new(&sim), PinnedAlloc::new(&device)?);
            let pool = Cuda::new(&device).pool(PoolConfig::default())?;
            // The kernel follows one of the two on another stream, and is followed there.
            for prices_are_loaded in [false, true] {
                let (rows_on, prices_on) =
                    if prices_are_loaded { (&computes, &loads) } else { (&loads, &computes) };
                let sold = Categories::from_host(&rows, &staging, rows_on, &pool)?;
                let prices = DeviceVec::from_slice_in(&PRICES, prices_on, &pool)?;
                let income = sold.look_up(prices.as_slice(), &kernels, &computes, &pool)?;
                let (address, words) = match prices_are_loaded {
                    true => (prices.as_device_ptr(), 2 * PRICES.len()),
                    false => (sold.codes().values().as_device_ptr(), rows.len()),
                };
                drop((sold, prices));
                // The memory has its next user, who writes what the kernel may not have read yet.
                let next = DeviceVec::filled_in(words, 7_u32, &loads, &pool)?;
                assert_eq!(next.as_device_ptr(), address);
                assert_eq!(income.sum(&kernels, &loads, (&pool).into())?, total(), "seed {seed}");
                assert_eq!(income.to_host(&computes)?, incomes, "seed {seed}");
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn any_handle_of_any_resource_will_do() -> Result<(), Error> {
    let sim = Sim::new();
    on(&sim, |device| {
        let (loads, computes) = two_streams(&device)?;
        let (kernels, staging) = (Simulated::new(&sim), PinnedAlloc::new(&device)?);
        let streams = [&loads, &computes];

        let scratch = Cuda::new(&device);
        let scratch = ResourceRef::erase(&scratch);
        let pool = Arc::new(CudaAsync::new(&device)?.pool(PoolConfig::default())?.stats());
        let pinned = Pinned::new(&device)?; // The device reads it by itself.
        let stack = "stats | limiting(1MiB) | arena | cuda".parse::<Recipe>()?.build(&device)?;
        let sums = [
            sell(&kernels, streams, &staging, &*pool, scratch)?,
            sell(&kernels, streams, &staging, Arc::clone(&pool), scratch)?,
            sell(&kernels, streams, &staging, ResourceRef::erase(&pool), scratch)?,
            sell(&kernels, streams, &staging, AnyResource::from_arc(Arc::clone(&pool)), scratch)?,
            sell(&kernels, streams, &staging, &pinned, scratch)?,
            sell(&kernels, streams, &staging, &stack, scratch)?,
        ];
        assert_eq!(sums, [total(); 6]);
        assert_eq!(pool.counts().bytes.live, 0);
        Ok(())
    })
}

#[test]
fn scratch_memory_stays_within_its_limit_and_goes_back() -> Result<(), Error> {
    let sim = Sim::new();
    on(&sim, |device| {
        let (stream, kernels) = (device.stream()?, Simulated::new(&sim));
        let (staging, resource) = (PinnedAlloc::new(&device)?, CudaAsync::new(&device)?);
        let rows = vec![Some(0.25); 33 * CHUNK_ROWS]; // 33 partial sums: 264 bytes, two units of 256.
        let column = Column::from_host(&rows, &staging, &stream, &resource)?;

        let tight = Cuda::new(&device).limiting(256);
        let error = column.sum(&kernels, &stream, (&tight).into()).unwrap_err();
        assert!(error.is_out_of_memory());
        assert_eq!((error.requested_bytes(), error.limit()), (Some(264), Some(256)));

        let enough = Cuda::new(&device).limiting(512);
        assert_eq!(column.sum(&kernels, &stream, (&enough).into())?, 0.25 * rows.len() as f64);
        assert_eq!((enough.book().peak_bytes(), enough.used_bytes(), tight.used_bytes()), (512, 0, 0));
        Ok(())
    })
}

#[test]
fn a_table_that_does_not_fit_and_a_stream_of_another_device_are_refused() -> Result<(), Error> {
    let sim = Sim::with_config(SimConfig::default().devices(2));
    on(&sim, |device| {
        let (stream, elsewhere) = (device.stream()?, sim.device(1).stream()?);
        let (kernels, staging, resource) =
            (Simulated::new(&sim), PinnedAlloc::new(&device)?, Cuda::new(&device));
        let sold = Categories::from_host(&sold(), &staging, &stream, &resource)?;
        let prices = DeviceVec::from_slice_in(&PRICES, &stream, &resource)?;

        let short = sold.look_up(prices.slice(..3)?, &kernels, &stream, &resource).unwrap_err();
        assert_eq!(short.to_string(), "length mismatch: 4 elements wanted, 3 given");
        let far = sold.look_up(prices.as_slice(), &kernels, &elsewhere, &resource).unwrap_err();
        assert!(far.is_device_mismatch(), "{far}");
        let foreign = Simulated::new(&Sim::new());
        let foreign = sold.look_up(prices.as_slice(), &foreign, &stream, &resource).unwrap_err();
        assert!(foreign.is_device_mismatch(), "{foreign}");

        let income = sold.look_up(prices.as_slice(), &kernels, &stream, &resource)?;
        assert_eq!(income.sum(&kernels, &stream, (&resource).into())?, total());
        Ok(())
    })
}

#[test]
fn whichever_allocation_fails_nothing_is_lost() -> Result<(), Error> {
    for (failing, least) in [("resource", 7), ("scratch", 1), ("staging", 5)] {
        let mut allocations = 0;
        while first_run_fails(failing, allocations + 1)? {
            allocations += 1;
        }
        assert!(allocations >= least, "{allocations} allocations of the {failing}");
    }
    Ok(())
}

/// Runs on a machine where allocation `n` of `failing` fails, if there are as many, and then once more. Returns `true` if it failed.
fn first_run_fails(failing: &str, n: usize) -> Result<bool, Error> {
    let sim = Sim::new();
    let mut failed = false;
    on(&sim, |device| {
        let (loads, computes) = two_streams(&device)?;
        let nth = |name| if name == failing { n } else { usize::MAX };
        let resource = Faulty::nth(Cuda::new(&device), nth("resource"));
        let scratch = Faulty::nth(Cuda::new(&device), nth("scratch"));
        let pinned = Faulty::nth(Pinned::new(&device)?, nth("staging"));
        let (kernels, staging) = (Simulated::new(&sim), PinnedAlloc::from_resource(pinned));
        let sell = || sell(&kernels, [&loads, &computes], &staging, &resource, (&scratch).into());

        match sell() {
            Ok(sum) => assert_eq!(sum, total()),
            Err(error) => {
                assert!(error.is_out_of_memory(), "{error}");
                assert_eq!(sell()?, total(), "after allocation {n} of the {failing}");
                failed = true;
            }
        }
        Ok(())
    })?;
    Ok(failed)
}

#[test]
fn whichever_driver_call_fails_nothing_is_lost() {
    let swept = Sweep::new().run(|sim| {
        let device = sim.device(0);
        let (loads, computes) = two_streams(&device)?;
        let (resource, scratch) = (Cuda::new(&device), CudaAsync::new(&device)?.limiting(1 << 10));
        let (kernels, staging) = (Simulated::new(sim), PinnedAlloc::new(&device)?);
        let sum = sell(&kernels, [&loads, &computes], &staging, &resource, (&scratch).into())?;
        assert_eq!(sum, total());
        device.synchronize()
    });
    assert!(swept.errors > 30, "{swept}");
}

#[test]
fn what_owns_its_resource_is_dropped_in_any_order() -> Result<(), Error> {
    // The digits of a number below 5! say which of those that are left goes next.
    for mut order in 0..120 {
        let sim = Sim::new();
        on(&sim, |device| {
            let (loads, computes) = two_streams(&device)?;
            let (kernels, staging) = (Simulated::new(&sim), PinnedAlloc::new(&device)?);
            let pool = Arc::new(Cuda::new(&device).pool(PoolConfig::default())?);
            let sold = Categories::from_host(&sold()[..40], &staging, &loads, Arc::clone(&pool))?;
            let prices = DeviceVec::from_slice_in(&PRICES, &loads, Arc::clone(&pool))?;
            let income = sold.look_up(prices.as_slice(), &kernels, &computes, Arc::clone(&pool))?;

            // The kernel may not have run yet.
            let mut owned: Vec<Box<dyn Any>> = vec![
                Box::new(pool),
                Box::new((loads, computes)),
                Box::new((staging, prices)),
                Box::new(sold),
                Box::new(income),
            ];
            while !owned.is_empty() {
                let left = owned.len();
                drop(owned.remove(order % left));
                order /= left;
            }
            Ok(())
        })?;
    }
    Ok(())
}
