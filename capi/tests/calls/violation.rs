//! What a guard has found.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use calluvion::*;

use crate::support::*;

/// What a test was told: the kind, bytes, offset and wrong bytes of each finding, and its line.
type Told = Vec<(u32, usize, isize, usize, String)>;

unsafe extern "C" fn note(user: *mut c_void, violation: *const Violation) -> c_int {
    // SAFETY: `user` is the test's list, and the violation is whole.
    let (told, found) = unsafe { (&mut *user.cast::<Told>(), &*violation) };
    assert_eq!(found.struct_size, size_of::<Violation>());
    // SAFETY: text, during the call.
    let text = unsafe { CStr::from_ptr(found.text) }.to_str().expect("it is UTF-8").to_owned();
    told.push((found.kind, found.bytes, found.offset, found.wrong_bytes, text));
    c_int::from(told.len() >= 3)
}

unsafe extern "C" fn drop_it(user: *mut c_void) {
    // SAFETY: the test's list.
    unsafe { &mut *user.cast::<Told>() }.push((0, 0, 0, 0, "dropped".to_owned()));
}

#[test]
fn what_was_written_beside_a_block_is_found() {
    let sim = Sim::new(1);
    let resource = sim.recipe("guard | pool | cuda");
    let (mut told, mut listed) = (Told::new(), Told::new());
    let user = (&raw mut told).cast();
    let list = |listed: &mut Told| {
        // SAFETY: a live resource, a function, and the list that it fills.
        unsafe { alv_violations(resource, Some(note), std::ptr::from_mut(listed).cast()) }
    };
    // SAFETY: as above; the list outlives the resource.
    assert_eq!(unsafe { alv_on_violation(resource, Some(note), Some(drop_it), user) }, ALV_OK);
    assert_eq!((list(&mut listed), listed.len()), (ALV_OK, 0));
    let (status, block) = allocate(resource, 1000, 0);
    assert_eq!(status, ALV_OK);
    // SAFETY: it writes 20 bytes into the guard's own memory, which is what the guard is for.
    assert_eq!(unsafe { alv_fill_raw(resource, block, 0, 1020, null_mut()) }, ALV_OK);
    free(resource, block, 1000, 0);
    assert_eq!(list(&mut listed), ALV_OK);
    let (kind, bytes, offset, wrong, text) = listed[0].clone();
    assert_eq!((kind, bytes, offset, wrong), (ALV_VIOLATION_BEHIND, 1000, 1000, 20));
    assert!(text.contains("written behind its end"), "{text}");
    let (status, block) = allocate(resource, 1000, 0);
    assert_eq!(status, ALV_OK);
    free(resource, block, 999, 0);
    free(resource, block, 1000, 0);
    listed.clear();
    assert_eq!(list(&mut listed), ALV_OK);
    let kinds = |told: &Told| told.iter().map(|each| each.0).collect::<Vec<_>>();
    let expected = [ALV_VIOLATION_BEHIND, ALV_VIOLATION_WRONG_LAYOUT, ALV_VIOLATION_NOT_LIVE];
    assert_eq!((kinds(&listed), kinds(&told)), (expected.to_vec(), expected.to_vec()));
    // The third answer ended the first look, and now there are three already.
    assert_eq!((list(&mut listed), listed.len()), (ALV_OK, 4));
    release(resource);
    assert_eq!(told.last().map(|last| last.4.as_str()), Some("dropped"));
    let bare = sim.recipe("cuda");
    told.clear();
    // SAFETY: as above; the function is not kept.
    unsafe {
        assert_eq!(alv_on_violation(bare, Some(note), Some(drop_it), user), ALV_UNSUPPORTED);
        assert_eq!(alv_violations(bare, Some(note), user), ALV_UNSUPPORTED);
    }
    assert!(told.is_empty(), "a call that fails drops nothing");
    release(bare);
    // The machine has noted what was done wrong, too.
    // SAFETY: a live machine.
    assert_eq!(unsafe { alv_sim_report(sim.0, None, null_mut(), null_mut()) }, ALV_OK);
}
