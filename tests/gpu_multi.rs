//! What happens between two GPUs of one machine. Run with `--ignored` where there are two.

#![expect(unsafe_code, reason = "writes from one device to the memory of another")]

use alluvion::driver::FillValue;
use alluvion::source::{Cuda, CudaAsync, Mapped, MappedConfig, Pinned};
use alluvion::{AnyResource, Device, DeviceVec, Machine, PoolConfig, ResourceExt};

const LENGTH: usize = 3 << 20;

fn two() -> (Device, Device) {
    let machine = Machine::cuda().expect("these tests need a driver");
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
