//! Memory of one simulated device that kernels of another use: where the program has allowed it, as on hardware.
#![cfg(feature = "sim")]
#![expect(unsafe_code, reason = "drives the driver seam by hand")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "each test keeps its ranges live to its end, or breaks the contract on purpose where the simulator says what \
              happens"
)]

use alluvion::driver::{Code, Driver, HandleType, Location, MapAccess, PoolProperties, RawStream};
use alluvion::sim::{HazardKind, Kernel, SimConfig, SimDriver};

use super::processes::{LEGACY, kinds, lends};

/// Writes a byte from a kernel of a device; returns what that was reported as.
fn write_from(driver: &SimDriver, ordinal: u32, at: u64, value: u8) -> Result<Vec<HazardKind>, Code> {
    let kernel = Kernel::new("writes").writes(at, 1).run(move |memory| memory.write(at, &[value]));
    unsafe { driver.launch(ordinal, LEGACY, kernel) }.map_err(|error| error.code)?;
    let outcome = driver.context_synchronize(ordinal).map_err(|error| error.code);
    let found = kinds(driver);
    assert_eq!(outcome.is_err(), !found.is_empty(), "{outcome:?} {found:?}");
    outcome.map(|()| found)
}

fn byte(driver: &SimDriver, at: u64) -> u8 {
    let mut back = [0_u8];
    unsafe { driver.copy(0, back.as_mut_ptr().expose_provenance() as u64, at, 1) }.unwrap();
    back[0]
}

fn machine() -> std::sync::Arc<SimDriver> {
    SimDriver::new(SimConfig::default().devices(3))
}

#[test]
fn device_memory_is_open_to_those_that_reach_it() {
    let driver = machine();
    let early = driver.allocate_device(0, 512).unwrap();
    assert_eq!(lends(&driver).reach(1, 0), Ok(()));
    let late = driver.allocate_device(0, 512).unwrap();
    let other = driver.allocate_device(1, 512).unwrap();
    for (n, at) in [early, late].into_iter().enumerate() {
        assert_eq!(write_from(&driver, 1, at, n as u8), Ok(vec![]));
        assert_eq!(byte(&driver, at), n as u8);
    }
    assert_eq!(write_from(&driver, 1, other, 1), Ok(vec![]));
    // It goes one way, for one device, and for one process.
    assert_eq!(write_from(&driver, 2, early, 1), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(write_from(&driver, 0, other, 1), Err(Code::ILLEGAL_ADDRESS));
    let second = driver.process();
    let own = second.allocate_device(0, 512).unwrap();
    assert_eq!(write_from(&second, 1, own, 1), Err(Code::ILLEGAL_ADDRESS));
}

#[test]
fn reach_is_not_of_pools_and_pages() {
    let driver = machine();
    assert_eq!(lends(&driver).reach(1, 0), Ok(()));
    let pool = driver.pool_create(0, PoolProperties::default()).unwrap();
    let block = unsafe { driver.allocate_async(0, 512, pool, LEGACY) }.unwrap();
    driver.context_synchronize(0).unwrap();
    assert_eq!(write_from(&driver, 1, block, 1), Err(Code::ILLEGAL_ADDRESS));
}

#[test]
fn a_pool_is_open_to_those_that_it_was_opened_to() {
    let driver = machine();
    let pool = driver.pool_create(0, PoolProperties::default()).unwrap();
    let allocate = || {
        let block = unsafe { driver.allocate_async(0, 40 << 20, pool, LEGACY) }.unwrap();
        driver.context_synchronize(0).unwrap();
        block
    };
    let set = |accessor, access| {
        unsafe { lends(&driver).pool_set_access(0, pool, accessor, access) }.map_err(|error| error.code)
    };
    let early = allocate();
    assert_eq!(set(1, MapAccess::ReadWrite), Ok(()));
    let late = allocate();
    for at in [early, late] {
        assert_eq!(write_from(&driver, 1, at + (39 << 20), 3), Ok(vec![]));
        assert_eq!(byte(&driver, at + (39 << 20)), 3);
    }
    // All or nothing, and its own device keeps all.
    for device in [0, 1] {
        assert_eq!(set(device, MapAccess::Read), Err(Code::NOT_SUPPORTED));
    }
    assert_eq!(set(0, MapAccess::None), Err(Code::INVALID_DEVICE));
    assert_eq!(set(3, MapAccess::ReadWrite), Err(Code::INVALID_DEVICE));
    assert_eq!(write_from(&driver, 0, early, 1), Ok(vec![]));
    assert_eq!(set(1, MapAccess::None), Ok(()));
    assert_eq!(write_from(&driver, 1, early, 1), Err(Code::ILLEGAL_ADDRESS));
}

#[test]
fn devices_that_cannot_reach_each_other_are_told_so() {
    let driver = SimDriver::new(SimConfig::default().devices(2).peers(false));
    assert_eq!(lends(&driver).can_reach(0, 1), Ok(false));
    assert_eq!(lends(&driver).reach(0, 1).unwrap_err().code, Code::PEER_ACCESS_UNSUPPORTED);
    let pool = driver.pool_create(0, PoolProperties::default()).unwrap();
    let refused = unsafe { lends(&driver).pool_set_access(0, pool, 1, MapAccess::ReadWrite) };
    assert_eq!(refused.unwrap_err().code, Code::INVALID_DEVICE);
    let memory = driver.memory_create(0, 2 << 20, HandleType::NONE).unwrap();
    let at = driver.virtual_reserve(0, 2 << 20, 0).unwrap();
    unsafe { driver.memory_map(0, at, 2 << 20, memory) }.unwrap();
    let refused =
        unsafe { driver.memory_set_access(0, at, 2 << 20, Location::Device(1), MapAccess::ReadWrite) };
    assert_eq!(refused.unwrap_err().code, Code::INVALID_DEVICE);
    assert_eq!(driver.hazards(), []);
}

#[test]
fn copies_between_devices_need_no_reach() {
    let driver = SimDriver::new(SimConfig::default().devices(2).peers(false));
    let (near, far) = (driver.allocate_device(0, 512).unwrap(), driver.allocate_device(1, 512).unwrap());
    assert_eq!(write_from(&driver, 0, near, 8), Ok(vec![]));
    unsafe { driver.copy_async(1, far, near, 1, RawStream::LEGACY) }.unwrap();
    driver.context_synchronize(1).unwrap();
    assert_eq!((byte(&driver, far), driver.hazards()), (8, vec![]));
}
