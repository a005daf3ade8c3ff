//! Figures, files, tags.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use calluvion::*;

use crate::support::*;

#[test]
fn figures_are_those_of_the_outermost_layer() {
    let sim = Sim::new(1);
    let resource = sim.recipe("stats | tracking | pool | cuda");
    let bare = sim.recipe("cuda");
    let (status, block) = allocate(resource, 1000, 0);
    assert_eq!(status, ALV_OK);
    let mut top = counts(resource);
    assert_eq!((top.bytes.value, top.allocations.total, top.failures), (1000, 1, 0));
    let mut given_back = usize::MAX;
    let (mut available, mut total) = (0, 0);
    let mut text = String::new();
    let user = (&raw mut text).cast();
    // SAFETY: live handles, whole structs, a function that fills the text, and places.
    unsafe {
        assert_eq!(alv_stats_push(resource, null_mut()), ALV_OK);
        assert_eq!(alv_stats_pop(resource, &raw mut top), ALV_OK);
        assert_eq!(top.allocations.total, 0);
        assert_eq!(alv_stats_pop(resource, null_mut()), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_stats(resource, null_mut()), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_stats(bare, &raw mut top), ALV_UNSUPPORTED);
        let mut status: PoolStatus = std::mem::zeroed();
        assert_eq!(alv_status_of(resource, &raw mut status), ALV_INVALID_ARGUMENT, "its size is not set");
        status.struct_size = size_of::<PoolStatus>();
        assert_eq!(alv_status_of(resource, &raw mut status), ALV_OK);
        assert_eq!((status.live_bytes, status.live_blocks), (1024, 1));
        assert_eq!(alv_status_of(bare, &raw mut status), ALV_UNSUPPORTED);
        assert_eq!(alv_memory_info(resource, &raw mut available, &raw mut total), ALV_OK);
        assert!(available < total);
        assert_eq!(alv_memory_info(resource, null_mut(), null_mut()), ALV_OK);
        assert_eq!(alv_snapshot_to(resource, Some(append), user), ALV_OK);
        assert!(text.starts_with('{'), "{text}");
        text.clear();
        assert_eq!(alv_metrics(resource, c"mine".as_ptr(), Some(append), user), ALV_OK);
        assert!(text.contains("alluvion_live_bytes{resource=\"mine\""), "{text}");
        assert_eq!(alv_metrics(resource, c"mine".as_ptr(), Some(refuse), user), ALV_UNWRITABLE);
        assert_eq!(alv_snapshot_to(resource, None, user), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_snapshot_write(resource, c"/no/such/folder/snapshot.json".as_ptr()), ALV_UNWRITABLE);
        assert_eq!(alv_snapshot_write(resource, c"".as_ptr()), ALV_INVALID_ARGUMENT);
        let path = std::env::temp_dir().join(format!("alluvion-no-snapshot-{}", std::process::id()));
        let name = CString::new(path.to_str().expect("the folder has a name")).expect("no 0 within");
        assert_eq!(alv_snapshot_write(bare, name.as_ptr()), ALV_UNSUPPORTED);
        assert!(!path.exists(), "what has no blocks leaves no file");
        assert_eq!(alv_log_flush(resource), ALV_OK);
        free(resource, block, 1000, 0);
        assert_eq!(alv_trim(resource, 0, &raw mut given_back), ALV_OK);
    }
    assert!(given_back >= 1024, "{given_back}");
    release(resource);
    release(bare);
}

unsafe extern "C" fn refuse(_: *mut c_void, _: *const c_char, _: usize) -> c_int {
    1
}

#[test]
fn blocks_that_are_out_are_told_with_their_tags_and_may_be_freed_meanwhile() {
    struct Seen {
        resource: *mut ResourceHandle,
        rows: Vec<(usize, String)>,
    }
    unsafe extern "C" fn each(user: *mut c_void, block: *const OutstandingBlock) -> c_int {
        // SAFETY: the test's value, and a block of the library whose texts end in 0.
        let (seen, block, tag) =
            unsafe { (&mut *user.cast::<Seen>(), &*block, CStr::from_ptr((*block).tag).to_string_lossy()) };
        seen.rows.push((block.bytes, tag.into_owned()));
        free(seen.resource, block.address, block.bytes, block.align);
        c_int::from(seen.rows.len() == 2)
    }
    let sim = Sim::new(1);
    let resource = sim.recipe("tracking | pool | cuda");
    // SAFETY: strings.
    unsafe {
        assert_eq!(alv_tag_push(c"query".as_ptr()), ALV_OK);
        assert_eq!(alv_tag_push(c"join".as_ptr()), ALV_OK);
        assert_eq!(alv_tag_push(null()), ALV_INVALID_ARGUMENT);
    }
    allocate(resource, 100, 0);
    alv_tag_pop();
    allocate(resource, 200, 0);
    alv_tag_pop();
    alv_tag_pop();
    let (_, last) = allocate(resource, 300, 0);
    let mut seen = Seen { resource, rows: Vec::new() };
    // SAFETY: live handles and the test's value.
    unsafe {
        let user = (&raw mut seen).cast();
        assert_eq!(alv_outstanding(resource, None, user), ALV_INVALID_ARGUMENT);
        assert_eq!(alv_outstanding(resource, Some(each), user), ALV_OK);
    }
    assert_eq!(seen.rows, [(100, "query;join".to_owned()), (200, "query".to_owned())]);
    free(resource, last, 300, 0);
    release(resource);
}

#[test]
fn frees_that_were_refused_are_counted_and_say_why() {
    let sim = Sim::new(1);
    for recipe in ["tracking | pool | cuda", "stats | pool(checked=true) | cuda"] {
        let resource = sim.recipe(recipe);
        // SAFETY: a live resource.
        let again = unsafe { alv_resource_retain(resource) };
        let (status, block) = allocate(resource, 1000, 0);
        assert_eq!(status, ALV_OK);
        let refused = || {
            let mut count = u64::MAX;
            // SAFETY: a live resource and a place.
            assert_eq!(unsafe { alv_refused_frees(again, &raw mut count) }, ALV_OK);
            count
        };
        assert_eq!(refused(), 0);
        free(resource, block, 2000, 0);
        assert_eq!((refused(), error().status), (1, ALV_MISUSE), "{recipe}: another size: {}", message());
        free(resource, block, 1000, 0);
        assert_eq!(refused(), 1, "{recipe}");
        // SAFETY: what is refused is not freed.
        unsafe { alv_deallocate_sync(resource, block, 1000, 0) };
        assert_eq!((refused(), error().status), (2, ALV_MISUSE), "{recipe}: freed twice: {}", message());
        assert!(message().contains("are free already"), "{recipe}: {}", message());
        // SAFETY: a live resource, and no place.
        assert_eq!(unsafe { alv_refused_frees(resource, null_mut()) }, ALV_INVALID_ARGUMENT);
        release(again);
        release(resource);
    }
    // A machine may have noted the wrong frees, too. They are not what this test is about.
    // SAFETY: a live machine.
    assert_eq!(unsafe { alv_sim_report(sim.0, None, null_mut(), null_mut()) }, ALV_OK);
}

#[test]
fn a_limit_says_how_much_of_it_is_used() {
    let sim = Sim::new(1);
    let limited = sim.recipe("stats | limiting(1MiB) | cuda");
    let bare = sim.recipe("cuda");
    let (_, block) = allocate(limited, 1000, 0);
    let (mut used, mut limit) = (0, 0);
    // SAFETY: live handles, places and null where it is allowed.
    unsafe {
        assert_eq!(alv_limit_of(limited, &raw mut used, &raw mut limit), ALV_OK);
        assert_eq!((used, limit), (1024, 1 << 20), "in units of 256 bytes");
        assert_eq!(alv_limit_of(limited, null_mut(), null_mut()), ALV_OK);
        assert_eq!(alv_limit_of(bare, &raw mut used, &raw mut limit), ALV_UNSUPPORTED);
        assert_eq!(alv_limit_of(null_mut(), &raw mut used, &raw mut limit), ALV_INVALID_ARGUMENT);
    }
    free(limited, block, 1000, 0);
    release(limited);
    release(bare);
}
