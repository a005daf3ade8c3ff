//! Blocks that are freed by their addresses alone.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::thread;

use calluvion::*;

use crate::support::*;

fn over(resource: *const ResourceHandle) -> *mut LedgerHandle {
    let mut ledger = null_mut();
    // SAFETY: a live resource and a place.
    assert_eq!(unsafe { alv_ledger_over(resource, &raw mut ledger) }, ALV_OK);
    ledger
}

fn allocate_of(ledger: *const LedgerHandle, bytes: usize, stream: CudaStream) -> *mut c_void {
    let mut block = std::ptr::dangling_mut::<c_void>();
    // SAFETY: a live ledger, a live stream and a place.
    let status = unsafe { alv_ledger_allocate_raw(ledger, bytes, 0, stream, &raw mut block) };
    assert_eq!(status, ALV_OK, "{}", message());
    block
}

fn free_of(ledger: *const LedgerHandle, block: *mut c_void, stream: CudaStream) -> Status {
    // SAFETY: a live ledger and a live stream; nothing uses the block but streams that were recorded.
    unsafe { alv_ledger_free_raw(ledger, block, stream) }
}

fn size_of_block(ledger: *const LedgerHandle, address: *const c_void) -> (Status, usize, *mut c_void) {
    let (mut bytes, mut base) = (7, std::ptr::dangling_mut());
    // SAFETY: a live ledger and places.
    let status = unsafe { alv_ledger_size(ledger, address, &raw mut bytes, &raw mut base) };
    (status, bytes, base)
}

fn live(ledger: *const LedgerHandle) -> (usize, usize) {
    let (mut blocks, mut bytes) = (7, 7);
    // SAFETY: a live ledger and places.
    assert_eq!(unsafe { alv_ledger_live(ledger, &raw mut blocks, &raw mut bytes) }, ALV_OK);
    (blocks, bytes)
}

fn release_ledger(ledger: *mut LedgerHandle) {
    // SAFETY: a count that the test holds.
    unsafe { alv_ledger_release(ledger) };
}

#[test]
fn a_block_is_freed_by_its_address_once() {
    let sim = Sim::new(1);
    let resource = sim.recipe("stats | tracking | pool | cuda");
    let ledger = over(resource);
    let block = allocate_of(ledger, 1000, null_mut());
    assert_eq!((live(ledger), counts(resource).bytes.value), ((1, 1000), 1000));
    assert_eq!(size_of_block(ledger, block), (ALV_OK, 1000, block));
    let last = block.wrapping_byte_add(999);
    assert_eq!(size_of_block(ledger, last), (ALV_OK, 1000, block));
    assert_eq!(size_of_block(ledger, block.wrapping_byte_add(1000)), (ALV_MISUSE, 0, null_mut()));
    assert_eq!(size_of_block(ledger, null()), (ALV_INVALID_ARGUMENT, 0, null_mut()));
    assert_eq!(free_of(ledger, last, null_mut()), ALV_MISUSE);
    assert!(message().contains("middle of the block"), "{}", message());
    assert_eq!(live(ledger), (1, 1000));
    assert_eq!(free_of(ledger, block, null_mut()), ALV_OK);
    assert_eq!(free_of(ledger, block, null_mut()), ALV_MISUSE);
    assert!(message().contains("no block is out there"), "{}", message());
    assert_eq!((live(ledger), counts(resource).bytes.value), ((0, 0), 0));
    release_ledger(ledger);
    release(resource);
}

#[test]
fn no_bytes_and_null_are_nothing() {
    let sim = Sim::new(1);
    let resource = sim.recipe("pool | cuda");
    let ledger = over(resource);
    assert!(allocate_of(ledger, 0, null_mut()).is_null());
    assert_eq!((free_of(ledger, null_mut(), null_mut()), live(ledger)), (ALV_OK, (0, 0)));
    let mut block = std::ptr::dangling_mut::<c_void>();
    // SAFETY: live handles, places, and null where it is refused or nothing to do.
    unsafe {
        assert_eq!(alv_ledger_free_sync(ledger, null_mut()), ALV_OK);
        assert_eq!(alv_ledger_free_on(ledger, null_mut(), null()), ALV_OK);
        assert_eq!(alv_ledger_allocate_raw(null(), 1, 0, null_mut(), &raw mut block), ALV_INVALID_ARGUMENT);
        assert!(block.is_null());
        assert_eq!(alv_ledger_allocate_raw(ledger, 1, 3, null_mut(), &raw mut block), ALV_INVALID_ALIGNMENT);
        assert_eq!(alv_ledger_allocate_raw(ledger, 1, 0, null_mut(), null_mut()), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_ledger_allocate_on(ledger, 1, 0, null(), &raw mut block), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_ledger_allocate_sync(null(), 1, 0, &raw mut block), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_ledger_free_raw(null(), 256 as *mut c_void, null_mut()), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_ledger_free_on(ledger, 256 as *mut c_void, null()), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_ledger_size(ledger, 0x1234 as *const c_void, null_mut(), null_mut()), ALV_MISUSE);
        assert_eq!(alv_ledger_live(ledger, null_mut(), null_mut()), ALV_OK);
        assert_eq!(alv_ledger_live(null(), null_mut(), null_mut()), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_record_stream_raw(ledger, null(), null_mut()), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_record_stream_raw(ledger, 0x1234 as *const c_void, null_mut()), ALV_MISUSE);
        assert_eq!(alv_record_stream_on(ledger, 0x1234 as *const c_void, null()), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_ledger_over(resource, null_mut()), ALV_INVALID_ARGUMENT);
        let mut none = std::ptr::dangling_mut();
        assert_eq!(alv_ledger_over(null(), &raw mut none), ALV_INVALID_ARGUMENT);
        assert!(none.is_null());
        let mut under = std::ptr::dangling_mut();
        assert_eq!(alv_ledger_resource(null(), &raw mut under), ALV_INVALID_ARGUMENT);
        assert!(under.is_null() && alv_ledger_retain(null_mut()).is_null());
        alv_ledger_release(null_mut());
    }
    assert_eq!(live(ledger), (0, 0), "nothing is lost on the way to an error");
    release_ledger(ledger);
    release(resource);
}

#[test]
fn a_ledger_keeps_its_resource_and_lends_it() {
    let sim = Sim::new(1);
    let resource = sim.recipe("stats | pool | cuda");
    let ledger = over(resource);
    let mut under = null_mut();
    // SAFETY: live handles and a place.
    unsafe {
        assert_eq!(alv_ledger_resource(ledger, &raw mut under), ALV_OK);
        assert!(alv_resource_equal(resource, under));
        assert_eq!(alv_ledger_retain(ledger), ledger);
    }
    release(resource);
    release_ledger(ledger);
    // What comes from the resource is a stranger here.
    let (status, stranger) = allocate(under, 100, 0);
    assert_eq!((status, free_of(ledger, stranger, null_mut())), (ALV_OK, ALV_MISUSE));
    free(under, stranger, 100, 0);
    let block = allocate_of(ledger, 100, null_mut());
    assert_eq!(counts(under).bytes.value, 100);
    assert_eq!(free_of(ledger, block, null_mut()), ALV_OK);
    release(under);
    release_ledger(ledger);
}

/// Whoever gets the block next writes to it: a mistake that the machine notices, unless the free has waited for the recorded stream.
#[test]
fn a_free_waits_for_recorded_streams() {
    let sim = Sim::new(1);
    let resource = sim.recipe("pool(initial=1MiB) | cuda");
    let ledger = over(resource);
    let (own, other) = (sim.stream(), sim.stream());
    // SAFETY: live streams.
    let (own_raw, other_raw) = unsafe { (alv_stream_handle(own), alv_stream_handle(other)) };
    for by_handle in [true, false] {
        let block = allocate_of(ledger, 4096, own_raw);
        // SAFETY: live handles; the fills are ordered by the ledger, and the block is freed behind them.
        unsafe {
            assert_eq!(alv_synchronize_raw(resource, own_raw), ALV_OK);
            let inside = block.wrapping_byte_add(100);
            let recorded = if by_handle {
                alv_record_stream_raw(ledger, inside, other_raw)
            } else {
                alv_record_stream_on(ledger, inside, other)
            };
            assert_eq!(recorded, ALV_OK);
            assert_eq!(alv_fill_raw(resource, block, 1, 4096, other_raw), ALV_OK);
            assert_eq!(free_of(ledger, block, own_raw), ALV_OK);
            let next = allocate_of(ledger, 4096, own_raw);
            assert_eq!(next, block, "the stream gets what it freed last");
            assert_eq!(alv_fill_raw(resource, next, 2, 4096, own_raw), ALV_OK);
            assert_eq!(alv_ledger_free_on(ledger, next, own), ALV_OK);
        }
    }
    // SAFETY: counts that the test holds.
    unsafe {
        alv_stream_release(own);
        alv_stream_release(other);
    }
    release_ledger(ledger);
    release(resource);
}

#[test]
fn a_free_that_fails_loses_nothing() {
    let sim = Sim::new(2);
    let (resource, elsewhere) =
        (sim.recipe("pool | cuda"), sim.try_recipe("cuda", 1).expect("device 1 is there"));
    let ledgers = [over(resource), over(elsewhere)];
    let (own, other) = (sim.stream(), sim.stream());
    // SAFETY: live streams.
    let (own_raw, other_raw) = unsafe { (alv_stream_handle(own), alv_stream_handle(other)) };
    let block = allocate_of(ledgers[0], 4096, own_raw);
    // SAFETY: live handles; the fill is ordered by the ledger.
    unsafe {
        assert_eq!(alv_ledger_free_raw(ledgers[1], block, own_raw), ALV_DEVICE_MISMATCH);
        assert_eq!(alv_synchronize_raw(resource, own_raw), ALV_OK);
        assert_eq!(alv_record_stream_raw(ledgers[0], block, other_raw), ALV_OK);
        assert_eq!(alv_fill_raw(resource, block, 1, 4096, other_raw), ALV_OK);
    }
    sim.fail(c"cuStreamWaitEvent", 1, 999);
    assert_eq!((free_of(ledgers[0], block, own_raw), live(ledgers[0])), (ALV_DRIVER, (1, 4096)));
    // SAFETY: a live machine.
    assert_eq!(unsafe { alv_sim_clear_faults(sim.0) }, ALV_OK);
    assert_eq!((free_of(ledgers[0], block, own_raw), live(ledgers[0])), (ALV_OK, (0, 0)));
    sim.fail(c"cuMemAlloc", 1, 2);
    let mut none = std::ptr::dangling_mut::<c_void>();
    // SAFETY: a live ledger and a place.
    let status = unsafe { alv_ledger_allocate_sync(ledgers[1], 100, 0, &raw mut none) };
    assert_eq!((status, none, live(ledgers[1])), (ALV_OUT_OF_MEMORY, null_mut(), (0, 0)));
    // SAFETY: live handles and a place.
    unsafe {
        assert_eq!(alv_ledger_allocate_sync(ledgers[1], 100, 0, &raw mut none), ALV_OK);
        assert_eq!(alv_ledger_free_sync(ledgers[1], none), ALV_OK);
        assert_eq!(alv_ledger_allocate_on(ledgers[0], 100, 0, own, &raw mut none), ALV_OK);
        assert_eq!(alv_ledger_free_on(ledgers[0], none, own), ALV_OK);
        alv_stream_release(own);
        alv_stream_release(other);
    }
    ledgers.into_iter().for_each(release_ledger);
    [resource, elsewhere].into_iter().for_each(release);
}

/// A ledger that goes leaves what is out to its resource.
#[test]
fn blocks_outlive_their_ledger() {
    let sim = Sim::new(1);
    let resource = sim.recipe("stats | cuda");
    let ledger = over(resource);
    let block = allocate_of(ledger, 100, null_mut());
    release_ledger(ledger);
    assert_eq!(counts(resource).bytes.value, 100);
    free(resource, block, 100, 0);
    assert_eq!(counts(resource).bytes.value, 0);
    release(resource);
}

#[test]
fn threads_share_a_ledger() {
    let sim = Sim::new(1);
    let resource = sim.recipe("stats | pool | cuda");
    let ledger = over(resource);
    let shared = ledger.expose_provenance();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                let ledger: *const LedgerHandle = std::ptr::with_exposed_provenance(shared);
                for turn in 0..200 {
                    // The default stream of the thread.
                    let block = allocate_of(ledger, 256 + turn, 2 as CudaStream);
                    assert_eq!(
                        size_of_block(ledger, block.wrapping_byte_add(turn)),
                        (ALV_OK, 256 + turn, block)
                    );
                    assert_eq!(free_of(ledger, block, 2 as CudaStream), ALV_OK);
                }
            });
        }
    });
    assert_eq!((live(ledger), counts(resource).allocations.total), ((0, 0), 800));
    release_ledger(ledger);
    release(resource);
}

#[test]
fn the_host_reads_and_writes_what_says_so() {
    let sim = Sim::new(1);
    for (recipe, access) in [
        ("cuda", false),
        ("stats | pool | cuda-async", false),
        ("managed", true),
        ("stats | pool | pinned", true),
        ("fallback(pinned) | managed", true),
        ("fallback(cuda) | managed", false),
    ] {
        let resource = sim.recipe(recipe);
        // SAFETY: a live resource.
        assert_eq!(unsafe { alv_resource_host_accessible(resource) }, access, "{recipe}");
        if access {
            let mut block = null_mut();
            // SAFETY: a live resource and a place; the host may write the block, and nothing else uses it.
            unsafe {
                assert_eq!(alv_allocate_sync(resource, 100, 0, &raw mut block), ALV_OK);
                block.cast::<u8>().write_bytes(5, 100);
                assert_eq!(block.cast::<u8>().add(99).read(), 5);
                alv_deallocate_sync(resource, block, 100, 0);
            }
        }
        release(resource);
    }
    // SAFETY: null is allowed.
    assert!(!unsafe { alv_resource_host_accessible(null()) });
}
