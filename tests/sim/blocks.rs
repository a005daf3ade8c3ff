//! Mistakes with blocks of suballocators and guards are reported as those with memory of the driver are, and right programs are not.

#![expect(unsafe_code, reason = "launches kernels, and makes the mistakes that are to be found")]

use std::sync::Arc;

use alluvion::adaptor::GuardConfig;
use alluvion::driver::CaptureMode;
use alluvion::sim::{Hazard, HazardKind, Kernel, SimConfig};
use alluvion::source::{Cuda, CudaAsync, Mapped, Pinned};
use alluvion::suballoc::{ArenaConfig, FixedSizeConfig, Growth};
use alluvion::{AnyResource, Device, DevicePtr, PoolConfig, Resource, ResourceExt, Sim, Stream, StreamRef};

use crate::raw_block::{Held, layout_of};

const BYTES: usize = 1000;

/// Each kind of layer that carves, over each kind of memory, with and without a ledger.
fn stacks(device: &Device) -> Vec<(&'static str, AnyResource)> {
    let cuda = || Cuda::new(device);
    let loose = || PoolConfig::default().checked(false);
    let small = FixedSizeConfig::default().block(4096).blocks(16);
    vec![
        ("pool", AnyResource::new(cuda().pool(PoolConfig::default()).unwrap())),
        ("pool without a ledger", AnyResource::new(cuda().pool(loose()).unwrap())),
        (
            "pool of the driver's pool",
            AnyResource::new(CudaAsync::new(device).unwrap().pool(PoolConfig::default()).unwrap()),
        ),
        ("pages", AnyResource::new(Mapped::new(device).unwrap().pool(PoolConfig::default()).unwrap())),
        ("pinned", AnyResource::new(Pinned::new(device).unwrap().pool(PoolConfig::default()).unwrap())),
        ("arena", AnyResource::new(cuda().arena(ArenaConfig::default().bytes(4 << 20)).unwrap())),
        ("fixed size", AnyResource::new(cuda().fixed_size(small).unwrap())),
        (
            "bins over a pool",
            AnyResource::new(
                cuda().pool(PoolConfig::default()).unwrap().binning().blocks(8).bin(4096).build().unwrap(),
            ),
        ),
        ("guard", AnyResource::new(cuda().guard(GuardConfig::default()).unwrap())),
        (
            "guard over a pool",
            AnyResource::new(cuda().pool(loose()).unwrap().guard(GuardConfig::default()).unwrap()),
        ),
    ]
}

fn write(sim: &Sim, stream: StreamRef<'_>, block: DevicePtr, bytes: usize) {
    let kernel = Kernel::new("writer").writes(block.address(), bytes);
    // SAFETY: the stream is borrowed, and the kernel only says what it would write.
    unsafe { sim.launch(0, stream.raw(), kernel) }.expect("it is queued");
}

fn kinds(hazards: &[Hazard]) -> Vec<HazardKind> {
    hazards.iter().map(Hazard::kind).collect()
}

/// Runs a program over each stack, and says which hazards it has.
#[track_caller]
fn expect(found: &[HazardKind], program: impl Fn(&Sim, &AnyResource, &Stream)) {
    for (name, stack) in {
        let sim = Sim::new();
        let names: Vec<&str> = stacks(&sim.device(0)).iter().map(|(name, _)| *name).collect();
        names.into_iter().enumerate().map(|(at, name)| (name, at))
    } {
        let sim = Sim::new();
        let stream = sim.device(0).stream().unwrap();
        let (_, resource) = stacks(&sim.device(0)).swap_remove(stack);
        program(&sim, &resource, &stream);
        let hazards = sim.take_hazards();
        assert_eq!(kinds(&hazards), found, "{name}: {hazards:?}");
        drop(resource);
        assert_eq!(kinds(&sim.take_hazards()), [], "{name}, at its end");
    }
}

#[test]
fn a_use_after_the_free_is_found_and_names_the_free() {
    expect(&[HazardKind::UseAfterFree], |sim, resource, stream| {
        let block = Held::of(resource, BYTES, stream.as_ref());
        let at = block.pointer;
        write(sim, stream.as_ref(), at, BYTES);
        block.free(stream.as_ref());
        write(sim, stream.as_ref(), at.offset(10), 4);
        // A guard looks at the block when it leaves the quarantine, and would race with a late write.
        stream.synchronize().unwrap();
        let hazards = sim.hazards();
        let first = hazards[0].first().expect("the free");
        assert_eq!((first.address(), first.bytes()), (at.address(), BYTES as u64), "{hazards:?}");
        assert_eq!(hazards[0].second().map(|access| access.operation()), Some("writer"));
    });
}

/// Work that was queued before the free may run after it.
#[test]
fn a_use_before_the_free_is_none() {
    expect(&[], |sim, resource, stream| {
        let block = Held::of(resource, BYTES, stream.as_ref());
        write(sim, stream.as_ref(), block.pointer, BYTES);
        block.free(stream.as_ref());
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_use_beyond_the_end_is_found() {
    expect(&[HazardKind::OutOfBounds; 2], |sim, resource, stream| {
        let blocks = [(); 3].map(|()| Held::of(resource, BYTES, stream.as_ref()));
        write(sim, stream.as_ref(), blocks[1].pointer, BYTES);
        write(sim, stream.as_ref(), blocks[1].pointer, BYTES + 1);
        // Behind what was asked for, and before the next block.
        write(sim, stream.as_ref(), blocks[1].pointer.offset(BYTES + 8), 4);
        blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
    });
}

#[test]
fn a_second_free_is_found() {
    expect(&[HazardKind::DoubleFree; 2], |_, resource, stream| {
        let (block, layout) = Held::of(resource, BYTES, stream.as_ref()).into_parts();
        Held::adopt(resource, block, layout).free(stream.as_ref());
        Held::adopt(resource, block, layout).free(stream.as_ref());
        Held::adopt(resource, block, layout).free_sync();
        // It is free once.
        let [first, second] = [(); 2].map(|()| Held::of(resource, BYTES, stream.as_ref()));
        assert!(!first.overlaps(&second));
        first.free(stream.as_ref());
        second.free(stream.as_ref());
    });
}

#[test]
fn a_free_of_the_middle_is_found() {
    expect(&[HazardKind::InvalidFree], |_, resource, stream| {
        let block = Held::of(resource, BYTES, stream.as_ref());
        Held::adopt(resource, block.pointer.offset(256), layout_of(256)).free(stream.as_ref());
        block.free(stream.as_ref());
    });
}

/// The same memory, again and again, on one stream and on another that comes after it.
#[test]
fn memory_that_is_used_again_is_nobodys_mistake() {
    expect(&[], |sim, resource, stream| {
        let other = sim.device(0).stream().unwrap();
        for round in 0..30 {
            let stream = if round % 3 == 2 { &other } else { stream };
            let blocks = [(); 4].map(|()| Held::of(resource, BYTES, stream.as_ref()));
            blocks.iter().for_each(|block| write(sim, stream.as_ref(), block.pointer, BYTES));
            blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
        }
        let block = Held::allocate_sync(resource, layout_of(BYTES)).unwrap();
        write(sim, other.as_ref(), block.pointer, BYTES);
        other.synchronize().unwrap();
        block.free_sync();
        resource.trim(0).unwrap();
    });
}

/// On another stream a block may be used by what comes after the stream that it was allocated on.
#[test]
fn a_use_that_does_not_come_after_the_allocation_is_found() {
    for ordered in [true, false] {
        let found: &[HazardKind] = if ordered { &[] } else { &[HazardKind::UseBeforeReady] };
        let sim = Sim::new();
        let (stream, other) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
        let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
        let busy = Held::of(&pool, BYTES, stream.as_ref());
        write(&sim, stream.as_ref(), busy.pointer, BYTES);
        let block = Held::of(&pool, BYTES, stream.as_ref());
        if ordered {
            other.wait_for_stream(&stream).unwrap();
        }
        write(&sim, other.as_ref(), block.pointer, BYTES);
        let hazards = sim.take_hazards();
        assert_eq!(kinds(&hazards), found, "{hazards:?}");
        stream.wait_for_stream(&other).unwrap();
        [busy, block].into_iter().for_each(|block| block.free(stream.as_ref()));
    }
}

/// What a graph uses stays a block until the memory of graphs is released.
#[test]
fn a_launch_may_use_what_its_capture_has_freed() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
    sim.begin_capture(0, stream.raw(), CaptureMode::Global).unwrap();
    let memory = pool.capture(&stream).unwrap();
    let block = Held::of(&pool, BYTES, stream.as_ref());
    write(&sim, stream.as_ref(), block.pointer, BYTES);
    block.free(stream.as_ref());
    let graph = sim.end_capture(0, stream.raw()).unwrap();
    memory.end().unwrap();
    for _ in 0..3 {
        // SAFETY: the memory of the graph is kept until it has run.
        unsafe { sim.launch_graph(0, stream.raw(), &graph) }.unwrap();
    }
    stream.synchronize().unwrap();
    drop(graph);
    assert_eq!(kinds(&sim.take_hazards()), []);
}

/// Memory that went back to the driver is no suballocator's any more.
#[test]
fn what_a_pool_gives_back_is_forgotten() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    for source in [
        AnyResource::new(Cuda::new(&sim.device(0))),
        AnyResource::new(CudaAsync::new(&sim.device(0)).unwrap()),
    ] {
        let pool = source.clone().pool(PoolConfig::default()).unwrap();
        Held::of(&pool, 1 << 20, stream.as_ref()).free(stream.as_ref());
        drop(pool);
        let block = Held::of(&source, 1 << 20, stream.as_ref());
        write(&sim, stream.as_ref(), block.pointer, 1 << 20);
        block.free(stream.as_ref());
    }
    stream.synchronize().unwrap();
    assert_eq!(kinds(&sim.take_hazards()), []);
}

#[test]
fn a_machine_that_does_not_watch_sees_nothing() {
    let sim = Sim::with_config(SimConfig::default().watch_blocks(false));
    let stream = sim.device(0).stream().unwrap();
    let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
    let block = Held::of(&pool, BYTES, stream.as_ref());
    let at = block.pointer;
    block.free(stream.as_ref());
    write(&sim, stream.as_ref(), at, BYTES);
    assert_eq!(kinds(&sim.take_hazards()), []);
}

/// In a capture a guard lets blocks through as they are. Where one of them is all of what the pool below has taken, that stays carved.
#[test]
fn what_a_guard_lets_through_in_a_capture_stays_the_pools() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let config = PoolConfig::default().growth(Growth::Exact).checked(false);
    let pool = Arc::new(Cuda::new(&sim.device(0)).pool(config).unwrap());
    let guard = Arc::clone(&pool).guard(GuardConfig::default().quarantine(0)).unwrap();
    Held::of(&guard, BYTES, stream.as_ref()).free(stream.as_ref());
    sim.begin_capture(0, stream.raw(), CaptureMode::Relaxed).expect("it can capture");
    Held::of(&guard, BYTES, stream.as_ref()).free(stream.as_ref());
    drop(sim.end_capture(0, stream.raw()).expect("it is whole"));
    assert_eq!(kinds(&sim.take_hazards()), []);
    let block = Held::of(&pool, BYTES, stream.as_ref());
    let at = block.pointer;
    write(&sim, stream.as_ref(), at, BYTES);
    block.free(stream.as_ref());
    write(&sim, stream.as_ref(), at, BYTES);
    assert_eq!(kinds(&sim.take_hazards()), [HazardKind::UseAfterFree]);
}
