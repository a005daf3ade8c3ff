//! Which of two resources a block came from: whoever frees it finds out, on any thread, and whoever has the address next.

#![expect(unsafe_code, reason = "gives blocks back")]

use std::sync::Arc;

use alluvion::adaptor::Fallback;
use alluvion::{DevicePtr, Layout, Resource, ResourceExt};
use loom::sync::Mutex;
use loom_tests::{Ground, Rig, Seen, explore, spawn};

const UNIT: usize = 256;

fn layout() -> Layout {
    Layout::from_bytes(UNIT).expect("it is small")
}

fn give(resource: &Fallback<Ground, Ground>, block: DevicePtr) {
    // SAFETY: the block came from there with this layout, and nothing uses memory in a model.
    unsafe { resource.deallocate_sync(block, layout()) };
}

/// One block passes from one thread to another, which frees it, while the only other block of the second resource comes and
/// goes: the count of blocks, which is read first and orders nothing, is never seen too low.
#[test]
fn who_frees_a_block_of_the_second_sees_that_it_is_one() {
    static PASSED: [Seen; 2] = [const { Seen::never() }; 2];
    explore(|| {
        let rig = Rig::new();
        let (first, second) = (Ground::new(&rig, 0), Ground::new(&rig, 2 * UNIT));
        let resource = Arc::new(first.fallback(second.clone()).expect("they are of one device"));
        let passing = Arc::new(Mutex::new(None));
        let freeing = {
            let (resource, passing) = (Arc::clone(&resource), Arc::clone(&passing));
            spawn(move || {
                let passed = passing.lock().unwrap().take();
                PASSED[usize::from(passed.is_some())].note(true);
                // The first would not know the block, and say so.
                passed.into_iter().for_each(|block| give(&resource, block));
            })
        };
        let own = resource.allocate_sync(layout()).expect("the second has two");
        *passing.lock().unwrap() = Some(resource.allocate_sync(layout()).expect("the second has two"));
        give(&resource, own);
        freeing.join().expect("it says what is wrong itself");
        let left = passing.lock().unwrap().take();
        left.into_iter().for_each(|block| give(&resource, block));
        assert_eq!((resource.book().live_blocks(), resource.book().live_bytes()), (0, 0));
        second.assert_whole();
    });
    assert!(PASSED.iter().all(|seen| seen.times() > 0), "{PASSED:?}");
}

/// One takes from the first while the other takes what the first has not: each goes home.
#[test]
fn each_block_goes_home() {
    explore(|| {
        let rig = Rig::new();
        let (first, second) = (Ground::new(&rig, UNIT), Ground::new(&rig, UNIT));
        // Addresses that the first has not: what is the second's is one more.
        drop(second.allocate_sync(layout()).map(|block| {
            // SAFETY: as in `give`.
            unsafe { second.deallocate_sync(block, layout()) };
        }));
        let resource = Arc::new(first.clone().fallback(second.clone()).expect("they are of one device"));
        let use_once = |resource: &Fallback<Ground, Ground>| {
            give(resource, resource.allocate_sync(layout()).expect("there is one for each"));
        };
        let other = {
            let resource = Arc::clone(&resource);
            spawn(move || use_once(&resource))
        };
        use_once(&resource);
        other.join().expect("it says what is wrong itself");
        assert_eq!(resource.book().live_blocks(), 0);
        first.assert_whole();
        second.assert_whole();
    });
}

/// The book written down once more, over a resource of one address, with either order of its two steps.
fn by_hand(forgets_first: bool) {
    explore(move || {
        let (is_free, book) = (Arc::new(Mutex::new(true)), Arc::new(Mutex::new(0_u32)));
        let use_once = move |is_free: &Mutex<bool>, book: &Mutex<u32>| {
            if !std::mem::take(&mut *is_free.lock().unwrap()) {
                return;
            }
            // A set holds an address once, however often it is entered.
            *book.lock().unwrap() = 1;
            let forget =
                || assert_eq!(std::mem::take(&mut *book.lock().unwrap()), 1, "it is not known whose it is");
            let free = || *is_free.lock().unwrap() = true;
            if forgets_first {
                forget();
                free();
            } else {
                free();
                forget();
            }
        };
        let other = {
            let (is_free, book) = (Arc::clone(&is_free), Arc::clone(&book));
            spawn(move || use_once(&is_free, &book))
        };
        use_once(&is_free, &book);
        other.join().expect("it says what is wrong itself");
    });
}

#[test]
fn forgetting_first_is_enough() {
    by_hand(true);
}

/// Shows that the model can see the mistake that it is there for.
#[test]
#[should_panic(expected = "it is not known whose it is")]
fn freeing_first_is_caught() {
    by_hand(false);
}
