//! `Fallback`: every block goes back to where it came from, whatever thread frees it and whoever has the address next.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use alluvion::adaptor::{Allowance, Fallback};
use alluvion::driver::Code;
use alluvion::source::{Cuda, CudaAsync, Managed, Pinned};
use alluvion::testing::{Bench, Delayed, Faulty, Shadow, Sweep};
use alluvion::{
    AnyResource, DeviceVec, Error, HostAccessible, Layout, PoolConfig, Resource, ResourceExt, Sim,
};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

#[test]
fn the_second_serves_what_the_first_cannot() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    let (first, second) = (Shadow::new(Cuda::new(&device)), Shadow::new(Pinned::new(&device).unwrap()));
    let resource = (&first).limiting(4 * MIB).fallback((&second).limiting(2 * MIB)).unwrap();
    let blocks: Vec<_> = (0..6).map(|_| Held::of(&resource, MIB, stream.as_ref())).collect();
    let spill = resource.find::<Fallback>().expect("its book is found");
    assert_eq!((spill.live_blocks(), spill.live_bytes(), spill.served()), (2, 2 * MIB, 2));
    let described = "Fallback(2 MiB in Limiting(2 MiB) > Shadow(2 live) > Pinned(gpu 0)) > Limiting(4 MiB) > Shadow(4 live) > \
                     Cuda(gpu 0)";
    assert_eq!(resource.describe().to_string(), described);
    let error = resource.allocate(layout_of(MIB), stream.as_ref()).unwrap_err();
    assert_eq!((error.limit(), spill.failed()), (Some(4 * MIB), 1), "the error is that of the first");
    for (at, block) in blocks.into_iter().enumerate() {
        block.fill(at as u32, stream.as_ref());
        block.check(at as u32, stream.as_ref());
        if at % 2 == 0 { block.free(stream.as_ref()) } else { block.free_sync() }
    }
    assert_eq!((spill.live_blocks(), spill.live_bytes()), (0, 0));
    assert_eq!([resource.upstream().used_bytes(), resource.second().used_bytes()], [0, 0]);
    first.assert_clean();
    second.assert_clean();
    bench.check();
}

#[test]
fn other_errors_pass_and_bad_requests_reach_nobody() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let first = Cuda::new(&bench.device()).limiting(MIB);
    let resource = first.fallback(Faulty::nth(Managed::new(&bench.device()).unwrap(), 1)).unwrap();
    let there = bench.second_device().unwrap().stream().unwrap();
    assert!(resource.allocate(layout_of(256), there.as_ref()).unwrap_err().is_device_mismatch());
    assert!(resource.allocate(layout_of(2 * MIB), there.as_ref()).unwrap_err().is_device_mismatch());
    let coarse = Layout::new(1, 2 * resource.max_align()).unwrap();
    assert!(resource.allocate(coarse, stream.as_ref()).unwrap_err().is_alignment());
    assert!(resource.allocate_sync(coarse).unwrap_err().is_alignment());
    assert_eq!(resource.second().asked(), 0);
    let nothing = resource.allocate(layout_of(0), stream.as_ref()).unwrap();
    assert_eq!((nothing, resource.book().served()), (layout_of(0).dangling(), 0));
    Held::adopt(&resource, nothing, layout_of(0)).free(stream.as_ref());
    bench.check();
}

#[test]
fn two_of_two_devices_are_refused() {
    let bench = Bench::sim();
    let (here, there) = (Cuda::new(&bench.device()), Cuda::new(&bench.second_device().unwrap()));
    assert!(here.fallback(there).unwrap_err().is_device_mismatch());
}

#[test]
fn alignments_are_those_that_both_honour() {
    let bench = Bench::sim();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default()).unwrap();
    let coarse = pool.max_align();
    let cuda = Cuda::new(&bench.device());
    assert!(cuda.max_align() < coarse);
    assert_eq!((&pool).fallback(&cuda).unwrap().max_align(), cuda.max_align());
    assert_eq!((&cuda).fallback(&pool).unwrap().max_align(), cuda.max_align());
    assert_eq!((&pool).fallback(&pool).unwrap().max_align(), coarse);
}

#[test]
fn both_are_trimmed_and_the_memory_is_that_of_the_larger() {
    let bench = Bench::sim();
    let device = bench.device();
    let pool = |bytes| Cuda::new(&device).pool(PoolConfig::default().initial(bytes)).unwrap();
    let resource = pool(MIB).limiting(8 * MIB).fallback(pool(4 * MIB).limiting(6 * MIB)).unwrap();
    let stream = bench.stream();
    let block = Held::of(&resource, 3 * MIB, stream.as_ref());
    let memory = resource.memory_info().unwrap();
    assert_eq!((memory.free_bytes, memory.total_bytes), (6 * MIB, 8 * MIB));
    block.free_sync();
    assert_eq!(resource.trim(usize::MAX).unwrap(), 0);
    let kept = resource.upstream().upstream().pool_size() + resource.second().upstream().pool_size();
    assert_eq!(resource.trim(0).unwrap(), kept);
    bench.check();
}

/// Both are the same machine's memory, so that an address that one has freed is soon the other's.
#[test]
fn an_address_changes_sides_and_each_block_goes_home() {
    const THREADS: usize = 4;
    let bench = Bench::sim();
    let device = bench.device();
    let allowance = Allowance::new("first", 8 << 10);
    let dawdling = || Delayed::new(Cuda::new(&device), Duration::ZERO);
    let (first, second) = (Shadow::new(dawdling()), Shadow::new(dawdling()));
    let resource = (&first).budget(allowance.clone()).fallback(&second).unwrap();
    let together = Barrier::new(THREADS);
    thread::scope(|scope| {
        for me in 0..THREADS {
            let (resource, device, together) = (&resource, &device, &together);
            scope.spawn(move || {
                let stream = device.stream().expect("a stream can be made");
                together.wait();
                let mut kept = Vec::new();
                for round in 0..1500_usize {
                    kept.push(Held::of(resource, 1 + (round * 31 + me * 977) % 4096, stream.as_ref()));
                    if kept.len() > 3 {
                        kept.swap_remove(round % 4).free(stream.as_ref());
                    }
                }
                kept.into_iter().for_each(|block| block.free(stream.as_ref()));
            });
        }
    });
    assert!(resource.book().served() > 100, "the first has room for two to four of twelve");
    assert_eq!(
        (resource.book().live_blocks(), resource.book().live_bytes(), allowance.used_bytes()),
        (0, 0, 0)
    );
    // Each side got back what it gave, and nothing else.
    first.assert_clean();
    second.assert_clean();
    bench.check();
}

#[test]
fn a_block_may_be_freed_on_another_thread() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let first = Cuda::new(&bench.device()).limiting(0);
    let resource = AnyResource::new(first.fallback(Managed::new(&bench.device()).unwrap()).unwrap());
    for value in 0..50_u32 {
        let vector = DeviceVec::filled_in(1000, value, stream.as_ref(), resource.clone()).unwrap();
        thread::scope(|scope| scope.spawn(move || drop(vector)).join().unwrap());
    }
    let spill = resource.find::<Fallback>().unwrap();
    assert_eq!((spill.live_blocks(), spill.served()), (0, 50));
    bench.check();
}

#[test]
fn three_in_a_row() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    let resource = CudaAsync::new(&device).unwrap().limiting(MIB);
    let resource = resource.fallback(Managed::new(&device).unwrap().limiting(MIB)).unwrap();
    let resource = resource.fallback(Pinned::new(&device).unwrap().limiting(MIB)).unwrap();
    let blocks: Vec<_> = (0..3).map(|_| Held::of(&resource, MIB, stream.as_ref())).collect();
    assert_eq!([resource.book().live_blocks(), resource.upstream().book().live_blocks()], [1, 1]);
    assert!(resource.allocate(layout_of(1), stream.as_ref()).is_err());
    blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
    assert_eq!([resource.book().live_blocks(), resource.upstream().book().live_blocks()], [0, 0]);
    bench.check();
}

#[test]
fn a_call_that_fails_loses_no_block() {
    let swept = Sweep::new().codes(&[Code::OUT_OF_MEMORY, Code::NOT_SUPPORTED, Code::ILLEGAL_ADDRESS]).run(
        |sim: &Sim| -> Result<(), Error> {
            let (device, stream) = (sim.device(0), sim.device(0).stream()?);
            // Has the machine make what it keeps: a stream of its own.
            drop(Cuda::new(&device).pool(PoolConfig::default().initial(256))?);
            let first = Cuda::new(&device).limiting(2 * MIB);
            let second = Cuda::new(&device).pool(PoolConfig::default())?.limiting(4 * MIB);
            let resource = first.fallback(second)?;
            let outcome = use_both(&resource, &stream);
            assert_eq!((resource.book().live_blocks(), resource.second().used_bytes()), (0, 0));
            outcome.and(stream.synchronize())
        },
    );
    assert!(swept.errors > 0, "{swept}");
}

fn use_both<U: Resource, F: Resource>(
    resource: &Fallback<U, F>,
    stream: &alluvion::Stream,
) -> Result<(), Error> {
    let first = Held::allocate(resource, layout_of(2 * MIB), stream.as_ref())?;
    let second = Held::allocate(resource, layout_of(MIB), stream.as_ref());
    let third = Held::allocate_sync(resource, layout_of(MIB));
    first.free(stream.as_ref());
    let (second, third) = (second.map(|block| block.free(stream.as_ref())), third.map(Held::free_sync));
    second.and(third)
}

/// Access is that of both: see tests/ui/access/fallback_to_device_memory_is_not_host_memory.rs for what is none.
#[test]
fn memory_that_both_share_with_the_host_is_the_hosts() {
    fn of_the_host<R: HostAccessible>(_: &R) {}
    let bench = Bench::sim();
    let device = bench.device();
    of_the_host(&Pinned::new(&device).unwrap().fallback(Managed::new(&device).unwrap()).unwrap());
}
