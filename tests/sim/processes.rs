//! Two processes on one simulated machine: what each has of its own, and how they lend memory and events to each other.
#![cfg(feature = "sim")]
#![expect(unsafe_code, reason = "drives the driver seam by hand")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "each test keeps its ranges live to its end, or breaks the contract on purpose where the simulator says what \
              happens"
)]

use std::sync::Arc;

use alluvion::driver::{
    Call, Code, Driver, EventHandle, ExportedMemory, FillValue, HandleType, Location, MapAccess,
    MemoryHandle, RawEvent, RawMemory, RawStream, Sharing, StreamFlags,
};
use alluvion::sim::{Fault, HazardKind, Kernel, SimConfig, SimDriver, StreamLabel};
use alluvion::{DeviceVec, Sim};

pub(super) const LEGACY: RawStream = RawStream::LEGACY;
const PAGE: usize = 2 << 20;
const DESCRIPTOR: HandleType = HandleType::POSIX_FILE_DESCRIPTOR;

/// A machine with two processes.
pub(super) fn two() -> (Arc<SimDriver>, Arc<SimDriver>) {
    with(SimConfig::default())
}

pub(super) fn with(config: SimConfig) -> (Arc<SimDriver>, Arc<SimDriver>) {
    let first = SimDriver::new(config);
    let second = first.process();
    (first, second)
}

pub(super) fn lends(driver: &SimDriver) -> &dyn Sharing {
    driver.sharing().unwrap()
}

fn address_of<T>(values: &mut [T]) -> u64 {
    values.as_mut_ptr().expose_provenance() as u64
}

pub(super) fn read(driver: &SimDriver, from: u64, bytes: usize) -> Vec<u8> {
    let mut back = vec![0_u8; bytes];
    unsafe { driver.copy(0, address_of(&mut back), from, bytes) }.unwrap();
    back
}

pub(super) fn fill(driver: &SimDriver, stream: RawStream, to: u64, value: u8, bytes: usize) {
    unsafe { driver.fill_async(0, to, FillValue::U8(value), bytes, stream) }.unwrap();
}

/// Fills, and waits.
pub(super) fn put(driver: &SimDriver, to: u64, value: u8, bytes: usize) {
    fill(driver, LEGACY, to, value, bytes);
    driver.context_synchronize(0).unwrap();
}

pub(super) fn stream(driver: &SimDriver) -> RawStream {
    driver.stream_create(0, StreamFlags { blocking: false, ..StreamFlags::default() }).unwrap()
}

pub(super) fn free(driver: &SimDriver) -> usize {
    driver.memory_info(0).unwrap().free_bytes
}

pub(super) fn kinds(driver: &SimDriver) -> Vec<HazardKind> {
    driver.take_hazards().iter().map(|hazard| hazard.kind()).collect()
}

pub(super) fn no_hazard(drivers: [&SimDriver; 2]) {
    for driver in drivers {
        assert_eq!(driver.hazards(), []);
    }
}

fn handle(driver: &SimDriver, address: u64) -> MemoryHandle {
    unsafe { lends(driver).memory_handle(0, address) }.unwrap()
}

fn open(driver: &SimDriver, handle: MemoryHandle) -> Result<u64, Code> {
    unsafe { lends(driver).memory_open(0, handle) }.map_err(|error| error.code)
}

fn close(driver: &SimDriver, address: u64) -> Result<(), Code> {
    unsafe { lends(driver).memory_close(0, address) }.map_err(|error| error.code)
}

fn export(driver: &SimDriver, memory: RawMemory, way: HandleType) -> ExportedMemory {
    unsafe { driver.memory_export(0, memory, way) }.unwrap()
}

fn release(driver: &SimDriver, memory: RawMemory) {
    unsafe { driver.memory_release(0, memory) }.unwrap();
}

/// Maps one page at an address of its own, for reading and writing.
fn map(driver: &SimDriver, memory: RawMemory) -> u64 {
    let at = driver.virtual_reserve(0, PAGE, 0).unwrap();
    unsafe { driver.memory_map(0, at, PAGE, memory) }.unwrap();
    unsafe { driver.memory_set_access(0, at, PAGE, Location::Device(0), MapAccess::ReadWrite) }.unwrap();
    at
}

fn unmap(driver: &SimDriver, at: u64) {
    unsafe { driver.memory_unmap(0, at, PAGE) }.unwrap();
    unsafe { driver.virtual_free(0, at, PAGE) }.unwrap();
}

/// A copy of the descriptor, as a message through a socket makes one.
fn copy_of(exported: &ExportedMemory) -> ExportedMemory {
    match exported {
        ExportedMemory::FileDescriptor(descriptor) => {
            ExportedMemory::FileDescriptor(descriptor.try_clone().unwrap())
        }
        ExportedMemory::Fabric(handle) => ExportedMemory::Fabric(handle.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn processes_share_the_hardware_and_nothing_else() {
    let (first, second) = with(SimConfig::default().devices(2));
    let before = free(&second);
    let address = first.allocate_device(0, PAGE).unwrap();
    let (event, made) = (first.event_create(0).unwrap(), stream(&first));
    assert_eq!(free(&second), before - PAGE, "there is one memory");
    assert!(second.live().is_empty() && !first.live().is_empty());
    // What is a handle there is none here, and an address is nobody's.
    assert_eq!(second.address_range(address), Ok(None));
    assert_eq!(second.pointer_attributes(address), Ok(None));
    assert_eq!(unsafe { second.stream_synchronize(0, made) }.unwrap_err().code, Code::INVALID_HANDLE);
    assert_eq!(unsafe { second.event_query(0, event) }.unwrap_err().code, Code::INVALID_HANDLE);
    assert_eq!(unsafe { second.free_device(0, address) }.unwrap_err().code, Code::INVALID_VALUE);
    let refused = unsafe { second.fill_async(0, address, FillValue::U8(1), 1, LEGACY) };
    assert_eq!(refused.unwrap_err().code, Code::INVALID_VALUE);
    let stale = [HazardKind::StaleHandle, HazardKind::StaleHandle];
    assert_eq!(kinds(&second), [&stale[..], &[HazardKind::InvalidFree, HazardKind::OutOfBounds]].concat());
    assert_eq!(first.hazards(), []);
    // Nor do they share what a thread has set.
    first.set_context(1).unwrap();
    assert_eq!((first.context_device(), second.context_device()), (Ok(Some(1)), Ok(None)));
    // Addresses differ, so that one never means two things.
    assert_ne!(second.allocate_device(0, PAGE).unwrap(), address);
    assert_ne!(second.stream_create(0, StreamFlags::default()).map(|raw| raw.0), Ok(address));
}

#[test]
fn calls_faults_and_lost_contexts_are_of_one_process() {
    let (first, second) = two();
    first.inject(Fault::nth(Call::AllocateDevice, 1, Code::OUT_OF_MEMORY));
    let address = second.allocate_device(0, 512).unwrap();
    assert!(first.allocate_device(0, 512).is_err());
    assert_eq!((first.calls()[Call::AllocateDevice], second.calls()[Call::AllocateDevice]), (1, 1));
    first.poison(0, Code::LAUNCH_FAILED);
    assert_eq!(first.context_synchronize(0).unwrap_err().code, Code::LAUNCH_FAILED);
    put(&second, address, 7, 512);
    assert_eq!(read(&second, address, 512), [7; 512]);
    let queued = stream(&second);
    // A kernel that goes wrong ends its own process's context.
    let third = second.process();
    let stray = Kernel::new("stray").reads(1 << 48, 4).run(|memory| {
        memory.read_u32(1 << 48);
    });
    unsafe { third.launch(0, LEGACY, stray) }.unwrap();
    fill(&second, queued, address, 8, 512);
    assert_eq!(third.context_synchronize(0).unwrap_err().code, Code::ILLEGAL_ADDRESS);
    assert_eq!(read(&second, address, 512).len(), 512);
    assert_eq!(kinds(&third), [HazardKind::OutOfBounds]);
    second.context_synchronize(0).unwrap();
    assert_eq!(kinds(&second), [HazardKind::Race], "its own: the copy did not wait for the fill");
}

#[test]
fn streams_of_two_processes_have_different_numbers() {
    let (first, second) = two();
    let ids: Vec<u64> = [&first, &second, &first, &second]
        .map(|driver| unsafe { driver.stream_id(0, stream(driver)) }.unwrap())
        .into();
    let mut different = ids.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 4, "{ids:?}");
}

#[test]
fn work_of_one_process_runs_while_another_waits_and_finds_its_own_memory() {
    for seed in 0..20 {
        let (first, second) = with(SimConfig::default().seed(seed));
        let drivers = [&first, &second, &first.process()];
        let places = drivers.map(|driver| driver.allocate_device(0, 4096).unwrap());
        for (n, (driver, at)) in drivers.iter().zip(places).enumerate() {
            let value = n as u8 + 1;
            fill(driver, stream(driver), at, value, 2048);
            let kernel = Kernel::new("own")
                .writes(at + 2048, 4)
                .run(move |memory| memory.write(at + 2048, &[value; 4]));
            unsafe { driver.launch(0, LEGACY, kernel) }.unwrap();
        }
        drivers[1].context_synchronize(0).unwrap();
        for (n, (driver, at)) in drivers.iter().zip(places).enumerate().rev() {
            driver.context_synchronize(0).unwrap();
            let back = read(driver, at, 2052);
            assert!(back.iter().all(|byte| *byte == n as u8 + 1), "seed {seed}, process {n}");
            assert_eq!(driver.hazards(), [], "seed {seed}");
        }
    }
}

#[test]
fn an_allocation_is_one_memory_at_two_addresses() {
    let (exporter, importer) = two();
    let before = free(&exporter);
    let address = exporter.allocate_device(0, 5000).unwrap();
    put(&exporter, address, 1, 5000);
    let given = handle(&exporter, address + 4999);
    assert_eq!(given, handle(&exporter, address), "of the whole allocation");
    let opened = open(&importer, given).unwrap();
    assert_ne!(opened, address);
    assert_eq!(read(&importer, opened, 5000), [1; 5000]);
    put(&importer, opened + 10, 2, 5);
    assert_eq!(read(&exporter, address + 9, 7), [1, 2, 2, 2, 2, 2, 1]);
    let range = importer.address_range(opened + 1).unwrap().unwrap();
    assert_eq!((range.start, range.bytes), (opened, 5000));
    assert_eq!(importer.pointer_attributes(opened).unwrap().unwrap().ordinal, Some(0));
    assert_eq!((importer.live().opened, importer.live().bytes), (1, 5000));
    assert_eq!(importer.leaks().len(), 1, "{:?}", importer.leaks());
    // Once more is the same, to be closed as often.
    assert_eq!(open(&importer, given), Ok(opened));
    assert_eq!(close(&importer, opened), Ok(()));
    assert_eq!(read(&importer, opened, 1), [1]);
    assert_eq!(close(&importer, opened), Ok(()));
    assert!(importer.live().is_empty() && importer.leaks().is_empty());
    no_hazard([&exporter, &importer]);
    assert_eq!(close(&importer, opened), Err(Code::INVALID_VALUE));
    assert_eq!(kinds(&importer), [HazardKind::DoubleFree]);
    unsafe { exporter.free_device(0, address) }.unwrap();
    assert_eq!(free(&importer), before);
    no_hazard([&exporter, &importer]);
}

#[test]
fn handles_that_lead_nowhere_are_refused() {
    let (exporter, importer) = two();
    let address = exporter.allocate_device(0, 512).unwrap();
    let given = handle(&exporter, address);
    assert_eq!(open(&exporter, given), Err(Code::INVALID_CONTEXT), "its own");
    let mut changed = given;
    changed.0[63] ^= 1;
    let elsewhere = SimDriver::new(SimConfig::default());
    let foreign = handle(&elsewhere, elsewhere.allocate_device(0, 512).unwrap());
    for bytes in [changed, foreign, MemoryHandle([0; 64])] {
        assert_eq!(open(&importer, bytes), Err(Code::INVALID_VALUE));
    }
    // A stale one, also when its address has another owner.
    unsafe { exporter.free_device(0, address) }.unwrap();
    assert_eq!(open(&importer, given), Err(Code::INVALID_VALUE));
    assert_eq!(exporter.allocate_device(0, 512), Ok(address));
    assert_eq!(open(&importer, given), Err(Code::INVALID_VALUE));
    // Only memory of `allocate_device` has one.
    let pool = exporter.pool_default(0, alluvion::driver::PoolKind::Device).unwrap();
    let pooled = unsafe { exporter.allocate_async(0, 512, pool, LEGACY) }.unwrap();
    let pages = map(&exporter, exporter.memory_create(0, PAGE, HandleType::NONE).unwrap());
    let managed = exporter.allocate_managed(0, 512).unwrap();
    for other in [pooled, pages, managed, 0, address + 512] {
        let refused = unsafe { lends(&exporter).memory_handle(0, other) };
        assert_eq!(refused.unwrap_err().code, Code::INVALID_VALUE);
    }
    // What is open is not the importer's to free or to lend.
    let opened = open(&importer, handle(&exporter, address)).unwrap();
    assert!(unsafe { lends(&importer).memory_handle(0, opened) }.is_err());
    no_hazard([&exporter, &importer]);
    assert_eq!(unsafe { importer.free_device(0, opened) }.unwrap_err().code, Code::INVALID_VALUE);
    assert_eq!(kinds(&importer), [HazardKind::InvalidFree]);
    assert_eq!(close(&importer, opened), Ok(()));
}

#[test]
fn freeing_what_another_process_has_open_is_reported_and_harms_nobody() {
    let (exporter, importer) = two();
    let before = free(&exporter);
    let address = exporter.allocate_device(0, PAGE).unwrap();
    put(&exporter, address, 3, PAGE);
    let opened = open(&importer, handle(&exporter, address)).unwrap();
    unsafe { exporter.free_device(0, address) }.unwrap();
    assert_eq!(kinds(&exporter), [HazardKind::FreeInUse]);
    assert_eq!((read(&importer, opened, 8), free(&exporter)), (vec![3; 8], before - PAGE));
    close(&importer, opened).unwrap();
    assert_eq!(free(&exporter), before);
    no_hazard([&exporter, &importer]);
}

#[test]
fn memory_is_closed_after_its_work() {
    let (exporter, importer) = two();
    let address = exporter.allocate_device(0, 512).unwrap();
    let opened = open(&importer, handle(&exporter, address)).unwrap();
    fill(&importer, stream(&importer), opened, 1, 512);
    close(&importer, opened).unwrap();
    assert_eq!(kinds(&importer), [HazardKind::FreeInUse]);
    // Work of another process is not disturbed by that.
    let again = open(&importer, handle(&exporter, address)).unwrap();
    fill(&exporter, stream(&exporter), address, 1, 512);
    let _ = exporter.take_hazards();
    close(&importer, again).unwrap();
    assert_eq!(importer.hazards(), []);
}

/// An event of the exporter and the importer's handle of it.
pub(super) fn shared_event(exporter: &SimDriver, importer: &SimDriver) -> (RawEvent, RawEvent) {
    let event = lends(exporter).event_create_shared(0).unwrap();
    let given = unsafe { lends(exporter).event_handle(0, event) }.unwrap();
    (event, unsafe { lends(importer).event_open(0, given) }.unwrap())
}

#[test]
fn a_record_by_either_is_a_record_of_both() {
    for seed in 0..20 {
        let (exporter, importer) = with(SimConfig::default().seed(seed));
        let address = exporter.allocate_device(0, 512).unwrap();
        let opened = open(&importer, handle(&exporter, address)).unwrap();
        let (event, theirs) = shared_event(&exporter, &importer);
        assert_eq!(unsafe { importer.event_query(0, theirs) }, Ok(true), "there was no record");
        let (ours, other) = (stream(&exporter), stream(&importer));
        // There.
        fill(&exporter, ours, address, 1, 512);
        unsafe { exporter.event_record(0, event, ours) }.unwrap();
        unsafe { importer.stream_wait_event(0, other, theirs) }.unwrap();
        fill(&importer, other, opened, 2, 256);
        // And back.
        unsafe { importer.event_record(0, theirs, other) }.unwrap();
        unsafe { exporter.event_synchronize(0, event) }.unwrap();
        assert_eq!(unsafe { importer.event_query(0, theirs) }, Ok(true));
        let back = read(&exporter, address, 512);
        assert_eq!((&back[..256], &back[256..]), (&[2; 256][..], &[1; 256][..]));
        no_hazard([&exporter, &importer]);
        unsafe { importer.event_destroy(0, theirs) }.unwrap();
        unsafe { exporter.event_destroy(0, event) }.unwrap();
        assert_eq!((importer.live().events, exporter.live().events), (0, 0));
    }
}

#[test]
fn a_missing_wait_between_processes_is_a_race() {
    let (exporter, importer) = two();
    let address = exporter.allocate_device(0, 512).unwrap();
    let opened = open(&importer, handle(&exporter, address)).unwrap();
    fill(&exporter, stream(&exporter), address, 1, 512);
    fill(&importer, stream(&importer), opened, 2, 16);
    assert_eq!(exporter.hazards(), []);
    let [race] = &importer.take_hazards()[..] else { panic!("one hazard") };
    assert_eq!(race.kind(), HazardKind::Race);
    let (one, two) = (race.first().unwrap(), race.second().unwrap());
    assert_eq!((one.process(), two.process()), (0, 1));
    assert!(matches!((one.stream(), two.stream()), (StreamLabel::Stream { .. }, StreamLabel::Stream { .. })));
    assert!(race.to_string().contains("of process 1"), "{race}");
    // A host that has waited may have told the other one.
    exporter.context_synchronize(0).unwrap();
    importer.context_synchronize(0).unwrap();
    fill(&exporter, LEGACY, address, 1, 512);
    no_hazard([&exporter, &importer]);
    // The legacy streams of two processes do not wait for each other.
    fill(&importer, LEGACY, opened, 2, 16);
    assert_eq!(kinds(&importer), [HazardKind::Race]);
}

#[test]
fn events_that_lead_nowhere_are_refused() {
    let (exporter, importer) = two();
    let plain = exporter.event_create(0).unwrap();
    assert!(unsafe { lends(&exporter).event_handle(0, plain) }.is_err());
    let event = lends(&exporter).event_create_shared(0).unwrap();
    let given = unsafe { lends(&exporter).event_handle(0, event) }.unwrap();
    let open = |driver: &SimDriver, given| unsafe { lends(driver).event_open(0, given) }.map_err(|e| e.code);
    assert_eq!(open(&exporter, given), Err(Code::INVALID_CONTEXT));
    assert_eq!(open(&importer, EventHandle([1; 64])), Err(Code::MAP_FAILED));
    let opened = open(&importer, given).unwrap();
    assert!(unsafe { lends(&importer).event_handle(0, opened) }.is_err(), "it is not the importer's to lend");
    unsafe { exporter.event_destroy(0, event) }.unwrap();
    // An H200 opens it still.
    let late = open(&importer, given).unwrap();
    unsafe { importer.event_destroy(0, late) }.unwrap();
    no_hazard([&exporter, &importer]);
    // The manual calls the use of the importer's event undefined from then on.
    assert_eq!(unsafe { importer.event_record(0, opened, LEGACY) }.unwrap_err().code, Code::INVALID_HANDLE);
    assert_eq!(unsafe { importer.event_query(0, opened) }.unwrap_err().code, Code::INVALID_HANDLE);
    let waited = unsafe { importer.stream_wait_event(0, LEGACY, opened) };
    assert_eq!(waited.unwrap_err().code, Code::INVALID_HANDLE);
    assert_eq!(kinds(&importer), [HazardKind::StaleHandle; 3]);
    unsafe { importer.event_destroy(0, opened) }.unwrap();
    assert_eq!(importer.live().events, 0);
}

#[test]
fn a_machine_without_shared_events_says_so() {
    let config = SimConfig::default().attribute(alluvion::driver::DeviceAttribute::SharedEvents, 0);
    let driver = SimDriver::new(config);
    let refused = lends(&driver).event_create_shared(0).unwrap_err();
    assert_eq!((refused.call, refused.code), (Call::EventCreate, Code::NOT_SUPPORTED));
}

#[test]
fn pages_live_until_nobody_has_them() {
    for kept_by in ["a handle", "a mapping", "a descriptor"] {
        let (exporter, importer) = two();
        let before = free(&exporter);
        let memory = exporter.memory_create(0, PAGE, DESCRIPTOR).unwrap();
        let at = map(&exporter, memory);
        put(&exporter, at, 5, PAGE);
        let exported = export(&exporter, memory, DESCRIPTOR);
        let sent = copy_of(&exported);
        drop(exported);
        let imported = (kept_by != "a descriptor").then(|| lends(&importer).memory_import(0, &sent).unwrap());
        let sent = (kept_by == "a descriptor").then_some(sent);
        // The exporter lets go of all.
        unmap(&exporter, at);
        release(&exporter, memory);
        assert!(exporter.live().is_empty(), "{}", exporter.live());
        assert_eq!(free(&exporter), before - PAGE, "{kept_by}");
        let imported = match (imported, sent) {
            (Some(imported), _) => imported,
            (None, sent) => lends(&importer).memory_import(0, &sent.unwrap()).unwrap(),
        };
        let there = map(&importer, imported);
        if kept_by == "a mapping" {
            release(&importer, imported);
            assert_eq!((importer.live().physical, importer.live().mappings), (0, 1));
        }
        assert_eq!(read(&importer, there, 16), [5; 16], "{kept_by}");
        unmap(&importer, there);
        if kept_by != "a mapping" {
            assert_eq!(free(&importer), before - PAGE, "{kept_by}");
            release(&importer, imported);
        }
        assert_eq!(free(&importer), before, "{kept_by}");
        assert!(importer.live().is_empty() && importer.leaks().is_empty());
        no_hazard([&exporter, &importer]);
    }
}

#[test]
fn a_descriptor_that_is_closed_keeps_nothing_alive() {
    let (exporter, importer) = two();
    let before = free(&exporter);
    let memory = exporter.memory_create(0, PAGE, DESCRIPTOR).unwrap();
    let exported: Vec<ExportedMemory> = (0..3).map(|_| export(&exporter, memory, DESCRIPTOR)).collect();
    let last = copy_of(&exported[1]);
    drop(exported);
    release(&exporter, memory);
    assert_eq!(free(&importer), before - PAGE);
    // An allocation that needs the memory looks as well.
    drop(last);
    let all = exporter.allocate_device(0, before).unwrap();
    unsafe { exporter.free_device(0, all) }.unwrap();
    assert_eq!(free(&importer), before);
    no_hazard([&exporter, &importer]);
}

#[test]
fn a_thousand_exports_leave_no_descriptor_and_no_memory() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (exporter, importer) = two();
    let before = free(&exporter);
    let memory = exporter.memory_create(0, PAGE, DESCRIPTOR).unwrap();
    let mut most = 0;
    for _ in 0..1000 {
        let exported = export(&exporter, memory, DESCRIPTOR);
        let imported = lends(&importer).memory_import(0, &exported).unwrap();
        release(&importer, imported);
        most = most.max(open());
    }
    // Tests of other threads have descriptors too, and not a thousand.
    assert!(most < 500, "{most} descriptors");
    release(&exporter, memory);
    assert_eq!(free(&importer), before);
}

#[test]
fn descriptors_that_are_of_something_else_are_refused() {
    let driver = SimDriver::new(SimConfig::default());
    let elsewhere = SimDriver::new(SimConfig::default());
    let foreign = export(&elsewhere, elsewhere.memory_create(0, PAGE, DESCRIPTOR).unwrap(), DESCRIPTOR);
    let file = ExportedMemory::FileDescriptor(std::fs::File::open("/dev/null").unwrap().into());
    let (pipe, _writer) = std::io::pipe().unwrap();
    for wrong in [foreign, file, ExportedMemory::FileDescriptor(pipe.into())] {
        assert_eq!(lends(&driver).memory_import(0, &wrong).unwrap_err().code, Code::UNKNOWN);
        assert_eq!(lends(&driver).pool_import(0, &wrong).unwrap_err().code, Code::UNKNOWN);
    }
    let fabric = ExportedMemory::Fabric(Box::new([3; 64]));
    assert_eq!(lends(&driver).memory_import(0, &fabric).unwrap_err().code, Code::NOT_SUPPORTED);
    assert!(driver.live().is_empty() && driver.hazards().is_empty());
}

#[test]
fn a_fabric_handle_finds_memory_and_does_not_keep_it() {
    let config = SimConfig::default().attribute(alluvion::driver::DeviceAttribute::PoolHandleTypes, 1 | 8);
    let (exporter, importer) = with(config);
    let before = free(&exporter);
    let memory = exporter.memory_create(0, PAGE, HandleType::FABRIC).unwrap();
    assert!(unsafe { exporter.memory_export(0, memory, DESCRIPTOR) }.is_err(), "it was not made for that");
    let exported = export(&exporter, memory, HandleType::FABRIC);
    let imported = lends(&importer).memory_import(0, &exported).unwrap();
    release(&exporter, memory);
    // The importer has it.
    let at = map(&importer, imported);
    put(&importer, at, 1, 16);
    let second = lends(&importer).memory_import(0, &exported).unwrap();
    for held in [imported, second] {
        release(&importer, held);
    }
    unmap(&importer, at);
    assert_eq!(free(&importer), before);
    let gone = lends(&importer).memory_import(0, &exported).unwrap_err();
    assert_eq!((gone.call, gone.code), (Call::MemoryImport, Code::INVALID_VALUE));
    no_hazard([&exporter, &importer]);
}

#[test]
fn a_page_of_two_processes_is_watched_as_one() {
    let (exporter, importer) = two();
    let memory = exporter.memory_create(0, PAGE, DESCRIPTOR).unwrap();
    let imported = lends(&importer).memory_import(0, &export(&exporter, memory, DESCRIPTOR)).unwrap();
    let (at, there) = (map(&exporter, memory), map(&importer, imported));
    fill(&exporter, stream(&exporter), at, 1, PAGE);
    // Unmapping here is the importer's own affair.
    fill(&importer, stream(&importer), there, 1, 1);
    assert_eq!(kinds(&importer), [HazardKind::Race]);
    importer.context_synchronize(0).unwrap();
    unmap(&importer, there);
    assert_eq!(importer.hazards(), []);
    let refused = unsafe { importer.memory_export(0, imported, DESCRIPTOR) };
    assert_eq!(refused.unwrap_err().code, Code::INVALID_VALUE, "what was imported does not go out again");
}

#[test]
fn memory_of_a_device_that_is_out_of_reach_is_refused() {
    for reach in [true, false] {
        let (exporter, importer) = with(SimConfig::default().devices(2).peers(reach));
        let address = exporter.allocate_device(0, 512).unwrap();
        let memory = exporter.memory_create(0, PAGE, DESCRIPTOR).unwrap();
        let event = lends(&exporter).event_create_shared(0).unwrap();
        let given = handle(&exporter, address);
        let event = unsafe { lends(&exporter).event_handle(0, event) }.unwrap();
        let exported = export(&exporter, memory, DESCRIPTOR);
        let opened = unsafe { lends(&importer).memory_open(1, given) };
        let event = unsafe { lends(&importer).event_open(1, event) };
        let imported = lends(&importer).memory_import(1, &exported);
        if !reach {
            let codes =
                [opened.map(|_| ()), event.map(|_| ()), imported.map(|_| ())].map(|it| it.unwrap_err().code);
            assert_eq!(codes, [Code::INVALID_VALUE; 3]);
            continue;
        }
        assert!(event.is_ok() && imported.is_ok());
        let opened = opened.unwrap();
        assert_eq!(importer.pointer_attributes(opened).unwrap().unwrap().ordinal, Some(0));
        // A kernel of the device that opened it may use it.
        let kernel = Kernel::new("far").writes(opened, 4).run(move |memory| memory.write(opened, &[9; 4]));
        unsafe { importer.launch(1, LEGACY, kernel) }.unwrap();
        importer.context_synchronize(1).unwrap();
        assert_eq!(read(&exporter, address, 4), [9; 4]);
        assert!(unsafe { lends(&importer).memory_close(0, opened) }.is_err(), "not of that device");
        assert_eq!(kinds(&importer), [HazardKind::InvalidFree]);
        assert_eq!(unsafe { lends(&importer).memory_close(1, opened) }, Ok(()));
        assert_eq!(exporter.hazards(), []);
    }
}

#[test]
fn every_call_that_lends_can_fail_and_is_counted() {
    let (driver, other) = two();
    let address = driver.allocate_device(0, 512).unwrap();
    let given = handle(&driver, address);
    other.inject(Fault::nth(Call::MemoryOpen, 1, Code::NOT_PERMITTED));
    assert_eq!(open(&other, given), Err(Code::NOT_PERMITTED));
    assert!(other.live().is_empty());
    let opened = open(&other, given).unwrap();
    other.inject(Fault::nth(Call::MemoryClose, 1, Code::UNKNOWN));
    assert_eq!(close(&other, opened), Err(Code::UNKNOWN));
    assert_eq!(close(&other, opened), Ok(()));
    assert_eq!((other.calls()[Call::MemoryOpen], other.calls()[Call::MemoryClose]), (2, 2));
    assert_eq!((driver.calls()[Call::MemoryHandle], other.calls()[Call::MemoryHandle]), (1, 0));
    assert_eq!(lends(&driver).device_uuid(0), lends(&other).device_uuid(0));
    assert_ne!(lends(&driver).device_uuid(0), lends(&SimDriver::new(SimConfig::default())).device_uuid(0));
}

#[test]
fn a_sim_has_processes_as_well() {
    let first = Sim::new();
    let second = first.process();
    let (ours, theirs) = (first.device(0).stream().unwrap(), second.device(0).stream().unwrap());
    let one = DeviceVec::from_slice(&[1, 2, 3], &ours).unwrap();
    let two = DeviceVec::from_slice(&[4, 5], &theirs).unwrap();
    assert_eq!((one.to_vec(&ours).unwrap(), two.to_vec(&theirs).unwrap()), (vec![1, 2, 3], vec![4, 5]));
    drop((one, ours));
    first.assert_clean();
    assert_eq!(second.left_over().len(), 2, "a block and a stream");
    drop((two, theirs));
    second.assert_clean();
}
