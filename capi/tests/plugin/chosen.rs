//! The machine that the functions find: one test at a time chooses it.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use calluvion::*;

use crate::support::*;

/// A simulated machine that is the chosen one, until this is dropped.
pub(crate) struct Chosen {
    pub(crate) sim: Sim,
    devices: i32,
    /// Last: the next test begins when the machine has been looked through.
    _alone: MutexGuard<'static, ()>,
}

impl Chosen {
    pub(crate) fn new(devices: u32) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let sim = Sim::new(devices);
        // SAFETY: a live machine.
        assert_eq!(unsafe { alv_set_machine(sim.0) }, ALV_OK);
        Self { sim, devices: devices.cast_signed(), _alone: alone }
    }

    /// Makes a resource the current one of a device, and returns a handle of it.
    pub(crate) fn set(&self, recipe: &str, device: i32) -> *mut ResourceHandle {
        let resource = self.sim.try_recipe(recipe, device).expect("the recipe is fine");
        // SAFETY: a live resource.
        assert_eq!(unsafe { alv_set_current_resource(device, resource, null_mut()) }, ALV_OK);
        resource
    }

    /// A stream that the test made, as CUDA knows it.
    pub(crate) fn raw_stream(&self) -> (*mut StreamHandle, CudaStream) {
        let stream = self.sim.stream();
        // SAFETY: a live stream.
        (stream, unsafe { alv_stream_handle(stream) })
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        alluvion_torch_empty_cache();
        for device in 0..self.devices {
            // SAFETY: the first resource of a device, and no place for the one before.
            unsafe { alv_reset_current_resource(device, null_mut()) };
        }
        // SAFETY: null is the machine of CUDA.
        unsafe { alv_set_machine(null()) };
    }
}

pub(crate) fn fill(
    resource: *const ResourceHandle,
    block: *mut c_void,
    value: u8,
    bytes: usize,
    stream: CudaStream,
) {
    // SAFETY: a live resource, block and stream; the test orders the fills.
    assert_eq!(unsafe { alv_fill_raw(resource, block, value, bytes, stream) }, ALV_OK);
}

pub(crate) fn release_stream(stream: *mut StreamHandle) {
    // SAFETY: a count that the test holds.
    unsafe { alv_stream_release(stream) };
}

pub(crate) fn live(resource: *const ResourceHandle) -> i64 {
    counts(resource).bytes.value
}
