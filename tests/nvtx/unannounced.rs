//! Tools take for a heap what one plain call of the driver has allocated, and call anything else an error. So of other memory they hear
//! nothing: neither heaps nor blocks.

#![expect(unsafe_code, reason = "hands out memory by closures, and puts a pool to sleep")]

use alluvion::adaptor::GuardConfig;
use alluvion::driver::{Call, Code};
use alluvion::sim::Fault;
use alluvion::source::{Callback, Cuda, CudaAsync, CudaAsyncManaged, Managed, Mapped, Pinned};
use alluvion::suballoc::{Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig};
use alluvion::{
    AnyResource, Device, DevicePtr, Layout, PoolConfig, Resource, ResourceExt, Sim, SleepConfig, Stream,
    StreamRef,
};

use crate::raw_block::{Held, layout_of};
use crate::{announced_sim, note, told};

const MIB: usize = 1 << 20;

/// Uses a resource, of which the tool hears nothing.
fn use_unheard<R: Resource>(resource: &R, stream: &Stream) {
    for bytes in [1000, 70_000, 3 * MIB, 1000] {
        let block = Held::of(resource, bytes, stream.as_ref());
        note(&format!("unheard {:x} {bytes}", block.pointer.address()));
        block.free(stream.as_ref());
    }
    stream.synchronize().unwrap();
    resource.trim(0).unwrap();
}

/// Uses a resource, of which the tool hears.
fn use_heard<R: Resource>(resource: &R, stream: &Stream) {
    let block = Held::of(resource, 1000, stream.as_ref());
    note(&format!("live {:x} 1000", block.pointer.address()));
    block.free(stream.as_ref());
}

fn assert_unheard(picture: &crate::Picture) {
    assert!(picture.heaps_seen.is_empty(), "{:?}", picture.heaps_seen);
    assert_eq!((picture.registers, picture.unregisters), (0, 0));
    assert_unwritten(picture);
}

fn assert_unwritten(picture: &crate::Picture) {
    assert!(picture.written.is_empty());
    assert!(picture.told.iter().any(|told| told == "grow"), "the tool listens");
}

/// Every source of memory that is no heap.
fn sources(device: &Device) -> Vec<AnyResource> {
    vec![
        AnyResource::new(CudaAsync::new(device).unwrap()),
        AnyResource::new(CudaAsyncManaged::new(device).unwrap()),
        AnyResource::new(Mapped::new(device).unwrap()),
    ]
}

#[test]
fn memory_that_is_no_heap_is_not_announced() {
    let picture = told("unannounced::memory_that_is_no_heap_is_not_announced", "", || {
        let device = announced_sim().device(0);
        let stream = device.stream().unwrap();
        for source in sources(&device) {
            for checked in [false, true] {
                let pool = source.clone().pool(PoolConfig::default().checked(checked)).unwrap();
                use_unheard(&pool, &stream);
                if !checked {
                    // The tool need not hear of a hit, so it is served at once, as without a tool.
                    let block = Held::of(&pool, 1000, stream.as_ref());
                    let layout = block.layout;
                    block.free(stream.as_ref());
                    let hit = pool.allocate_at_once(layout, stream.as_ref()).expect("it is in the cache");
                    Held::adopt(&pool, hit, layout).free(stream.as_ref());
                }
            }
            let arena = ArenaConfig::default().bytes(16 * MIB);
            use_unheard(&Arena::new(source.clone(), arena).unwrap(), &stream);
            let config = FixedSizeConfig::default().block(4 * MIB).blocks(2);
            use_unheard(&FixedSize::new(source.clone(), config).unwrap(), &stream);
            let pool = || source.clone().pool(PoolConfig::default()).unwrap();
            use_unheard(&Binning::over(pool()).blocks(8).range(12..=18).build().unwrap(), &stream);
            use_unheard(&pool().pool(PoolConfig::default()).unwrap(), &stream);
        }
    });
    let Some(picture) = picture else { return };
    assert_unheard(&picture);
}

/// But for the pinned memory that the guard copies to, which is a pool of its own.
#[test]
fn a_guard_over_memory_that_is_no_heap_is_not_announced() {
    let picture = told("unannounced::a_guard_over_memory_that_is_no_heap_is_not_announced", "", || {
        let device = announced_sim().device(0);
        let stream = device.stream().unwrap();
        for kept in [0, MIB] {
            let config = || GuardConfig::default().quarantine(kept);
            use_unheard(&CudaAsync::new(&device).unwrap().guard(config()).unwrap(), &stream);
            let pool = Mapped::new(&device).unwrap().pool(PoolConfig::default()).unwrap();
            use_unheard(&pool.guard(config()).unwrap(), &stream);
        }
    });
    let Some(picture) = picture else { return };
    assert!(!picture.heaps_seen.contains(&"Guard".to_owned()), "{:?}", picture.heaps_seen);
    assert_unwritten(&picture);
}

#[test]
fn a_pool_that_sleeps_is_not_announced() {
    let picture = told("unannounced::a_pool_that_sleeps_is_not_announced", "", || {
        let device = announced_sim().device(0);
        let stream = device.stream().unwrap();
        let pool = Mapped::new(&device).unwrap().pool(PoolConfig::default()).unwrap();
        let host = Pinned::new(&device).unwrap();
        let block = Held::of(&pool, 3 * MIB, stream.as_ref());
        // SAFETY: no work uses the block, and it is not freed meanwhile.
        let mut sleeper = unsafe { pool.sleep(SleepConfig::default().keep_in(&host)) }.unwrap();
        sleeper.wake().unwrap();
        drop(sleeper);
        block.free(stream.as_ref());
    });
    let Some(picture) = picture else { return };
    assert_unheard(&picture);
    for wanted in ["sleep", "wake"] {
        assert!(picture.told.iter().any(|told| told == wanted), "{wanted}: {:?}", picture.told);
    }
}

/// Who cannot say what memory is, as HIP, has it left alone; and the request is served.
#[test]
fn memory_that_a_driver_cannot_tell_of_is_not_announced() {
    let picture = told("unannounced::memory_that_a_driver_cannot_tell_of_is_not_announced", "", || {
        let sim = announced_sim();
        let device = sim.device(0);
        let stream = device.stream().unwrap();
        sim.inject(Fault::every(Call::PointerAttributes, Code::NOT_SUPPORTED));
        use_unheard(&Cuda::new(&device).pool(PoolConfig::default()).unwrap(), &stream);
        use_unheard(&Cuda::new(&device).guard(GuardConfig::default()).unwrap(), &stream);
    });
    let Some(picture) = picture else { return };
    assert_unheard(&picture);
}

/// A tool that knows a GPU's memory alone would take it for a mistake of the program.
#[test]
fn simulated_memory_is_not_announced_unless_somebody_says_so() {
    let picture = told("unannounced::simulated_memory_is_not_announced_unless_somebody_says_so", "", || {
        let device = Sim::new().device(0);
        let stream = device.stream().unwrap();
        use_unheard(&Cuda::new(&device).pool(PoolConfig::default()).unwrap(), &stream);
        use_unheard(&Pinned::new(&device).unwrap().pool(PoolConfig::default()).unwrap(), &stream);
        use_unheard(&Cuda::new(&device).guard(GuardConfig::default()).unwrap(), &stream);
    });
    let Some(picture) = picture else { return };
    assert_unheard(&picture);
}

/// It is the memory that counts, and not who has it: also where a pool has some of each kind.
#[test]
fn of_memory_of_several_kinds_the_heaps_are_announced() {
    let picture = told("unannounced::of_memory_of_several_kinds_the_heaps_are_announced", "", || {
        let device = announced_sim().device(0);
        let stream = device.stream().unwrap();
        let first = CudaAsync::new(&device).unwrap().limiting(4 * MIB);
        let pool = first.fallback(Managed::new(&device).unwrap()).unwrap();
        let pool = pool.pool(PoolConfig::default()).unwrap();
        let unheard = Held::of(&pool, 3 * MIB, stream.as_ref());
        let heard = Held::of(&pool, 8 * MIB, stream.as_ref());
        note(&format!("dead {:x} {}", unheard.pointer.address(), 3 * MIB));
        note(&format!("live {:x} {}", heard.pointer.address(), 8 * MIB));
        unheard.free(stream.as_ref());
        heard.free(stream.as_ref());
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert_eq!(picture.registers, 1);
}

/// What somebody else has allocated is asked for as our own memory is. A piece from the middle of an allocation is no heap.
#[test]
fn memory_of_closures_is_what_the_driver_says() {
    let picture = told("unannounced::memory_of_closures_is_what_the_driver_says", "", || {
        let device = announced_sim().device(0);
        let stream = device.stream().unwrap();
        for (front, kind) in [(0, 0), (256, 0), (0, 1)] {
            let source =
                [AnyResource::new(Cuda::new(&device)), AnyResource::new(CudaAsync::new(&device).unwrap())]
                    [kind]
                    .clone();
            let whole = move |bytes| layout_of(bytes + front);
            let taken = source.clone();
            let allocate = move |layout: Layout, stream: StreamRef<'_>| {
                let block = taken.allocate(whole(layout.bytes()), stream)?;
                Ok(block.address() + front as u64)
            };
            let deallocate = move |block: DevicePtr, layout: Layout, stream: StreamRef<'_>| {
                let first = DevicePtr::new(block.address() - front as u64).expect("it is not null");
                // SAFETY: the source has allocated from there, with this layout, and the caller says that it is used no more.
                unsafe { source.deallocate(first, whole(layout.bytes()), stream) };
            };
            // SAFETY: the blocks are pieces of those of a source, and go back to it whole.
            let of_closures = unsafe { Callback::new(&device, allocate, deallocate) };
            let pool = of_closures.pool(PoolConfig::default()).unwrap();
            match (front, kind) {
                (0, 0) => use_heard(&pool, &stream),
                _ => use_unheard(&pool, &stream),
            }
        }
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert_eq!(picture.registers, 1);
}
