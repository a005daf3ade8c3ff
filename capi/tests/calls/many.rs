//! What many blocks at once are: all of them or none.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use calluvion::*;

use crate::support::*;

fn allocate_many(
    resource: *const ResourceHandle,
    sizes: &[usize],
    align: usize,
) -> (Status, Vec<*mut c_void>) {
    let mut blocks = vec![std::ptr::dangling_mut::<c_void>(); sizes.len()];
    // SAFETY: a live resource, the default stream, and arrays of one length.
    let status = unsafe {
        alv_allocate_many_raw(resource, sizes.as_ptr(), sizes.len(), align, null_mut(), blocks.as_mut_ptr())
    };
    (status, blocks)
}

fn free_many(resource: *const ResourceHandle, blocks: &[*mut c_void], sizes: &[usize], align: usize) {
    // SAFETY: blocks of the resource with these sizes, which nothing uses, or what it refuses.
    unsafe {
        alv_deallocate_many_raw(resource, blocks.as_ptr(), sizes.as_ptr(), sizes.len(), align, null_mut());
    };
}

#[test]
fn each_size_has_a_block_and_no_bytes_are_null() {
    let sim = Sim::new(1);
    let resource = sim.recipe("stats | tracking | pool | cuda-async");
    let sizes = [1000, 0, 1 << 20];
    let (status, blocks) = allocate_many(resource, &sizes, 4096);
    assert_eq!((status, blocks[1]), (ALV_OK, null_mut()));
    assert!([blocks[0], blocks[2]].iter().all(|block| !block.is_null() && block.addr() % 4096 == 0));
    assert_eq!(counts(resource).bytes.value, 1000 + (1 << 20));
    // They are blocks like any other.
    free(resource, blocks[2], sizes[2], 4096);
    free_many(resource, &blocks[..2], &sizes[..2], 4096);
    assert_eq!(counts(resource).bytes.value, 0);
    // SAFETY: no elements.
    unsafe {
        assert_eq!(alv_allocate_many_raw(resource, null(), 0, 0, null_mut(), null_mut()), ALV_OK);
        alv_deallocate_many_raw(resource, null(), null(), 0, 0, null_mut());
    }
    release(resource);
}

/// As by one request after the other: a log has a free for each allocation.
#[test]
fn no_bytes_are_not_asked_for() {
    let sim = Sim::new(1);
    let path = format!("{}/no-bytes-among-many-{}.csv", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let resource = sim.recipe(&format!("logging({path:?}) | cuda-async"));
    let sizes = [1000, 0, 2000];
    let (status, blocks) = allocate_many(resource, &sizes, 0);
    assert_eq!(status, ALV_OK);
    free_many(resource, &blocks, &sizes, 0);
    release(resource);
    let log = std::fs::read_to_string(&path).expect("the log is written");
    let _ = std::fs::remove_file(&path);
    let rows = |action: &str| log.lines().filter(|row| row.contains(action)).count();
    assert_eq!((rows(",allocate,"), rows(",free,")), (2, 2), "{log}");
}

#[test]
fn one_that_fails_leaves_none() {
    let sim = Sim::new(1);
    let resource = sim.recipe("stats | limiting(2MiB) | pool | cuda-async");
    for (sizes, align, expected) in [
        ([1 << 20, 1 << 19, 1 << 20], 0, ALV_OUT_OF_MEMORY),
        ([1000, 1000, usize::MAX], 0, ALV_SIZE_OVERFLOW),
        ([1000, 1000, 0], 3, ALV_INVALID_ALIGNMENT),
    ] {
        assert_eq!(allocate_many(resource, &sizes, align), (expected, vec![null_mut(); 3]));
        assert_eq!(error().status, expected);
        assert_eq!(counts(resource).bytes.value, 0);
    }
    release(resource);
    // Whichever call of the driver fails.
    for nth in 1..20 {
        let bare = sim.recipe("stats | cuda-async");
        sim.fail_any(nth);
        let (status, blocks) = allocate_many(bare, &[1 << 20, 1 << 20, 1 << 20], 0);
        sim.clear_faults();
        if status == ALV_OK {
            free_many(bare, &blocks, &[1 << 20; 3], 0);
        } else {
            assert_eq!(blocks, [null_mut(); 3], "call {nth}");
        }
        assert_eq!(counts(bare).bytes.value, 0, "call {nth}");
        release(bare);
    }
}

#[test]
fn a_wrong_free_among_many_is_refused_and_the_others_are_freed() {
    let sim = Sim::new(1);
    let resource = sim.recipe("tracking | pool(checked=true) | cuda-async");
    let sizes = [1000; 3];
    let (status, blocks) = allocate_many(resource, &sizes, 0);
    assert_eq!(status, ALV_OK);
    free_many(resource, &[blocks[0], blocks[0], blocks[1]], &sizes, 0);
    let mut refused = 0;
    // SAFETY: a live resource and a place.
    assert_eq!(unsafe { alv_refused_frees(resource, &raw mut refused) }, ALV_OK);
    assert_eq!((refused, error().status), (1, ALV_MISUSE));
    // One that cannot be a block is left out, and its neighbour is freed.
    free_many(resource, &[blocks[2], blocks[2]], &[usize::MAX, 1000], 0);
    // SAFETY: as above.
    assert_eq!(unsafe { alv_refused_frees(resource, &raw mut refused) }, ALV_OK);
    assert_eq!((refused, error().status), (1, ALV_SIZE_OVERFLOW));
    release(resource);
    // The machine has noted the wrong free, too. It is not what this test is about.
    // SAFETY: a live machine.
    assert_eq!(unsafe { alv_sim_report(sim.0, None, null_mut(), null_mut()) }, ALV_OK);
}

#[test]
fn memory_is_merged_at_a_safe_point() {
    let sim = Sim::new(1);
    let resource = sim.recipe("stats | pool(initial=4MiB) | cuda");
    let (status, blocks) = allocate_many(resource, &[1 << 20; 2], 0);
    assert_eq!(status, ALV_OK);
    free_many(resource, &blocks, &[1 << 20; 2], 0);
    let largest = || {
        // SAFETY: numbers.
        let mut status: PoolStatus = unsafe { std::mem::zeroed() };
        status.struct_size = size_of::<PoolStatus>();
        // SAFETY: a live resource and a whole struct.
        assert_eq!(unsafe { alv_status_of(resource, &raw mut status) }, ALV_OK);
        status.largest_free_bytes
    };
    assert_eq!(largest(), 2 << 20, "the rest lies in the cache of the stream");
    // SAFETY: live resources.
    unsafe {
        assert_eq!(alv_synchronize_raw(resource, null_mut()), ALV_OK);
        assert_eq!(alv_defragment(resource), ALV_OK);
        assert_eq!(largest(), 4 << 20);
        let bare = sim.recipe("cuda");
        assert_eq!(alv_defragment(bare), ALV_UNSUPPORTED);
        release(bare);
    }
    release(resource);
}
