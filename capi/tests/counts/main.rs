//! What a call of the C library costs, counted: calls of the heap, calls of the driver, trips to the shared core of a pool. Counts do
//! not depend on the machine.
//!
//! The core is what threads share under a lock; a request that the cache of its stream serves takes none.

#![expect(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls the library as C does, in sequences"
)]

#[path = "../../../tests/counts/heap.rs"]
mod heap;
#[path = "../calls/support.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use std::ffi::c_void;
use std::ptr::null_mut;

use calluvion::*;
use heap::heap_of;
use support::{Sim, release};

const MIB: usize = 1 << 20;
/// Small ones, those of the classes of the caches, and larger ones.
const SIZES: [usize; 6] = [1, 257, 4096, 100_000, MIB, 5 * MIB];
const PAIRS: u64 = 100;

fn figures(resource: *const ResourceHandle) -> (u64, u64) {
    // SAFETY: numbers.
    let mut status: PoolStatus = unsafe { std::mem::zeroed() };
    status.struct_size = size_of::<PoolStatus>();
    // SAFETY: a live resource and a whole struct.
    assert_eq!(unsafe { alv_status_of(resource, &raw mut status) }, ALV_OK);
    (status.hits, status.misses)
}

/// What a pair of calls that the cache of the stream serves makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    of_driver: u64,
    of_heap: u64,
}

const NOTHING: Cost = Cost { of_driver: 0, of_heap: 0 };

/// The cost of a pair, which is the same for every size.
fn cost_of(sim: &Sim, resource: *const ResourceHandle, pair: impl Fn(usize)) -> Cost {
    let mut costs = Vec::new();
    for bytes in SIZES {
        // Once to bring a block into the cache, and some more until whatever grows has grown.
        (0..8).for_each(|_| pair(bytes));
        let (before, (hits, misses)) = (sim.calls(), figures(resource));
        let (of_heap, kept) = heap_of(|| (0..PAIRS).for_each(|_| pair(bytes)));
        let of_driver = sim.calls() - before;
        assert_eq!(figures(resource), (hits + PAIRS, misses), "{bytes} bytes: hits and misses");
        assert_eq!(kept, 0, "{bytes} bytes: bytes kept");
        assert_eq!(
            (of_driver % PAIRS, of_heap % PAIRS),
            (0, 0),
            "{bytes} bytes: {of_driver} and {of_heap} calls"
        );
        costs.push(Cost { of_driver: of_driver / PAIRS, of_heap: of_heap / PAIRS });
    }
    assert!(costs.iter().all(|cost| *cost == costs[0]), "{SIZES:?}: {costs:?}");
    costs[0]
}

fn raw(resource: *const ResourceHandle, bytes: usize, stream: CudaStream) {
    let mut block: *mut c_void = null_mut();
    // SAFETY: a live resource and a live stream; the block is freed on the stream that it came for.
    unsafe {
        assert_eq!(alv_allocate_raw(resource, bytes, 0, stream, &raw mut block), ALV_OK);
        alv_deallocate_raw(resource, block, bytes, 0, stream);
    }
}

const RECIPES: [&str; 3] = [
    "pool(initial=64MiB, checked=false) | cuda-async",
    "pool(initial=64MiB, checked=true) | cuda-async",
    "stats | limiting(1GiB) | pool(initial=64MiB) | cuda-async",
];

#[test]
fn a_hit_on_a_default_stream_or_a_known_one_costs_nothing() {
    let sim = Sim::of_costs();
    let stream = sim.stream();
    // SAFETY: a live stream.
    let known = unsafe { alv_stream_handle(stream) };
    for recipe in RECIPES {
        let resource = sim.recipe(recipe);
        for bare in [null_mut(), 1 as CudaStream, 2 as CudaStream, known] {
            let cost = cost_of(&sim, resource, |bytes| raw(resource, bytes, bare));
            assert_eq!(cost, NOTHING, "{recipe}, {bare:?}");
        }
        let by_handle = |bytes| {
            let mut block = null_mut();
            // SAFETY: live handles; the block is freed on the stream that it came for.
            unsafe {
                assert_eq!(alv_allocate_on(resource, bytes, 0, stream, &raw mut block), ALV_OK);
                alv_deallocate_on(resource, block, bytes, 0, stream);
            }
        };
        assert_eq!(cost_of(&sim, resource, by_handle), NOTHING, "{recipe}, by its handle");
        release(resource);
    }
    // SAFETY: a count that the test holds.
    unsafe { alv_stream_release(stream) };
}

/// A stream that somebody else made is asked whether it captures and for its number, by each request. A free asks so before it records
/// an event, and once more for that; of an event a note is kept on the heap while blocks wait for it. There is one for each of the first
/// 256 frees, and one for 1,024 frees or 32 MiB later. docs/capi/README.md says so.
#[test]
fn a_hit_on_a_stream_of_others_costs_two_calls_of_the_driver_and_its_part_of_an_event() {
    for recipe in RECIPES {
        let sim = Sim::of_costs();
        let bare = sim.foreign_stream();
        let resource = sim.recipe(recipe);
        let pairs = |bytes: usize, count: u64| {
            let before = sim.calls();
            let (of_heap, kept) = heap_of(|| (0..count).for_each(|_| raw(resource, bytes, bare)));
            assert_eq!(kept, 0, "{recipe}: bytes kept");
            Cost { of_driver: sim.calls() - before, of_heap }
        };
        let warm = |bytes: usize, count: u64| (0..count).for_each(|_| raw(resource, bytes, bare));
        warm(4096, 8);
        assert_eq!(pairs(4096, 100), Cost { of_driver: 600, of_heap: 200 }, "{recipe}: a guest");
        warm(4096, 300);
        for (bytes, count, events) in [(4096, 10_240, 10), (MIB, 3200, 100), (64 * MIB, 100, 100)] {
            warm(bytes, 8);
            let regular = pairs(bytes, count);
            // The questions, and a question and a record more.
            let (least, most) = (2 * count + 4 * events, 2 * count + 4 * (events + 1));
            assert!((least..=most).contains(&regular.of_driver), "{recipe}, {bytes}: {regular:?}");
            assert!(
                (2 * events..=2 * (events + 1)).contains(&regular.of_heap),
                "{recipe}, {bytes}: {regular:?}"
            );
        }
        warm(4096, 8);
        // The request alone, which is asked of the stream twice: it takes nothing from the heap.
        let mut block = null_mut();
        let before = sim.calls();
        // SAFETY: a live resource, a live stream and a place.
        let request =
            || assert_eq!(unsafe { alv_allocate_raw(resource, 4096, 0, bare, &raw mut block) }, ALV_OK);
        assert_eq!(heap_of(request), (0, 0), "{recipe}");
        assert_eq!(sim.calls() - before, 2, "{recipe}");
        // SAFETY: the block came from the resource, on this stream.
        unsafe { alv_deallocate_raw(resource, block, 4096, 0, bare) };
        release(resource);
        // SAFETY: a live stream that nothing uses any more.
        assert_eq!(unsafe { alv_sim_stream_destroy(sim.0, 0, bare) }, ALV_OK);
    }
}

/// As the one that a program keeps a count of, and an owner besides: nothing is asked, and no event is recorded.
#[test]
fn a_hit_on_a_wrapped_stream_with_an_owner_costs_nothing() {
    unsafe extern "C" fn keep(_: *mut c_void) {}
    let sim = Sim::of_costs();
    let bare = sim.foreign_stream();
    let resource = sim.recipe(RECIPES[0]);
    let mut wrapped = null_mut();
    // SAFETY: a live machine, chosen for the one call that takes a bare number; a live stream, and a place.
    unsafe {
        assert_eq!(alv_set_machine(sim.0), ALV_OK);
        let owned = alv_stream_wrap_owned_raw(0, bare, null_mut(), Some(keep), &raw mut wrapped);
        assert_eq!(owned, ALV_OK);
        assert_eq!(alv_set_machine(null_mut()), ALV_OK);
    }
    let by_handle = |bytes| {
        let mut block = null_mut();
        // SAFETY: live handles; the block is freed on the stream that it came for.
        unsafe {
            assert_eq!(alv_allocate_on(resource, bytes, 0, wrapped, &raw mut block), ALV_OK);
            alv_deallocate_on(resource, block, bytes, 0, wrapped);
        }
    };
    assert_eq!(cost_of(&sim, resource, by_handle), NOTHING);
    // SAFETY: a count that the test holds, and a stream that nothing uses any more.
    unsafe {
        alv_stream_release(wrapped);
        alv_resource_release(resource);
        assert_eq!(alv_sim_stream_destroy(sim.0, 0, bare), ALV_OK);
    }
}

/// A copy of a handle is a count, and a request that fails formats nothing before it is asked why.
#[test]
fn counts_and_refusals_allocate_nothing() {
    let sim = Sim::of_costs();
    let resource = sim.recipe(RECIPES[0]);
    let mut block = null_mut();
    let refuse = |block: &mut *mut c_void| {
        // SAFETY: a live resource and a place.
        unsafe { alv_allocate_raw(resource, 100, 3, null_mut(), block) }
    };
    assert_eq!(refuse(&mut block), ALV_INVALID_ALIGNMENT);
    let heap = heap_of(|| {
        // SAFETY: a live resource; the count that is taken is given back.
        unsafe { alv_resource_release(alv_resource_retain(resource)) };
        assert_eq!(refuse(&mut block), ALV_INVALID_ALIGNMENT);
    });
    assert_eq!(heap, (0, 0));
    let heap = heap_of(|| assert!(!support::message().is_empty()));
    assert!(heap.0 > 0, "the text is made when it is asked for");
    release(resource);
}
