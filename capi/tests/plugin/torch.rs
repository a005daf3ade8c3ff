//! PyTorch's functions, whose resource is fixed at the first request.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::thread;

use calluvion::*;

use crate::chosen::*;
use crate::support::*;

/// As PyTorch declares what it looks up.
type Malloc = unsafe extern "C" fn(usize, c_int, CudaStream) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, usize, c_int, CudaStream);

const MALLOC: Malloc = alluvion_torch_malloc;
const FREE: Free = alluvion_torch_free;

fn malloc(size: usize, device: c_int, stream: CudaStream) -> *mut c_void {
    // SAFETY: a live stream of the device, or a default stream.
    unsafe { MALLOC(size, device, stream) }
}

fn free(block: *mut c_void, size: usize, device: c_int, stream: CudaStream) {
    // SAFETY: a block of the function with this size, or null; its uses come before the stream's point or are recorded.
    unsafe { FREE(block, size, device, stream) };
}

#[test]
fn a_block_goes_back_to_its_resource_though_another_is_current() {
    let chosen = Chosen::new(1);
    let first = chosen.set("stats | cuda", 0);
    let block = malloc(1000, 0, null_mut());
    assert_eq!((block.is_null(), block.addr() % 256, live(first)), (false, 0, 1000));
    let second = chosen.set("stats | cuda", 0);
    let other = malloc(500, 0, null_mut());
    // The resource of the first request stays the one.
    assert_eq!((live(first), live(second)), (1500, 0));
    free(block, 1000, 0, null_mut());
    free(other, 500, 0, 2 as CudaStream);
    assert_eq!((live(first), live(second)), (0, 0));
    release(first);
    release(second);
}

#[test]
fn each_device_has_its_own() {
    let chosen = Chosen::new(2);
    let resources = [chosen.set("stats | cuda", 0), chosen.set("stats | cuda", 1)];
    let blocks = [malloc(100, 0, null_mut()), malloc(300, 1, null_mut())];
    assert_eq!(resources.map(|resource| live(resource)), [100, 300]);
    // The current device of the thread is left as it is.
    let mut current = 7;
    // SAFETY: a place.
    assert_eq!((unsafe { alv_current_device(&raw mut current) }, current), (ALV_OK, 0));
    free(blocks[1], 300, 1, null_mut());
    free(blocks[0], 100, 0, null_mut());
    assert_eq!(resources.map(|resource| live(resource)), [0, 0]);
    resources.into_iter().for_each(release);
}

#[test]
fn null_comes_back_for_no_bytes_and_for_failures_that_say_why() {
    let chosen = Chosen::new(1);
    let resource = chosen.set("stats | limiting(1MiB) | cuda", 0);
    let before = message();
    assert!(malloc(0, 0, null_mut()).is_null());
    assert_eq!(message(), before, "no bytes are no failure");
    for (size, device, said) in [
        (2 << 20, 0, "limit"),
        (usize::MAX, 0, "size overflow"),
        (-1_isize as usize, 0, "size overflow"),
        (64, 77, "77"),
        (64, 1, "device"),
    ] {
        assert!(malloc(size, device, null_mut()).is_null());
        assert!(message().contains(said), "{}", message());
    }
    for device in [0, 1, 77, -1] {
        free(null_mut(), 64, device, null_mut());
    }
    // What fails is not counted.
    alluvion_torch_memory_fraction(0.5, 0);
    let block = malloc(1 << 20, 0, null_mut());
    assert!(!block.is_null());
    free(block, 1 << 20, 0, null_mut());
    assert_eq!(live(resource), 0);
    release(resource);
}

#[test]
fn a_free_before_any_request_frees_nothing() {
    let chosen = Chosen::new(1);
    let resource = chosen.set("stats | cuda", 0);
    let (status, block) = allocate(resource, 100, 0);
    assert_eq!(status, ALV_OK);
    free(block, 100, 0, null_mut());
    assert_eq!(live(resource), 100);
    crate::support::free(resource, block, 100, 0);
    release(resource);
}

/// Whoever gets the block next writes to it: a mistake that the machine notices, unless the free has waited for the other stream.
#[test]
fn a_recorded_stream_holds_the_free_back() {
    let chosen = Chosen::new(2);
    let resource = chosen.set("pool(initial=1MiB) | cuda", 0);
    let (own_handle, own) = chosen.raw_stream();
    let (other_handle, other) = chosen.raw_stream();
    // The default streams, too, of whichever device is current.
    for user in [other, null_mut(), 1 as CudaStream, 2 as CudaStream] {
        for current in [0, 1] {
            let block = malloc(4096, 0, own);
            // SAFETY: live handles.
            unsafe {
                assert_eq!(alv_synchronize_raw(resource, own), ALV_OK);
                // The stream of a thread is that of its current device, which uses memory of another one by peer access alone.
                assert_eq!(alv_set_current_device(if user.addr() == 2 { 0 } else { current }), ALV_OK);
                alluvion_torch_record_stream(block, user);
                alluvion_torch_record_stream(block, user);
            }
            fill(resource, block, 1, 4096, user);
            free(block, 4096, 0, own);
            let next = malloc(4096, 0, own);
            assert_eq!(next, block, "the stream gets what it freed last");
            fill(resource, next, 2, 4096, own);
            free(next, 4096, 0, own);
            // SAFETY: live handles.
            assert_eq!(unsafe { alv_synchronize_raw(resource, own) }, ALV_OK);
        }
    }
    assert_eq!(alv_set_current_device(0), ALV_OK);
    // SAFETY: null is no block.
    unsafe { alluvion_torch_record_stream(null_mut(), own) };
    release_stream(own_handle);
    release_stream(other_handle);
    release(resource);
}

/// A block whose recorded stream cannot be waited for leaks rather than be handed out early.
#[test]
fn a_block_that_cannot_wait_is_not_freed() {
    let chosen = Chosen::new(1);
    let resource = chosen.set("stats | cuda", 0);
    let (own_handle, own) = chosen.raw_stream();
    let (other_handle, other) = chosen.raw_stream();
    let block = malloc(4096, 0, own);
    // SAFETY: live handles.
    unsafe {
        assert_eq!(alv_synchronize_raw(resource, own), ALV_OK);
        alluvion_torch_record_stream(block, other);
    }
    fill(resource, block, 1, 4096, other);
    chosen.sim.fail(c"cuStreamWaitEvent", 1, 999);
    free(block, 4096, 0, own);
    assert_eq!((live(resource), error().status), (4096, ALV_DRIVER));
    // SAFETY: live handles.
    unsafe {
        assert_eq!(alv_synchronize_raw(resource, other), ALV_OK);
        alv_deallocate_raw(resource, block, 4096, 0, own);
    }
    release_stream(own_handle);
    release_stream(other_handle);
    release(resource);
}

#[test]
fn a_fraction_bounds_what_is_out() {
    let chosen = Chosen::new(1);
    let resource = chosen.set("stats | cuda", 0);
    let mut total = 0;
    // SAFETY: a live resource and a place.
    assert_eq!(unsafe { alv_memory_info(resource, null_mut(), &raw mut total) }, ALV_OK);
    // What was out before counts, too.
    let first = malloc(total / 8, 0, null_mut());
    alluvion_torch_memory_fraction(0.25, 0);
    assert!(malloc(total / 4, 0, null_mut()).is_null());
    assert_eq!((error().status, error().limit), (ALV_OUT_OF_MEMORY, total / 4));
    let second = malloc(total / 8, 0, null_mut());
    assert!(!second.is_null());
    assert!(malloc(1, 0, null_mut()).is_null());
    free(first, total / 8, 0, null_mut());
    let third = malloc(1, 0, null_mut());
    assert!(!third.is_null());
    for fraction in [1.0, 2.0, f64::NAN] {
        alluvion_torch_memory_fraction(0.0, 0);
        assert!(malloc(1, 0, null_mut()).is_null());
        alluvion_torch_memory_fraction(fraction, 0);
        let block = malloc(total / 2, 0, null_mut());
        assert!(!block.is_null(), "{fraction}");
        free(block, total / 2, 0, null_mut());
    }
    alluvion_torch_memory_fraction(0.5, 77);
    assert_eq!(error().status, ALV_NO_DEVICE);
    free(second, total / 8, 0, null_mut());
    free(third, 1, 0, null_mut());
    assert_eq!(live(resource), 0);
    release(resource);
}

#[test]
fn an_emptied_cache_gives_unused_memory_back() {
    let chosen = Chosen::new(1);
    let resource = chosen.set("pool | cuda", 0);
    alluvion_torch_init(1);
    let block = malloc(1 << 20, 0, null_mut());
    free(block, 1 << 20, 0, null_mut());
    // SAFETY: all bits zero are figures.
    let mut status: PoolStatus = unsafe { std::mem::zeroed() };
    status.struct_size = size_of::<PoolStatus>();
    // SAFETY: a live resource and a whole struct.
    assert_eq!(unsafe { alv_status_of(resource, &raw mut status) }, ALV_OK);
    assert!(status.reserved_bytes >= 1 << 20);
    alluvion_torch_empty_cache();
    // SAFETY: as above.
    assert_eq!(unsafe { alv_status_of(resource, &raw mut status) }, ALV_OK);
    assert_eq!(status.reserved_bytes, 0);
    release(resource);
}

#[test]
fn the_base_of_a_block_is_the_drivers() {
    let chosen = Chosen::new(1);
    let resource = chosen.set("pool(initial=1MiB) | cuda", 0);
    let blocks = [malloc(4096, 0, null_mut()), malloc(4096, 0, null_mut())];
    let mut size = 7;
    let bases = blocks.map(|block| {
        // SAFETY: a place.
        unsafe { alluvion_torch_base_alloc(block, &raw mut size) }
    });
    assert_eq!((bases[0], size), (bases[1], 1 << 20));
    assert!(blocks.iter().all(|block| (bases[0].addr()..bases[0].addr() + size).contains(&block.addr())));
    let unknown = 0x77 as *mut c_void;
    size = 7;
    // SAFETY: a place, and null.
    unsafe {
        assert_eq!((alluvion_torch_base_alloc(unknown, &raw mut size), size), (unknown, 0));
        assert_eq!(alluvion_torch_base_alloc(blocks[1], null_mut()), bases[0]);
        size = 7;
        assert!(alluvion_torch_base_alloc(null_mut(), &raw mut size).is_null());
        assert_eq!(size, 0);
    }
    blocks.into_iter().for_each(|block| free(block, 4096, 0, null_mut()));
    release(resource);
}

#[test]
fn threads_share_the_functions_and_free_for_each_other() {
    let chosen = Chosen::new(1);
    let resource = chosen.set("stats | pool | cuda", 0);
    // From the first request on, so that they all fix the resource at once.
    let blocks: Vec<(usize, usize)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|at| {
                scope.spawn(move || {
                    for turn in 0..100 {
                        let block = malloc(256 + turn, 0, 2 as CudaStream);
                        free(block, 256 + turn, 0, 2 as CudaStream);
                    }
                    (malloc(1000 + at, 0, null_mut()).expose_provenance(), 1000 + at)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    assert_eq!(live(resource), (1000..1008).sum::<i64>());
    for (block, size) in blocks {
        free(std::ptr::with_exposed_provenance_mut(block), size, 0, null_mut());
    }
    assert_eq!((live(resource), counts(resource).allocations.total), (0, 808));
    release(resource);
}

/// A test, or a program that moves from a simulated machine to CUDA, chooses a machine anew.
#[test]
fn a_machine_that_is_chosen_again_is_known_again() {
    let chosen = Chosen::new(1);
    let resource = chosen.set("stats | cuda", 0);
    let block = malloc(100, 0, null_mut());
    let other = Sim::new(1);
    // SAFETY: live machines.
    assert_eq!(unsafe { alv_set_machine(other.0) }, ALV_OK);
    let elsewhere = malloc(100, 0, null_mut());
    free(elsewhere, 100, 0, null_mut());
    alluvion_torch_empty_cache();
    // SAFETY: as above.
    assert_eq!(unsafe { alv_set_machine(chosen.sim.0) }, ALV_OK);
    assert_eq!(live(resource), 100);
    free(block, 100, 0, null_mut());
    assert_eq!(live(resource), 0);
    release(resource);
    drop(chosen);
    drop(other);
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
    unsafe { alluvion_torch_record_stream(block, 2 as CudaStream) };
    assert_eq!(error().status, ALV_DRIVER);
    free(block, 4096, 0, null_mut());
    assert_eq!(live(resource), 4096);
    crate::support::free(resource, block, 4096, 0);
    release(resource);
}
