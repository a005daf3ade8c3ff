//! CuPy's functions.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use calluvion::*;

use crate::chosen::*;
use crate::support::*;

const MALLOC: unsafe extern "C" fn(*mut c_void, usize, c_int) -> *mut c_void = alluvion_cupy_malloc;
const FREE: unsafe extern "C" fn(*mut c_void, *mut c_void, c_int) = alluvion_cupy_free;

#[test]
fn a_block_is_freed_without_its_size_on_the_stream_of_the_parameter() {
    let chosen = Chosen::new(2);
    let resources = [chosen.set("stats | pool | cuda", 0), chosen.set("stats | pool | cuda", 1)];
    let (handle, stream) = chosen.raw_stream();
    for param in [null_mut(), 1 as CudaStream, 2 as CudaStream, stream] {
        // SAFETY: a default stream or a live one, and blocks of the function.
        unsafe {
            let block = MALLOC(param.cast(), 1000, 0);
            assert_eq!((block.is_null(), live(resources[0])), (false, 1000));
            fill(resources[0], block, 1, 1000, param);
            FREE(param.cast(), block, 0);
            // The stream gets what it freed last.
            let again = MALLOC(param.cast(), 1000, 0);
            assert_eq!(again, block);
            fill(resources[0], again, 2, 1000, param);
            FREE(param.cast(), again, 0);
            FREE(param.cast(), again, 0);
        }
        assert_eq!((live(resources[0]), error().status), (0, ALV_MISUSE));
    }
    // SAFETY: default streams, a stream that is refused, and null.
    unsafe {
        let block = MALLOC(null_mut(), 1000, 1);
        assert_eq!(live(resources[1]), 1000);
        FREE(null_mut(), block, 1);
        assert!(MALLOC(null_mut(), 0, 0).is_null());
        assert!(MALLOC(null_mut(), 1, 9).is_null() && MALLOC(null_mut(), usize::MAX, 0).is_null());
        assert!(MALLOC(stream.cast(), 1, 1).is_null());
        assert_eq!(error().status, ALV_DEVICE_MISMATCH);
        FREE(null_mut(), null_mut(), 0);
    }
    assert_eq!(resources.map(|resource| live(resource)), [0, 0]);
    release_stream(handle);
    resources.into_iter().for_each(release);
}

#[test]
fn a_block_goes_back_to_its_resource_though_another_is_current() {
    let chosen = Chosen::new(1);
    let first = chosen.set("stats | cuda", 0);
    // SAFETY: a default stream.
    let block = unsafe { MALLOC(null_mut(), 1000, 0) };
    let second = chosen.set("stats | cuda", 0);
    // SAFETY: a default stream, and a block of the function.
    unsafe { FREE(null_mut(), block, 0) };
    assert_eq!((live(first), live(second), counts(second).allocations.total), (0, 0, 0));
    release(first);
    release(second);
}
