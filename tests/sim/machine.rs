//! The simulated machine does what the driver seam promises: bytes, sizes, codes.
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
    Call, Code, DeviceAttribute, Driver, FillValue, HandleType, Location, MapAccess, PinnedFlags,
    PoolAttribute, PoolKind, PoolProperties, RawStream, StreamFlags,
};
use alluvion::sim::{HazardKind, Kernel, SimConfig, SimDriver};

const LEGACY: RawStream = RawStream::LEGACY;
const MIB: usize = 1 << 20;

fn machine() -> Arc<SimDriver> {
    SimDriver::new(SimConfig::default())
}

fn address_of<T>(values: &mut [T]) -> u64 {
    values.as_mut_ptr().expose_provenance() as u64
}

fn download(driver: &SimDriver, from: u64, bytes: usize) -> Vec<u8> {
    let mut back = vec![0_u8; bytes];
    unsafe { driver.copy(0, address_of(&mut back), from, bytes) }.unwrap();
    back
}

#[test]
fn bytes_go_up_and_come_back() {
    let driver = machine();
    let mut data: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
    let address = driver.allocate_device(0, data.len()).unwrap();
    unsafe { driver.copy_async(0, address, address_of(&mut data), data.len(), LEGACY) }.unwrap();
    assert_eq!(download(&driver, address, data.len()), data);
    unsafe { driver.free_device(0, address) }.unwrap();
    assert!(driver.live().is_empty(), "{}", driver.live());
    assert_eq!(driver.hazards(), []);
}

#[test]
fn fills_repeat_their_value() {
    let driver = machine();
    let address = driver.allocate_device(0, 64).unwrap();
    unsafe {
        driver.fill_async(0, address, FillValue::U8(1), 64, LEGACY).unwrap();
        driver.fill_async(0, address + 8, FillValue::U16(0x0302), 4, LEGACY).unwrap();
        driver.fill_async(0, address + 32, FillValue::U32(0x0706_0504), 3, LEGACY).unwrap();
        let odd = driver.fill_async(0, address + 1, FillValue::U16(0), 1, LEGACY).unwrap_err();
        assert_eq!(odd.code, Code::INVALID_VALUE);
    }
    let back = download(&driver, address, 64);
    assert_eq!(back[..8], [1; 8]);
    assert_eq!(back[8..16], 0x0302_u16.to_ne_bytes().repeat(4));
    assert_eq!(back[32..44], 0x0706_0504_u32.to_ne_bytes().repeat(3));
    assert_eq!(back[44..], [1; 20]);
}

#[test]
fn fresh_memory_is_junk_and_the_same_for_the_same_seed() {
    let fresh = |seed| {
        let driver = SimDriver::new(SimConfig::default().seed(seed));
        let address = driver.allocate_device(0, 1000).unwrap();
        download(&driver, address, 1000)
    };
    assert!(fresh(3).iter().all(|&byte| byte != 0));
    assert_eq!(fresh(3), fresh(3));
    assert_ne!(fresh(3), fresh(4));
}

#[test]
fn device_memory_is_finite_and_accounted_for() {
    let driver = SimDriver::new(SimConfig::default().memory_bytes(4096));
    assert_eq!(driver.allocate_device(0, 0).unwrap_err().code, Code::INVALID_VALUE);
    let first = driver.allocate_device(0, 1).unwrap();
    assert_eq!(driver.memory_info(0).unwrap().free_bytes, 3584);
    let second = driver.allocate_device(0, 3584).unwrap();
    assert_eq!((first % 512, second % 512), (0, 0));
    assert_eq!(driver.allocate_device(0, 1).unwrap_err().code, Code::OUT_OF_MEMORY);
    assert_eq!(driver.allocate_device(0, usize::MAX).unwrap_err().code, Code::OUT_OF_MEMORY);
    unsafe { driver.free_device(0, first) }.unwrap();
    assert_eq!(driver.allocate_device(0, 512).unwrap(), first, "an address comes back at once");
    assert_eq!(driver.memory_info(0).unwrap().total_bytes, 4096);
}

#[test]
fn a_terabyte_costs_nothing_until_it_is_touched() {
    let driver = SimDriver::new(SimConfig::default().memory_bytes(1 << 40));
    let address = driver.allocate_device(0, 1 << 39).unwrap();
    let mut word = [5_u8; 8];
    unsafe { driver.copy(0, address + (1 << 38), address_of(&mut word), 8) }.unwrap();
    assert_eq!(download(&driver, address + (1 << 38), 8), word);
}

#[test]
fn pinned_and_managed_memory_is_the_hosts_at_one_address() {
    let driver = machine();
    let pinned = driver.allocate_pinned(0, 10_000, PinnedFlags::default()).unwrap();
    assert_eq!(pinned.as_ptr().addr() % 4096, 0);
    let managed = driver.allocate_managed(0, 100).unwrap();
    unsafe {
        pinned.as_ptr().write_bytes(9, 10_000);
        driver.copy(0, managed, pinned.as_ptr().expose_provenance() as u64, 100).unwrap();
        let host =
            core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<u8>(managed as usize), 100);
        assert_eq!(host, [9; 100]);
        driver.prefetch_async(0, managed, 100, Location::Device(0), LEGACY).unwrap();
        let elsewhere = driver.prefetch_async(0, managed, 101, Location::Device(0), LEGACY).unwrap_err();
        assert_eq!(elsewhere.code, Code::INVALID_VALUE);
        driver.free_pinned(0, pinned).unwrap();
        driver.free_device(0, managed).unwrap();
    }
    assert!(driver.live().is_empty());
}

#[test]
fn memory_is_registered_once() {
    let driver = machine();
    let mut pages = vec![1_u8; 8192];
    let pointer = core::ptr::NonNull::new(pages.as_mut_ptr()).unwrap();
    unsafe {
        driver.register_host(0, pointer, 8192, PinnedFlags::default()).unwrap();
        let twice = driver.register_host(0, pointer, 4096, PinnedFlags::default()).unwrap_err();
        assert_eq!(twice.code, Code::HOST_MEMORY_ALREADY_REGISTERED);
        driver.unregister_host(0, pointer).unwrap();
        assert_eq!(driver.unregister_host(0, pointer).unwrap_err().code, Code::HOST_MEMORY_NOT_REGISTERED);
    }
    assert_eq!(pages, [1; 8192]);
}

#[test]
fn what_an_attribute_switches_off_is_not_supported() {
    use DeviceAttribute as A;
    let off = |attribute| SimDriver::new(SimConfig::default().attribute(attribute, 0));
    assert_eq!(off(A::ManagedMemory).allocate_managed(0, 1).unwrap_err().code, Code::NOT_SUPPORTED);
    assert_eq!(off(A::MemoryPools).pool_default(0, PoolKind::Device).unwrap_err().code, Code::NOT_SUPPORTED);
    assert_eq!(off(A::VirtualMemory).virtual_granularity(0).unwrap_err().code, Code::NOT_SUPPORTED);
    let old = SimDriver::new(SimConfig::default().version(11_080));
    assert_eq!(unsafe { old.stream_id(0, LEGACY) }.unwrap_err().code, Code::NOT_FOUND);
    assert_eq!(old.pool_default(0, PoolKind::Managed).unwrap_err().code, Code::NOT_SUPPORTED);
    assert_eq!(old.device_name(1).unwrap_err().code, Code::INVALID_DEVICE);
    assert_eq!(old.attribute(0, A::ComputeMajor), Ok(9));
}

#[test]
fn virtual_memory_maps_physical_memory_behind_reserved_addresses() {
    let driver = machine();
    let unit = driver.virtual_granularity(0).unwrap();
    assert_eq!(driver.virtual_reserve(0, unit + 1, 0).unwrap_err().code, Code::INVALID_VALUE);
    let address = driver.virtual_reserve(0, 1 << 40, 8 * unit).unwrap();
    assert_eq!(address % (8 * unit as u64), 0);
    let second = address + unit as u64;
    let memory = driver.memory_create(0, unit, HandleType::NONE).unwrap();
    let more = driver.memory_create(0, unit, HandleType::NONE).unwrap();
    assert_eq!(driver.memory_info(0).unwrap().free_bytes, 252 * MIB);
    unsafe {
        driver.memory_map(0, address, unit, memory).unwrap();
        driver.memory_map(0, second, unit, more).unwrap();
        assert_eq!(driver.memory_map(0, second, unit, more).unwrap_err().code, Code::INVALID_VALUE);
        let barred = driver.fill_async(0, address, FillValue::U8(3), 2 * unit, LEGACY).unwrap_err();
        assert_eq!(barred.code, Code::INVALID_VALUE, "nobody may touch it yet");
        driver.memory_set_access(0, address, 2 * unit, Location::Device(0), MapAccess::ReadWrite).unwrap();
        driver.fill_async(0, address, FillValue::U8(3), 2 * unit, LEGACY).unwrap();
        assert_eq!(download(&driver, second - 2, 4), [3; 4]);
        driver.memory_release(0, memory).unwrap();
        assert_eq!(driver.memory_info(0).unwrap().free_bytes, 252 * MIB, "still mapped");
        assert_eq!(driver.virtual_free(0, address, 1 << 40).unwrap_err().code, Code::INVALID_VALUE);
        assert_eq!(driver.memory_unmap(0, address, unit / 2).unwrap_err().code, Code::INVALID_VALUE);
        driver.memory_unmap(0, address, 2 * unit).unwrap();
        assert_eq!(driver.memory_info(0).unwrap().free_bytes, 254 * MIB);
        driver.memory_map(0, address, unit, more).unwrap();
        driver.memory_set_access(0, address, unit, Location::Device(0), MapAccess::Read).unwrap();
        assert_eq!(download(&driver, address, 4), [3; 4], "the bytes belong to the physical memory");
        driver.memory_unmap(0, address, unit).unwrap();
        driver.memory_release(0, more).unwrap();
        driver.virtual_free(0, address, 1 << 40).unwrap();
    }
    assert_eq!(driver.memory_info(0).unwrap().free_bytes, 256 * MIB);
    assert!(driver.live().is_empty(), "{}", driver.live());
}

#[test]
fn a_pool_serves_and_counts() {
    let driver = machine();
    let pool = driver.pool_create(0, PoolProperties::default()).unwrap();
    let read = |attribute| unsafe { driver.pool_attribute(0, pool, attribute) }.unwrap();
    unsafe {
        let block = driver.allocate_async(0, 1000, pool, LEGACY).unwrap();
        assert_eq!(block % 512, 0);
        assert_eq!(
            (read(PoolAttribute::UsedCurrent), read(PoolAttribute::ReservedCurrent)),
            (1000, 32 << 20)
        );
        driver.fill_async(0, block, FillValue::U8(4), 1000, LEGACY).unwrap();
        assert_eq!(download(&driver, block, 1000), [4; 1000]);
        driver.free_async(0, block, LEGACY).unwrap();
        assert_eq!((read(PoolAttribute::UsedCurrent), read(PoolAttribute::UsedHigh)), (0, 1000));
        driver.context_synchronize(0).unwrap();
        assert_eq!((read(PoolAttribute::ReservedCurrent), read(PoolAttribute::ReservedHigh)), (0, 32 << 20));
        driver.pool_destroy(0, pool).unwrap();
    }
    assert_eq!(driver.memory_info(0).unwrap().free_bytes, 256 * MIB);
    assert!(driver.live().is_empty());
}

#[test]
fn kernels_read_and_write_what_they_declare() {
    let driver = machine();
    let address = driver.allocate_device(0, 8).unwrap();
    let stream = driver.stream_create(0, StreamFlags::default()).unwrap();
    let set = Kernel::new("set").writes(address, 4).run(move |memory| memory.write_u32(address, 20));
    let double = Kernel::new("double").reads(address, 4).writes(address + 4, 4).run(move |memory| {
        let value = memory.read_u32(address);
        memory.write_u32(address + 4, 2 * value);
    });
    unsafe {
        driver.launch(0, stream, set).unwrap();
        driver.launch(0, stream, double).unwrap();
        driver.stream_synchronize(0, stream).unwrap();
    }
    assert_eq!(download(&driver, address + 4, 4), 40_u32.to_ne_bytes());
    assert_eq!(driver.hazards(), []);
    let sneaky = Kernel::new("sneaky").run(move |memory| memory.write(address, &[1]));
    unsafe { driver.launch(0, stream, sneaky) }.unwrap();
    driver.context_synchronize(0).unwrap();
    let hazards = driver.take_hazards();
    assert_eq!(
        hazards.iter().map(|hazard| hazard.kind()).collect::<Vec<_>>(),
        [HazardKind::UndeclaredAccess]
    );
    assert!(hazards[0].to_string().contains("`sneaky`"), "{}", hazards[0]);
}

#[test]
fn calls_are_counted_by_kind() {
    let driver = machine();
    let before = driver.calls();
    let _ = driver.allocate_device(0, 0);
    driver.event_create(0).unwrap();
    let made = driver.calls() - before;
    assert_eq!((made[Call::AllocateDevice], made[Call::EventCreate], made.total()), (1, 1, 2));
}

#[test]
fn leaks_are_named_one_by_one() {
    let driver = machine();
    driver.allocate_device(0, 100).unwrap();
    driver.event_create(0).unwrap();
    driver.stream_create(0, StreamFlags::default()).unwrap();
    driver.pool_create(0, PoolProperties::default()).unwrap();
    driver.virtual_reserve(0, 2 * MIB, 0).unwrap();
    driver.memory_create(0, 2 * MIB, HandleType::NONE).unwrap();
    let leaks = driver.leaks();
    assert_eq!(leaks.len(), 6);
    assert!(leaks.iter().all(|leak| leak.kind() == HazardKind::Leak));
    assert!(leaks[0].to_string().contains("100 bytes") && leaks[0].to_string().contains("cuMemFree"));
    assert_eq!(
        driver.live().to_string(),
        "1 device, 1 reservations, 1 physical, 1 streams, 1 events, 1 pools"
    );
}
