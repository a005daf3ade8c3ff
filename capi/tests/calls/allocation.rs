//! What a request is answered, and what bad input costs.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use calluvion::*;

use crate::support::*;

#[test]
fn alignments_up_to_256_are_one() {
    let sim = Sim::new(1);
    // These layers compare what comes back with what went out.
    for recipe in
        ["tracking | pool | cuda-async", "guard | pool | cuda-async", "stats | cuda", "arena | cuda-async"]
    {
        let resource = sim.recipe(recipe);
        for (asked, freed) in [(16, 256), (256, 1), (0, 16), (1, 0), (64, 128)] {
            let (status, block) = allocate(resource, 1000, asked);
            assert_eq!((status, block.addr() % 256), (ALV_OK, 0), "{recipe}");
            free(resource, block, 1000, freed);
        }
        release(resource);
    }
}

#[test]
fn no_bytes_are_null_and_null_is_nothing_to_free() {
    let sim = Sim::new(1);
    let resource = sim.recipe("stats | pool | cuda-async");
    assert_eq!(allocate(resource, 0, 0), (ALV_OK, null_mut()));
    for bytes in [0, 1, usize::MAX] {
        free(resource, null_mut(), bytes, 0);
    }
    assert_eq!(counts(resource).allocations.total, 0);
    release(resource);
}

#[test]
fn sizes_and_alignments_that_cannot_be_are_errors_and_nothing_is_lost() {
    let sim = Sim::new(1);
    let resource = sim.recipe("stats | pool | cuda-async");
    let most = isize::MAX as usize;
    for (bytes, align, expected) in [
        (usize::MAX, 0, ALV_SIZE_OVERFLOW),
        (most, 0, ALV_SIZE_OVERFLOW),
        (most - 254, 0, ALV_SIZE_OVERFLOW),
        (1, 3, ALV_INVALID_ALIGNMENT),
        (1, usize::MAX, ALV_INVALID_ALIGNMENT),
        (0, 24, ALV_INVALID_ALIGNMENT),
        (1 << 45, 0, ALV_OUT_OF_MEMORY),
    ] {
        assert_eq!(allocate(resource, bytes, align), (expected, null_mut()), "{bytes} at {align}");
        assert_eq!(error().status, expected);
        // A block that cannot be is none that comes back.
        free(resource, 256 as *mut c_void, 0, 3);
    }
    assert_eq!(counts(resource).bytes.value, 0);
    release(resource);
    // A pool makes larger alignments; the driver does not.
    let (pool, bare) = (sim.recipe("pool | cuda"), sim.recipe("cuda"));
    let (status, block) = allocate(pool, 1, 4096);
    assert_eq!((status, block.addr() % 4096), (ALV_OK, 0));
    free(pool, block, 1, 4096);
    assert_eq!(allocate(bare, 1, 512), (ALV_UNSUPPORTED_ALIGNMENT, null_mut()));
    // SAFETY: live resources.
    assert_eq!(unsafe { (alv_resource_max_align(bare), alv_resource_max_align(null())) }, (256, 0));
    [pool, bare].into_iter().for_each(release);
}

#[test]
fn a_failed_request_says_why_and_a_success_leaves_that_alone() {
    let sim = Sim::new(1);
    let resource = sim.recipe("limiting(1MiB) | pool | cuda-async");
    let (status, block) = allocate(resource, 2 << 20, 0);
    assert_eq!((status, block), (ALV_OUT_OF_MEMORY, null_mut()));
    let why = message();
    assert!(why.contains("2 MiB") && why.contains("limit"), "{why}");
    let info = error();
    assert_eq!((info.status, info.requested_bytes, info.cuda_code), (ALV_OUT_OF_MEMORY, 2 << 20, 0));
    let mut report = OomReport {
        struct_size: size_of::<OomReport>(),
        requested_bytes: 0,
        align: 0,
        device: 0,
        cause: 0,
        attempt: 0,
        reserved: 0,
        live_bytes: 0,
        free_bytes: 0,
        pending_bytes: 0,
        reserved_bytes: 0,
        largest_bytes: 0,
        maximum_bytes: 0,
        upstream_free_bytes: 0,
        upstream_total_bytes: 0,
        refused_by: [0; 32],
        name: [0; 64],
    };
    // SAFETY: a whole struct.
    assert_eq!(unsafe { alv_last_out_of_memory(&raw mut report) }, ALV_OK);
    assert_eq!(
        (report.requested_bytes, report.maximum_bytes, report.cause),
        (2 << 20, 1 << 20, ALV_CAUSE_TOO_LARGE)
    );
    // SAFETY: the text in the struct ends in 0.
    assert_eq!(unsafe { CStr::from_ptr(report.refused_by.as_ptr()) }, c"Limiting");

    let before = alv_last_error_message();
    let (status, block) = allocate(resource, 1000, 0);
    assert_eq!((status, alv_last_error_message(), message()), (ALV_OK, before, why));
    free(resource, block, 1000, 0);
    // Of another thread nothing is known.
    std::thread::spawn(|| assert_eq!((message(), error().status), (String::new(), ALV_OK)))
        .join()
        .expect("it asserts");
    release(resource);
}

#[test]
fn a_driver_that_fails_is_told_by_its_code() {
    let sim = Sim::new(1);
    let resource = sim.recipe("cuda");
    sim.fail(c"cuMemAlloc", 1, 999);
    assert_eq!(allocate(resource, 1000, 0), (ALV_DRIVER, null_mut()));
    let info = error();
    // SAFETY: the text in the struct ends in 0.
    assert_eq!((info.cuda_code, unsafe { CStr::from_ptr(info.call.as_ptr()) }), (999, c"cuMemAlloc"));
    sim.fail(c"cuMemAlloc", 1, 2);
    assert_eq!(allocate(resource, 1000, 0).0, ALV_OUT_OF_MEMORY);
    // SAFETY: a live machine and strings.
    unsafe {
        assert_eq!(alv_sim_fail(sim.0, c"cuNothing".as_ptr(), 1, 2), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_sim_fail(sim.0, null(), 0, 2), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_sim_fail(sim.0, null(), 1, 0), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_sim_fail(sim.0, c"cuMemAlloc".as_ptr(), 0, 2), ALV_OK);
    }
    assert_eq!(
        (allocate(resource, 1000, 0).0, allocate(resource, 1000, 0).0),
        (ALV_OUT_OF_MEMORY, ALV_OUT_OF_MEMORY)
    );
    // SAFETY: a live machine.
    assert_eq!(unsafe { alv_sim_clear_faults(sim.0) }, ALV_OK);
    let (status, block) = allocate(resource, 1000, 0);
    assert_eq!(status, ALV_OK);
    free(resource, block, 1000, 0);
    release(resource);
}

#[test]
fn bytes_move_in_the_order_of_the_stream() {
    let sim = Sim::new(1);
    let resource = sim.recipe("pool | cuda");
    let (_, block) = allocate(resource, 8, 0);
    let (given, mut got) = ([1_u8, 2, 3, 4], [0_u8; 8]);
    let stream = null_mut();
    // SAFETY: live handles; the arrays live until the stream is synchronised.
    unsafe {
        assert_eq!(alv_fill_raw(resource, block, 9, 8, stream), ALV_OK);
        assert_eq!(alv_copy_raw(resource, block, given.as_ptr().cast(), 4, stream), ALV_OK);
        assert_eq!(alv_copy_raw(resource, got.as_mut_ptr().cast(), block, 8, stream), ALV_OK);
        assert_eq!(alv_synchronize_raw(resource, stream), ALV_OK);
        assert_eq!(alv_copy_raw(resource, null_mut(), block, 8, stream), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_copy_raw(resource, null_mut(), null(), 0, stream), ALV_OK);
        assert_eq!(alv_fill_raw(resource, null_mut(), 0, 1, stream), ALV_INVALID_ARGUMENT);
    }
    assert_eq!(got, [1, 2, 3, 4, 9, 9, 9, 9]);
    free(resource, block, 8, 0);
    release(resource);
}

#[test]
fn a_wait_for_the_device_is_for_every_stream() {
    let sim = Sim::new(1);
    let resource = sim.recipe("pool | cuda");
    let streams = [sim.stream(), sim.stream()];
    let (_, block) = allocate(resource, 100, 0);
    // SAFETY: live handles; the fills are ordered by waits for the device.
    unsafe {
        assert_eq!(alv_synchronize_device(resource), ALV_OK);
        for stream in streams {
            assert_eq!(alv_fill_raw(resource, block, 1, 100, alv_stream_handle(stream)), ALV_OK);
            assert_eq!(alv_synchronize_device(resource), ALV_OK);
        }
        sim.fail(c"cuCtxSynchronize", 1, 999);
        assert_eq!(alv_synchronize_device(resource), ALV_DRIVER);
        assert_eq!(alv_synchronize_device(null()), ALV_INVALID_ARGUMENT);
        streams.into_iter().for_each(|stream| alv_stream_release(stream));
    }
    free(resource, block, 100, 0);
    release(resource);
}
