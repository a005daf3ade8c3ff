//! What sleeps, and wakes.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use calluvion::*;

use crate::support::*;

fn sleep(
    stack: *const ResourceHandle,
    tag: Option<&CStr>,
    host: *const ResourceHandle,
) -> Result<*mut SleeperHandle, Status> {
    let mut sleeper = null_mut();
    // SAFETY: live handles, a string and a place; no test uses what sleeps.
    match unsafe { alv_sleep(stack, tag.map_or(null(), CStr::as_ptr), host, &raw mut sleeper) } {
        ALV_OK => Ok(sleeper),
        failed => {
            assert!(sleeper.is_null());
            Err(failed)
        }
    }
}

fn wake(sleeper: *const SleeperHandle) -> Status {
    // SAFETY: a live handle.
    unsafe { alv_wake(sleeper) }
}

fn figures(sleeper: *const SleeperHandle) -> (usize, usize, usize, u32) {
    // SAFETY: all bits zero are a value.
    let mut found: SleepFigures = unsafe { std::mem::zeroed() };
    found.struct_size = size_of::<SleepFigures>();
    // SAFETY: a live handle, and a whole struct.
    assert_eq!(unsafe { alv_sleeper_figures(sleeper, &raw mut found) }, ALV_OK);
    (found.blocks, found.bytes, found.kept_bytes, found.asleep)
}

fn release_sleeper(sleeper: *mut SleeperHandle) {
    // SAFETY: the count is the test's.
    unsafe { alv_sleeper_release(sleeper) };
}

fn read_kept(sleeper: *const SleeperHandle, from: *const c_void, into: &mut [u8]) -> Status {
    // SAFETY: a live handle, and a place of so many bytes.
    unsafe { alv_sleeper_read_kept(sleeper, from, into.as_mut_ptr().cast(), into.len()) }
}

/// Allocates under a tag.
fn tagged(resource: *const ResourceHandle, tag: &CStr, bytes: usize) -> *mut c_void {
    // SAFETY: a string.
    assert_eq!(unsafe { alv_tag_push(tag.as_ptr()) }, ALV_OK);
    let (status, block) = allocate(resource, bytes, 0);
    alv_tag_pop();
    assert_eq!(status, ALV_OK);
    block
}

#[test]
fn a_tag_sleeps_and_wakes_and_all_of_it_refuses_requests() {
    let sim = Sim::new(1);
    let (stack, host) = (sim.recipe("stats | tracking | pool | mapped"), sim.recipe("pool | pinned"));
    let weights = tagged(stack, c"weights", 3 << 20);
    let cache = tagged(stack, c"cache", 2 << 20);

    let sleeper = sleep(stack, Some(c"weights"), host).expect("it has pages");
    assert_eq!(figures(sleeper), (1, 3 << 20, 3 << 20, 1));
    let (status, more) = allocate(stack, 1000, 0);
    assert_eq!(status, ALV_OK);
    assert_eq!((wake(sleeper), wake(sleeper)), (ALV_OK, ALV_OK));
    assert_eq!(figures(sleeper).3, 0);
    // SAFETY: a live handle, of which this is one more count.
    release_sleeper(unsafe { alv_sleeper_retain(sleeper) });
    release_sleeper(sleeper);

    let sleeper = sleep(stack, None, null()).expect("it has pages");
    assert_eq!((figures(sleeper).0, figures(sleeper).2), (3, 0));
    assert_eq!(allocate(stack, 1000, 0).0, ALV_ASLEEP);
    assert_eq!(sleep(stack, None, null()), Err(ALV_ASLEEP));
    // A block may be freed while it sleeps.
    free(stack, cache, 2 << 20, 0);
    sim.fail(c"cuMemCreate", 1, 2);
    assert_eq!(wake(sleeper), ALV_OUT_OF_MEMORY);
    assert_eq!(figures(sleeper).3, 1);
    assert_eq!(wake(sleeper), ALV_OK);
    release_sleeper(sleeper);
    free(stack, weights, 3 << 20, 0);
    free(stack, more, 1000, 0);
    release(stack);
    release(host);
}

#[test]
fn a_sleeper_that_is_released_lets_the_stack_go_on() {
    let sim = Sim::new(1);
    let stack = sim.recipe("pool | mapped");
    let (_, lost) = allocate(stack, 1 << 20, 0);
    release_sleeper(sleep(stack, None, null()).expect("it has pages"));
    let (status, block) = allocate(stack, 1 << 20, 0);
    assert_eq!(status, ALV_OK);
    free(stack, block, 1 << 20, 0);
    free(stack, lost, 1 << 20, 0);
    release(stack);
}

#[test]
fn what_cannot_sleep_says_so() {
    let sim = Sim::new(1);
    let (stack, bare) = (sim.recipe("pool(checked=false) | mapped"), sim.recipe("pool | cuda"));
    assert_eq!(sleep(bare, None, null()), Err(ALV_UNSUPPORTED));
    assert_eq!(sleep(stack, Some(c"weights"), null()), Err(ALV_UNSUPPORTED));
    assert_eq!(sleep(stack, None, bare), Err(ALV_INVALID_ARGUMENT));
    assert_eq!(sleep(null(), None, null()), Err(ALV_INVALID_ARGUMENT));
    assert_eq!(wake(null()), ALV_INVALID_ARGUMENT);
    // SAFETY: null is nothing, and no place is an error.
    unsafe {
        assert!(alv_sleeper_retain(null_mut()).is_null());
        alv_sleeper_release(null_mut());
        assert_eq!(alv_sleep(stack, null(), null(), null_mut()), ALV_INVALID_ARGUMENT);
    }
    release(stack);
    release(bare);
}

#[test]
fn one_block_sleeps_and_wakes_and_may_be_freed_asleep() {
    let sim = Sim::new(1);
    let (stack, host) = (sim.recipe("stats | pool | mapped"), sim.recipe("pool | pinned"));
    let ((_, first), (_, second)) = (allocate(stack, 3 << 20, 0), allocate(stack, 2 << 20, 0));
    let sleep_block = |block, host| {
        let mut sleeper = std::ptr::dangling_mut();
        // SAFETY: live handles, a block of the stack, the default stream and a place; no test uses what sleeps.
        let status = unsafe { alv_sleep_block_raw(stack, block, null_mut(), host, &raw mut sleeper) };
        assert_eq!(sleeper.is_null(), status != ALV_OK);
        (status, sleeper)
    };
    // SAFETY: memory of the stack, on its default stream.
    assert_eq!(unsafe { alv_fill_raw(stack, first, 7, 3 << 20, null_mut()) }, ALV_OK);
    let (status, sleeper) = sleep_block(first, host.cast_const());
    assert_eq!((status, figures(sleeper)), (ALV_OK, (1, 3 << 20, 3 << 20, 1)));
    assert_eq!(sleep_block(first, null()).0, ALV_INVALID_ARGUMENT, "it sleeps");
    assert_eq!(
        sleep_block(first.wrapping_byte_add(256), null()).0,
        ALV_INVALID_ARGUMENT,
        "no block begins there"
    );
    assert_eq!(sleep_block(second, stack.cast_const()).0, ALV_INVALID_ARGUMENT, "the host does not reach it");
    assert_eq!(wake(sleeper), ALV_OK);
    let mut back = 0_u8;
    // SAFETY: as above, and a place.
    unsafe {
        assert_eq!(alv_copy_raw(stack, (&raw mut back).cast(), first, 1, null_mut()), ALV_OK);
        assert_eq!(alv_synchronize_raw(stack, null_mut()), ALV_OK);
    }
    assert_eq!((back, figures(sleeper).3), (7, 0));
    release_sleeper(sleeper);
    let (status, sleeper) = sleep_block(second, null());
    assert_eq!((status, figures(sleeper)), (ALV_OK, (1, 2 << 20, 0, 1)));
    free(stack, second, 2 << 20, 0);
    release_sleeper(sleeper);
    // Whichever call fails: it sleeps or it does not, and nothing is lost.
    for nth in 1..12 {
        sim.fail_any(nth);
        let (status, sleeper) = sleep_block(first, host.cast_const());
        sim.clear_faults();
        if status == ALV_OK {
            assert_eq!(wake(sleeper), ALV_OK);
        }
        release_sleeper(sleeper);
        // SAFETY: as above.
        unsafe {
            assert_eq!(alv_copy_raw(stack, (&raw mut back).cast(), first, 1, null_mut()), ALV_OK);
            assert_eq!(alv_synchronize_raw(stack, null_mut()), ALV_OK);
        }
        assert_eq!(back, 7, "call {nth}");
    }
    free(stack, first, 3 << 20, 0);
    assert_eq!(counts(stack).allocations.value, 0);
    let bare = sim.recipe("pool | cuda");
    let (_, block) = allocate(bare, 1000, 0);
    let mut none = null_mut();
    // SAFETY: as above.
    let status = unsafe { alv_sleep_block_raw(bare, block, null_mut(), null(), &raw mut none) };
    assert_eq!((status, none), (ALV_UNSUPPORTED, null_mut()));
    free(bare, block, 1000, 0);
    [bare, stack, host].into_iter().for_each(release);
}

#[test]
fn what_is_kept_is_read_while_it_sleeps() {
    const BYTES: usize = 3 << 20;
    let sim = Sim::new(1);
    let (stack, host) = (sim.recipe("pool | mapped"), sim.recipe("pool | pinned"));
    let (_, block) = allocate(stack, BYTES, 0);
    // SAFETY: memory of the stack, on its default stream.
    assert_eq!(unsafe { alv_fill_raw(stack, block, 7, BYTES, null_mut()) }, ALV_OK);
    let last = block.wrapping_byte_add(BYTES - 2);

    let sleeper = sleep(stack, None, host).expect("it has pages");
    let mut into = [0_u8; 3];
    assert_eq!((read_kept(sleeper, block, &mut into), into), (ALV_OK, [7; 3]));
    let mut all = vec![0_u8; BYTES];
    assert_eq!(read_kept(sleeper, block, &mut all), ALV_OK);
    assert!(all == vec![7; BYTES]);
    assert_eq!(
        (read_kept(sleeper, last, &mut into[..2]), read_kept(sleeper, last, &mut [])),
        (ALV_OK, ALV_OK)
    );

    let mut untouched = [1_u8; 3];
    let mut refused = |sleeper: *mut SleeperHandle, from: *const c_void, why: &str| {
        assert_eq!(read_kept(sleeper, from, &mut untouched), ALV_INVALID_ARGUMENT, "{why}");
        assert!(message().contains(why), "{}", message());
        assert_eq!(untouched, [1; 3], "{why}");
    };
    let outside = "not all of them lie in one block that sleeps";
    refused(sleeper, last, outside);
    refused(sleeper, block.wrapping_byte_add(BYTES), outside);
    refused(sleeper, block.wrapping_byte_sub(1), outside);
    refused(sleeper, null(), "from");
    refused(null_mut(), block, "sleeper");
    // SAFETY: a live handle, and no place, or one that no program can have.
    unsafe {
        assert_eq!(alv_sleeper_read_kept(sleeper, block, null_mut(), 3), ALV_INVALID_ARGUMENT);
        let into = into.as_mut_ptr().cast();
        assert_eq!(alv_sleeper_read_kept(sleeper, block, into, usize::MAX), ALV_SIZE_OVERFLOW);
    }
    assert_eq!(wake(sleeper), ALV_OK);
    refused(sleeper, block, "the blocks are awake");
    release_sleeper(sleeper);

    let sleeper = sleep(stack, None, null()).expect("it has pages");
    refused(sleeper, block, "nothing was kept");
    assert_eq!(wake(sleeper), ALV_OK);
    release_sleeper(sleeper);
    free(stack, block, BYTES, 0);
    release(stack);
    release(host);
}
