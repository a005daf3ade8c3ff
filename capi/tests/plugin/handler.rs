//! The struct of cuStateVec and others.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};

use calluvion::*;

use crate::chosen::*;
use crate::support::*;

/// As cuStateVec declares it.
#[repr(C)]
struct CustatevecDeviceMemHandler {
    ctx: *mut c_void,
    device_alloc: Option<unsafe extern "C" fn(*mut c_void, *mut *mut c_void, usize, CudaStream) -> c_int>,
    device_free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, CudaStream) -> c_int>,
    name: [c_char; 64],
}

fn handler(resource: *mut ResourceHandle) -> CustatevecDeviceMemHandler {
    let mut made =
        CustatevecDeviceMemHandler { ctx: null_mut(), device_alloc: None, device_free: None, name: [1; 64] };
    assert_eq!(size_of::<CustatevecDeviceMemHandler>(), size_of::<DeviceMemHandler>());
    // SAFETY: a live resource or null, and a struct of the same shape.
    assert_eq!(unsafe { alluvion_handler_init(resource, (&raw mut made).cast()) }, ALV_OK);
    // SAFETY: the text in the struct ends in 0.
    assert_eq!(unsafe { CStr::from_ptr(made.name.as_ptr()) }, c"alluvion");
    made
}

impl CustatevecDeviceMemHandler {
    fn alloc(&self, size: usize, stream: CudaStream) -> (c_int, *mut c_void) {
        let mut block = std::ptr::dangling_mut();
        let alloc = self.device_alloc.expect("it is filled");
        // SAFETY: the context of the handler, a place, and a live or a default stream.
        (unsafe { alloc(self.ctx, &raw mut block, size, stream) }, block)
    }

    fn free(&self, block: *mut c_void, size: usize, stream: CudaStream) -> c_int {
        let free = self.device_free.expect("it is filled");
        // SAFETY: the context of the handler, and its block, whose uses come before the stream's point.
        unsafe { free(self.ctx, block, size, stream) }
    }
}

#[test]
fn a_given_resource_serves_on_any_stream() {
    let chosen = Chosen::new(1);
    let resource = chosen.sim.recipe("stats | pool | cuda");
    let (handle, stream) = chosen.raw_stream();
    let handler = handler(resource);
    for stream in [null_mut(), 2 as CudaStream, stream] {
        let (status, block) = handler.alloc(1000, stream);
        assert_eq!((status, live(resource)), (0, 1000));
        fill(resource, block, 1, 1000, stream);
        assert_eq!((handler.free(block, 1000, stream), live(resource)), (0, 0));
    }
    assert_eq!(handler.alloc(0, stream), (0, null_mut()));
    assert_eq!(handler.free(null_mut(), 1000, stream), 0);
    assert_eq!(handler.alloc(usize::MAX, stream), (ALV_SIZE_OVERFLOW, null_mut()));
    assert_eq!(handler.alloc(1 << 50, stream), (ALV_OUT_OF_MEMORY, null_mut()));
    // SAFETY: null is refused.
    assert_eq!(unsafe { alluvion_handler_init(resource, null_mut()) }, ALV_INVALID_ARGUMENT);
    let alloc = handler.device_alloc.expect("it is filled");
    // SAFETY: null is refused.
    assert_ne!(unsafe { alloc(handler.ctx, null_mut(), 8, null_mut()) }, 0);
    release_stream(handle);
    release(resource);
}

#[test]
fn without_a_resource_each_device_has_its_own_from_its_first_request_on() {
    let chosen = Chosen::new(2);
    let resources = [chosen.set("stats | cuda", 0), chosen.set("stats | cuda", 1)];
    let handler = handler(null_mut());
    assert_eq!(alv_set_current_device(1), ALV_OK);
    let (status, block) = handler.alloc(1000, null_mut());
    assert_eq!((status, resources.map(|resource| live(resource))), (0, [0, 1000]));
    let second = chosen.set("stats | cuda", 1);
    // Whichever device and resource are current by now.
    assert_eq!(alv_set_current_device(0), ALV_OK);
    assert_eq!(handler.free(block, 1000, null_mut()), 0);
    assert_eq!((resources.map(|resource| live(resource)), live(second)), ([0, 0], 0));
    // A block of a device that no request was made for did not come from here.
    let (status, stranger) = allocate(resources[0], 100, 0);
    assert_eq!((status, handler.free(stranger, 100, null_mut())), (ALV_OK, ALV_INVALID_ARGUMENT));
    free(resources[0], stranger, 100, 0);
    let unknown = with_exposed_provenance_mut(0x7777_0000);
    assert_eq!(handler.free(unknown, 100, null_mut()), ALV_INVALID_ARGUMENT);
    resources.into_iter().for_each(release);
    release(second);
}
