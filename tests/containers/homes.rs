//! What a container belongs to: its device, its resource, its machine.

use std::sync::Arc;

use alluvion::source::Cuda;
use alluvion::{AnyResource, DeviceSlice, DeviceVec, Error, Machine};

use crate::machine::{check, sim_of};

#[test]
fn scenario_13_two_devices() {
    let sim = sim_of(5);
    let (first, second) = (sim.device(0), sim.device(1));
    let (here, there) = (first.stream().unwrap(), second.stream().unwrap());
    let elsewhere = sim_of(5);
    let abroad = elsewhere.device(0).stream().unwrap();
    let mut vector = DeviceVec::from_slice(&[1_u32, 2, 3], here.as_ref()).unwrap();
    for stream in [&there, &abroad] {
        let s = stream.as_ref();
        let errors = [
            vector.to_vec(s).unwrap_err(),
            vector.get(0, s).unwrap_err(),
            vector.set(0, 1, s).unwrap_err(),
            vector.fill(0, s).unwrap_err(),
            vector.resize(10, 0, s).unwrap_err(),
            vector.reserve_exact(0, s).unwrap_err(),
            vector.shrink_to_fit(s).unwrap_err(),
            vector.set_stream(s).unwrap_err(),
            vector.copy_from_slice(&[7; 3], s).unwrap_err(),
            vector.upload(vec![7; 3], s).unwrap_err().into(),
            DeviceVec::<u32, _>::uninit_in(0, s, Cuda::new(&first)).unwrap_err(),
        ];
        assert!(errors.iter().all(Error::is_device_mismatch), "{errors:?}");
    }
    // A guard, or a use by another device is for whoever has access between them; by another machine there is none.
    drop(vector.read_on(there.as_ref()).unwrap());
    vector.record_use(there.as_ref()).unwrap();
    assert!(vector.record_use(abroad.as_ref()).unwrap_err().is_device_mismatch());
    assert!(vector.read_on(abroad.as_ref()).unwrap_err().is_device_mismatch());
    assert!(vector.write_on(abroad.as_ref()).unwrap_err().is_device_mismatch());
    // Between devices the stream is of either.
    let mut far = DeviceVec::<u32>::zeroed(3, there.as_ref()).unwrap();
    far.copy_from(vector.as_slice(), here.as_ref()).unwrap();
    vector.fill(9, here.as_ref()).unwrap();
    assert_eq!(far.to_vec(there.as_ref()).unwrap(), [1, 2, 3]);
    vector.copy_from(far.as_slice(), there.as_ref()).unwrap();
    drop(far);
    assert_eq!(vector.to_vec(here.as_ref()).unwrap(), [1, 2, 3]);
    let stranger = DeviceVec::<u32>::zeroed(3, abroad.as_ref()).unwrap();
    assert!(vector.copy_from(stranger.as_slice(), here.as_ref()).unwrap_err().is_device_mismatch());
    drop((vector, stranger));
    check(&sim, "two devices");
    check(&elsewhere, "another machine");
}

#[test]
fn a_container_keeps_its_resource_and_its_machine() {
    let sim = sim_of(6);
    let stream = sim.device(0).stream().unwrap();
    let vector = {
        let resource = Arc::new(Cuda::new(&sim.device(0)));
        DeviceVec::filled_in(8, 1_u8, stream.as_ref(), resource).unwrap()
    };
    let device = sim.device(0);
    device.set_current_resource(AnyResource::new(Cuda::new(&device))).unwrap();
    let current = DeviceVec::filled(8, 1_u8, stream.as_ref()).unwrap();
    device.reset_current_resource().unwrap();
    assert_eq!(format!("{}", current.resource().describe()), "Cuda(gpu 0)");
    let machine: Machine = sim.machine().clone();
    let driver = Arc::clone(sim.sim_driver());
    drop((sim, stream, device, machine));
    assert_eq!(vector.to_vec(vector.stream()).unwrap(), [1; 8]);
    drop((vector, current));
    assert!(driver.hazards().is_empty());
    assert_eq!(driver.live().allocations(), 0);
}

#[test]
fn containers_say_what_they_are() {
    let sim = sim_of(0);
    let stream = sim.device(0).stream().unwrap();
    let mut vector =
        DeviceVec::from_slice_in(&[1_u32, 2], stream.as_ref(), Cuda::new(&sim.device(0))).unwrap();
    vector.reserve_exact(1, stream.as_ref()).unwrap();
    let shown = format!("{vector:?}");
    assert!(shown.starts_with("DeviceVec(2 of 3 u32 at 0x"), "{shown}");
    assert!(shown.ends_with("Cuda(gpu 0))"), "{shown}");
    let slice: DeviceSlice<'_, u32> = (&vector).into();
    assert!(format!("{slice:?}").starts_with("DeviceSlice(2 elements at 0x"));
    let read = vector.read_on(stream.as_ref()).unwrap();
    assert!(format!("{read:?}").starts_with("ReadGuard(2 elements at 0x"));
    assert_eq!((read.len(), read.is_empty()), (2, false));
}
