//! What a segment is: one page that stays, whole, and as long as asked for.

#![expect(unsafe_code, reason = "puts a pool to sleep, and lends segments")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alluvion::driver::{Call, Code, DeviceAttribute, Driver, ExportedMemory, HandleType};
use alluvion::resource::ExportWay;
use alluvion::sim::{Fault, SimConfig};
use alluvion::source::{Cuda, Mapped, MappedConfig};
use alluvion::suballoc::{PageBudget, SegmentHooks};
use alluvion::{ErrorKind, Layout, PoolConfig, Resource, ResourceExt, Sim};

use super::{Registry, SEGMENT, of, registered, stream};
use crate::paged::{MIB, PAGE, free_all, machine, pool};
use crate::raw_block::{Held, layout_of};

#[test]
fn each_segment_is_one_page_that_stays() {
    let sim = machine(64);
    let stream = stream(&sim);
    let pool = pool(&sim, registered());
    let mut blocks = Vec::new();
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    for round in 0..60_usize {
        let bytes = 1 + (round * 7919) % (3 * PAGE);
        blocks.push(Held::of(&pool, bytes, stream.as_ref()));
        if round % 3 == 2 {
            blocks.swap_remove((round * 31) % blocks.len()).free(stream.as_ref());
        }
        if blocks.len() > 20 {
            free_all(blocks.drain(..12).collect(), &stream);
        }
        let segments = of(&pool.segments());
        for &(address, bytes) in &segments {
            assert!(bytes.is_multiple_of(SEGMENT));
            assert_eq!(*seen.entry(address).or_insert(bytes), bytes, "it has changed");
            let range = sim.sim_driver().address_range(address).ok().flatten().expect("it is mapped");
            assert_eq!((range.start, range.bytes), (address, bytes), "one page");
        }
        assert!(blocks.iter().all(|block| {
            let (first, end) = block.range();
            segments.iter().any(|&(start, bytes)| start <= first && end <= start + bytes as u64)
        }));
    }
    let calls = sim.calls();
    assert_eq!(calls[Call::MemoryUnmap], 0, "nothing moves");
    assert_eq!(calls[Call::MemoryCreate], calls[Call::MemoryMap]);
    free_all(blocks, &stream);
    stream.synchronize().expect("the work is sound");
    let size = pool.pool_size();
    // Half a segment cannot go.
    assert_eq!(pool.trim(size - SEGMENT / 2).expect("it can be trimmed"), 0);
    assert_eq!(pool.trim(SEGMENT).expect("it can be trimmed"), size - SEGMENT);
    assert_eq!((pool.pool_size(), pool.segments().len()), (SEGMENT, 1));
    let live = sim.live();
    assert_eq!((live.physical, live.mappings, live.reservations), (1, 1, 1), "the addresses go, too");
    drop(pool);
    assert!(sim.live().physical + sim.live().reservations == 0);
}

/// Each call of a growth fails once; then the request fails, nothing is lost, and the next one is served.
#[test]
fn a_growth_that_fails_half_way_leaves_nothing() {
    for call in [Call::MemoryCreate, Call::VirtualReserve, Call::MemoryMap, Call::MemorySetAccess] {
        let sim = machine(64);
        let registry = Arc::new(Registry::default());
        let pool = pool(&sim, registered().segment_hooks(registry.hooks()));
        let before = sim.live();
        sim.inject(Fault::every(call, Code::UNKNOWN));
        let error = pool.allocate_sync(layout_of(100)).unwrap_err();
        assert_eq!(error.code(), Some(Code::UNKNOWN), "{call:?}: {error}");
        assert_eq!((sim.live(), registry.counts()), (before, (0, 0)), "{call:?}");
        sim.sim_driver().clear_faults();
        let block = pool.allocate_sync(layout_of(100)).unwrap();
        Held::adopt(&pool, block, layout_of(100)).free_sync();
        assert_eq!(registry.known(), of(&pool.segments()));
    }
}

/// Where there is less memory than a segment, the request gets what it needs.
#[test]
fn a_segment_is_shorter_where_memory_ends() {
    let sim = machine(7);
    let pool = pool(&sim, registered());
    let layouts = [layout_of(SEGMENT), layout_of(PAGE)];
    let blocks = layouts.map(|layout| Held::adopt(&pool, pool.allocate_sync(layout).unwrap(), layout));
    let bytes: Vec<usize> = pool.segments().iter().map(|segment| segment.bytes).collect();
    assert!(bytes.iter().all(|bytes| bytes.is_multiple_of(PAGE)));
    assert_eq!((bytes.len(), bytes.iter().max()), (2, Some(&SEGMENT)));
    blocks.into_iter().for_each(Held::free_sync);
    // A maximum is whole pages.
    let pool = crate::paged::pool(&machine(64), registered().maximum(3 * PAGE - 1));
    assert!(pool.allocate_sync(layout_of(2 * PAGE + 1)).is_err());
    let block = pool.allocate_sync(layout_of(2 * PAGE)).unwrap();
    assert_eq!(pool.pool_size(), 2 * PAGE);
    Held::adopt(&pool, block, layout_of(2 * PAGE)).free_sync();
}

#[test]
fn blocks_are_aligned_to_pages_of_the_host_on_request() {
    let sim = machine(64);
    let stream = stream(&sim);
    let pool = pool(&sim, registered());
    let blocks: Vec<_> = (1..40_usize)
        .map(|round| {
            let layout = Layout::new(round * 777, if round % 2 == 0 { 4096 } else { 256 }).unwrap();
            Held::allocate(&pool, layout, stream.as_ref()).unwrap()
        })
        .collect();
    let segments = pool.segments();
    for block in blocks.iter().filter(|block| block.layout.align() == 4096) {
        let (first, _) = block.range();
        let base =
            segments.iter().map(|segment| segment.address.address()).filter(|base| *base <= first).max();
        assert!((first - base.expect("it lies in one")).is_multiple_of(4096));
    }
    free_all(blocks, &stream);
}

/// A segment begins at a page: a request of a whole one takes one, whatever its alignment within a page is.
#[test]
fn a_whole_segment_needs_no_padding_for_its_alignment() {
    let sim = machine(64);
    let stream = stream(&sim);
    let pool = pool(&sim, registered());
    let mut blocks = Vec::new();
    for align in [256, 4096, PAGE] {
        let layout = Layout::new(SEGMENT, align).unwrap();
        blocks.push(Held::allocate(&pool, layout, stream.as_ref()).unwrap());
        let wanted: Vec<_> = blocks.iter().map(|block| (block.range().0, SEGMENT)).collect();
        assert_eq!(of(&pool.segments()).iter().collect::<BTreeSet<_>>(), wanted.iter().collect(), "{align}");
    }
    free_all(blocks, &stream);
}

/// A budget moves nothing in a registered pool.
#[test]
fn a_budget_has_no_effect() {
    let sim = machine(64);
    let stream = stream(&sim);
    let pool = pool(&sim, registered().budget(PageBudget::TimesPeak(1.0)));
    for round in 0..20_usize {
        let blocks = [1, 3, 5].map(|part| Held::of(&pool, (part + round) % 6 * PAGE + 1, stream.as_ref()));
        blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
    }
    assert_eq!((sim.calls()[Call::MemoryUnmap], pool.status().moves), (0, 0));
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let sim = Sim::with_config(SimConfig::default());
    let mapped = || Mapped::new(&sim.device(0)).unwrap();
    let moving = mapped().pool(PoolConfig::default()).unwrap();
    assert!(moving.set_segment_hooks(SegmentHooks::default()).unwrap_err().is_unsupported());
    for config in [
        PoolConfig::default().segment_hooks(SegmentHooks::default()),
        PoolConfig::default().registered(0),
        registered().maximum(PAGE - 1),
        registered().initial(2 * PAGE).maximum(PAGE),
    ] {
        let text = format!("{config:?}");
        assert_eq!(mapped().pool(config).unwrap_err().kind(), ErrorKind::InvalidArgument, "{text}");
    }
}

/// Through the page of a segment for other processes, through a dma-buf for the kernel's other drivers.
#[test]
fn a_segment_is_lent_whole() {
    let sim = machine(64);
    let device = sim.device(0);
    let config = MappedConfig::default().handle_types(HandleType::POSIX_FILE_DESCRIPTOR);
    let pool = Mapped::with_config(&device, config).unwrap().pool(registered()).unwrap();
    let (small, large) = (layout_of(1000), layout_of(PAGE));
    let blocks = [small, large].map(|layout| Held::adopt(&pool, pool.allocate_sync(layout).unwrap(), layout));
    let segment = pool.segments()[0];
    for block in &blocks {
        // SAFETY: the block is live.
        let export = unsafe { pool.export(block.pointer, block.layout) }.unwrap();
        assert_eq!((export.way(), export.visible_bytes()), (ExportWay::PagesByDescriptor, segment.bytes));
        assert_eq!(export.offset() as u64, block.range().0 - segment.address.address());
    }
    // SAFETY: the segment is live.
    let lend = |bytes| unsafe { device.dma_buf(segment.address.address(), bytes) };
    for call in [Call::MemoryExport, Call::DmaBuf] {
        sim.inject(Fault::nth(call, 1, Code::UNKNOWN));
    }
    assert_eq!(lend(segment.bytes).unwrap_err().code(), Some(Code::UNKNOWN));
    let descriptor = lend(segment.bytes).unwrap();
    assert!(lend(segment.bytes + 4096).is_err() && lend(100).is_err() && lend(0).is_err());
    sim.sim_driver().clear_faults();
    let taken_up = || device.memory_info().map(|info| info.total_bytes - info.free_bytes).unwrap();
    blocks.into_iter().for_each(Held::free_sync);
    assert_eq!(pool.trim(0).unwrap(), SEGMENT);
    assert_eq!(taken_up(), SEGMENT, "the descriptor keeps it");
    // No process imports it.
    let imported = sim.sim_driver().sharing().unwrap();
    let imported = imported.memory_import(0, &ExportedMemory::FileDescriptor(descriptor));
    assert_eq!(imported.map_err(|error| error.code), Err(Code::NOT_SUPPORTED));
    assert_eq!(taken_up(), 0);
    let without = Sim::with_config(SimConfig::default().attribute(DeviceAttribute::DmaBuf, 0));
    let pool = crate::paged::pool(&without, registered().initial(SEGMENT));
    let segment = pool.segments()[0];
    // SAFETY: the segment is live.
    let refused = unsafe { without.device(0).dma_buf(segment.address.address(), segment.bytes) }.unwrap_err();
    assert!(refused.is_unsupported(), "{refused}");
    assert!(without.device(0).capabilities().is_ok_and(|can| !can.dma_buf));
}

#[test]
fn a_segment_of_more_than_there_can_be_is_as_long_as_there_is_memory() {
    for bytes in [1 << 39, 1 << 40, usize::MAX] {
        let sim = machine(16);
        let stream = stream(&sim);
        let pool = pool(&sim, PoolConfig::default().registered(bytes));
        Held::of(&pool, MIB, stream.as_ref()).free(stream.as_ref());
        assert_eq!(pool.pool_size(), 16 * PAGE, "{bytes}");
    }
}

#[test]
fn an_initial_segment_is_whole_pages_and_fewer_than_a_terabyte() {
    let device = Sim::new().device(0);
    let error = Cuda::new(&device).pool(registered().initial((1 << 40) - 256)).unwrap_err();
    assert!(error.to_string().contains("1 TiB or more"), "{error}");
    let config = || PoolConfig::default().registered(PAGE).maximum(PAGE + MIB).initial_half_of_free();
    assert_eq!(Cuda::new(&device).pool(config()).expect("it is valid").pool_size(), PAGE);
    assert_eq!(
        Mapped::new(&device).and_then(|mapped| mapped.pool(config())).expect("it is valid").pool_size(),
        PAGE
    );
}
