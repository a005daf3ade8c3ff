//! Pinned memory and the allocators over it on the simulated machine: the contract, and what only a simulator can do.

#![expect(unsafe_code, reason = "gives blocks back, implements a resource, and forks")]

use core::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec;
use alluvion::driver::{Call, CaptureMode, Code, DeviceAttribute};
use alluvion::resource::{Layer, LayerBook};
use alluvion::sim::{Fault, SimConfig};
use alluvion::source::{NumaPolicy, Pinned, PinnedConfig};
use alluvion::{
    Device, DevicePtr, Error, HostAccessible, Layout, NewDelete, OnHost, PinnedAlloc, PoolConfig, Resource,
    ResourceExt, Sim, StreamRef,
};
use proptest::prelude::*;

use crate::host_contract;
use crate::host_contract::{MAPPED, config, pinned};
use crate::lost_context;

/// The clauses hold whatever the machine leaves to chance, none of them is a hazard, and nothing is left behind.
fn on_sim(clause: fn(&Device)) {
    for seed in 0..2 {
        let sim = Sim::with_config(SimConfig::default().seed(seed));
        clause(&sim.device(0));
        assert!(sim.hazards().is_empty(), "seed {seed}: {:#?}", sim.hazards());
        assert_eq!(held(&sim), (0, 0));
    }
}

/// The same where the driver registers no memory, so that every block is its own.
fn on_sim_without_registration(clause: fn(&Device)) {
    let sim = Sim::with_config(SimConfig::default().attribute(DeviceAttribute::HostRegister, 0));
    clause(&sim.device(0));
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
    assert_eq!((held(&sim), sim.calls()[Call::RegisterHost]), ((0, 0), 0));
}

host_contract::clauses!(on_sim);

mod without_registration {
    crate::host_contract::clauses!(super::on_sim_without_registration);
}

#[test]
fn memory_of_the_host_stays_when_a_context_is_lost() {
    let sim = Sim::new();
    let lose = |device: &Device| sim.poison(device.ordinal(), Code::ILLEGAL_ADDRESS);
    lost_context::memory_of_the_host_stays(&sim.device(0), lose);
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

/// Blocks of the driver, and registered ones.
fn held(sim: &Sim) -> (usize, usize) {
    (sim.live().pinned, sim.live().registered)
}

fn layout(bytes: usize) -> Layout {
    Layout::from_bytes(bytes).unwrap()
}

fn free(resource: &Pinned, block: DevicePtr, layout: Layout) {
    // SAFETY: the callers got the block from this resource with this layout, and use it no more.
    unsafe { resource.deallocate_sync(block, layout) };
}

#[test]
fn large_blocks_are_mapped_and_small_ones_are_the_driver_s() {
    let sim = Sim::new();
    let resource = pinned(&sim.device(0));
    let large = resource.allocate_sync(layout(MAPPED)).unwrap();
    assert_eq!(held(&sim), (0, 1));
    let small = resource.allocate_sync(layout(MAPPED - 1)).unwrap();
    assert_eq!(held(&sim), (1, 1));
    let aligned = Layout::new(1, 8192).unwrap();
    let third = resource.allocate_sync(aligned).unwrap();
    assert_eq!(held(&sim), (1, 2));
    // Whole pages, and no more.
    assert_eq!(sim.live().bytes, (MAPPED + MAPPED - 1 + 4096) as u64);
    for (block, layout) in [(large, layout(MAPPED)), (small, layout(MAPPED - 1)), (third, aligned)] {
        free(&resource, block, layout);
    }
    assert_eq!(held(&sim), (0, 0));
}

#[test]
fn what_cannot_be_registered_comes_from_the_driver() {
    let sim = Sim::new();
    let resource = pinned(&sim.device(0));
    for code in [Code::NOT_SUPPORTED, Code::OUT_OF_MEMORY, Code::INVALID_VALUE] {
        sim.inject(Fault::nth(Call::RegisterHost, 1, code));
        let block = resource.allocate_sync(layout(MAPPED)).unwrap();
        assert_eq!(held(&sim), (1, 0));
        free(&resource, block, layout(MAPPED));
        assert_eq!(held(&sim), (0, 0));
    }
    // Not so if the context is lost: nothing more is asked of it.
    sim.inject(Fault::nth(Call::RegisterHost, 1, Code::ILLEGAL_ADDRESS));
    let asked = sim.calls()[Call::AllocatePinned];
    assert!(resource.allocate_sync(layout(MAPPED)).unwrap_err().is_context_lost());
    assert_eq!(sim.calls()[Call::AllocatePinned], asked);
}

/// More than is available and less than there is: the kernel would map it, and end somebody when it is touched.
#[cfg(target_os = "linux")]
#[test]
fn what_the_host_has_not_free_is_not_touched() {
    let sim = Sim::with_config(SimConfig::default().pinned_bytes(1 << 20));
    let resource = pinned(&sim.device(0));
    let host = resource.memory_info().unwrap();
    let error = resource.allocate_sync(layout(host.free_bytes.midpoint(host.total_bytes))).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    assert_eq!((sim.calls()[Call::AllocatePinned], sim.calls()[Call::RegisterHost]), (1, 0));
}

#[test]
fn a_machine_without_common_addresses_has_no_pinned_memory() {
    let sim = Sim::with_config(SimConfig::default().attribute(DeviceAttribute::UnifiedAddressing, 0));
    assert!(Pinned::new(&sim.device(0)).unwrap_err().is_unsupported());
    assert!(PinnedAlloc::new(&sim.device(0)).unwrap_err().is_unsupported());
}

#[test]
fn a_node_is_a_preference() {
    let sim = Sim::new();
    for numa in [
        NumaPolicy::NearDevice,
        NumaPolicy::Node(0),
        NumaPolicy::Node(999),
        NumaPolicy::Node(u32::MAX),
        NumaPolicy::Anywhere,
    ] {
        let resource = Pinned::with_config(&sim.device(0), config().numa(numa)).unwrap();
        let block = resource.allocate_sync(layout(MAPPED)).unwrap();
        assert_eq!(held(&sim), (0, 1), "{numa:?}");
        free(&resource, block, layout(MAPPED));
    }
}

#[test]
fn any_number_of_threads_will_do() {
    let sim = Sim::new();
    for threads in [0, 1, 3, usize::MAX] {
        let resource = Pinned::with_config(&sim.device(0), PinnedConfig::default().threads(threads)).unwrap();
        let block = resource.allocate_sync(layout(40 << 20)).unwrap();
        assert_eq!(held(&sim), (0, 1));
        free(&resource, block, layout(40 << 20));
    }
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let sim = Sim::with_config(SimConfig::default().devices(2));
    let stream = sim.device(1).stream().unwrap();
    let error = pinned(&sim.device(0)).allocate(layout(10), stream.as_ref()).unwrap_err();
    assert!(error.is_device_mismatch());
    assert_eq!(held(&sim), (0, 0));
}

/// A collection that grows in a pool moves as often as any, and pins nothing for it.
#[test]
fn collections_grow_in_a_pool_of_pinned_memory() {
    let sim = Sim::new();
    let pool = Arc::new(pinned(&sim.device(0)).pool(PoolConfig::default().initial(4 << 20)).unwrap());
    let pinnings = || sim.calls()[Call::AllocatePinned] + sim.calls()[Call::RegisterHost];
    let before = (sim.calls().total(), pinnings());
    assert_eq!(before.1, 1);

    let alloc = PinnedAlloc::from_resource(Arc::clone(&pool));
    let (mut owning, mut borrowing) = (Vec::new_in(alloc), Vec::new_in(OnHost::new(&*pool)));
    for number in 0..50_000_u64 {
        owning.push(number);
        borrowing.push(number);
    }
    assert!(owning == borrowing && owning.iter().copied().eq(0..50_000));
    assert_eq!(pool.status().live_blocks, 2);
    drop((owning, borrowing));
    assert_eq!(pool.status().live_blocks, 0);
    assert_eq!((sim.calls().total(), pinnings()), before, "no call of any kind");
    drop(pool);
    assert_eq!(held(&sim), (0, 0));
}

/// A free that fails leaks: the pages stay mapped, whoever still reads them.
#[test]
fn what_the_driver_does_not_take_back_stays_mapped() {
    let sim = Sim::new();
    let resource = pinned(&sim.device(0));
    let stream = sim.device(0).stream().unwrap();
    let layout = layout(MAPPED);
    for call in [Call::UnregisterHost, Call::StreamSynchronize, Call::StreamCaptureStatus] {
        let block = resource.allocate_sync(layout).unwrap();
        let bytes: *mut u8 = with_exposed_provenance_mut(block.address() as usize);
        // SAFETY: the block is live, and nobody else's.
        unsafe { bytes.write(7) };
        sim.inject(Fault::nth(call, 1, Code::INVALID_VALUE));
        // SAFETY: the block came from this resource with this layout, and nothing uses it.
        unsafe { resource.deallocate(block, layout, stream.as_ref()) };
        assert_eq!(sim.faults_left(), 0, "{call:?}");
        // SAFETY: the block was leaked, which is what is tested: its page is there for ever.
        assert_eq!(unsafe { bytes.read() }, 7, "{call:?}");
    }
    assert_eq!(held(&sim), (0, 3));
}

/// What a graph recorded may run at any time, so its blocks stay; and to free them does not break the capture.
#[test]
fn what_is_freed_during_a_capture_stays() {
    let sim = Sim::new();
    let resource = pinned(&sim.device(0));
    let stream = sim.device(0).stream().unwrap();
    let blocks =
        [layout(100), layout(MAPPED)].map(|layout| (resource.allocate_sync(layout).unwrap(), layout));
    sim.begin_capture(0, stream.as_ref().raw(), CaptureMode::Global).unwrap();
    for (block, layout) in blocks {
        // SAFETY: the block came from this resource with this layout, and nothing uses it.
        unsafe { resource.deallocate(block, layout, stream.as_ref()) };
    }
    assert_eq!(held(&sim), (1, 1));
    // What is not of the capture comes and goes.
    for layout in [layout(100), layout(MAPPED)] {
        free(&resource, resource.allocate(layout, stream.as_ref()).unwrap(), layout);
    }
    assert_eq!(held(&sim), (1, 1));
    sim.end_capture(0, stream.as_ref().raw()).unwrap();
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

/// Scenario 19: silence in drops, an error from the next call, and data that can be read.
#[test]
fn a_lost_context_takes_no_data_with_it() {
    let sim = Sim::new();
    let alloc = PinnedAlloc::with_config(&sim.device(0), config()).unwrap();
    let mut small = Vec::new_in(alloc.clone());
    small.extend_from_slice(&[1_u8; 100]);
    let mut large = Vec::new_in(alloc.clone());
    large.extend_from_slice(&[2_u8; 2 * MAPPED]);
    sim.poison(0, Code::ILLEGAL_ADDRESS);
    assert!(small.try_reserve(1 << 20).is_err() && large.try_reserve(1 << 20).is_err());
    assert!(small.iter().all(|byte| *byte == 1) && large.iter().all(|byte| *byte == 2));
    assert!(alloc.resource().allocate_sync(layout(10)).unwrap_err().is_context_lost());
    drop((small, large));
}

/// Scenario 16: the child lets go of everything, by every path, and ends by itself.
#[test]
fn a_forked_child_lets_go_and_exits() {
    let sim = Sim::new();
    let alloc = PinnedAlloc::with_config(&sim.device(0), config()).unwrap();
    let stream = sim.device(0).stream().unwrap();
    let resource = pinned(&sim.device(0));
    let block = resource.allocate_sync(layout(MAPPED)).unwrap();
    let mut small = Vec::new_in(alloc.clone());
    small.push(String::from("small"));
    let mut large = Vec::new_in(alloc);
    large.resize(MAPPED, String::from("large"));
    // SAFETY: the child drops, allocates from the heap, which is made for forks, and calls `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let readable = small[0] == "small" && large[MAPPED - 1] == "large";
        let refused = small.try_reserve(1 << 20).is_err();
        drop((small, large));
        // SAFETY: the block came from this resource with this layout, and nothing uses it.
        unsafe { resource.deallocate(block, layout(MAPPED), stream.as_ref()) };
        drop((resource, stream, sim));
        // SAFETY: it does not return.
        unsafe { libc::_exit(if readable && refused { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: `status` is writable and `child` is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(large.iter().all(|text| text == "large"), "the parent goes on");
    free(&resource, block, layout(MAPPED));
}

/// Every driver call of a growing vector fails once. The vector keeps what it holds, and what can be given back is.
#[test]
fn a_vector_survives_the_failure_of_any_call() {
    const NUMBERS: usize = 10_000;
    // Both kinds of blocks, one of them, the other.
    for huge_bytes in [16 << 10, usize::MAX, 0] {
        let config = config().huge_bytes(huge_bytes);
        for n in 1.. {
            let sim = Sim::new();
            let alloc = PinnedAlloc::with_config(&sim.device(0), config).unwrap();
            let mut vector = Vec::new_in(alloc);
            let frees_before = frees(&sim);
            sim.inject(Fault::nth_call(n, Code::OUT_OF_MEMORY));
            let mut failures = 0;
            for number in 0..NUMBERS {
                if vector.len() == vector.capacity() && vector.try_reserve(1).is_err() {
                    failures += 1;
                    assert!(vector.iter().copied().eq(0..number), "call {n}");
                    vector.try_reserve(1).expect("one call fails, and it did");
                }
                vector.push(number);
            }
            assert!(vector.iter().copied().eq(0..NUMBERS), "call {n}");
            drop(vector);
            let struck = sim.faults_left() == 0;
            sim.clear_faults();
            // A free cannot fail, so a failing one leaks one block. A failing allocation leaks nothing.
            let leaked = held(&sim).0 + held(&sim).1;
            assert!(leaked <= usize::from(struck && failures == 0), "call {n}: {leaked} leaked");
            assert!(sim.hazards().is_empty() && failures <= 1 && frees(&sim) > frees_before);
            if !struck {
                assert!(n > 20, "the fault has been at every call");
                break;
            }
        }
    }
}

fn frees(sim: &Sim) -> u64 {
    sim.calls()[Call::FreePinned] + sim.calls()[Call::UnregisterHost]
}

/// A resource whose blocks have been used before.
struct Dirty(Pinned);

// SAFETY: the blocks are those of the inner resource, which keeps the contract.
unsafe impl Resource for Dirty {
    fn allocate(&self, layout: Layout, _: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.allocate_sync(layout)
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        assert!(!layout.is_empty(), "zero bytes are asked of nobody");
        let block = self.0.allocate_sync(layout)?;
        let first: *mut u8 = with_exposed_provenance_mut(block.address() as usize);
        // SAFETY: the block is new, memory of the host, and as long as the layout.
        unsafe { first.write_bytes(0xA5, layout.bytes()) };
        Ok(block)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        assert!(!layout.is_empty(), "zero bytes are given back to nobody");
        // SAFETY: the caller's promises.
        unsafe { self.0.deallocate_sync(block, layout) }
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(self))
    }

    alluvion::forward_resource!(0, except allocate, deallocate_sync);
}

impl Layer for Dirty {
    type Book = Self;
}

// SAFETY: the blocks are those of the inner resource.
unsafe impl HostAccessible for Dirty {}

#[test]
fn zeroed_blocks_are_zero_whatever_was_in_them() {
    let sim = Sim::new();
    let alloc = OnHost::new(Dirty(pinned(&sim.device(0))));
    let host = |bytes| core::alloc::Layout::from_size_align(bytes, 8).unwrap();
    for bytes in [1, 5000, MAPPED, 3 * MAPPED] {
        let mut block = alloc.allocate_zeroed(host(bytes)).unwrap();
        // SAFETY: the block is live, zeroed and this test's own.
        let slice = unsafe { block.as_mut() };
        assert!(slice.len() == bytes && slice.iter().all(|byte| *byte == 0));
        slice.fill(3);
        // SAFETY: the block came from this allocator with this layout, and the new one is not smaller.
        let grown = unsafe { alloc.grow_zeroed(block.cast(), host(bytes), host(2 * bytes)) }.unwrap();
        // SAFETY: the block is live, initialised and this test's own.
        let slice = unsafe { grown.as_ref() };
        assert!(slice[..bytes].iter().all(|byte| *byte == 3) && slice[bytes..].iter().all(|byte| *byte == 0));
        // SAFETY: the block came from this allocator with this layout.
        unsafe { alloc.deallocate(grown.cast(), host(2 * bytes)) };
    }
    let nothing = alloc.allocate_zeroed(host(0)).unwrap();
    // SAFETY: the block came from this allocator with this layout.
    unsafe { alloc.deallocate(nothing.cast(), host(0)) };
    assert_eq!(format!("{alloc:?}"), "OnHost(Dirty > Pinned(gpu 0))");
}

/// One step of a vector's life.
#[derive(Clone, Debug)]
enum Step {
    Push(u8),
    Extend(std::vec::Vec<u8>),
    Resize(usize, u8),
    Reserve(usize),
    ReserveExact(usize),
    Truncate(usize),
    ShrinkTo(usize),
    Insert(usize, u8),
    Drain(usize, usize),
    Clone,
    Boxed,
    SplitOff(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let size = 0_usize..20_000;
    prop_oneof![
        any::<u8>().prop_map(Step::Push),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Step::Extend),
        (size.clone(), any::<u8>()).prop_map(|(length, value)| Step::Resize(length, value)),
        size.clone().prop_map(Step::Reserve),
        size.clone().prop_map(Step::ReserveExact),
        size.clone().prop_map(Step::Truncate),
        size.clone().prop_map(Step::ShrinkTo),
        (any::<usize>(), any::<u8>()).prop_map(|(index, value)| Step::Insert(index, value)),
        (any::<usize>(), any::<usize>()).prop_map(|(start, end)| Step::Drain(start, end)),
        Just(Step::Clone),
        Just(Step::Boxed),
        any::<usize>().prop_map(Step::SplitOff),
    ]
}

/// Does the same to the vector of the standard library and to ours, and compares them.
fn lives_as_the_standard_vector_does<A: Allocator + Clone>(alloc: A, steps: &[Step]) {
    let mut model = std::vec::Vec::new();
    let mut vector = Vec::new_in(alloc);
    for step in steps {
        let within = |index: usize| index % (model.len() + 1);
        match step.clone() {
            Step::Push(value) => {
                model.push(value);
                vector.push(value);
            }
            Step::Extend(values) => {
                model.extend_from_slice(&values);
                vector.extend_from_slice(&values);
            }
            Step::Resize(length, value) => {
                model.resize(length, value);
                vector.resize(length, value);
            }
            Step::Reserve(more) => vector.reserve(more),
            Step::ReserveExact(more) => vector.reserve_exact(more),
            Step::Truncate(length) => {
                model.truncate(length);
                vector.truncate(length);
            }
            Step::ShrinkTo(capacity) => vector.shrink_to(capacity),
            Step::Insert(index, value) => {
                let index = within(index);
                model.insert(index, value);
                vector.insert(index, value);
            }
            Step::Drain(start, end) => {
                let (start, end) = (within(start), within(end));
                let range = start.min(end)..start.max(end);
                assert!(model.drain(range.clone()).eq(vector.drain(range)));
            }
            Step::Clone => vector = vector.clone(),
            Step::Boxed => vector = vector.into_boxed_slice().into_vec(),
            Step::SplitOff(index) => {
                let index = within(index);
                let (model_tail, tail) = (model.split_off(index), vector.split_off(index));
                assert_eq!(*tail, *model_tail);
                model = model_tail;
                vector = tail;
            }
        }
        assert!(*vector == *model, "after {step:?}");
    }
}

#[cfg(feature = "allocator-api2-04")]
#[test]
fn the_next_allocator_is_implemented_too() {
    let sim = Sim::new();
    let resource = pinned(&sim.device(0));
    let alloc = PinnedAlloc::from_resource(resource.clone());
    let mut vectors = (
        allocator_api2_04::vec::Vec::new_in(alloc),
        allocator_api2_04::vec::Vec::new_in(OnHost::new(&resource)),
        allocator_api2_04::vec::Vec::new_in(NewDelete),
    );
    for number in 0..100_000 {
        vectors.0.push(number);
        vectors.1.push(number);
        vectors.2.push(number);
    }
    vectors.0.truncate(10);
    vectors.0.shrink_to_fit();
    assert!(vectors.0.iter().copied().eq(0..10));
    assert!(vectors.1.iter().copied().eq(0..100_000) && *vectors.1 == *vectors.2);
}

#[cfg(feature = "nightly")]
#[test]
fn the_standard_allocator_is_implemented_too() {
    let sim = Sim::new();
    let mut vector = std::vec::Vec::new_in(PinnedAlloc::with_config(&sim.device(0), config()).unwrap());
    vector.extend(0..100_000);
    vector.truncate(10);
    vector.shrink_to_fit();
    assert!(vector.iter().copied().eq(0..10));
    assert_eq!(*Box::new_in(7, NewDelete), 7);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn vectors_live_as_the_standard_ones_do(steps in proptest::collection::vec(step(), 1..40)) {
        let sim = Sim::new();
        // Low enough that the steps go to and fro between the driver's blocks and mapped ones.
        let config = PinnedConfig::default().huge_bytes(8192);
        lives_as_the_standard_vector_does(PinnedAlloc::with_config(&sim.device(0), config).unwrap(), &steps);
        prop_assert_eq!(held(&sim), (0, 0));
        lives_as_the_standard_vector_does(NewDelete, &steps);
    }
}
