//! What processes share: how it ends, and who fails meanwhile.

use std::ptr::null_mut;

use calluvion::*;

use crate::shared_pair::*;
use crate::support::*;

#[test]
fn no_bytes_are_shared_as_nothing() {
    let pair = Pair::new();
    let resource = pair.first.recipe("cuda");
    let filled = Filled { resource, block: null_mut(), bytes: 0 };
    let shared = filled.share(&pair, 0);
    let imported = pair.open(&sent(shared), -1, 0).expect("it is there");
    assert_eq!((range(imported).data, range(imported).bytes), (null_mut(), 0));
    assert_eq!(end(shared, 0), ALV_IN_USE);
    drop_imported(imported);
    // SAFETY: a live share and a live stream.
    assert_eq!(unsafe { alv_shared_park_on(shared, pair.stream) }, ALV_OK);
    drop_shared(shared);
    let missing = Filled { bytes: 10, ..filled };
    assert_eq!(missing.try_share(&pair, &options(0)), Err(ALV_INVALID_ARGUMENT));
    release(resource);
}

#[test]
fn a_process_that_is_killed_has_nothing_any_more() {
    let pair = Pair::new();
    let filled = Filled::new(&pair, "pool | cuda", 3000, 5);
    let shared = filled.share(&pair, 0);
    let imported = pair.open(&sent(shared), -1, 0).expect("it is there");
    assert_eq!(end(shared, 1), ALV_IN_USE);
    // SAFETY: a live machine.
    assert_eq!(unsafe { alv_sim_kill(pair.second.0) }, ALV_OK);
    // What the kernel does for a process that is killed: it takes the lock.
    drop_imported(imported);
    assert_eq!((end(shared, -1), filled.bytes(&pair)), (ALV_OK, vec![5; 3000]));
    drop_shared(shared);
    filled.free(&pair);
}

#[test]
fn what_is_parked_is_freed_when_nobody_has_it() {
    let pair = Pair::new();
    let resource = pair.first.recipe("stats | pool | cuda");
    let park = |shared: *const SharedHandle| {
        // SAFETY: a live share, whose block the test gives up, and a live stream of its device.
        unsafe { alv_shared_park_on(shared, pair.stream) }
    };
    let live = |bytes: i64| assert_eq!(counts(resource).bytes.value, bytes);
    let block = || {
        let mut block = null_mut();
        // SAFETY: live handles and a place.
        unsafe { assert_eq!(alv_allocate_on(resource, 3000, 0, pair.stream, &raw mut block), ALV_OK) };
        Filled { resource, block, bytes: 3000 }
    };

    // Nobody has it: freed at once.
    let shared = block().share(&pair, 0);
    live(3000);
    assert_eq!(
        (park(shared), park(shared), end(shared, 0)),
        (ALV_OK, ALV_INVALID_ARGUMENT, ALV_INVALID_ARGUMENT)
    );
    live(0);
    drop_shared(shared);

    // Somebody has it, and others may come; a failed wait changes nothing.
    let shared = block().share(&pair, 0);
    let (sent, first) = (sent(shared), pair.open(&sent(shared), -1, 0).expect("it is there"));
    pair.first.fail(c"cuStreamSynchronize", 1, 999);
    assert_eq!((park(shared), importers(shared)), (ALV_DRIVER, 1));
    assert_eq!((park(shared), is_over(shared), descriptor(shared)), (ALV_OK, false, -1));
    let mut count = 7;
    // SAFETY: a live share and a place.
    assert_eq!(unsafe { alv_shared_importers(shared, &raw mut count) }, ALV_INVALID_ARGUMENT);
    assert_eq!((count, figures(&pair.first).parked, figures(&pair.first).parked_bytes), (0, 1, 3000));
    drop_shared(shared);
    let second = pair.open(&sent, -1, 0).expect("the library has it");
    drop_imported(first);
    assert_eq!(sweep(&pair.first), 0);
    live(3000);
    drop_imported(second);
    assert_eq!((sweep(&pair.first), figures(&pair.first).parked), (1, 0));
    live(0);

    // What has ended is the caller's.
    let filled = block();
    let shared = filled.share(&pair, 0);
    assert_eq!((end(shared, 0), park(shared)), (ALV_OK, ALV_INVALID_ARGUMENT));
    live(3000);
    drop_shared(shared);
    filled.free(&pair);
}

#[test]
fn parking_waits_for_the_work_on_the_stream() {
    let pair = Pair::new();
    // Of which the pool has one.
    const BYTES: usize = 1 << 20;
    let filled = Filled::new(&pair, "pool(initial=1MiB, maximum=1MiB) | cuda", BYTES, 5);
    let shared = filled.share(&pair, 0);
    let other = pair.first.stream();
    let mut again = null_mut();
    // SAFETY: live handles, a place, and blocks of that size. The first one is given up behind the fill on its stream.
    unsafe {
        let (stream, other_stream) = (alv_stream_handle(pair.stream), alv_stream_handle(other));
        assert_eq!(alv_fill_raw(filled.resource, filled.block, 6, BYTES, stream), ALV_OK);
        assert_eq!(alv_shared_park_on(shared, pair.stream), ALV_OK);
        drop_shared(shared);
        // The same memory for another stream, which follows nothing: the machine would notice a fill that still runs.
        assert_eq!(alv_allocate_on(filled.resource, BYTES, 0, other, &raw mut again), ALV_OK);
        assert_eq!(again, filled.block);
        assert_eq!(alv_fill_raw(filled.resource, again, 7, BYTES, other_stream), ALV_OK);
        assert!(copied(filled.resource, again, BYTES, other_stream).iter().all(|&byte| byte == 7));
        alv_deallocate_on(filled.resource, again, BYTES, 0, other);
        alv_stream_release(other);
    }
    release(filled.resource);
}

#[test]
fn what_is_released_without_an_end_can_be_opened_no_more() {
    let pair = Pair::new();
    let filled = Filled::new(&pair, "cuda", 3000, 5);
    let shared = filled.share(&pair, 0);
    let (sent, imported) = (sent(shared), pair.open(&sent(shared), -1, 0).expect("it is there"));
    // SAFETY: counts that the test holds: the first is not the last.
    assert_eq!(unsafe { alv_shared_retain(shared) }, shared);
    drop_shared(shared);
    assert_eq!(importers(shared), 1);
    drop_shared(shared);
    // SAFETY: a live stream.
    let its_stream = unsafe { alv_stream_handle(pair.its_stream) };
    assert_eq!(copied(pair.its_memory, range(imported).data, 3000, its_stream), [5; 3000]);
    drop_imported(imported);
    assert_eq!(pair.open(&sent, -1, 0), Err(ALV_STALE));
    filled.free(&pair);
}

/// Runs `body` with each call of the driver failing in its turn, until it makes fewer calls. Returns how often it failed.
fn with_each_call_failing(sim: &Sim, mut body: impl FnMut() -> bool) -> usize {
    let mut failures = 0;
    for nth in 1.. {
        let before = sim.calls();
        sim.fail_any(nth);
        failures += usize::from(!body());
        sim.clear_faults();
        if sim.calls() - before < nth {
            return failures;
        }
    }
    unreachable!("each body makes some calls")
}

#[test]
fn every_failing_call_of_the_driver_leaves_nothing() {
    for (recipe, _) in WAYS {
        let pair = Pair::new();
        let filled = Filled::new(&pair, recipe, 3000, 5);
        let sharing = with_each_call_failing(&pair.first, || {
            let Ok(shared) = filled.try_share(&pair, &options(0)) else { return false };
            // It asks the system alone.
            assert_eq!(end(shared, 0), ALV_OK);
            drop_shared(shared);
            true
        });
        let shared = filled.share(&pair, 0);
        let opening = with_each_call_failing(&pair.second, || {
            let opened = pair.open(&sent(shared), descriptor(shared), 0);
            if let Err(status) = opened {
                assert_eq!((importers(shared), pair.its_figures()), (0, (0, 0)), "{recipe}: {status}");
                return false;
            }
            // Without a fault: where the end of the work is not known, memory stays open.
            pair.second.clear_faults();
            drop_imported(opened.expect("it is no error"));
            true
        });
        assert!(sharing >= 2 && opening >= 3, "{recipe}: {sharing} calls and {opening} have failed");
        assert_eq!((end(shared, 0), pair.its_figures()), (ALV_OK, (0, 0)), "{recipe}");
        drop_shared(shared);
        filled.free(&pair);
    }
}
