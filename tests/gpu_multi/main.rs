//! What happens between two GPUs of one machine. Run with `--ignored` where there are two.

#![expect(unsafe_code, reason = "writes from one device to the memory of another")]

#[cfg(target_os = "linux")]
#[path = "../support/shareable.rs"]
mod shareable;
#[cfg(target_os = "linux")]
#[path = "../support/sharing_contract/mod.rs"]
mod sharing_contract;
#[path = "../support/two_devices.rs"]
mod two_devices;

#[cfg(target_os = "linux")]
mod shared;

use std::sync::Arc;

use alluvion::driver::{
    Code, Driver, DriverResult, FillValue, HandleType, Location, MapAccess, PoolProperties, RawPool, Sharing,
    StreamFlags,
};
use alluvion::source::{Cuda, CudaAsync, Mapped, MappedConfig, Pinned};
use alluvion::{AnyResource, Device, DeviceVec, Machine, PoolConfig, ResourceExt};

const LENGTH: usize = 3 << 20;

fn two() -> (Device, Device) {
    let machine = Machine::of_environment().expect("these tests need a driver");
    let device = |ordinal| machine.device(ordinal).expect("these tests need two GPUs");
    (device(0), device(1))
}

fn sources(device: &Device) -> Vec<AnyResource> {
    vec![
        AnyResource::new(Cuda::new(device)),
        AnyResource::new(CudaAsync::new(device).unwrap()),
        AnyResource::new(Pinned::new(device).unwrap()),
    ]
}

#[test]
#[ignore = "needs two GPUs"]
fn vectors_are_copied_between_devices() {
    let (first, second) = two();
    let (here, there) = (first.stream().unwrap(), second.stream().unwrap());
    let numbers: Vec<u32> = (0..LENGTH as u32).collect();
    for near in sources(&first) {
        for far in sources(&second) {
            let vector = DeviceVec::from_slice_in(&numbers, here.as_ref(), near.clone()).unwrap();
            let mut copy = DeviceVec::<u32, _>::zeroed_in(LENGTH, there.as_ref(), far.clone()).unwrap();
            // Between devices the stream is of either; whichever it is, it waits for both homes.
            copy.copy_from(vector.as_slice(), here.as_ref())
                .unwrap_or_else(|error| panic!("{near:?} to {far:?}: {error}"));
            drop(vector);
            assert!(copy.to_vec(there.as_ref()).unwrap() == numbers, "{near:?} to {far:?}");
            let mut back = DeviceVec::<u32, _>::zeroed_in(LENGTH, here.as_ref(), near.clone()).unwrap();
            back.copy_from(copy.as_slice(), there.as_ref())
                .unwrap_or_else(|error| panic!("{far:?} to {near:?}: {error}"));
            drop(copy);
            assert!(back.to_vec(here.as_ref()).unwrap() == numbers, "{far:?} to {near:?}");
        }
    }
}

#[test]
#[ignore = "needs two GPUs"]
fn pages_of_one_device_are_written_by_its_peer() {
    let (first, second) = two();
    let (here, there) = (first.stream().unwrap(), second.stream().unwrap());
    let config = MappedConfig::default().peers([second.clone()]);
    let mapped = Mapped::with_config(&first, config).expect("the GPUs of one machine reach each other");
    let pool = mapped.pool(PoolConfig::default()).unwrap();
    for round in 0..8_u32 {
        let vector = DeviceVec::<u32, _>::zeroed_in(LENGTH, here.as_ref(), &pool).unwrap();
        there.wait_for_stream(&here).unwrap();
        let address = vector.as_device_ptr().address();
        // SAFETY: the second half of the vector, which nothing else uses until `here` has waited for `there` below.
        let filled = unsafe {
            let half = address + (LENGTH / 2 * 4) as u64;
            second.driver().fill_async(1, half, FillValue::U32(7 + round), LENGTH / 2, there.raw())
        };
        filled.expect("the second device writes to the pages of the first");
        here.wait_for_stream(&there).unwrap();
        let numbers = vector.to_vec(here.as_ref()).unwrap();
        assert!(numbers[..LENGTH / 2].iter().all(|&number| number == 0), "round {round}");
        assert!(numbers[LENGTH / 2..].iter().all(|&number| number == 7 + round), "round {round}");
    }
    // Pages that nobody else may touch.
    let own = Mapped::new(&first).unwrap();
    assert!(own.config().peer_devices().is_empty());
    assert!(Mapped::with_config(&first, MappedConfig::default().peers([first.clone()])).is_ok());
}

#[test]
#[ignore = "needs two GPUs"]
fn devices_do_not_take_each_others_streams() {
    let (first, second) = two();
    let there = second.stream().unwrap();
    let error = DeviceVec::<u8, _>::uninit_in(1, there.as_ref(), Cuda::new(&first)).unwrap_err();
    assert!(error.is_device_mismatch(), "{error}");
    // Streams of two devices wait for each other, on the devices.
    let here = first.stream().unwrap();
    here.wait_for_stream(&there).unwrap();
    there.wait_event(&here.record().unwrap()).unwrap();
    here.synchronize().unwrap();
    there.synchronize().unwrap();
}

#[test]
#[ignore = "needs two GPUs"]
fn scenario_13_a_vector_of_the_second_device_is_dropped_where_the_first_is_current() {
    let (first, second) = two();
    let vector = DeviceVec::filled(LENGTH, 7_u32, second.stream().unwrap().as_ref()).unwrap();
    std::thread::spawn(move || {
        let stream = first.stream().unwrap();
        assert_eq!(
            DeviceVec::filled(3, 1_u8, stream.as_ref()).unwrap().to_vec(stream.as_ref()).unwrap(),
            [1; 3]
        );
        drop(vector);
        second.synchronize().unwrap();
    })
    .join()
    .unwrap();
}

/// Fills memory of one device by the other, and reads it by the first.
fn fill_by(driver: &dyn Driver, ordinal: u32, address: u64, byte: u8) -> DriverResult<Vec<u8>> {
    let stream = driver.stream_create(ordinal, StreamFlags::default())?;
    // SAFETY: each caller has as much memory there, which nothing else uses.
    unsafe { driver.fill_async(ordinal, address, FillValue::U8(byte), LENGTH, stream) }?;
    // SAFETY: the stream was made above.
    unsafe { driver.stream_synchronize(ordinal, stream) }?;
    // SAFETY: as above, and nobody uses it again.
    unsafe { driver.stream_destroy(ordinal, stream) }?;
    let mut bytes = vec![0; LENGTH];
    // SAFETY: both are as long as that, and the wait above is over.
    unsafe { driver.copy(1 - ordinal, bytes.as_mut_ptr().expose_provenance() as u64, address, LENGTH) }?;
    Ok(bytes)
}

fn driver() -> Arc<dyn Driver> {
    Arc::clone(Machine::of_environment().expect("these tests need a driver").driver())
}

fn lends(driver: &dyn Driver) -> &dyn Sharing {
    driver.sharing().expect("the driver has these calls")
}

#[test]
#[ignore = "needs two GPUs"]
fn devices_reach_each_other() {
    let driver = driver();
    let sharing = lends(&*driver);
    assert_ne!(sharing.device_uuid(0), sharing.device_uuid(1));
    assert_eq!([sharing.can_reach(0, 1), sharing.can_reach(1, 0)], [Ok(true); 2]);
    // No device reaches itself.
    assert_eq!([sharing.can_reach(0, 0), sharing.can_reach(1, 1)], [Ok(false); 2]);
    assert_eq!(sharing.reach(1, 1).unwrap_err().code, Code::PEER_ACCESS_UNSUPPORTED);
    // Memory of before, and of afterwards.
    let before = driver.allocate_device(0, LENGTH).unwrap();
    assert_eq!([sharing.reach(1, 0), sharing.reach(1, 0)], [Ok(()); 2], "to ask again changes nothing");
    let after = driver.allocate_device(0, LENGTH).unwrap();
    for (address, byte) in [(before, 1), (after, 2)] {
        assert_eq!(fill_by(&*driver, 1, address, byte), Ok(vec![byte; LENGTH]));
        // SAFETY: it was allocated above, and the work is waited for.
        unsafe { driver.free_device(0, address) }.unwrap();
    }
}

#[test]
#[ignore = "needs two GPUs"]
fn a_pool_is_used_by_the_devices_that_have_access() {
    let driver = driver();
    let sharing = lends(&*driver);
    let pool = driver.pool_create(0, PoolProperties::default()).unwrap();
    let stream = driver.stream_create(0, StreamFlags::default()).unwrap();
    let access = |pool: RawPool, accessor, access| {
        // SAFETY: the pool is live, and all work is waited for.
        unsafe { sharing.pool_set_access(0, pool, accessor, access) }
    };
    // SAFETY: pool and stream are live.
    let early = unsafe { driver.allocate_async(0, LENGTH, pool, stream) }.unwrap();
    assert_eq!(access(pool, 1, MapAccess::ReadWrite), Ok(()));
    // SAFETY: as above.
    let late = unsafe { driver.allocate_async(0, LENGTH, pool, stream) }.unwrap();
    // SAFETY: as above.
    unsafe { driver.stream_synchronize(0, stream) }.unwrap();
    for (address, byte) in [(early, 1), (late, 2)] {
        assert_eq!(fill_by(&*driver, 1, address, byte), Ok(vec![byte; LENGTH]));
    }
    // What an H200 says.
    let code = |result: DriverResult<()>| result.map_err(|error| error.code);
    assert_eq!(code(access(pool, 1, MapAccess::Read)), Err(Code::NOT_SUPPORTED));
    assert_eq!(code(access(pool, 1, MapAccess::None)), Ok(()));
    assert_eq!(code(access(pool, 0, MapAccess::Read)), Err(Code::NOT_SUPPORTED));
    assert_eq!(code(access(pool, 0, MapAccess::None)), Err(Code::INVALID_DEVICE));
    for address in [early, late] {
        // SAFETY: it was allocated above, and the work is waited for.
        unsafe { driver.free_async(0, address, stream) }.unwrap();
    }
    // SAFETY: as above.
    unsafe { driver.stream_synchronize(0, stream) }.unwrap();
    // SAFETY: nothing of it is out.
    unsafe { driver.pool_destroy(0, pool) }.unwrap();
    // SAFETY: nothing uses it.
    unsafe { driver.stream_destroy(0, stream) }.unwrap();
}

#[test]
#[ignore = "needs two GPUs"]
fn pages_of_one_device_are_imported_for_the_other() {
    let driver = driver();
    let bytes = driver.virtual_granularity(0).unwrap().max(LENGTH.next_power_of_two());
    let memory = driver.memory_create(0, bytes, HandleType::POSIX_FILE_DESCRIPTOR).unwrap();
    // SAFETY: the memory is live.
    let exported = unsafe { driver.memory_export(0, memory, HandleType::POSIX_FILE_DESCRIPTOR) }.unwrap();
    let imported = lends(&*driver).memory_import(1, &exported).expect("the devices reach each other");
    let address = driver.virtual_reserve(1, bytes, 0).unwrap();
    // SAFETY: the memory is as long as that.
    unsafe { driver.memory_map(1, address, bytes, imported) }.unwrap();
    for ordinal in [0, 1] {
        let accessor = Location::Device(ordinal);
        // SAFETY: nothing uses it yet.
        unsafe { driver.memory_set_access(1, address, bytes, accessor, MapAccess::ReadWrite) }.unwrap();
    }
    assert_eq!(fill_by(&*driver, 1, address, 7), Ok(vec![7; LENGTH]));
    // SAFETY: all work is waited for.
    unsafe { driver.memory_unmap(1, address, bytes) }.unwrap();
    // SAFETY: it was reserved above.
    unsafe { driver.virtual_free(1, address, bytes) }.unwrap();
    for memory in [memory, imported] {
        // SAFETY: each handle is released once.
        unsafe { driver.memory_release(0, memory) }.unwrap();
    }
}

/// A process of the first device lends, and one of the second borrows.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs two GPUs"]
fn processes_of_two_devices_share_memory() {
    use sharing_contract::Stage;
    use sharing_contract::hand_over::{BYTES, Way, end, offer, take_memory};
    use sharing_contract::process::{Process, serve_if_child};
    use sharing_contract::worker::Op;

    const THIS: &str = "processes_of_two_devices_share_memory";
    serve_if_child(driver);
    let driver = driver();
    let start = || Process::start(THIS, 0);
    let stage = Stage { driver: &*driver, start: &start };
    for way in stage.ways() {
        let (lender, borrower) = (stage.process(), Process::start(THIS, 1));
        let offered = offer(&lender, way, 0x66);
        let event = borrower.open(Op::EventOpen, 0, &offered.event_handle).expect("events are of both");
        borrower.must(Op::StreamWait, [event, 0, 0]);
        let (pool, address) = take_memory(&borrower, &offered).expect("the devices reach each other");
        let first = borrower.ask(Op::Read, [address, BYTES, 0]);
        // A pool is its own device's, until it is said otherwise.
        let expected = if way == Way::Pool { Err(Code::INVALID_VALUE) } else { Ok(0x66) };
        assert_eq!(first, expected, "{way:?}");
        if way == Way::Pool {
            borrower.must(Op::PoolSetAccess, [pool, 0, 0]);
        }
        assert_eq!(borrower.read(address, BYTES), 0x66, "{way:?}");
        borrower.write(address, 0x67, BYTES);
        assert_eq!(lender.read(offered.address, BYTES), 0x67, "{way:?}");
        borrower.kill();
        end(&lender, &offered);
    }
}

#[test]
#[ignore = "needs two GPUs"]
fn memory_of_each_device_is_used_on_the_other() {
    let machine = Machine::of_environment().expect("these tests need a driver");
    for line in two_devices::STACKS {
        two_devices::memory_of_each_is_written_by_the_other(&machine, line);
        println!("fact: each of two GPUs uses memory of the other: {line}");
    }
}

#[test]
#[ignore = "needs two GPUs"]
fn a_pool_that_its_peer_uses_sleeps() {
    two_devices::a_pool_that_its_peer_uses_sleeps(
        &Machine::of_environment().expect("these tests need a driver"),
    );
}

#[test]
#[ignore = "needs two GPUs"]
fn threads_of_two_devices_use_memory_of_each_other() {
    let machine = Machine::of_environment().expect("these tests need a driver");
    for line in ["stats | pool | cuda-async(peers=all)", "pool | mapped(peers=all)", "pool | cuda(peers=all)"]
    {
        two_devices::threads_of_two_devices_use_the_current_stacks(&machine, line);
    }
}

#[test]
#[ignore = "needs two GPUs"]
fn pinned_memory_is_near_each_device() {
    let machine = Machine::of_environment().expect("these tests need a driver");
    for fact in two_devices::pinned_memory_is_near_each(&machine) {
        println!("fact: {fact}");
    }
}

/// As a program asks before it makes its stacks.
#[test]
#[ignore = "needs two GPUs"]
fn each_device_is_a_peer_of_the_other() {
    let (first, second) = two();
    let machine = first.machine();
    let peers = machine.per_device(Device::peers).unwrap();
    for (device, peers) in &peers {
        println!("fact: peers of {device}: {peers:?}");
    }
    assert!(peers[0].contains(&second) && peers[1].contains(&first));
    // Memory that no peer was named for is its own device's alone, also where plain memory is for others.
    let config = alluvion::source::CudaConfig::default().peers([second.clone()]);
    let _ = Cuda::with_config(&first, config).unwrap();
    let stream = first.stream().unwrap();
    let there = second.stream().unwrap();
    let own = CudaAsync::new(&first).unwrap();
    let vector = DeviceVec::<u8, _>::zeroed_in(LENGTH, &stream, &own).unwrap();
    stream.synchronize().unwrap();
    let address = vector.as_device_ptr().address();
    // SAFETY: nothing else uses the vector, and the work, if there is any, is waited for.
    let refused = unsafe { second.driver().fill_async(1, address, FillValue::U8(1), LENGTH, there.raw()) };
    println!("fact: gpu 1 fills memory of a pool of gpu 0 that it has no access to: {refused:?}");
    assert!(refused.is_err());
}
