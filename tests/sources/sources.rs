//! The sources, on a simulated machine: their contract, and what they do when the driver fails.

#![expect(unsafe_code, reason = "gives blocks back")]

use alluvion::driver::{Call, Code, DeviceAttribute, HandleType, RawPool};
use alluvion::error::freeing;
use alluvion::sim::{Fault, SimConfig};
use alluvion::source::{
    Cuda, CudaAsync, CudaAsyncConfig, CudaAsyncManaged, CudaAsyncView, Managed, Mapped, Null,
};
use alluvion::{
    AnyResource, Device, DeviceAccessible, Error, ErrorKind, MisuseKind, PoolConfig, Resource, ResourceExt,
    Sim,
};

use crate::source_contract;
use crate::source_contract::layout;

/// Every clause, on a machine of its own, after which nothing is out and nothing went wrong.
fn on_the_simulator(clause: fn(&Device) -> Result<(), Error>) {
    for pageable in [0, 1] {
        let config = SimConfig::default().attribute(DeviceAttribute::PageableMemoryAccess, pageable);
        let sim = Sim::with_config(config);
        clause(&sim.device(0)).unwrap();
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
        assert_eq!(sim.live().allocations(), 0, "{}", sim.live());
        assert_eq!(sim.live().pools, 0, "{}", sim.live());
        assert_eq!((sim.live().reservations, sim.live().physical), (0, 0), "{}", sim.live());
    }
}

source_contract::sources!(on_the_simulator);

#[test]
fn a_pool_with_blocks_out_is_kept() {
    let sim = Sim::new();
    source_contract::a_pool_with_blocks_out_is_kept(&sim.device(0)).unwrap();
    assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
    // The block has been freed since, so the next pool to come takes the retired one away.
    drop(CudaAsync::new(&sim.device(0)).unwrap());
    assert_eq!((sim.live().allocations(), sim.live().pools), (0, 0), "{}", sim.live());
}

fn of_two_devices<R: Resource>(make: impl Fn(&Device) -> Result<R, Error>) {
    let config = SimConfig::default().devices(2).attribute(DeviceAttribute::PageableMemoryAccess, 1);
    let sim = Sim::with_config(config);
    let (first, second) = (sim.device(0), sim.device(1));
    let resource = make(&first).unwrap();
    assert_ne!(resource.id(), make(&second).unwrap().id());
    let stream = second.stream().unwrap();
    let error = resource.allocate(layout(100), stream.as_ref()).unwrap_err();
    assert!(error.is_device_mismatch(), "{error}");
    assert_eq!(sim.live().allocations(), 0);
}

#[test]
fn a_stream_of_another_device_is_refused() {
    of_two_devices(|device| Ok(Cuda::new(device)));
    of_two_devices(CudaAsync::new);
    of_two_devices(|device| Ok(Null::new(device)));
    of_two_devices(Managed::new);
    of_two_devices(Mapped::new);
    of_two_devices(CudaAsyncManaged::new);
    #[cfg(target_os = "linux")]
    of_two_devices(alluvion::source::System::new);
}

/// Fails the n-th driver call of making a resource, for every n, and looks for what is left.
fn survives_every_failing_step<R: Resource>(make: impl Fn(&Device) -> Result<R, Error>) {
    let mut steps = 0;
    for n in 1.. {
        let sim = Sim::new();
        let device = sim.device(0);
        // What the device remembers of itself is not this constructor's.
        device.capabilities().unwrap();
        sim.inject(Fault::nth_call(n, Code::OUT_OF_MEMORY));
        let made = make(&device);
        if sim.faults_left() > 0 {
            assert!(made.is_ok());
            break;
        }
        steps = n;
        drop(made);
        // A pool is destroyed once its frees have run.
        device.synchronize().unwrap();
        let live = sim.live();
        // A free that fails leaks its block, and its pool with it; nothing else does.
        let leaked = usize::from(sim.calls()[Call::FreeAsync] > 0 && live.pooled > 0);
        assert!(live.pools == leaked && live.allocations() == leaked, "failing call {n} left {live}");
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
    }
    assert!(steps > 0, "the constructor called nobody");
}

#[test]
fn construction_leaves_nothing_behind() {
    let config = CudaAsyncConfig::default()
        .initial_bytes(4 << 20)
        .release_threshold_bytes(8 << 20)
        .reuse_follow_event_dependencies(false)
        .reuse_allow_opportunistic(false)
        .reuse_allow_internal_dependencies(false);
    survives_every_failing_step(|device| CudaAsync::with_config(device, config.clone()));
    survives_every_failing_step(CudaAsync::new);
    survives_every_failing_step(CudaAsyncManaged::new);
    survives_every_failing_step(Managed::new);
}

#[test]
fn each_step_of_making_a_pool_says_which_call_failed() {
    let config = CudaAsyncConfig::default().initial_bytes(4 << 20).reuse_allow_opportunistic(true);
    for (call, n) in [
        (Call::PoolCreate, 1),
        (Call::PoolSetAttribute, 1),
        (Call::PoolSetAttribute, 2),
        (Call::AllocateAsync, 1),
        (Call::StreamSynchronize, 1),
    ] {
        let sim = Sim::new();
        sim.inject(Fault::nth(call, n, Code::NOT_PERMITTED));
        let error = CudaAsync::with_config(&sim.device(0), config.clone()).unwrap_err();
        assert_eq!((error.call(), error.code()), (Some(call), Some(Code::NOT_PERMITTED)), "{error}");
        sim.device(0).synchronize().unwrap();
        assert_eq!((sim.live().pools, sim.live().pooled), (0, 0), "{call:?} {n}");
    }
}

/// Fails what `call` names, and looks whether the resource says so, loses nothing, and works again.
fn survives_a_failing_allocation<R: DeviceAccessible>(resource: &R, sim: &Sim, call: Call) {
    let stream = resource.device().stream().unwrap();
    let before = sim.live();
    for code in [Code::OUT_OF_MEMORY, Code::NOT_PERMITTED] {
        sim.inject(Fault::nth(call, 1, code));
        let error = resource.allocate(layout(5000), stream.as_ref()).unwrap_err();
        assert_eq!((error.code(), error.is_out_of_memory()), (Some(code), code == Code::OUT_OF_MEMORY));
        assert_eq!(sim.faults_left(), 0);
        assert_eq!(sim.live(), before);
    }
    let block = resource.allocate(layout(5000), stream.as_ref()).unwrap();
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate(block, layout(5000), stream.as_ref()) };
    assert_eq!(sim.live(), before);
}

#[test]
fn a_failing_allocation_loses_nothing() {
    let sim = Sim::new();
    let device = sim.device(0);
    for call in [Call::AllocateDevice, Call::CaptureMode] {
        survives_a_failing_allocation(&Cuda::new(&device), &sim, call);
    }
    for call in [Call::AllocateManaged, Call::CaptureMode] {
        survives_a_failing_allocation(&Managed::new(&device).unwrap(), &sim, call);
    }
    survives_a_failing_allocation(&CudaAsync::new(&device).unwrap(), &sim, Call::AllocateAsync);
    survives_a_failing_allocation(&CudaAsyncManaged::new(&device).unwrap(), &sim, Call::AllocateAsync);
}

#[test]
fn a_synchronous_allocation_whose_wait_fails_gives_its_block_back() {
    let sim = Sim::new();
    let resource = CudaAsync::new(&sim.device(0)).unwrap();
    sim.inject(Fault::nth(Call::StreamSynchronize, 1, Code::NOT_PERMITTED));
    assert_eq!(resource.allocate_sync(layout(100)).unwrap_err().code(), Some(Code::NOT_PERMITTED));
    assert_eq!(sim.live().pooled, 0);
}

#[test]
fn a_lost_context_leaks_and_says_so() {
    let sim = Sim::new();
    let device = sim.device(0);
    let (pool, plain, managed) =
        (CudaAsync::new(&device).unwrap(), Cuda::new(&device), Managed::new(&device).unwrap());
    let stream = device.stream().unwrap();
    let blocks = [
        pool.allocate(layout(100), stream.as_ref()).unwrap(),
        plain.allocate(layout(100), stream.as_ref()).unwrap(),
        managed.allocate(layout(100), stream.as_ref()).unwrap(),
    ];
    sim.poison(0, Code::ILLEGAL_ADDRESS);
    assert!(pool.allocate(layout(100), stream.as_ref()).unwrap_err().is_context_lost());
    assert!(pool.trim(0).unwrap_err().is_context_lost());
    assert!(plain.allocate_sync(layout(100)).unwrap_err().is_context_lost());
    assert!(managed.allocate_sync(layout(100)).unwrap_err().is_context_lost());
    // SAFETY: the block came from this resource with this layout; the work that used it is gone with its context.
    unsafe { pool.deallocate(blocks[0], layout(100), stream.as_ref()) };
    // SAFETY: as above.
    unsafe { plain.deallocate(blocks[1], layout(100), stream.as_ref()) };
    // SAFETY: as above.
    unsafe { managed.deallocate_sync(blocks[2], layout(100)) };
    assert_eq!(sim.live().allocations(), 3);
    drop(pool);
    assert!(CudaAsync::new(&device).unwrap_err().is_context_lost());
}

fn with(attributes: &[(DeviceAttribute, i32)], version: u32) -> Sim {
    let config = SimConfig::default().version(version);
    Sim::with_config(
        attributes.iter().fold(config, |config, &(attribute, value)| config.attribute(attribute, value)),
    )
}

#[test]
fn what_a_device_lacks_is_refused_by_name() {
    let refused = |error: Error, why: &str, instead: &str| {
        assert!(error.is_unsupported(), "{error}");
        let detail = error.unsupported_detail().unwrap().clone();
        assert!(detail.why.contains(why) && detail.instead.contains(instead), "{error}");
    };
    let sim = with(&[(DeviceAttribute::MemoryPools, 0)], 13_000);
    let device = sim.device(0);
    refused(CudaAsync::new(&device).unwrap_err(), "has none", "`Cuda`");
    // SAFETY: the device has no pools, so that the handle is not used.
    let error = unsafe { CudaAsyncView::from_raw(&device, RawPool(1)) }.unwrap_err();
    refused(error, "has none", "`Cuda`");
    refused(CudaAsyncManaged::new(&device).unwrap_err(), "no memory pools", "`Managed`");
    refused(CudaAsyncManaged::new(&with(&[], 12_090).device(0)).unwrap_err(), "13.0", "`Managed`");

    let sim = with(&[(DeviceAttribute::ManagedMemory, 0)], 13_000);
    refused(Managed::new(&sim.device(0)).unwrap_err(), "no managed memory", "pinned");
    let sim = with(&[(DeviceAttribute::ConcurrentManagedAccess, 0)], 13_000);
    refused(Managed::new(&sim.device(0)).unwrap_err(), "concurrent managed access", "pinned");
    refused(CudaAsyncManaged::new(&sim.device(0)).unwrap_err(), "concurrent managed access", "pinned");

    let sim = with(&[(DeviceAttribute::PoolHandleTypes, 8)], 13_000);
    let wanted = HandleType::FABRIC.with(HandleType::POSIX_FILE_DESCRIPTOR);
    let config = CudaAsyncConfig::default().handle_types(wanted);
    let error = CudaAsync::with_config(&sim.device(0), config).unwrap_err();
    assert!(error.unsupported_detail().unwrap().what.contains("POSIX"), "{error}");
    let config = CudaAsyncConfig::default().handle_types(HandleType::FABRIC);
    assert!(CudaAsync::with_config(&sim.device(0), config).is_ok());
}

#[test]
fn one_device_without_concurrent_access_keeps_managed_memory_from_the_host() {
    let config = SimConfig::default().devices(2);
    let mixed = config.clone().attribute_of_device(1, DeviceAttribute::ConcurrentManagedAccess, 0);
    let sim = Sim::with_config(mixed.clone());
    for (ordinal, word) in [(0, "another device"), (1, "the device lacks")] {
        let device = sim.device(ordinal);
        for error in [Managed::new(&device).unwrap_err(), CudaAsyncManaged::new(&device).unwrap_err()] {
            assert!(error.unsupported_detail().unwrap().why.starts_with(word), "{error}");
        }
    }
    // A device that has no managed memory at all is in nobody's way.
    let sim = Sim::with_config(mixed.attribute_of_device(1, DeviceAttribute::ManagedMemory, 0));
    assert!(Managed::new(&sim.device(0)).is_ok());
    assert!(Managed::new(&sim.device(1)).is_err());
}

#[test]
fn what_a_pool_holds_unused_counts_as_free() {
    let sim = Sim::new();
    let device = sim.device(0);
    let config = CudaAsyncConfig::default().initial_bytes(64 << 20);
    let resource = CudaAsync::with_config(&device, config).unwrap();
    let block = resource.allocate_sync(layout(1 << 20)).unwrap();
    let (of_pool, of_device) = (resource.memory_info().unwrap(), device.memory_info().unwrap());
    assert_eq!(of_pool.free_bytes, of_device.free_bytes + (63 << 20));
    assert_eq!(of_pool.total_bytes, of_device.total_bytes);
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate_sync(block, layout(1 << 20)) };
}

#[test]
fn a_pool_of_the_driver_holds_no_more_than_its_maximum() {
    let sim = Sim::new();
    let device = sim.device(0);
    // A whole page of the driver's pool: it rounds less up.
    let config = CudaAsyncConfig::default().maximum_bytes(32 << 20);
    let resource = CudaAsync::with_config(&device, config.clone()).unwrap();
    let free = |resource: &CudaAsync| resource.memory_info().unwrap();
    assert_eq!((free(&resource).free_bytes, free(&resource).total_bytes), (32 << 20, 32 << 20));
    let block = resource.allocate_sync(layout(24 << 20)).unwrap();
    assert_eq!(free(&resource).free_bytes, 8 << 20);
    let error = resource.allocate_sync(layout(12 << 20)).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    assert!(resource.reserved_high_bytes().unwrap() <= 32 << 20);
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate_sync(block, layout(24 << 20)) };
    let old = Sim::with_config(SimConfig::default().version(12_010));
    let error = CudaAsync::with_config(&old.device(0), config).unwrap_err();
    assert_eq!(error.code(), Some(Code::NOT_SUPPORTED), "{error}");
    assert!(CudaAsync::new(&old.device(0)).is_ok());
}

#[test]
fn a_pool_that_is_gone_is_noticed() {
    let sim = Sim::new();
    let device = sim.device(0);
    let stream = device.stream().unwrap();
    let owner = CudaAsync::new(&device).unwrap();
    let raw = owner.raw_pool();
    // SAFETY: a promise that is broken on purpose below, where the machine notices.
    let view = unsafe { CudaAsyncView::from_raw(&device, raw) }.unwrap();
    drop(owner);
    let error = view.allocate(layout(100), stream.as_ref()).unwrap_err();
    assert_eq!((error.kind(), error.call()), (ErrorKind::Driver, Some(Call::AllocateAsync)), "{error}");
    // SAFETY: as above.
    let error = unsafe { CudaAsyncView::from_raw(&device, raw) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("knows no such pool"), "{error}");
    assert!(!sim.take_hazards().is_empty(), "the machine saw it, too");
}

/// Its owner destroys it with a block out: the block is freed as always, and the view does not ask the driver again.
#[test]
fn a_view_may_outlive_its_pool() {
    use alluvion::driver::PoolProperties;

    let sim = Sim::new();
    let device = sim.device(0);
    let stream = device.stream().unwrap();
    let raw = device.driver().pool_create(0, PoolProperties::default()).unwrap();
    // SAFETY: it is a pool of this device, and is not destroyed during a call.
    let view = unsafe { CudaAsyncView::from_raw_until_destroyed(&device, raw) }.unwrap();
    let (layout, large) = (layout(1000), layout(64 << 20));
    let block = view.allocate(layout, stream.as_ref()).unwrap();
    let (clone, pool) = (view.clone(), view.clone().pool(PoolConfig::default()).unwrap());
    let of_pool = pool.allocate(layout, stream.as_ref()).unwrap();
    // SAFETY: what is out stays valid; the simulated machine says how drivers may take it.
    unsafe { device.driver().pool_destroy(0, raw) }.unwrap();
    assert_eq!(sim.take_hazards().len(), 1, "with memory out");
    for failed in [
        view.allocate(layout, stream.as_ref()).map(drop),
        clone.allocate_sync(layout).map(drop),
        view.trim(0).map(drop),
        view.memory_info().map(drop),
        view.used_bytes().map(drop),
        pool.allocate(large, stream.as_ref()).map(drop),
    ] {
        let error = failed.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Driver, Some(Code::INVALID_VALUE)), "{error}");
        assert!(error.to_string().contains("has destroyed it"), "{error}");
    }
    // The first request and the question why: the driver is told of a dead handle twice, and never again.
    assert_eq!(sim.take_hazards().len(), 2);
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { view.deallocate(block, layout, stream.as_ref()) };
    // SAFETY: as above.
    unsafe { pool.deallocate(of_pool, layout, stream.as_ref()) };
    drop(pool);
    stream.synchronize().unwrap();
    let live = sim.live();
    assert_eq!((live.pools, live.allocations()), (0, 0));
    assert!(sim.take_hazards().is_empty());
    // A refusal for another reason is no end of the pool.
    let raw = device.driver().pool_create(0, PoolProperties::default()).unwrap();
    // SAFETY: as above.
    let view = unsafe { CudaAsyncView::from_raw_until_destroyed(&device, raw) }.unwrap();
    sim.inject(Fault::nth(Call::AllocateAsync, 1, Code::INVALID_VALUE));
    let error = view.allocate(layout, stream.as_ref()).unwrap_err();
    assert!(!error.to_string().contains("has destroyed it"), "{error}");
    let block = view.allocate(layout, stream.as_ref()).unwrap();
    // SAFETY: as above.
    unsafe { view.deallocate(block, layout, stream.as_ref()) };
    stream.synchronize().unwrap();
    // SAFETY: nothing of the pool is out.
    unsafe { device.driver().pool_destroy(0, raw) }.unwrap();
}

#[test]
fn reading_a_pool_that_fails_keeps_the_drivers_code() {
    let sim = Sim::new();
    let device = sim.device(0);
    let owner = CudaAsync::new(&device).unwrap();
    sim.inject(Fault::nth(Call::PoolAttribute, 1, Code::NOT_PERMITTED));
    // SAFETY: the pool is live: `owner` owns it.
    let error = unsafe { CudaAsyncView::from_raw(&device, owner.raw_pool()) }.unwrap_err();
    assert_eq!(error.code(), Some(Code::NOT_PERMITTED));
}

#[cfg(target_os = "linux")]
mod system {
    use std::time::Duration;

    use alluvion::sim::Kernel;
    use alluvion::source::{System, SystemConfig};

    use super::*;

    fn machine() -> Sim {
        with(&[(DeviceAttribute::PageableMemoryAccess, 1)], 13_000)
    }

    /// Bytes of address space that this process has.
    fn mapped_bytes() -> usize {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = text.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        size.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    #[test]
    fn without_pageable_access_there_is_no_system_memory() {
        let sim = Sim::new();
        let error = System::new(&sim.device(0)).unwrap_err();
        assert!(error.unsupported_detail().unwrap().instead.contains("`Managed`"), "{error}");
    }

    #[test]
    fn advice_that_fails_leaks_nothing() {
        let sim = machine();
        let device = sim.device(0);
        let resource =
            System::with_config(&device, SystemConfig::default().headroom_bytes(255 << 20)).unwrap();
        let before = mapped_bytes();
        // 64 blocks of 1 GiB: a leak stands out from what other tests map.
        for n in 0..64 {
            // Both halves of the split, and the question before them.
            let fault = match n % 3 {
                0 => Fault::nth(Call::Advise, 1, Code::NOT_PERMITTED),
                1 => Fault::nth(Call::Advise, 2, Code::NOT_PERMITTED),
                _ => Fault::nth(Call::MemoryInfo, 1, Code::NOT_PERMITTED),
            };
            sim.inject(fault);
            let error = resource.allocate_sync(layout(1 << 30)).unwrap_err();
            assert_eq!(error.code(), Some(Code::NOT_PERMITTED), "{error}");
            assert_eq!(sim.faults_left(), 0);
        }
        assert!(mapped_bytes() < before + (16 << 30), "{} more bytes", mapped_bytes() - before);
    }

    #[test]
    fn headroom_splits_a_block_in_two() {
        let sim = machine();
        let device = sim.device(0);
        let advised = |headroom: usize| {
            let config = SystemConfig::default().headroom_bytes(headroom);
            let resource = System::with_config(&device, config).unwrap();
            let before = sim.calls()[Call::Advise];
            let block = resource.allocate_sync(layout(2 << 20)).unwrap();
            let calls = sim.calls()[Call::Advise] - before;
            // SAFETY: the block came from this resource with this layout, and nothing uses it.
            unsafe { resource.deallocate_sync(block, layout(2 << 20)) };
            calls
        };
        let free = device.memory_info().unwrap().free_bytes;
        assert_eq!(advised(0), 1, "all of it on the device");
        assert_eq!(advised(usize::MAX), 1, "all of it on the host");
        assert_eq!(advised(free - (1 << 20)), 2, "half and half");
    }

    #[test]
    fn a_block_that_the_device_still_writes_is_not_unmapped() {
        let sim = machine();
        let device = sim.device(0);
        let stream = device.stream().unwrap();
        let resource = System::new(&device).unwrap();
        for _ in 0..8 {
            let block = resource.allocate(layout(8192), stream.as_ref()).unwrap();
            let address = block.address();
            let kernel = Kernel::new("late").writes(address, 8192).run(move |memory| {
                std::thread::sleep(Duration::from_millis(2));
                memory.write(address, &[1; 8192]);
            });
            // SAFETY: the stream is live; the block is not freed before the kernel has run, which is what is tested: the
            // write would fault if it were unmapped.
            unsafe { sim.launch(0, stream.as_ref().raw(), kernel) }.unwrap();
            // SAFETY: the block came from this resource with this layout, and the kernel is ordered before.
            unsafe { resource.deallocate(block, layout(8192), stream.as_ref()) };
            assert!(stream.is_idle().unwrap(), "deallocating waited");
        }
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
    }

    #[test]
    fn a_wait_that_fails_keeps_the_block() {
        let sim = machine();
        let device = sim.device(0);
        let stream = device.stream().unwrap();
        let resource = System::new(&device).unwrap();
        for fault in [
            Fault::nth(Call::StreamCaptureStatus, 1, Code::CAPTURE_IMPLICIT),
            Fault::nth(Call::StreamSynchronize, 1, Code::NOT_PERMITTED),
        ] {
            let block = resource.allocate_sync(layout(8192)).unwrap();
            sim.inject(fault);
            // SAFETY: the block came from this resource with this layout, and nothing uses it.
            unsafe { resource.deallocate(block, layout(8192), stream.as_ref()) };
            assert_eq!(sim.faults_left(), 0);
            let host = core::ptr::with_exposed_provenance_mut::<u8>(block.address() as usize);
            // SAFETY: the block was leaked, and so is still the host's to write. That is what is tested: else it faults.
            unsafe { host.write_bytes(1, 8192) };
            // SAFETY: it was not freed, so that it may be now.
            unsafe { resource.deallocate_sync(block, layout(8192)) };
        }
    }

    #[test]
    fn fresh_blocks_hold_zeros_and_large_alignments() {
        let sim = machine();
        let resource = System::new(&sim.device(0)).unwrap();
        for align in [1, 4096, 64 << 10, 2 << 20] {
            let layout = alluvion::Layout::new(10_000, align).unwrap();
            let block = resource.allocate_sync(layout).unwrap();
            assert!(block.is_aligned_to(align));
            let host = core::ptr::with_exposed_provenance::<u8>(block.address() as usize);
            // SAFETY: the block is the host's, as long, and nothing uses it.
            assert!(unsafe { core::slice::from_raw_parts(host, 10_000) }.iter().all(|&byte| byte == 0));
            // SAFETY: the block came from this resource with this layout, and nothing uses it.
            unsafe { resource.deallocate_sync(block, layout) };
        }
    }
}

mod capture {
    use alluvion::driver::{CaptureMode, StreamFlags};
    use alluvion::sim::{SimDriver, SimGraph};
    use alluvion::{Stream, StreamRef};

    use super::*;

    fn begin(sim: &SimDriver, stream: &Stream) {
        sim.begin_capture(0, stream.as_ref().raw(), CaptureMode::Global).unwrap();
    }

    fn end(sim: &SimDriver, stream: &Stream) -> SimGraph {
        sim.end_capture(0, stream.as_ref().raw()).unwrap()
    }

    fn everything<R: Resource>(resource: &R, stream: StreamRef<'_>) {
        let block = resource.allocate(layout(5000), stream).unwrap();
        // SAFETY: the block came from this resource with this layout, and nothing uses it.
        unsafe { resource.deallocate(block, layout(5000), stream) };
        let block = resource.allocate_sync(layout(5000)).unwrap();
        // SAFETY: as above.
        unsafe { resource.deallocate_sync(block, layout(5000)) };
        resource.trim(0).unwrap();
        resource.memory_info().unwrap();
    }

    fn use_every_source(device: &Device) {
        let stream = device.stream().unwrap();
        let config = CudaAsyncConfig::default().initial_bytes(1 << 20).reuse_allow_opportunistic(true);
        let pool = CudaAsync::with_config(device, config).unwrap();
        everything(&pool, stream.as_ref());
        everything(&pool.view(), stream.as_ref());
        // SAFETY: the pool is live: `pool` owns it.
        everything(&unsafe { CudaAsyncView::from_raw(device, pool.raw_pool()) }.unwrap(), stream.as_ref());
        everything(&CudaAsyncManaged::new(device).unwrap(), stream.as_ref());
        everything(&Cuda::new(device), stream.as_ref());
        everything(&Managed::new(device).unwrap(), stream.as_ref());
        #[cfg(target_os = "linux")]
        {
            let config = alluvion::source::SystemConfig::default().headroom_bytes(1 << 20);
            everything(&alluvion::source::System::with_config(device, config).unwrap(), stream.as_ref());
        }
    }

    #[test]
    fn a_capture_survives_every_source_on_a_stream_outside_of_it() {
        let sim = with(&[(DeviceAttribute::PageableMemoryAccess, 1)], 13_000);
        let device = sim.device(0);
        let captured = device.stream().unwrap();
        begin(&sim, &captured);
        std::thread::scope(|scope| scope.spawn(|| use_every_source(&device)).join().unwrap());
        use_every_source(&device);
        drop(end(&sim, &captured));
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
        assert_eq!(sim.live().allocations(), 0, "{}", sim.live());
    }

    #[test]
    fn a_graph_allocates_from_a_pool_and_frees_there() {
        let sim = Sim::new();
        let device = sim.device(0);
        let (stream, resource) = (device.stream().unwrap(), CudaAsync::new(&device).unwrap());
        begin(&sim, &stream);
        let block = resource.allocate(layout(5000), stream.as_ref()).unwrap();
        // SAFETY: the block came from this resource with this layout, and nothing uses it.
        unsafe { resource.deallocate(block, layout(5000), stream.as_ref()) };
        let graph = end(&sim, &stream);
        for _ in 0..2 {
            // SAFETY: the graph allocates and frees, and uses nothing else.
            unsafe { sim.launch_graph(0, stream.as_ref().raw(), &graph) }.unwrap();
        }
        stream.synchronize().unwrap();
        drop((graph, resource));
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
        assert_eq!((sim.live().allocations(), sim.live().pools), (0, 0), "{}", sim.live());
    }

    #[test]
    fn a_block_that_the_legacy_stream_cannot_take_beside_a_capture_is_freed_later() {
        let sim = Sim::new();
        let device = sim.device(0);
        let blocking = device.stream_with(StreamFlags { blocking: true, priority: 0 }).unwrap();
        let (pool, freed_on) = (CudaAsync::new(&device).unwrap(), device.default_stream());
        let block = pool.allocate(layout(5000), freed_on.as_ref()).unwrap();
        begin(&sim, &blocking);
        // SAFETY: the block came from this pool with this layout, and nothing uses it.
        unsafe { pool.deallocate(block, layout(5000), freed_on.as_ref()) };
        drop(end(&sim, &blocking));
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
        assert_eq!(pool.used_bytes().unwrap(), 0);
    }

    /// Frees a block where waiting would break a capture, and looks that it is kept in place of that.
    #[cfg(target_os = "linux")]
    fn system_keeps_its_block(sim: &Sim, captured: &Stream, freed_on: &Stream) {
        let resource = alluvion::source::System::new(&sim.device(0)).unwrap();
        let block = resource.allocate_sync(layout(8192)).unwrap();
        begin(sim, captured);
        // SAFETY: the block came from this resource with this layout, and nothing uses it.
        unsafe { resource.deallocate(block, layout(8192), freed_on.as_ref()) };
        drop(end(sim, captured));
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
        let host = core::ptr::with_exposed_provenance_mut::<u8>(block.address() as usize);
        // SAFETY: the block was leaked, and so is still the host's to write. That is what is tested: else it faults.
        unsafe { host.write_bytes(1, 8192) };
        // SAFETY: it was not freed, so that it may be now.
        unsafe { resource.deallocate_sync(block, layout(8192)) };
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn system_memory_is_kept_in_place_of_breaking_a_capture() {
        let sim = with(&[(DeviceAttribute::PageableMemoryAccess, 1)], 13_000);
        let device = sim.device(0);
        let stream = device.stream().unwrap();
        system_keeps_its_block(&sim, &stream, &stream);
        let blocking = device.stream_with(StreamFlags { blocking: true, priority: 0 }).unwrap();
        system_keeps_its_block(&sim, &blocking, &device.default_stream());
    }
}

/// Driver 580 does not survive a pool of managed memory that cannot grow for want of room on the device.
#[test]
fn a_pool_of_managed_memory_looks_for_room_before_it_grows() {
    let sim = Sim::new();
    let (device, stream) = (sim.device(0), sim.device(0).stream().unwrap());
    let (cuda, managed) = (Cuda::new(&device), CudaAsyncManaged::new(&device).unwrap());
    let wanted = layout(1 << 20);
    let first = managed.allocate(wanted, stream.as_ref()).unwrap();
    let mut all = Vec::new();
    for bytes in [1 << 30, 16 << 20, 2 << 20] {
        while let Ok(block) = cuda.allocate_sync(layout(bytes)) {
            all.push((block, layout(bytes)));
        }
    }
    let error = managed.allocate(layout(64 << 20), stream.as_ref()).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    assert_eq!(error.requested_bytes(), Some(64 << 20));
    for (block, layout) in all {
        // SAFETY: the block came from the resource with this layout, and nothing uses it.
        unsafe { cuda.deallocate_sync(block, layout) };
    }
    let second = managed.allocate(layout(64 << 20), stream.as_ref()).unwrap();
    // SAFETY: as above.
    unsafe { managed.deallocate(second, layout(64 << 20), stream.as_ref()) };
    // SAFETY: as above.
    unsafe { managed.deallocate(first, wanted, stream.as_ref()) };
    assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
    assert_eq!(sim.live().physical, 0);
}

/// The driver refuses it, and whoever frees is told.
#[test]
fn a_second_free_is_heard_of() {
    let sim = Sim::new();
    let device = sim.device(0);
    let stream = device.stream().unwrap();
    let sources = [
        AnyResource::new(Cuda::new(&device)),
        AnyResource::new(Managed::new(&device).unwrap()),
        AnyResource::new(CudaAsync::new(&device).unwrap()),
    ];
    for source in sources {
        let block = source.allocate(layout(1000), stream.as_ref()).unwrap();
        // SAFETY: nothing uses the block.
        freeing(|| unsafe { source.deallocate(block, layout(1000), stream.as_ref()) }).unwrap();
        // SAFETY: the block is free, which a simulated driver refuses.
        let again = freeing(|| unsafe { source.deallocate(block, layout(1000), stream.as_ref()) });
        let error = again.expect_err("it is free");
        assert_eq!(error.misuse().map(|misuse| misuse.what), Some(MisuseKind::NotOut), "{source:?}: {error}");
        assert_eq!(sim.take_hazards().len(), 1, "{source:?}");
    }
}
