//! Recipes, handles, descriptions.

use std::ffi::c_char;
use std::ptr::{null, null_mut};

use calluvion::*;

use crate::support::*;

#[test]
fn a_recipe_that_cannot_be_read_is_pointed_at() {
    let sim = Sim::new(2);
    assert_eq!(sim.try_recipe("pool | nonsense", 0), Err(ALV_MALFORMED));
    assert_eq!((error().status, error().column), (ALV_MALFORMED, 8));
    assert_eq!(sim.try_recipe("cuda(gpu=1)", 0), Err(ALV_INVALID_ARGUMENT));
    assert_eq!(sim.try_recipe("cuda", 2), Err(ALV_NO_DEVICE));
    // The recipe names the device where the caller does not.
    let resource = sim.try_recipe("cuda(gpu=1)", -1).expect("device 1 is there");
    let mut device = -1;
    // SAFETY: a live resource and a place.
    assert_eq!((unsafe { alv_resource_device(resource, &raw mut device) }, device), (ALV_OK, 1));
    release(resource);
    let mut resource = null_mut();
    // SAFETY: a live machine, no recipe, and a place.
    assert_eq!(unsafe { alv_resource_from_recipe_on(sim.0, null(), 0, &raw mut resource) }, ALV_OK);
    release(resource);
    // SAFETY: a string that is not UTF-8.
    let status = unsafe { alv_resource_from_recipe_on(sim.0, c"\xFF".as_ptr(), 0, &raw mut resource) };
    assert_eq!((status, resource), (ALV_INVALID_ARGUMENT, null_mut()));
}

#[test]
fn a_description_is_cut_where_there_is_no_room() {
    let sim = Sim::new(1);
    let resource = sim.recipe("pool | cuda");
    let mut buffer = [1 as c_char; 64];
    let mut needed = 0;
    let whole = "Pool(0 B) > Cuda(gpu 0)";
    for room in [0, 1, 5, whole.len(), whole.len() + 1, 64] {
        buffer.fill(1);
        // SAFETY: a live resource, a buffer of that room, and a place.
        assert_eq!(unsafe { alv_describe(resource, buffer.as_mut_ptr(), room, &raw mut needed) }, ALV_OK);
        assert_eq!(needed, whole.len());
        let written = whole.len().min(room.saturating_sub(1));
        let text: String = buffer[..written].iter().map(|&byte| byte as u8 as char).collect();
        assert_eq!(text, whole[..written]);
        assert!(room == 0 || buffer[written] == 0);
        assert!(buffer[room..].iter().all(|&byte| byte == 1), "nothing is written beyond the room");
    }
    // SAFETY: no buffer.
    assert_eq!(unsafe { alv_describe(resource, null_mut(), 8, &raw mut needed) }, ALV_INVALID_ARGUMENT);
    // SAFETY: no buffer and no room.
    assert_eq!(unsafe { alv_describe(resource, null_mut(), 0, null_mut()) }, ALV_OK);
    release(resource);
}

/// The next handle of a kind must not pass for the one before it. In a build that does not look for mistakes there is nothing to see.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "a build that does not look for mistakes believes every handle")]
fn a_handle_that_is_gone_is_never_a_newer_one() {
    let sim = Sim::new(1);
    let first = sim.recipe("pool | cuda");
    release(first);
    for _ in 0..64 {
        let next = sim.recipe("pool | cuda");
        assert_ne!(next, first, "the address is another handle's now");
        assert_eq!(allocate(first, 1000, 0), (ALV_INVALID_ARGUMENT, null_mut()));
        assert!(message().contains("it was released for good before"), "{}", message());
        release(next);
    }
    // A handle of another kind, and what never was one.
    // SAFETY: a build that looks for mistakes reads nothing of what is no resource.
    unsafe { alv_resource_release(sim.0.cast()) };
    assert!(message().contains("another kind"), "{}", message());
    let nothing = [0_u64; 64];
    // SAFETY: as above.
    unsafe { alv_resource_release(nothing.as_ptr().cast_mut().cast()) };
    assert!(message().contains("it is no handle"), "{}", message());
}

/// What a free finds wrong without looking for it is said in every build; the block leaks, and nothing else happens.
#[test]
fn frees_with_wrong_arguments_say_so() {
    let sim = Sim::new(2);
    let pool = sim.recipe("stats | pool | cuda");
    let (stream, other) = (sim.stream(), sim.stream_of(1));
    let (status, block) = allocate(pool, 1000, 0);
    assert_eq!(status, ALV_OK);
    // Another failure.
    let forget = || assert_eq!(alv_check_version(u32::MAX), ALV_UNSUPPORTED);
    let said = |words: &str| {
        assert!(message().contains(words), "{words}: {}", message());
        assert_eq!(counts(pool).allocations.value, 1);
        forget();
    };
    forget();
    for (resource, bytes, align, words) in [
        (null(), 0, 0, "bytes: no block has 0"),
        (null(), 1000, 3, "alignment"),
        (null(), 1000, 512, "resource: it"),
    ] {
        // SAFETY: nothing is freed where an argument is wrong.
        unsafe { alv_deallocate_raw(resource, block, bytes, align, null_mut()) };
        said(words);
        // SAFETY: as above.
        unsafe { alv_deallocate_sync(resource, block, bytes, align) };
        said(words);
        // SAFETY: as above.
        unsafe { alv_deallocate_on(resource, block, bytes, align, stream) };
        said(words);
    }
    for (stream, words) in [(null(), "stream: it is null"), (other.cast_const(), "device")] {
        // SAFETY: as above.
        unsafe { alv_deallocate_on(pool, block, 1000, 0, stream) };
        said(words);
    }
    free(pool, block, 1000, 0);
    for stream in [stream, other] {
        // SAFETY: the only count of it.
        unsafe { alv_stream_release(stream) };
    }
    release(pool);
}

#[test]
fn a_handle_keeps_what_it_needs_and_is_noticed_when_it_is_gone() {
    let sim = Sim::new(1);
    let upstream = sim.recipe("cuda-async");
    let mut over = null_mut();
    // SAFETY: a string, a live resource and a place.
    assert_eq!(unsafe { alv_resource_over(c"stats | pool".as_ptr(), upstream, &raw mut over) }, ALV_OK);
    release(upstream);
    let (status, block) = allocate(over, 1000, 0);
    assert_eq!(status, ALV_OK);
    // SAFETY: a live resource.
    let second = unsafe { alv_resource_retain(over) };
    assert_eq!(second, over);
    release(over);
    free(second, block, 1000, 0);
    assert_eq!(counts(second).allocations.total, 1);
    release(second);
    // A build that looks for mistakes says so; another cannot.
    if cfg!(debug_assertions) {
        assert_eq!(allocate(second, 1000, 0), (ALV_INVALID_ARGUMENT, null_mut()));
        assert!(message().contains("released"), "{}", message());
        release(second);
        // SAFETY: a build that looks for mistakes reads nothing of a handle that is gone.
        assert!(unsafe { alv_resource_retain(second) }.is_null());
    }
}

#[test]
fn handles_are_equal_if_they_free_each_others_blocks() {
    let sim = Sim::new(1);
    let (first, second) = (sim.recipe("pool | cuda"), sim.recipe("pool | cuda"));
    let mut over = null_mut();
    // SAFETY: live handles, strings and places; null is allowed.
    unsafe {
        assert!(alv_resource_equal(first, first) && !alv_resource_equal(first, second));
        assert!(alv_resource_equal(null(), null()) && !alv_resource_equal(first, null()));
        // Statistics are a resource of their own: a block must come back through them.
        assert_eq!(alv_resource_over(c"stats".as_ptr(), first, &raw mut over), ALV_OK);
        assert!(!alv_resource_equal(first, over));
    }
    [first, second, over].into_iter().for_each(release);
}
