//! Memory and help of the program, and the chosen machine.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use calluvion::*;

use crate::support::*;

/// What a source of the test has seen.
#[derive(Default)]
struct Shelf {
    machine: Mutex<Option<usize>>,
    calls: Mutex<Vec<(&'static str, usize)>>,
    answer: Mutex<Option<(Status, usize)>>,
}

impl Shelf {
    fn count(&self, what: &str) -> usize {
        self.calls.lock().expect("no call panics").iter().filter(|(call, _)| *call == what).count()
    }
}

unsafe extern "C" fn shelf_allocate(
    user: *mut c_void,
    bytes: usize,
    align: usize,
    stream: CudaStream,
    out: *mut *mut c_void,
) -> Status {
    // SAFETY: `user` is the test's shelf.
    let shelf = unsafe { &*user.cast::<Shelf>() };
    shelf.calls.lock().expect("no call panics").push(("allocate", bytes));
    if let Some((status, block)) = *shelf.answer.lock().expect("no call panics") {
        // SAFETY: a place of the library.
        unsafe { out.write(block as *mut c_void) };
        return status;
    }
    let under =
        shelf.machine.lock().expect("no call panics").expect("the test has set it") as *const ResourceHandle;
    // SAFETY: a resource that the test holds; the stream and the place are the library's.
    unsafe { alv_allocate_raw(under, bytes, align, stream, out) }
}

unsafe extern "C" fn shelf_deallocate(
    user: *mut c_void,
    block: *mut c_void,
    bytes: usize,
    align: usize,
    stream: CudaStream,
) {
    // SAFETY: `user` is the test's shelf.
    let shelf = unsafe { &*user.cast::<Shelf>() };
    shelf.calls.lock().expect("no call panics").push(("deallocate", bytes));
    let under =
        shelf.machine.lock().expect("no call panics").expect("the test has set it") as *const ResourceHandle;
    if shelf.answer.lock().expect("no call panics").is_none() {
        // SAFETY: a block that the resource gave above.
        unsafe { alv_deallocate_raw(under, block, bytes, align, stream) };
    }
}

unsafe extern "C" fn shelf_drop(user: *mut c_void) {
    // SAFETY: `user` is the test's shelf.
    unsafe { &*user.cast::<Shelf>() }.calls.lock().expect("no call panics").push(("drop", 0));
}

fn source(shelf: &Shelf) -> Source {
    Source {
        struct_size: size_of::<Source>(),
        max_align: 0,
        allocate: Some(shelf_allocate),
        deallocate: Some(shelf_deallocate),
        drop: Some(shelf_drop),
        user: std::ptr::from_ref(shelf).cast_mut().cast(),
        flags: 0,
        reserved: 0,
    }
}

/// The one test that chooses the machine of the process, and with it all that takes bare numbers of devices.
#[test]
fn bare_numbers_mean_the_chosen_machine() {
    let sim = Sim::new(2);
    // SAFETY: a live machine.
    assert_eq!(unsafe { alv_set_machine(sim.0) }, ALV_OK);
    let mut number = -1;
    // SAFETY: places.
    unsafe {
        assert_eq!((alv_device_count(&raw mut number), number), (ALV_OK, 2));
        assert_eq!(alv_set_current_device(1), ALV_OK);
        assert_eq!((alv_current_device(&raw mut number), number), (ALV_OK, 1));
        assert_eq!(
            (alv_set_current_device(2), alv_set_current_device(-1)),
            (ALV_NO_DEVICE, ALV_INVALID_ARGUMENT)
        );
    }
    the_current_resource_is_handed_over();
    a_source_of_the_program_serves_and_is_let_go_of_once(&sim);
    a_source_that_lies_is_an_error();
    a_source_at_any_address_is_handed_on();
    a_foreign_stream_keeps_its_owner(&sim);
    // SAFETY: no machine, which means that of CUDA.
    assert_eq!(unsafe { alv_set_machine(null()) }, ALV_OK);
}

fn the_current_resource_is_handed_over() {
    let (mut own, mut before, mut again) = (null_mut(), null_mut(), null_mut());
    // SAFETY: strings, live handles and places.
    unsafe {
        assert_eq!(alv_resource_from_recipe(c"pool | cuda".as_ptr(), 0, &raw mut own), ALV_OK);
        assert_eq!(alv_set_current_resource(0, own, &raw mut before), ALV_OK);
        assert_eq!(alv_current_resource(0, &raw mut again), ALV_OK);
        assert!(alv_resource_equal(own, again) && !alv_resource_equal(own, before));
        // Who asks for each allocation gets one handle.
        let mut once_more = null_mut();
        assert_eq!(alv_current_resource(0, &raw mut once_more), ALV_OK);
        assert_eq!(once_more, again);
        alv_resource_release(once_more);
        // A resource of another device is refused, and nothing changes.
        assert_eq!(alv_set_current_resource(1, own, null_mut()), ALV_DEVICE_MISMATCH);
        alv_resource_release(before);
        assert_eq!(alv_reset_current_resource(0, &raw mut before), ALV_OK);
        assert!(alv_resource_equal(own, before));
        assert_eq!(alv_current_resource(0, &raw mut once_more), ALV_OK);
        assert!(!alv_resource_equal(own, once_more));
        // A layer whose blocks are its upstream's is another resource.
        let mut asking = null_mut();
        assert_eq!(
            alv_resource_with_oom_handler(once_more, Some(free_nothing), None, null_mut(), &raw mut asking),
            ALV_OK
        );
        assert!(alv_resource_equal(asking, once_more));
        let mut first = null_mut();
        assert_eq!(alv_set_current_resource(0, asking, &raw mut first), ALV_OK);
        let mut now = null_mut();
        assert_eq!(alv_current_resource(0, &raw mut now), ALV_OK);
        let mut needed = [0, 0];
        assert_eq!(alv_describe(now, null_mut(), 0, &raw mut needed[0]), ALV_OK);
        assert_eq!(alv_describe(asking, null_mut(), 0, &raw mut needed[1]), ALV_OK);
        assert_eq!(needed[0], needed[1], "the handler is there");
        assert_eq!(alv_reset_current_resource(0, null_mut()), ALV_OK);
        [asking, first, now, once_more].into_iter().for_each(release);
    }
    [own, before, again].into_iter().for_each(release);
}

unsafe extern "C" fn free_nothing(_: *mut c_void, _: *const OomReport) -> i32 {
    0
}

fn a_source_of_the_program_serves_and_is_let_go_of_once(sim: &Sim) {
    let under = sim.recipe("cuda-async");
    let shelf = Shelf::default();
    *shelf.machine.lock().expect("no call panics") = Some(under.addr());
    let given = source(&shelf);
    let (mut resource, mut pool) = (null_mut(), null_mut());
    // SAFETY: structs, strings, live handles and places.
    unsafe {
        assert_eq!(alv_resource_from_source(0, &raw const given, null_mut()), ALV_INVALID_ARGUMENT);
        let without = Source { deallocate: None, ..given };
        assert_eq!(alv_resource_from_source(0, &raw const without, &raw mut resource), ALV_INVALID_ARGUMENT);
        let crooked = Source { max_align: 768, ..given };
        assert_eq!(alv_resource_from_source(0, &raw const crooked, &raw mut resource), ALV_INVALID_ALIGNMENT);
        let odd = Source { flags: 2, ..given };
        assert_eq!(alv_resource_from_source(0, &raw const odd, &raw mut resource), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_resource_from_source(9, &raw const given, &raw mut resource), ALV_NO_DEVICE);
        assert_eq!(shelf.count("drop"), 0, "a call that fails leaves the source to the program");
        assert_eq!(alv_resource_from_source(0, &raw const given, &raw mut resource), ALV_OK);
        assert_eq!(alv_resource_over(c"stats | pool".as_ptr(), resource, &raw mut pool), ALV_OK);
    }
    release(resource);
    let (status, block) = allocate(pool, 1000, 0);
    assert_eq!((status, shelf.count("allocate")), (ALV_OK, 1));
    free(pool, block, 1000, 0);
    assert_eq!(shelf.count("drop"), 0);
    release(pool);
    assert_eq!((shelf.count("allocate"), shelf.count("deallocate"), shelf.count("drop")), (1, 1, 1));
    release(under);
}

fn a_source_that_lies_is_an_error() {
    for (status, block, expected) in [
        (ALV_OK, 0, ALV_OUT_OF_MEMORY),
        (ALV_OK, 8, ALV_MISUSE),
        (ALV_OUT_OF_MEMORY, 0, ALV_OUT_OF_MEMORY),
        (ALV_SIZE_OVERFLOW, 0, ALV_SIZE_OVERFLOW),
        (ALV_DRIVER, 0, ALV_FOREIGN),
        (-7, 4096, ALV_FOREIGN),
        (ALV_OF_PROGRAM + 5, 0, ALV_FOREIGN),
    ] {
        let shelf = Shelf::default();
        *shelf.machine.lock().expect("no call panics") = Some(0);
        *shelf.answer.lock().expect("no call panics") = Some((status, block));
        let given = source(&shelf);
        let mut resource = null_mut();
        // SAFETY: a struct and a place.
        assert_eq!(unsafe { alv_resource_from_source(0, &raw const given, &raw mut resource) }, ALV_OK);
        let (answered, block) = allocate(resource, 1000, 0);
        assert!(block.is_null());
        if expected == ALV_MISUSE {
            assert_ne!(answered, ALV_OK, "a block at 8 is aligned to nothing");
        } else {
            assert_eq!(answered, expected, "{status}: {}", message());
        }
        if expected == ALV_FOREIGN {
            assert!(message().contains(&status.to_string()), "{}", message());
            assert_eq!(error().foreign_status, status);
        } else {
            assert_eq!(error().foreign_status, ALV_OK);
        }
        release(resource);
        assert_eq!(shelf.count("drop"), 1);
    }
}

fn a_source_at_any_address_is_handed_on() {
    let shelf = Shelf::default();
    *shelf.machine.lock().expect("no call panics") = Some(0);
    *shelf.answer.lock().expect("no call panics") = Some((ALV_OK, 123));
    let given = Source { flags: ALV_SOURCE_AT_ANY_ADDRESS, max_align: 4096, ..source(&shelf) };
    let (mut resource, mut counted, mut pool) = (null_mut(), null_mut(), null_mut());
    // SAFETY: a struct, live handles, strings and places.
    unsafe {
        assert_eq!(alv_resource_from_source(0, &raw const given, &raw mut resource), ALV_OK);
        assert_eq!(alv_resource_over(c"stats".as_ptr(), resource, &raw mut counted), ALV_OK);
        assert_eq!(alv_resource_over(c"pool".as_ptr(), counted, &raw mut pool), ALV_OK);
    }
    let (status, block) = allocate(counted, 5, 0);
    assert_eq!((status, block.addr()), (ALV_OK, 123));
    free(counted, block, 5, 0);
    assert_eq!(shelf.count("deallocate"), 1);
    // What was asked for is checked, and nothing is carved out of memory at such an address: both give the block back.
    assert_eq!((allocate(counted, 5, 512).0, shelf.count("deallocate")), (ALV_INVALID_ARGUMENT, 2));
    assert_eq!((allocate(pool, 5, 0).0, shelf.count("deallocate")), (ALV_UNSUPPORTED, 3));
    [pool, counted, resource].into_iter().for_each(release);
    assert_eq!(shelf.count("drop"), 1);
}

fn a_foreign_stream_keeps_its_owner(sim: &Sim) {
    static DROPPED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    use std::sync::atomic::Ordering::SeqCst;
    unsafe extern "C" fn drop_owner(owner: *mut c_void) {
        assert_eq!(owner.addr(), 7);
        DROPPED.fetch_add(1, SeqCst);
    }
    let stream = sim.stream();
    let owner = 7 as *mut c_void;
    let mut wrapped = null_mut();
    // SAFETY: live handles and places.
    unsafe {
        let raw = alv_stream_handle(stream);
        assert_eq!(
            alv_stream_wrap_owned_raw(1, raw, owner, Some(drop_owner), &raw mut wrapped),
            ALV_DEVICE_MISMATCH
        );
        assert_eq!(
            alv_stream_wrap_owned_raw(0, null_mut(), owner, Some(drop_owner), &raw mut wrapped),
            ALV_INVALID_ARGUMENT
        );
        assert_eq!(alv_stream_wrap_owned_raw(0, raw, owner, None, &raw mut wrapped), ALV_INVALID_ARGUMENT);
        assert_eq!((DROPPED.load(SeqCst), wrapped), (0, null_mut()));
        assert_eq!(alv_stream_wrap_owned_raw(0, raw, owner, Some(drop_owner), &raw mut wrapped), ALV_OK);
        assert_eq!(alv_stream_synchronize(wrapped), ALV_OK);
        alv_stream_release(wrapped);
        assert_eq!(DROPPED.load(SeqCst), 1);
        for default in [0, 1, 2] {
            assert_eq!(alv_stream_wrap_raw(0, default as CudaStream, &raw mut wrapped), ALV_OK);
            alv_stream_release(wrapped);
        }
        assert_eq!(alv_stream_wrap_raw(0, raw, &raw mut wrapped), ALV_OK);
        assert_eq!(alv_stream_handle(wrapped), raw);
        alv_stream_release(wrapped);
        alv_stream_release(stream);
    }
}

#[test]
fn a_handler_frees_and_the_request_is_tried_again() {
    struct Held {
        resource: *mut ResourceHandle,
        block: Mutex<Option<usize>>,
        asked: Mutex<Vec<usize>>,
    }
    unsafe extern "C" fn ask(user: *mut c_void, report: *const OomReport) -> i32 {
        // SAFETY: the test's value, and a report of the library.
        let (held, report) = unsafe { (&*user.cast::<Held>(), &*report) };
        held.asked.lock().expect("no call panics").push(report.requested_bytes);
        let Some(block) = held.block.lock().expect("no call panics").take() else { return 0 };
        free(held.resource, block as *mut c_void, 3 << 20, 0);
        1
    }
    let sim = Sim::new(1);
    let limited = sim.recipe("limiting(4MiB) | cuda");
    let (status, block) = allocate(limited, 3 << 20, 0);
    assert_eq!(status, ALV_OK);
    let held = Held { resource: limited, block: Mutex::new(Some(block.addr())), asked: Mutex::default() };
    let mut asking = null_mut();
    // SAFETY: live handles, the test's value, and a place.
    unsafe {
        let user = std::ptr::from_ref(&held).cast_mut().cast();
        assert_eq!(
            alv_resource_with_oom_handler(limited, None, None, user, &raw mut asking),
            ALV_INVALID_ARGUMENT
        );
        assert_eq!(alv_resource_with_oom_handler(limited, Some(ask), None, user, &raw mut asking), ALV_OK);
    }
    let (status, block) = allocate(asking, 2 << 20, 0);
    assert_eq!((status, held.asked.lock().expect("no call panics").len()), (ALV_OK, 1));
    assert_eq!(allocate(asking, 3 << 20, 0).0, ALV_OUT_OF_MEMORY);
    assert_eq!(*held.asked.lock().expect("no call panics"), [2 << 20, 3 << 20]);
    free(asking, block, 2 << 20, 0);
    release(asking);
    release(limited);
}
