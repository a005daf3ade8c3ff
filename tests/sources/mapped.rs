//! `Mapped` on a simulated machine: what a device may lack, what may fail, and the end of queued work.

#![expect(unsafe_code, reason = "maps pages, and gives blocks back")]

use alluvion::driver::{Call, CaptureMode, Code, DeviceAttribute, Driver, HandleType};
use alluvion::sim::{Fault, HazardKind, Kernel, SimConfig};
use alluvion::source::{Mapped, MappedConfig};
use alluvion::{Device, Error, ErrorKind, Resource, Sim, Stream};

use crate::source_contract::layout;

const UNIT: usize = 2 << 20;

fn two_devices() -> Sim {
    Sim::with_config(SimConfig::default().devices(2))
}

/// Queues a kernel that writes the first bytes of a block.
fn write_on(device: &Device, stream: &Stream, address: u64, sim: &Sim) {
    let kernel = Kernel::new("writer").writes(address, 64);
    // SAFETY: the tests keep the memory until the kernel has run, or look for the hazard that follows.
    unsafe { sim.launch(device.ordinal(), stream.as_ref().raw(), kernel) }.unwrap();
}

#[test]
fn a_device_without_virtual_memory_says_what_to_use() {
    let sim = Sim::with_config(SimConfig::default().attribute(DeviceAttribute::VirtualMemory, 0));
    let error = Mapped::new(&sim.device(0)).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    let instead = error.unsupported_detail().unwrap().instead;
    assert!(instead.contains("`CudaAsync`") && instead.contains("`Cuda`"), "{error}");
}

#[test]
fn pages_are_for_network_cards_where_the_device_makes_such() {
    for can in [false, true] {
        let config = SimConfig::default().attribute(DeviceAttribute::PageRdma, can.into());
        let sim = Sim::with_config(config);
        let device = sim.device(0);
        assert!(device.capabilities().is_ok_and(|capabilities| capabilities.page_rdma == can));
        let mapped = Mapped::new(&device).unwrap();
        let block = mapped.allocate_sync(layout(1000)).unwrap();
        assert_eq!(sim.sim_driver().is_rdma_capable(block.address()), Ok(Some(can)));
        // SAFETY: the block came from this source with this layout, and nothing uses it.
        unsafe { mapped.deallocate_sync(block, layout(1000)) };
        assert_eq!(sim.sim_driver().is_rdma_capable(block.address()), Ok(None));
    }
}

#[test]
fn handle_types_that_the_device_does_not_have_are_refused() {
    let sim = Sim::new();
    let device = sim.device(0);
    let with = |types| Mapped::with_config(&device, MappedConfig::default().handle_types(types));
    let error = with(HandleType::FABRIC).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("`handle_types`"), "{error}");
    let source = with(HandleType::POSIX_FILE_DESCRIPTOR).unwrap();
    let pages = source.pages().unwrap();
    let page = pages.create(UNIT).unwrap();
    let memory = alluvion::driver::RawMemory(page.number());
    // SAFETY: the memory is live.
    unsafe { sim.sim_driver().memory_export(0, memory, HandleType::POSIX_FILE_DESCRIPTOR) }.unwrap();
    // SAFETY: the page has no address and is not used again.
    unsafe { pages.release(page) };
    drop(source);
    assert_eq!(sim.live().physical, 0);
}

#[test]
fn peers_reach_what_is_mapped_and_others_do_not() {
    let sim = two_devices();
    let (own, peer) = (sim.device(0), sim.device(1));
    let there = peer.stream().unwrap();
    for peers in [vec![], vec![peer.clone()], vec![own.clone(), peer.clone(), peer.clone()]] {
        let is_peer = !peers.is_empty();
        let source = Mapped::with_config(&own, MappedConfig::default().peers(peers)).unwrap();
        let before = sim.calls();
        let block = source.allocate_sync(layout(100)).unwrap();
        let made = sim.calls() - before;
        assert_eq!(made[Call::MemorySetAccess], if is_peer { 2 } else { 1 });
        write_on(&peer, &there, block.address(), &sim);
        let found = sim.take_hazards();
        if is_peer {
            assert!(found.is_empty(), "{found:?}");
        } else {
            assert_eq!(found[0].kind(), HazardKind::NoAccess, "{found:?}");
            break;
        }
        there.synchronize().unwrap();
        // SAFETY: the block came from this source with this layout, and its use is over.
        unsafe { source.deallocate_sync(block, layout(100)) };
    }
}

#[test]
fn peers_are_waited_for_by_the_stream_that_frees() {
    let sim = two_devices();
    let (own, peer) = (sim.device(0), sim.device(1));
    let source = Mapped::with_config(&own, MappedConfig::default().peers([peer.clone()])).unwrap();
    let (here, there) = (own.stream().unwrap(), peer.stream().unwrap());
    let block = source.allocate(layout(100), here.as_ref()).unwrap();
    there.wait_for_stream(&here).unwrap();
    write_on(&peer, &there, block.address(), &sim);
    here.wait_for_stream(&there).unwrap();
    // SAFETY: the block came from this source with this layout, and its use is ordered before this point of the stream.
    unsafe { source.deallocate(block, layout(100), here.as_ref()) };
    drop((source, here, there));
    sim.assert_clean();
}

#[test]
fn a_peer_without_access_is_named() {
    let sim = Sim::with_config(SimConfig::default().devices(3));
    let (own, peers) = (sim.device(0), [sim.device(1), sim.device(2)]);
    let make = || Mapped::with_config(&own, MappedConfig::default().peers(peers.clone()));
    // 217: the devices have no peer access. The first access is the device's own.
    for code in [Code(217), Code::INVALID_DEVICE] {
        sim.inject(Fault::nth(Call::MemorySetAccess, 3, code));
        let error = make().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let words = error.to_string();
        assert!(words.contains("gpu 2 has no access") && words.contains("leave gpu 2 out"), "{words}");
    }
    // What is no refusal is told as it is.
    sim.inject(Fault::nth(Call::MemorySetAccess, 2, Code::OUT_OF_MEMORY));
    assert!(make().unwrap_err().is_out_of_memory());
    assert_eq!((sim.live().reservations, sim.live().physical), (0, 0), "{}", sim.live());
    assert!(make().is_ok());
    let elsewhere = Sim::new();
    let config = MappedConfig::default().peers([elsewhere.device(0)]);
    assert!(Mapped::with_config(&own, config).unwrap_err().is_device_mismatch());
}

/// Fails each driver call of the body in turn, and looks for what is left.
fn fails_without_a_trace(calls_at_least: u64, body: impl Fn(&Sim) -> Result<(), Error>) {
    for n in 1.. {
        let sim = two_devices();
        sim.device(0).capabilities().unwrap();
        sim.inject(Fault::nth_call(n, Code::NOT_PERMITTED));
        let outcome = body(&sim);
        if sim.faults_left() > 0 {
            outcome.unwrap();
            assert!(n > calls_at_least, "the body makes {} driver calls", n - 1);
            return;
        }
        let live = sim.live();
        // What cannot be taken back is leaked, and nothing else.
        let is_leak = outcome.is_ok();
        let left = live.reservations + live.physical;
        assert!(left == 0 || is_leak, "failing call {n} left {live}, and says {outcome:?}");
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
    }
}

#[test]
fn construction_and_allocation_leave_nothing_behind() {
    let make = |sim: &Sim| {
        let config = MappedConfig::default().handle_types(HandleType::POSIX_FILE_DESCRIPTOR);
        Mapped::with_config(&sim.device(0), config.peers([sim.device(1)]))
    };
    fails_without_a_trace(8, |sim| make(sim).map(drop));
    fails_without_a_trace(15, |sim| {
        let source = make(sim)?;
        let block = source.allocate_sync(layout(5000))?;
        // SAFETY: the block came from this source with this layout, and nothing uses it.
        unsafe { source.deallocate_sync(block, layout(5000)) };
        Ok(())
    });
}

#[test]
fn a_failing_step_says_which_call_failed() {
    let sim = Sim::new();
    let source = Mapped::new(&sim.device(0)).unwrap();
    for call in [Call::VirtualReserve, Call::MemoryCreate, Call::MemoryMap, Call::MemorySetAccess] {
        for code in [Code::OUT_OF_MEMORY, Code::NOT_PERMITTED] {
            sim.inject(Fault::nth(call, 1, code));
            let error = source.allocate_sync(layout(100)).unwrap_err();
            assert_eq!((error.call(), error.code()), (Some(call), Some(code)), "{error}");
            assert_eq!(error.is_out_of_memory(), code == Code::OUT_OF_MEMORY);
        }
    }
    assert_eq!((sim.live().reservations, sim.live().physical), (0, 0), "{}", sim.live());
}

#[test]
fn a_block_is_whole_pages_of_its_own() {
    let sim = Sim::new();
    let (source, free) = (Mapped::new(&sim.device(0)).unwrap(), || sim.device(0).memory_info().unwrap());
    let before = free().free_bytes;
    let one = source.allocate_sync(layout(1)).unwrap();
    let more = source.allocate_sync(layout(UNIT + 1)).unwrap();
    assert_eq!(before - free().free_bytes, 3 * UNIT);
    assert_eq!((sim.live().reservations, sim.live().physical, sim.live().mappings), (2, 2, 2));
    for (block, bytes) in [(one, 1), (more, UNIT + 1)] {
        // SAFETY: the block came from this source with this layout, and nothing uses it.
        unsafe { source.deallocate_sync(block, layout(bytes)) };
    }
    assert_eq!(before, free().free_bytes);
    assert_eq!((sim.live().reservations, sim.live().physical), (0, 0), "{}", sim.live());
}

#[test]
fn a_clone_frees_and_what_is_live_at_the_end_stays() {
    let sim = Sim::new();
    let source = Mapped::new(&sim.device(0)).unwrap();
    let (one, two) = (source.allocate_sync(layout(1)).unwrap(), source.allocate_sync(layout(1)).unwrap());
    let clone = source.clone();
    drop(source);
    // SAFETY: the block came from a source with this id with this layout, and nothing uses it.
    unsafe { clone.deallocate_sync(one, layout(1)) };
    drop(clone);
    assert_eq!(sim.live().mappings, 1);
    // The memory is still there for who has its address.
    let stream = sim.device(0).stream().unwrap();
    write_on(&sim.device(0), &stream, two.address(), &sim);
    stream.synchronize().unwrap();
    assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
}

#[test]
fn a_free_waits_for_queued_work_and_a_capture_leaks() {
    let sim = Sim::new();
    let device = sim.device(0);
    let (source, stream) = (Mapped::new(&device).unwrap(), device.stream().unwrap());
    let block = source.allocate(layout(100), stream.as_ref()).unwrap();
    write_on(&device, &stream, block.address(), &sim);
    // SAFETY: the block came from this source with this layout, and its use is on the stream.
    unsafe { source.deallocate(block, layout(100), stream.as_ref()) };
    assert_eq!((sim.live().mappings, sim.hazards().len()), (0, 0), "{:?}", sim.hazards());

    let block = source.allocate(layout(100), stream.as_ref()).unwrap();
    sim.begin_capture(0, stream.as_ref().raw(), CaptureMode::Global).unwrap();
    // SAFETY: the block came from this source with this layout, and nothing uses it.
    unsafe { source.deallocate(block, layout(100), stream.as_ref()) };
    drop(sim.end_capture(0, stream.as_ref().raw()).unwrap());
    assert_eq!(sim.live().mappings, 1, "recorded work may still use it");
    assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
}

#[test]
fn a_lost_context_leaks_and_says_so() {
    let sim = Sim::new();
    let device = sim.device(0);
    let (source, stream) = (Mapped::new(&device).unwrap(), device.stream().unwrap());
    let block = source.allocate(layout(100), stream.as_ref()).unwrap();
    sim.poison(0, Code::ILLEGAL_ADDRESS);
    let pages = source.pages().unwrap();
    assert!(source.allocate_sync(layout(100)).unwrap_err().is_context_lost());
    assert!(pages.reserve(UNIT).unwrap_err().is_context_lost());
    assert!(pages.create(UNIT).unwrap_err().is_context_lost());
    // SAFETY: the block came from this source with this layout; the work that used it is gone with its context.
    unsafe { source.deallocate(block, layout(100), stream.as_ref()) };
    assert_eq!(sim.live().mappings, 1);
}

#[test]
fn sizes_say_what_to_pass() {
    let sim = Sim::new();
    let source = Mapped::new(&sim.device(0)).unwrap();
    let words = source.pages().unwrap().create(UNIT + 5).unwrap_err().to_string();
    assert!(words.contains("2097157 bytes") && words.contains("multiple of 2097152"), "{words}");
}
