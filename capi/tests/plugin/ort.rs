//! ONNX Runtime's functions.

use std::ffi::c_void;
use std::ptr::null_mut;

use calluvion::*;

use crate::chosen::*;
use crate::support::*;

const ALLOC: extern "C" fn(usize) -> *mut c_void = alluvion_ort_alloc;
const FREE: unsafe extern "C" fn(*mut c_void) = alluvion_ort_free;
const EMPTY_CACHE: extern "C" fn() = alluvion_ort_empty_cache;

fn free(block: *mut c_void) {
    // SAFETY: the functions wait for the device, or the uses are on the stream that was set.
    unsafe { FREE(block) };
}

/// Work on any stream, which nobody has waited for: a mistake that the machine notices, unless the free has.
#[test]
fn a_free_waits_for_the_device() {
    let chosen = Chosen::new(1);
    let resource = chosen.set("stats | pool | cuda", 0);
    let (handle, stream) = chosen.raw_stream();
    let block = ALLOC(4096);
    fill(resource, block, 1, 4096, stream);
    free(block);
    let next = ALLOC(4096);
    assert_eq!(next, block, "the memory is there again");
    fill(resource, next, 2, 4096, null_mut());
    free(next);
    assert_eq!(live(resource), 0);
    free(next);
    assert_eq!(error().status, ALV_MISUSE);
    free(null_mut());
    assert!(ALLOC(0).is_null() && ALLOC(usize::MAX).is_null());
    EMPTY_CACHE();
    release_stream(handle);
    release(resource);
}

#[test]
fn a_stream_that_is_named_orders_the_blocks_without_a_wait() {
    let chosen = Chosen::new(2);
    let resource = chosen.set("stats | pool(initial=1MiB) | cuda", 0);
    let (handle, stream) = chosen.raw_stream();
    // SAFETY: a live stream.
    assert_eq!(unsafe { alluvion_ort_set_stream_raw(0, stream) }, ALV_OK);
    // SAFETY: a live stream, which is refused.
    assert_eq!(unsafe { alluvion_ort_set_stream_raw(1, stream) }, ALV_DEVICE_MISMATCH);
    let block = ALLOC(4096);
    fill(resource, block, 1, 4096, stream);
    // A wait for the device would fail.
    chosen.sim.fail(c"cuCtxSynchronize", 0, 999);
    free(block);
    let next = ALLOC(4096);
    assert_eq!((next, live(resource)), (block, 4096));
    fill(resource, next, 2, 4096, stream);
    free(next);
    // SAFETY: a live machine.
    assert_eq!((unsafe { alv_sim_clear_faults(chosen.sim.0) }, live(resource)), (ALV_OK, 0));
    // SAFETY: the thread alone uses it.
    assert_eq!(unsafe { alluvion_ort_set_stream_raw(0, null_mut()) }, ALV_OK);
    release_stream(handle);
    release(resource);
}

/// A device that cannot be waited for keeps the block out.
#[test]
fn a_free_that_cannot_wait_can_be_made_again() {
    let chosen = Chosen::new(2);
    let resources = [chosen.set("stats | cuda", 0), chosen.set("stats | cuda", 1)];
    assert_eq!(alv_set_current_device(1), ALV_OK);
    let block = ALLOC(1000);
    assert_eq!(resources.map(|resource| live(resource)), [0, 1000]);
    assert_eq!(alv_set_current_device(0), ALV_OK);
    chosen.sim.fail(c"cuCtxSynchronize", 1, 999);
    free(block);
    assert_eq!((error().status, live(resources[1])), (ALV_DRIVER, 1000));
    free(block);
    assert_eq!(live(resources[1]), 0, "the ledgers know the device");
    resources.into_iter().for_each(release);
}
