//! What is set aside of a limit, and who hears that it is nearly used up.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use calluvion::*;

use crate::support::*;

/// What an observer has: a resource to ask, what it was told, and whether it was dropped.
struct Told {
    resource: *mut ResourceHandle,
    crossings: Vec<(String, usize, usize, usize)>,
    dropped: u32,
}

unsafe extern "C" fn note(user: *mut c_void, crossing: *const SoftCrossing) -> c_int {
    // SAFETY: `user` is the test's, and the crossing is whole.
    let (told, crossing) = unsafe { (&mut *user.cast::<Told>(), &*crossing) };
    assert_eq!(crossing.struct_size, size_of::<SoftCrossing>());
    // SAFETY: text, during the call.
    let name = unsafe { CStr::from_ptr(crossing.name) }.to_str().expect("it is UTF-8").to_owned();
    told.crossings.push((name, crossing.used_bytes, crossing.soft_bytes, crossing.limit_bytes));
    let (status, block) = allocate(told.resource, 256, 0);
    assert_eq!(status, ALV_OK);
    free(told.resource, block, 256, 0);
    0
}

unsafe extern "C" fn drop_it(user: *mut c_void) {
    // SAFETY: the test's.
    unsafe { &mut *user.cast::<Told>() }.dropped += 1;
}

#[test]
fn what_is_reserved_nobody_else_gets() {
    let sim = Sim::new(1);
    let resource = sim.recipe("limiting(8MiB) | cuda");
    let used = || {
        let mut used = usize::MAX;
        // SAFETY: a live resource and a place.
        assert_eq!(unsafe { alv_limit_of(resource, &raw mut used, null_mut()) }, ALV_OK);
        used
    };
    let mut reservation = std::ptr::dangling_mut();
    // SAFETY: live handles and places.
    unsafe {
        assert_eq!(alv_reserve(resource, 1000, &raw mut reservation), ALV_OK);
        assert_eq!((alv_reservation_bytes(reservation), used()), (1024, 1024));
        let mut more = std::ptr::dangling_mut();
        assert_eq!(alv_reserve(resource, 8 << 20, &raw mut more), ALV_OUT_OF_MEMORY);
        assert!(more.is_null());
        assert_eq!(alv_reserve(resource, usize::MAX, &raw mut more), ALV_OUT_OF_MEMORY);
        assert_eq!(alv_reservation_retain(reservation), reservation);
        alv_reservation_release(reservation);
        assert_eq!((allocate(resource, 8 << 20, 0).0, used()), (ALV_OUT_OF_MEMORY, 1024));
        alv_reservation_release(reservation);
        assert_eq!(used(), 0);
        let bare = sim.recipe("cuda");
        assert_eq!(alv_reserve(bare, 1, &raw mut more), ALV_UNSUPPORTED);
        release(bare);
        // It outlives the resource.
        assert_eq!(alv_reserve(resource, 1000, &raw mut reservation), ALV_OK);
        release(resource);
        assert_eq!(alv_reservation_bytes(reservation), 1024);
        alv_reservation_release(reservation);
    }
}

#[test]
fn an_observer_hears_of_each_crossing_and_goes_with_the_limit() {
    let sim = Sim::new(1);
    let resource = sim.recipe("budget(8MiB, name=jobs, soft=4MiB) | cuda");
    let mut told = Told { resource, crossings: Vec::new(), dropped: 0 };
    let user = (&raw mut told).cast();
    // SAFETY: a live resource, and functions with what they are called with, which outlives it.
    unsafe {
        assert_eq!(alv_on_soft_limit(resource, usize::MAX, Some(note), Some(drop_it), user), ALV_OK);
        let (_, low) = allocate(resource, 4 << 20, 0);
        let (_, high) = allocate(resource, 256, 0);
        free(resource, high, 256, 0);
        free(resource, low, 4 << 20, 0);
        let first = ("jobs".to_owned(), (4 << 20) + 256, 4 << 20, 8 << 20);
        assert_eq!(told.crossings, std::slice::from_ref(&first));
        assert_eq!(alv_on_soft_limit(resource, 0, Some(note), None, user), ALV_OK);
        let (_, low) = allocate(resource, 256, 0);
        free(resource, low, 256, 0);
        assert_eq!(told.crossings[1..], vec![("jobs".to_owned(), 256, 0, 8 << 20); 2]);
        let bare = sim.recipe("cuda");
        assert_eq!(alv_on_soft_limit(bare, 0, Some(note), Some(drop_it), user), ALV_UNSUPPORTED);
        release(bare);
    }
    assert_eq!(told.dropped, 0);
    release(resource);
    assert_eq!(told.dropped, 1);
}
