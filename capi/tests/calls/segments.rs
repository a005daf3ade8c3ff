//! Hooks of segments, their list, and a pool that is frozen.

use std::ffi::{c_int, c_void};
use std::os::fd::FromRawFd;
use std::ptr::null_mut;
use std::sync::Mutex;

use calluvion::*;

use crate::support::*;

/// What hooks have heard, and what they answer.
#[derive(Default)]
struct Heard {
    words: Mutex<Vec<(&'static str, usize, i32)>>,
    answer: Mutex<Status>,
}

impl Heard {
    fn hear(&self, word: &'static str, segment: &Segment) -> Status {
        assert_eq!(segment.struct_size, size_of::<Segment>());
        assert!(!segment.address.is_null());
        self.words.lock().expect("no panic").push((word, segment.bytes, segment.device));
        *self.answer.lock().expect("no panic")
    }

    fn take(&self) -> Vec<(&'static str, usize, i32)> {
        std::mem::take(&mut *self.words.lock().expect("no panic"))
    }
}

unsafe extern "C" fn added(user: *mut c_void, segment: *const Segment) -> Status {
    // SAFETY: the tests pass what they heard, and the library a whole segment.
    unsafe { (*user.cast::<Heard>()).hear("added", &*segment) }
}

unsafe extern "C" fn dropped(user: *mut c_void, segment: *const Segment) -> Status {
    // SAFETY: as above.
    unsafe { (*user.cast::<Heard>()).hear("dropped", &*segment) }
}

unsafe extern "C" fn gone(user: *mut c_void) {
    // SAFETY: as above.
    unsafe { (*user.cast::<Heard>()).words.lock().expect("no panic").push(("gone", 0, 0)) };
}

unsafe extern "C" fn count(user: *mut c_void, segment: *const Segment) -> c_int {
    // SAFETY: the tests pass a number, and the library a whole segment.
    unsafe { *user.cast::<usize>() += (*segment).bytes };
    0
}

fn set(stack: *const ResourceHandle, heard: &Heard) -> Status {
    let user = (&raw const *heard).cast_mut().cast();
    // SAFETY: a live handle, functions, and what outlives them.
    unsafe { alv_set_segment_hooks(stack, Some(added), Some(dropped), Some(gone), user) }
}

fn bytes_of(stack: *const ResourceHandle) -> usize {
    let mut bytes = 0_usize;
    // SAFETY: a live handle and a place.
    assert_eq!(unsafe { alv_segments(stack, Some(count), (&raw mut bytes).cast()) }, ALV_OK);
    bytes
}

const SEGMENT: usize = 8 << 20;

#[test]
fn hooks_hear_of_each_segment_once() {
    let sim = Sim::new(1);
    let heard = Heard::default();
    let stack = sim.recipe("stats | pool(registered=8MiB, initial=8MiB) | mapped");
    assert_eq!(set(stack, &heard), ALV_OK);
    assert_eq!((heard.take(), bytes_of(stack)), (vec![("added", SEGMENT, 0)], SEGMENT));
    let (status, block) = allocate(stack, SEGMENT, 0);
    assert_eq!((status, heard.take()), (ALV_OK, vec![]));
    let (status, more) = allocate(stack, 100, 4096);
    assert_eq!((status, heard.take()), (ALV_OK, vec![("added", SEGMENT, 0)]));
    *heard.answer.lock().expect("no panic") = 1005;
    assert_eq!(allocate(stack, SEGMENT, 0).0, ALV_FOREIGN);
    assert_eq!((heard.take(), bytes_of(stack)), (vec![("added", SEGMENT, 0)], 2 * SEGMENT));
    *heard.answer.lock().expect("no panic") = ALV_OK;
    free(stack, block, SEGMENT, 0);
    free(stack, more, 100, 4096);
    // SAFETY: a live handle.
    assert_eq!(unsafe { alv_trim(stack, 0, null_mut()) }, ALV_OK);
    assert_eq!(heard.take(), [("dropped", SEGMENT, 0); 2]);
    // Others take their place.
    let other = Heard::default();
    assert_eq!((set(stack, &other), heard.take(), other.take()), (ALV_OK, vec![("gone", 0, 0)], vec![]));
    release(stack);
    assert_eq!(other.take(), [("gone", 0, 0)]);
}

#[test]
fn a_segment_that_is_there_may_be_refused_and_stays() {
    let sim = Sim::new(1);
    let heard = Heard::default();
    *heard.answer.lock().expect("no panic") = 1005;
    let stack = sim.recipe("pool(registered=8MiB, initial=8MiB) | cuda");
    assert_eq!((set(stack, &heard), bytes_of(stack)), (ALV_FOREIGN, SEGMENT));
    assert_eq!(heard.take(), [("added", SEGMENT, 0)]);
    *heard.answer.lock().expect("no panic") = ALV_OK;
    release(stack);
    assert_eq!(heard.take(), [("dropped", SEGMENT, 0), ("gone", 0, 0)]);
    for recipe in ["pool | mapped", "cuda"] {
        let stack = sim.recipe(recipe);
        assert_eq!((set(stack, &heard), heard.take()), (ALV_UNSUPPORTED, vec![("gone", 0, 0)]));
        release(stack);
    }
}

#[test]
fn a_frozen_pool_says_so() {
    let sim = Sim::new(1);
    let stack = sim.recipe("pool(initial=8MiB) | mapped");
    // SAFETY: a live handle.
    assert_eq!(unsafe { alv_freeze(stack) }, ALV_OK);
    assert_eq!(allocate(stack, SEGMENT + 1, 0).0, ALV_OUT_OF_MEMORY);
    // SAFETY: all bits zero are a value.
    let mut report: OomReport = unsafe { std::mem::zeroed() };
    report.struct_size = size_of::<OomReport>();
    // SAFETY: a whole struct.
    assert_eq!(unsafe { alv_last_out_of_memory(&raw mut report) }, ALV_OK);
    assert_eq!(report.cause, ALV_CAUSE_FROZEN);
    // SAFETY: a live handle.
    assert_eq!((unsafe { alv_trim(stack, 0, null_mut()) }, bytes_of(stack)), (ALV_OK, SEGMENT));
    release(stack);
    let plain = sim.recipe("cuda");
    // SAFETY: a live handle.
    assert_eq!(unsafe { alv_freeze(plain) }, ALV_UNSUPPORTED);
    release(plain);
}

/// The address of the first segment.
unsafe extern "C" fn note_first(user: *mut c_void, segment: *const Segment) -> c_int {
    // SAFETY: `user` is the test's place, and the segment lives during the call.
    unsafe { user.cast::<*const c_void>().write((*segment).address.cast_const()) };
    1
}

#[test]
fn a_segment_goes_to_others_by_a_descriptor() {
    let sim = Sim::new(1);
    let export = |stack, address| {
        let mut descriptor = -1;
        // SAFETY: live handles and a place; nobody gives the segment back.
        let status = unsafe { alv_export_segment(stack, address, &raw mut descriptor) };
        assert_eq!(descriptor < 0, status != ALV_OK);
        (status, descriptor)
    };
    let first = |stack| {
        let mut address: *const c_void = std::ptr::null();
        // SAFETY: a live handle, and a function with its place.
        assert_eq!(unsafe { alv_segments(stack, Some(note_first), (&raw mut address).cast()) }, ALV_OK);
        address
    };
    let stack = sim.recipe("stats | pool(registered=8MiB, initial=8MiB) | mapped(handles=fd)");
    let address = first(stack);
    sim.fail(c"cuMemExportToShareableHandle", 1, 999);
    assert_eq!(export(stack, address).0, ALV_DRIVER);
    let (status, descriptor) = export(stack, address);
    assert_eq!(status, ALV_OK);
    // SAFETY: it is the test's.
    drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(descriptor) });
    assert_eq!(export(stack, address.wrapping_byte_add(256)).0, ALV_INVALID_ARGUMENT);
    let (plain, bare) = (sim.recipe("pool(initial=8MiB) | cuda"), sim.recipe("cuda"));
    assert_eq!(export(plain, first(plain)).0, ALV_UNSUPPORTED);
    assert_eq!(export(bare, address).0, ALV_UNSUPPORTED);
    [stack, plain, bare].into_iter().for_each(release);
}
