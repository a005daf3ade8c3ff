//! Pools that two simulated processes have: blocks at two addresses, the order of their ends, and who may allocate.
#![cfg(feature = "sim")]
#![expect(unsafe_code, reason = "drives the driver seam by hand")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "each test keeps its ranges live to its end, or breaks the contract on purpose where the simulator says what \
              happens"
)]

use alluvion::driver::{
    Code, DeviceAttribute, Driver, ExportedMemory, HandleType, MapAccess, PointerHandle, PoolProperties,
    RawPool, RawStream,
};
use alluvion::sim::{HazardKind, SimConfig, SimDriver};

use super::processes::{
    LEGACY, fill, free, kinds, lends, no_hazard, put, read, shared_event, stream, two, with,
};

const DESCRIPTOR: HandleType = HandleType::POSIX_FILE_DESCRIPTOR;

fn pool(driver: &SimDriver) -> RawPool {
    let properties = PoolProperties { handle_types: DESCRIPTOR, ..PoolProperties::default() };
    driver.pool_create(0, properties).unwrap()
}

fn export(driver: &SimDriver, pool: RawPool) -> ExportedMemory {
    unsafe { lends(driver).pool_export(0, pool, DESCRIPTOR) }.unwrap()
}

/// A pool of the first process, and what stands for it in the second.
fn pools(exporter: &SimDriver, importer: &SimDriver) -> (RawPool, RawPool) {
    let pool = pool(exporter);
    (pool, lends(importer).pool_import(0, &export(exporter, pool)).unwrap())
}

fn allocate(driver: &SimDriver, pool: RawPool, bytes: usize, stream: RawStream) -> u64 {
    unsafe { driver.allocate_async(0, bytes, pool, stream) }.unwrap()
}

fn give_back(driver: &SimDriver, address: u64, stream: RawStream) {
    unsafe { driver.free_async(0, address, stream) }.unwrap();
}

fn pointer(driver: &SimDriver, address: u64) -> PointerHandle {
    unsafe { lends(driver).pool_export_pointer(0, address) }.unwrap()
}

fn import(driver: &SimDriver, pool: RawPool, handle: PointerHandle) -> Result<u64, Code> {
    unsafe { lends(driver).pool_import_pointer(0, pool, handle) }.map_err(|error| error.code)
}

#[test]
fn a_block_is_one_memory_at_two_addresses() {
    let (exporter, importer) = two();
    let before = free(&exporter);
    let (ours, theirs) = pools(&exporter, &importer);
    // More than a page, and not at the start of one.
    let first = allocate(&exporter, ours, 1000, LEGACY);
    let block = allocate(&exporter, ours, 70 << 20, LEGACY);
    put(&exporter, first, 9, 1000);
    put(&exporter, block, 1, 70 << 20);
    let opened = import(&importer, theirs, pointer(&exporter, block)).unwrap();
    assert_ne!(opened, block);
    let last = opened + (70 << 20) - 8;
    assert_eq!((read(&importer, opened, 8), read(&importer, last, 8)), (vec![1; 8], vec![1; 8]));
    put(&importer, last, 2, 8);
    assert_eq!(read(&exporter, block + (70 << 20) - 9, 9), [1, 2, 2, 2, 2, 2, 2, 2, 2]);
    let range = importer.address_range(last).unwrap().unwrap();
    assert_eq!((range.start, range.bytes), (opened, 70 << 20));
    assert_eq!((importer.live().pooled, importer.live().pools, importer.live().bytes), (1, 1, 70 << 20));
    // Neighbours stay the exporter's.
    let beyond = unsafe { importer.copy_async(0, opened, opened + (70 << 20), 512, LEGACY) };
    assert_eq!(beyond.unwrap_err().code, Code::INVALID_VALUE);
    assert_eq!(kinds(&importer), [HazardKind::OutOfBounds]);
    give_back(&importer, opened, LEGACY);
    importer.context_synchronize(0).unwrap();
    for address in [first, block] {
        give_back(&exporter, address, LEGACY);
    }
    exporter.context_synchronize(0).unwrap();
    unsafe { importer.pool_destroy(0, theirs) }.unwrap();
    unsafe { exporter.pool_destroy(0, ours) }.unwrap();
    assert!(importer.live().is_empty() && exporter.live().is_empty());
    assert_eq!(free(&exporter), before);
    no_hazard([&exporter, &importer]);
}

#[test]
fn pools_that_lead_nowhere_are_refused() {
    let (exporter, importer) = two();
    let (ours, theirs) = pools(&exporter, &importer);
    // An imported pool gives out blocks of its owner alone.
    let refused = [
        unsafe { importer.allocate_async(0, 512, theirs, LEGACY) }.map(|_| ()),
        unsafe { importer.pool_trim(0, theirs, 0) },
        unsafe { lends(&importer).pool_export(0, theirs, DESCRIPTOR) }.map(|_| ()),
    ];
    assert_eq!(refused.map(|it| it.unwrap_err().code), [Code::INVALID_VALUE; 3]);
    // Pages are no pool, and a pool is no pages.
    let memory = exporter.memory_create(0, 2 << 20, DESCRIPTOR).unwrap();
    let pages = unsafe { exporter.memory_export(0, memory, DESCRIPTOR) }.unwrap();
    assert_eq!(lends(&importer).pool_import(0, &pages).unwrap_err().code, Code::NOT_SUPPORTED);
    let refused = lends(&importer).memory_import(0, &export(&exporter, ours));
    assert_eq!(refused.unwrap_err().code, Code::NOT_SUPPORTED);
    // A pool goes out as it was made to.
    let plain = exporter.pool_create(0, PoolProperties::default()).unwrap();
    for (pool, way) in [(plain, DESCRIPTOR), (ours, HandleType::FABRIC), (ours, HandleType::NONE)] {
        let refused = unsafe { lends(&exporter).pool_export(0, pool, way) };
        assert_eq!(refused.unwrap_err().code, Code::INVALID_VALUE, "{way}");
    }
    let local = allocate(&exporter, plain, 512, LEGACY);
    assert!(unsafe { lends(&exporter).pool_export_pointer(0, local) }.is_err());
    let device = exporter.allocate_device(0, 512).unwrap();
    assert!(unsafe { lends(&exporter).pool_export_pointer(0, device) }.is_err());
    // The pool of a descriptor that is still open may be gone. There is nothing in it then.
    let gone = pool(&exporter);
    let block = allocate(&exporter, gone, 512, LEGACY);
    let (exported, given) = (export(&exporter, gone), pointer(&exporter, block));
    give_back(&exporter, block, LEGACY);
    exporter.context_synchronize(0).unwrap();
    unsafe { exporter.pool_destroy(0, gone) }.unwrap();
    let husk = lends(&importer).pool_import(0, &exported).unwrap();
    assert_eq!(import(&importer, husk, given), Err(Code::INVALID_VALUE));
    unsafe { importer.pool_destroy(0, husk) }.unwrap();
    no_hazard([&exporter, &importer]);
}

#[test]
fn blocks_that_lead_nowhere_are_refused() {
    let (exporter, importer) = two();
    let (ours, theirs) = pools(&exporter, &importer);
    let block = allocate(&exporter, ours, 512, LEGACY);
    let given = pointer(&exporter, block);
    let other = lends(&importer).pool_import(0, &export(&exporter, pool(&exporter))).unwrap();
    let own = importer.pool_create(0, PoolProperties::default()).unwrap();
    for wrong in [other, own] {
        assert_eq!(import(&importer, wrong, given), Err(Code::INVALID_VALUE));
    }
    assert_eq!(import(&importer, theirs, PointerHandle([0; 64])), Err(Code::INVALID_VALUE));
    // Freed, and freed with another owner at the address.
    give_back(&exporter, block, LEGACY);
    assert_eq!(import(&importer, theirs, given), Err(Code::INVALID_VALUE));
    assert_eq!(allocate(&exporter, ours, 512, LEGACY), block);
    assert_eq!(import(&importer, theirs, given), Err(Code::INVALID_VALUE));
    no_hazard([&exporter, &importer]);
    // What a driver may not survive is reported, and refused.
    let given = pointer(&exporter, block);
    let mut altered = given;
    altered.0[30] ^= 1;
    assert_eq!(import(&importer, theirs, altered), Err(Code::INVALID_VALUE));
    let opened = import(&importer, theirs, given).unwrap();
    assert!(
        unsafe { lends(&importer).pool_export_pointer(0, opened) }.is_err(),
        "not the importer's to lend"
    );
    assert_eq!(import(&importer, theirs, given), Err(Code::INVALID_VALUE), "twice");
    assert_eq!(kinds(&importer), [HazardKind::Undefined; 2]);
    assert_eq!((importer.live().pooled, exporter.hazards()), (1, vec![]));
}

#[test]
fn a_process_may_import_its_own_pool() {
    let (driver, _) = two();
    let ours = pool(&driver);
    let theirs = lends(&driver).pool_import(0, &export(&driver, ours)).unwrap();
    let block = allocate(&driver, ours, 512, LEGACY);
    let opened = import(&driver, theirs, pointer(&driver, block)).unwrap();
    put(&driver, opened, 5, 512);
    assert_eq!(read(&driver, block, 512), [5; 512]);
    give_back(&driver, opened, LEGACY);
    give_back(&driver, block, LEGACY);
    driver.context_synchronize(0).unwrap();
    for pool in [theirs, ours] {
        unsafe { driver.pool_destroy(0, pool) }.unwrap();
    }
    assert!(driver.live().pools == 0 && driver.live().pooled == 0);
    assert_eq!(driver.hazards(), []);
}

#[test]
fn a_fabric_handle_leads_to_a_pool() {
    let types = DeviceAttribute::PoolHandleTypes;
    let (exporter, importer) = with(SimConfig::default().attribute(types, HandleType::FABRIC.0 as i32));
    let properties = PoolProperties { handle_types: HandleType::FABRIC, ..PoolProperties::default() };
    let pool = exporter.pool_create(0, properties).unwrap();
    let exported = unsafe { lends(&exporter).pool_export(0, pool, HandleType::FABRIC) }.unwrap();
    let theirs = lends(&importer).pool_import(0, &exported).unwrap();
    let block = allocate(&exporter, pool, 512, LEGACY);
    put(&exporter, block, 4, 512);
    let opened = import(&importer, theirs, pointer(&exporter, block)).unwrap();
    assert_eq!(read(&importer, opened, 512), [4; 512]);
    no_hazard([&exporter, &importer]);
}

#[test]
fn a_block_is_used_after_its_allocation() {
    for waits in [true, false] {
        let (exporter, importer) = two();
        let (ours, theirs) = pools(&exporter, &importer);
        let (event, there) = shared_event(&exporter, &importer);
        let (first, second) = (stream(&exporter), stream(&importer));
        let block = allocate(&exporter, ours, 512, first);
        unsafe { exporter.event_record(0, event, first) }.unwrap();
        let opened = import(&importer, theirs, pointer(&exporter, block)).unwrap();
        if waits {
            unsafe { importer.stream_wait_event(0, second, there) }.unwrap();
        }
        fill(&importer, second, opened, 1, 512);
        let found = kinds(&importer);
        assert_eq!(found.is_empty(), waits, "{found:?}");
        assert!(waits || found[0] == HazardKind::UseBeforeReady, "{found:?}");
    }
}

#[test]
fn the_importer_gives_back_before_the_exporter() {
    // In time, and in the order of streams.
    for (gives_back, waits) in [(true, true), (true, false), (false, false)] {
        let (exporter, importer) = two();
        let (ours, theirs) = pools(&exporter, &importer);
        let (event, there) = shared_event(&exporter, &importer);
        let (first, second) = (stream(&exporter), stream(&importer));
        let block = allocate(&exporter, ours, 512, first);
        exporter.context_synchronize(0).unwrap();
        let opened = import(&importer, theirs, pointer(&exporter, block)).unwrap();
        fill(&importer, second, opened, 1, 512);
        if gives_back {
            give_back(&importer, opened, second);
            unsafe { importer.event_record(0, there, second) }.unwrap();
        }
        if waits {
            unsafe { exporter.stream_wait_event(0, first, event) }.unwrap();
        }
        give_back(&exporter, block, first);
        assert_eq!(importer.hazards(), []);
        let found = kinds(&exporter);
        assert_eq!(found.is_empty(), gives_back && waits, "{gives_back} {waits}: {found:?}");
        assert!(found.iter().all(|kind| *kind == HazardKind::FreeInUse), "{found:?}");
        // The work finds its memory in any case.
        importer.context_synchronize(0).unwrap();
        if !gives_back {
            assert_eq!(read(&importer, opened, 512), [1; 512]);
            give_back(&importer, opened, second);
        }
        importer.context_synchronize(0).unwrap();
        exporter.context_synchronize(0).unwrap();
        assert_eq!((importer.live().pooled, exporter.live().pooled), (0, 0));
    }
}

#[test]
fn what_was_given_back_is_gone_and_work_before_that_is_not() {
    let (exporter, importer) = two();
    let (ours, theirs) = pools(&exporter, &importer);
    let block = allocate(&exporter, ours, 512, LEGACY);
    put(&exporter, block, 1, 512);
    let opened = import(&importer, theirs, pointer(&exporter, block)).unwrap();
    let (down, other) = (importer.allocate_device(0, 512).unwrap(), stream(&importer));
    unsafe { importer.copy_async(0, down, opened, 512, other) }.unwrap();
    give_back(&importer, opened, other);
    importer.context_synchronize(0).unwrap();
    assert_eq!(read(&importer, down, 512), [1; 512]);
    no_hazard([&exporter, &importer]);
    let late = unsafe { importer.copy_async(0, down, opened, 512, other) };
    assert_eq!(late.unwrap_err().code, Code::INVALID_VALUE);
    assert_eq!(kinds(&importer), [HazardKind::UseAfterFree]);
    assert_eq!(unsafe { importer.free_async(0, opened, other) }.unwrap_err().code, Code::INVALID_VALUE);
    assert_eq!(kinds(&importer), [HazardKind::DoubleFree]);
    // It can be imported again, for it is still the exporter's.
    let again = import(&importer, theirs, pointer(&exporter, block)).unwrap();
    assert_eq!(read(&importer, again, 512), [1; 512]);
}

#[test]
fn a_pool_that_shrinks_leaves_the_importer_its_block() {
    let (exporter, importer) = two();
    let before = free(&exporter);
    let (ours, theirs) = pools(&exporter, &importer);
    let block = allocate(&exporter, ours, 1 << 20, LEGACY);
    put(&exporter, block, 6, 1 << 20);
    let opened = import(&importer, theirs, pointer(&exporter, block)).unwrap();
    // Against the order, so that the page goes and its memory does not.
    give_back(&exporter, block, LEGACY);
    exporter.context_synchronize(0).unwrap();
    assert_eq!(kinds(&exporter), [HazardKind::FreeInUse]);
    unsafe { exporter.pool_trim(0, ours, 0) }.unwrap();
    assert_eq!(read(&importer, opened, 8), [6; 8]);
    assert!(free(&exporter) < before);
    // Nor does a larger block of the exporter take the memory from under it.
    let large = allocate(&exporter, ours, 40 << 20, LEGACY);
    put(&exporter, large, 7, 40 << 20);
    assert_eq!(read(&importer, opened, 8), [6; 8]);
    give_back(&exporter, large, LEGACY);
    give_back(&importer, opened, LEGACY);
    importer.context_synchronize(0).unwrap();
    exporter.context_synchronize(0).unwrap();
    assert_eq!(free(&exporter), before);
    no_hazard([&exporter, &importer]);
}

#[test]
fn a_descriptor_finds_its_pool_through_any_number_of_copies() {
    let (exporter, importer) = two();
    let ours = pool(&exporter);
    let ExportedMemory::FileDescriptor(descriptor) = export(&exporter, ours) else { panic!("a descriptor") };
    let copies: Vec<_> = (0..10).map(|_| descriptor.try_clone().unwrap()).collect();
    drop(descriptor);
    let imported: Vec<RawPool> = copies
        .into_iter()
        .map(|copy| lends(&importer).pool_import(0, &ExportedMemory::FileDescriptor(copy)).unwrap())
        .collect();
    assert_eq!((importer.live().pools, importer.leaks().len()), (10, 10));
    for pool in imported {
        unsafe { importer.pool_destroy(0, pool) }.unwrap();
    }
    assert!(importer.live().is_empty());
    no_hazard([&exporter, &importer]);
}

#[test]
fn access_to_an_imported_pool_is_the_importers_to_set() {
    let (exporter, importer) = with(SimConfig::default().devices(2));
    let (ours, theirs) = pools(&exporter, &importer);
    let block = allocate(&exporter, ours, 512, LEGACY);
    exporter.context_synchronize(0).unwrap();
    let opened = import(&importer, theirs, pointer(&exporter, block)).unwrap();
    let far = || {
        let kernel = alluvion::sim::Kernel::new("far").writes(opened, 512);
        unsafe { importer.launch(1, LEGACY, kernel) }.unwrap();
        importer.context_synchronize(1).unwrap();
        kinds(&importer)
    };
    assert_eq!(far(), [HazardKind::NoAccess]);
    unsafe { lends(&importer).pool_set_access(0, theirs, 1, MapAccess::ReadWrite) }.unwrap();
    assert_eq!(far(), []);
    // What is imported later is open as well.
    let second = allocate(&exporter, ours, 512, LEGACY);
    exporter.context_synchronize(0).unwrap();
    let opened = import(&importer, theirs, pointer(&exporter, second)).unwrap();
    let kernel = alluvion::sim::Kernel::new("far").writes(opened, 512);
    unsafe { importer.launch(1, LEGACY, kernel) }.unwrap();
    assert_eq!(kinds(&importer), []);
    assert_eq!(exporter.hazards(), []);
}
