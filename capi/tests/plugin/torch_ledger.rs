//! PyTorch's functions over the ledger of the device.

use std::ffi::c_void;
use std::ptr::null_mut;

use calluvion::*;

use crate::chosen::*;
use crate::support::*;

fn malloc(size: usize, device: i32, stream: CudaStream) -> *mut c_void {
    // SAFETY: a live stream of the device, or a default stream.
    unsafe { alluvion_torch_ledger_malloc(size, device, stream) }
}

fn free(block: *mut c_void, size: usize, device: i32, stream: CudaStream) {
    // SAFETY: its uses come before the stream's point or are recorded.
    unsafe { alluvion_torch_ledger_free(block, size, device, stream) };
}

#[test]
fn each_request_is_of_the_resource_that_is_current() {
    let chosen = Chosen::new(1);
    let first = chosen.set("stats | cuda", 0);
    let block = malloc(1000, 0, null_mut());
    let second = chosen.set("stats | cuda", 0);
    let other = malloc(500, 0, null_mut());
    assert_eq!((live(first), live(second)), (1000, 500));
    // Whatever size comes back.
    free(block, 7, 0, null_mut());
    free(other, 500, 0, null_mut());
    assert_eq!((live(first), live(second)), (0, 0));
    release(first);
    release(second);
}

#[test]
fn a_block_is_freed_once_on_its_own_device() {
    let chosen = Chosen::new(2);
    let resources = [chosen.set("stats | cuda", 0), chosen.set("stats | cuda", 1)];
    let block = malloc(100, 1, null_mut());
    free(block, 100, 0, null_mut());
    assert_eq!(live(resources[1]), 0, "the ledgers know better");
    let before = live(resources[0]);
    free(block, 100, 1, null_mut());
    assert_eq!((error().status, live(resources[0])), (ALV_MISUSE, before));
    free(0x1234_5600 as *mut c_void, 100, 0, null_mut());
    assert!(message().contains("0x12345600"), "{}", message());
    free(null_mut(), 100, 0, null_mut());
    resources.into_iter().for_each(release);
}

#[test]
fn failures_are_null_and_count_nothing() {
    let chosen = Chosen::new(1);
    let resource = chosen.set("stats | cuda", 0);
    alluvion_torch_memory_fraction(0.9, 0);
    for (size, device) in [(0, 0), (1 << 50, 0), (usize::MAX, 0), (8, 5)] {
        assert!(malloc(size, device, null_mut()).is_null());
    }
    let mut total = 0;
    // SAFETY: a live resource and a place.
    assert_eq!(unsafe { alv_memory_info(resource, null_mut(), &raw mut total) }, ALV_OK);
    alluvion_torch_memory_fraction(1000.5 / total as f64, 0);
    let block = malloc(1000, 0, null_mut());
    assert!(!block.is_null() && malloc(1, 0, null_mut()).is_null());
    free(block, 1000, 0, null_mut());
    let block = malloc(1000, 0, null_mut());
    assert!(!block.is_null(), "what is free is counted with the ledger's size");
    free(block, 0, 0, null_mut());
    assert_eq!(live(resource), 0);
    release(resource);
}

#[test]
fn a_recorded_stream_holds_the_free_back() {
    let chosen = Chosen::new(1);
    let resource = chosen.set("pool(initial=1MiB) | cuda", 0);
    let (own_handle, own) = chosen.raw_stream();
    let (other_handle, other) = chosen.raw_stream();
    let block = malloc(4096, 0, own);
    // SAFETY: live handles.
    unsafe {
        assert_eq!(alv_synchronize_raw(resource, own), ALV_OK);
        alluvion_torch_ledger_record_stream(block, other);
    }
    fill(resource, block, 1, 4096, other);
    chosen.sim.fail(c"cuStreamWaitEvent", 1, 999);
    free(block, 4096, 0, own);
    assert_eq!(error().status, ALV_DRIVER);
    // The block stays out, and comes back again.
    free(block, 4096, 0, own);
    let next = malloc(4096, 0, own);
    assert_eq!(next, block, "the stream gets what it freed last");
    fill(resource, next, 2, 4096, own);
    free(next, 4096, 0, own);
    // SAFETY: a stranger.
    unsafe { alluvion_torch_ledger_record_stream(next, other) };
    assert_eq!(error().status, ALV_MISUSE);
    // SAFETY: null is no block.
    unsafe { alluvion_torch_ledger_record_stream(null_mut(), other) };
    release_stream(own_handle);
    release_stream(other_handle);
    release(resource);
}

/// A stream that cannot be found out keeps its block from being handed out: it leaks.
#[test]
fn a_block_whose_user_is_not_known_is_not_freed() {
    let chosen = Chosen::new(1);
    let resource = chosen.set("stats | cuda", 0);
    let block = malloc(4096, 0, null_mut());
    // The first is about the block, the second about the thread whose default stream it is.
    chosen.sim.fail(c"cuCtxGetDevice", 2, 999);
    // SAFETY: a default stream.
    unsafe { alluvion_torch_ledger_record_stream(block, 2 as CudaStream) };
    assert_eq!(error().status, ALV_DRIVER);
    free(block, 4096, 0, null_mut());
    assert_eq!(live(resource), 4096);
    crate::support::free(resource, block, 4096, 0);
    release(resource);
}
