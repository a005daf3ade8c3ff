//! The register of `Tracking` against an upstream that hands an address out again at once: each block has an entry while it is
//! out, and it is its own that goes.

#![expect(unsafe_code, reason = "gives back what it allocates")]

use std::sync::Arc;

use alluvion::adaptor::Tracking;
use alluvion::{Layout, Resource, ResourceExt};
use loom::sync::Mutex;
use loom_tests::{Few, Seen, explore, explore_bounded, spawn};

fn layout() -> Layout {
    Layout::from_bytes(1000).expect("it is small")
}

/// Takes a block and gives it back, if there is one. Its entry is there meanwhile.
fn come_and_go(tracking: &Tracking<Few>) -> bool {
    let Ok(block) = tracking.allocate_sync(layout()) else { return false };
    let out = tracking.outstanding();
    assert!(out.blocks.iter().any(|known| known.address == block), "a block has lost its entry: {out}");
    // SAFETY: the block came from there with this layout, and nothing uses it.
    unsafe { tracking.deallocate_sync(block, layout()) };
    true
}

#[test]
fn an_entry_is_its_own_blocks() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    for count in [1, 2] {
        explore_bounded(Some(3), move || {
            let tracking = Arc::new(Few::new(count, 0).tracking());
            let other = spawn({
                let tracking = Arc::clone(&tracking);
                move || come_and_go(&tracking)
            });
            let mine = come_and_go(&tracking);
            let both = other.join().unwrap() && mine;
            assert!(both || count == 1);
            SEEN[usize::from(both)].note(count == 1);
            let left = tracking.outstanding();
            assert!(left.is_clean(), "{left}");
            assert_eq!(tracking.book().live_bytes(), 0);
        });
    }
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "one after the other, and not: {SEEN:?}");
}

/// Of two threads that give back one block, which breaks the contract, one does: the upstream sees it once.
#[test]
fn a_double_free_reaches_the_upstream_once() {
    explore(|| {
        let tracking = Arc::new(Few::new(1, 0).tracking().on_leak(|left| assert_eq!(left.misuse_count, 1)));
        let block = tracking.allocate_sync(layout()).expect("there is one");
        let free = move |tracking: &Tracking<Few>| {
            // SAFETY: one of the two does not reach the upstream, which is what is tested.
            unsafe { tracking.deallocate_sync(block, layout()) };
        };
        let other = spawn({
            let tracking = Arc::clone(&tracking);
            move || free(&tracking)
        });
        free(&tracking);
        other.join().unwrap();
        assert_eq!(Tracking::upstream(&tracking).free_count(), 1);
        assert_eq!(tracking.book().misuse_count(), 1);
    });
}

/// The protocol written down once more: an address that is free or not, and who has it, in a book of its own.
fn close_by_hand(closes_first: bool) {
    explore(move || {
        let place = Arc::new((Mutex::new(true), Mutex::new(None)));
        let come_and_go = move |(is_free, book): &(Mutex<bool>, Mutex<Option<usize>>), me: usize| {
            if !std::mem::replace(&mut *is_free.lock().unwrap(), false) {
                return;
            }
            *book.lock().unwrap() = Some(me);
            if closes_first {
                assert!(book.lock().unwrap().take() == Some(me), "an entry of another went");
            }
            *is_free.lock().unwrap() = true;
            if !closes_first {
                assert!(book.lock().unwrap().take() == Some(me), "an entry of another went");
            }
        };
        let other = spawn({
            let place = Arc::clone(&place);
            move || come_and_go(&place, 1)
        });
        come_and_go(&place, 0);
        other.join().unwrap();
        assert!(book_is_empty(&place.1));
    });
}

fn book_is_empty(book: &Mutex<Option<usize>>) -> bool {
    book.lock().unwrap().is_none()
}

#[test]
fn closing_before_freeing_is_right() {
    close_by_hand(true);
}

/// Shows that the model can see the mistake that it is there for.
#[test]
#[should_panic(expected = "an entry of another went")]
fn closing_after_freeing_is_caught() {
    close_by_hand(false);
}
