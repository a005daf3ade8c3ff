//! What containers promise, on a real GPU.

#![expect(unsafe_code, reason = "calls the driver beside the containers, as an application does")]

use alluvion::{Device, DeviceVec, Error};
use cudarc::driver::{result, sys};

use crate::container_contract;
use crate::own_context;

/// The device of this machine. That there is none is a failure.
fn gpu() -> Device {
    Device::named("0").expect("these tests need a GPU")
}

fn on_gpu(clause: fn(&Device) -> Result<(), Error>) {
    clause(&gpu()).unwrap();
}

container_contract::clauses!(on_gpu);

#[test]
fn scenario_13_dropped_while_another_context_is_current() {
    let device = gpu();
    let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
    let mut vector = DeviceVec::filled(1 << 20, 1_u32, home.as_ref()).unwrap();
    vector.fill(2, other.as_ref()).unwrap();
    std::thread::spawn(move || {
        let (_, stranger) = own_context::own_context();
        assert_eq!(vector.get(0, other.as_ref()).unwrap(), 2);
        drop(vector);
        assert_eq!(result::ctx::get_current().unwrap(), Some(stranger));
        // SAFETY: the context was made above and nothing uses it.
        assert_eq!(unsafe { sys::cuCtxDestroy_v2(stranger) }, sys::CUresult::CUDA_SUCCESS);
    })
    .join()
    .unwrap();
}
