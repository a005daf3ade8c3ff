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
