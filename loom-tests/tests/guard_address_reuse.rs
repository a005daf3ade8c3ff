//! The book of `Guard` against an upstream that hands an address out again at once: each free finds the block that it is of, and
//! each copy of redzones is looked at once, by whoever comes when it is over.

#![expect(unsafe_code, reason = "gives back what it allocates")]

use std::sync::Arc;

use alluvion::adaptor::{Guard, GuardConfig};
use alluvion::{Layout, Resource, ResourceExt, Stream};
use loom_tests::{Few, Seen, explore_bounded, spawn};

fn layout() -> Layout {
    Layout::from_bytes(200).expect("it is small")
}

/// Over so many blocks, with room for the redzones.
fn guarded(count: usize, quarantine: usize) -> Arc<Guard<Few>> {
    let config = GuardConfig::default().quarantine(quarantine);
    Arc::new(Few::with_memory(count, 1024).guard(config).expect("the mock driver has what it takes"))
}

/// Takes a block and gives it back, if there is one.
fn come_and_go(guard: &Guard<Few>, stream: &Stream) -> bool {
    let Ok(block) = guard.allocate(layout(), stream.as_ref()) else { return false };
    // SAFETY: the block came from there with this layout, and nothing uses it but the guard.
    unsafe { guard.deallocate(block, layout(), stream.as_ref()) };
    true
}

#[test]
fn an_entry_is_its_own_blocks() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    for count in [1, 2] {
        explore_bounded(Some(2), move || {
            let guard = guarded(count, 0);
            let rig = Guard::upstream(&guard).rig().clone();
            let (stream, own) = (rig.stream(), rig.stream());
            let other = spawn({
                let guard = Arc::clone(&guard);
                move || come_and_go(&guard, &stream)
            });
            let mine = come_and_go(&guard, &own);
            let both = other.join().unwrap() && mine;
            assert!(both || count == 1);
            SEEN[usize::from(both)].note(count == 1);
            let watch = guard.book();
            watch.check().expect("nothing is wrong");
            assert_eq!((watch.violations(), watch.live_blocks()), (vec![], 0));
            let looked_at = (watch.verified(), watch.unverified());
            assert_eq!(looked_at, (1 + u64::from(both), 0), "a block was not looked at once");
            assert_eq!(Guard::upstream(&guard).free_count(), count);
            drop(guard);
            rig.mock.assert_no_mistakes();
        });
    }
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "one after the other, and not: {SEEN:?}");
}

/// One looks at what is over while another frees: the book says of each block once that it was looked at.
#[test]
fn a_check_beside_a_free_finds_each_block_once() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    explore_bounded(Some(2), || {
        let guard = guarded(1, 0);
        let stream = Guard::upstream(&guard).rig().stream();
        let other = spawn({
            let guard = Arc::clone(&guard);
            move || assert!(come_and_go(&guard, &stream))
        });
        guard.book().poll();
        SEEN[usize::from(guard.book().verified() == 1)].note(true);
        other.join().unwrap();
        guard.book().check().expect("nothing is wrong");
        assert_eq!((guard.book().verified(), guard.book().found()), (1, 0));
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// Of two threads that give back one block, which breaks the contract, one does: the upstream sees it once.
#[test]
fn a_double_free_reaches_the_upstream_once() {
    explore_bounded(Some(2), || {
        let guard = guarded(1, 0);
        let rig = Guard::upstream(&guard).rig().clone();
        let (stream, own) = (rig.stream(), rig.stream());
        let block = guard.allocate_sync(layout()).expect("there is one");
        let free = move |guard: &Guard<Few>, stream: &Stream| {
            // SAFETY: one of the two does not reach the upstream, which is what is tested.
            unsafe { guard.deallocate(block, layout(), stream.as_ref()) };
        };
        let other = spawn({
            let guard = Arc::clone(&guard);
            move || free(&guard, &stream)
        });
        free(&guard, &own);
        other.join().unwrap();
        assert_eq!((Guard::upstream(&guard).free_count(), guard.book().found()), (1, 1));
    });
}

/// Shows that the models can see the mistake that they are there for: a book that is closed when the upstream has the block already.
/// Here it is: the free of a block goes past the guard, and its entry stays.
#[test]
#[should_panic(expected = "a block was not looked at once")]
fn a_free_that_goes_past_the_book_is_caught() {
    explore_bounded(Some(2), || {
        let guard = guarded(1, 0);
        let stream = Guard::upstream(&guard).rig().stream();
        let block = guard.allocate(layout(), stream.as_ref()).expect("there is one");
        let other = spawn({
            let guard = Arc::clone(&guard);
            move || guard.book().poll()
        });
        let before = alluvion::DevicePtr::new(block.address() - 256).expect("it is in the block");
        // SAFETY: the upstream's block begins there, and nothing uses it any more.
        unsafe { Guard::upstream(&guard).deallocate(before, layout(), stream.as_ref()) };
        other.join().unwrap();
        come_and_go(&guard, &stream);
        guard.book().check().expect("nothing is wrong");
        assert!(
            guard.book().verified() == 2 && guard.book().live_blocks() == 0,
            "a block was not looked at once"
        );
    });
}
