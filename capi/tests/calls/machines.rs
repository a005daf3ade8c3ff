//! Machines by their names, processes of a machine, and what is made for each device of one.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use calluvion::*;

use crate::support::*;

#[test]
fn a_stack_for_every_device() {
    let sim = Sim::new(3);
    let per_device = |recipe: &CStr, stacks: &mut [*mut ResourceHandle]| {
        let mut count = 7;
        // SAFETY: a live machine, a string, as many places and a place.
        let status = unsafe {
            alv_resource_per_device(sim.0, recipe.as_ptr(), stacks.as_mut_ptr(), stacks.len(), &raw mut count)
        };
        (status, count)
    };
    let recipe = c"stats | pool | cuda";
    assert_eq!(per_device(recipe, &mut []), (ALV_OK, 3));
    let mut stacks = [std::ptr::dangling_mut(); 4];
    assert_eq!(per_device(recipe, &mut stacks[..2]), (ALV_INVALID_ARGUMENT, 3));
    assert_eq!(stacks[..2], [null_mut(); 2]);
    assert_eq!(per_device(c"pool | no-source", &mut stacks), (ALV_MALFORMED, 3));
    assert_eq!(stacks, [null_mut(); 4]);
    // The second device has none: nothing is left of the first.
    sim.fail(c"cuMemAlloc", 2, 2);
    stacks = [std::ptr::dangling_mut(); 4];
    assert_eq!(per_device(c"pool(initial=1MiB) | cuda", &mut stacks), (ALV_OUT_OF_MEMORY, 3));
    assert_eq!(stacks, [null_mut(); 4]);
    assert!(message().contains("gpu 1"), "{}", message());

    assert_eq!(per_device(recipe, &mut stacks), (ALV_OK, 3));
    assert!(stacks[3].is_null());
    for (number, &stack) in stacks[..3].iter().enumerate() {
        let mut device = -1;
        // SAFETY: a live resource and a place.
        assert_eq!(unsafe { alv_resource_device(stack, &raw mut device) }, ALV_OK);
        assert_eq!(device, number as i32);
        release(stack);
    }
}

#[test]
fn machines_by_their_names() {
    let mut machine = std::ptr::dangling_mut();
    // SAFETY: a string and a place.
    let status = unsafe { alv_machine_named(c"cuad".as_ptr(), &raw mut machine) };
    assert_eq!((status, machine), (ALV_INVALID_ARGUMENT, null_mut()));
    assert!(message().contains("cuda, cudart, hip, maca"), "{}", message());
    let mut process = std::ptr::dangling_mut();
    // SAFETY: a place.
    let status = unsafe { alv_sim_process(null(), &raw mut process) };
    assert_eq!((status, process), (ALV_INVALID_ARGUMENT, null_mut()));
}
