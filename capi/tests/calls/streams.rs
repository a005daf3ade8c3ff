//! Streams by their handles, and streams that the library knows.

use std::ffi::c_void;
use std::ptr::null_mut;

use calluvion::*;

use crate::support::*;

#[test]
fn a_stream_that_comes_by_its_handle_is_one_stream() {
    let sim = Sim::new(1);
    let resource = sim.recipe("pool(initial=64MiB) | cuda-async");
    let raw = sim.foreign_stream();
    let mut blocks = Vec::new();
    for _ in 0..2 {
        let mut block = null_mut();
        // SAFETY: live handles and a place; the block is freed on the stream that it came for.
        unsafe {
            assert_eq!(alv_allocate_raw(resource, 1000, 0, raw, &raw mut block), ALV_OK);
            alv_deallocate_raw(resource, block, 1000, 0, raw);
        }
        blocks.push(block);
    }
    assert_eq!(blocks[0], blocks[1], "the stream gets what it freed last");
    // SAFETY: nothing uses it any more.
    assert_eq!(unsafe { alv_sim_stream_destroy(sim.0, 0, raw) }, ALV_OK);
    release(resource);
}

#[test]
fn the_hit_path_asks_the_driver_about_unknown_streams_alone() {
    let sim = Sim::new(1);
    let resource = sim.recipe("stats | pool(initial=64MiB) | cuda-async");
    let stream = sim.stream();
    let pair = |by_handle: Option<CudaStream>| {
        let mut block = null_mut();
        // SAFETY: live handles and a place; the block is freed on the stream that it came for.
        unsafe {
            match by_handle {
                Some(raw) => {
                    assert_eq!(alv_allocate_raw(resource, 1000, 0, raw, &raw mut block), ALV_OK);
                    alv_deallocate_raw(resource, block, 1000, 0, raw);
                }
                None => {
                    assert_eq!(alv_allocate_on(resource, 1000, 0, stream, &raw mut block), ALV_OK);
                    alv_deallocate_on(resource, block, 1000, 0, stream);
                }
            }
        }
    };
    // SAFETY: a live stream.
    let known = unsafe { alv_stream_handle(stream) };
    let unknown = sim.foreign_stream();
    for (by_handle, calls) in [
        (None, 0),
        (Some(null_mut()), 0),
        (Some(1 as CudaStream), 0),
        (Some(2 as CudaStream), 0),
        (Some(known), 0),
        (Some(unknown), 7),
    ] {
        pair(by_handle);
        pair(by_handle);
        let before = sim.calls();
        pair(by_handle);
        // A stream that the library does not know: whether it captures and its number, twice; for the free once more whether it captures, and an event, which
        // may have to be made.
        assert!(sim.calls() - before <= calls, "{} calls for {by_handle:?}", sim.calls() - before);
    }
    // SAFETY: a count that the test holds, and a stream that nothing uses any more.
    unsafe {
        alv_stream_release(stream);
        assert_eq!(alv_sim_stream_destroy(sim.0, 0, unknown), ALV_OK);
    }
    release(resource);
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let sim = Sim::new(2);
    let resource = sim.try_recipe("pool | cuda", 1).expect("device 1 is there");
    let stream = sim.stream();
    let mut block = std::ptr::dangling_mut::<c_void>();
    // SAFETY: live handles and places.
    unsafe {
        let raw = alv_stream_handle(stream);
        assert_eq!(alv_allocate_raw(resource, 1000, 0, raw, &raw mut block), ALV_DEVICE_MISMATCH);
        assert!(block.is_null());
        assert_eq!(alv_allocate_on(resource, 1000, 0, stream, &raw mut block), ALV_DEVICE_MISMATCH);
        assert_eq!(alv_allocate_sync(resource, 1000, 0, &raw mut block), ALV_OK);
        // A free on it leaks the block rather than hand it out early.
        alv_deallocate_on(resource, block, 1000, 0, stream);
        alv_deallocate_raw(resource, block, 1000, 0, raw);
        alv_deallocate_sync(resource, block, 1000, 0);
        alv_stream_release(stream);
    }
    release(resource);
}

#[test]
fn flags_that_mean_nothing_make_no_stream() {
    let mut stream = null_mut();
    for flags in [2, 3, u32::MAX] {
        // SAFETY: a place.
        let status = unsafe { alv_stream_create_with(0, flags, &raw mut stream) };
        assert_eq!((status, stream.is_null()), (ALV_INVALID_ARGUMENT, true));
    }
    // SAFETY: null is refused.
    assert_eq!(unsafe { alv_stream_create_with(0, 0, null_mut()) }, ALV_INVALID_ARGUMENT);
}

#[test]
fn a_stream_follows_another() {
    let sim = Sim::new(1);
    let resource = sim.recipe("pool(initial=64MiB) | cuda");
    let (first, second) = (sim.foreign_stream(), sim.foreign_stream());
    let (status, block) = allocate(resource, 64, 0);
    assert_eq!(status, ALV_OK);
    let mut host = [0_u8; 64];
    // SAFETY: live handles; the block and the host's bytes are there until both streams are done.
    unsafe {
        assert_eq!(alv_synchronize_raw(resource, null_mut()), ALV_OK);
        assert_eq!(alv_fill_raw(resource, block, 7, 64, first), ALV_OK);
        assert_eq!(alv_wait_for_raw(resource, second, first), ALV_OK);
        // A stream is behind itself.
        assert_eq!(alv_wait_for_raw(resource, second, second), ALV_OK);
        assert_eq!(alv_copy_raw(resource, host.as_mut_ptr().cast(), block, 64, second), ALV_OK);
        assert_eq!(alv_synchronize_raw(resource, second), ALV_OK);
        assert_eq!(alv_wait_for_raw(null_mut(), second, first), ALV_INVALID_ARGUMENT);
    }
    assert_eq!(host, [7; 64]);
    free(resource, block, 64, 0);
    // SAFETY: nothing uses them any more.
    unsafe {
        assert_eq!(alv_sim_stream_destroy(sim.0, 0, first), ALV_OK);
        assert_eq!(alv_sim_stream_destroy(sim.0, 0, second), ALV_OK);
    }
    release(resource);
}

#[test]
fn managed_memory_migrates_and_other_memory_stays() {
    let sim = Sim::new(2);
    let (managed, plain) = (sim.recipe("managed"), sim.recipe("cuda"));
    let stream = sim.foreign_stream();
    for resource in [managed, plain] {
        let (status, block) = allocate(resource, 4096, 0);
        assert_eq!(status, ALV_OK);
        for to in [0, 1, -1] {
            // SAFETY: live handles; the block is there until the stream is done.
            unsafe {
                let before = alv_sim_calls(sim.0);
                assert_eq!(alv_prefetch_raw(resource, block, 4096, to, stream), ALV_OK);
                assert!(alv_sim_calls(sim.0) > before, "the driver is asked");
                assert_eq!(alv_prefetch_raw(resource, null_mut(), 0, to, stream), ALV_OK);
            }
        }
        // SAFETY: as above; null is refused, and so is a device that is not there.
        unsafe {
            assert_eq!(alv_prefetch_raw(resource, null_mut(), 1, 0, stream), ALV_INVALID_ARGUMENT);
            assert_eq!(alv_prefetch_raw(resource, block, 4096, 2, stream), ALV_NO_DEVICE);
            // Every other error of the driver comes out.
            assert_eq!(alv_sim_fail(sim.0, c"cuMemPrefetchAsync".as_ptr(), 1, 2), ALV_OK);
            assert_eq!(alv_prefetch_raw(resource, block, 4096, 0, stream), ALV_OUT_OF_MEMORY);
            assert_eq!(alv_synchronize_raw(resource, stream), ALV_OK);
        }
        free(resource, block, 4096, 0);
        release(resource);
    }
    // SAFETY: nothing uses it any more.
    assert_eq!(unsafe { alv_sim_stream_destroy(sim.0, 0, stream) }, ALV_OK);
}
