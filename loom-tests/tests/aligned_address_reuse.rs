//! The book of `Aligned` against an upstream that hands an address out again at once: each block goes back from where it began.

#![expect(unsafe_code, reason = "gives back what it allocates")]

use std::sync::Arc;

use alluvion::adaptor::Aligned;
use alluvion::{Layout, Resource, ResourceExt};
use loom::sync::Mutex;
use loom_tests::{Few, Seen, explore, explore_bounded, spawn};

const ALIGNMENT: u64 = 4096;

/// The upstream's blocks begin so far behind a multiple of it: one unit.
const OFFSET: u64 = 256;

fn layout() -> Layout {
    Layout::from_bytes(1000).expect("it is small")
}

/// Takes a block and gives it back, if there is one.
fn come_and_go(aligned: &Aligned<Few>) -> bool {
    let Ok(block) = aligned.allocate_sync(layout()) else { return false };
    assert_eq!(block.address() % ALIGNMENT, 0);
    assert_eq!(aligned.book().origin(block).address() + ALIGNMENT - OFFSET, block.address());
    // SAFETY: the block came from there with this layout, and nothing uses it.
    unsafe { aligned.deallocate_sync(block, layout()) };
    true
}

#[test]
fn a_block_goes_back_from_where_it_began() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    for count in [1, 2] {
        explore_bounded(Some(3), move || {
            let aligned = Few::new(count, OFFSET).aligned(ALIGNMENT as usize).expect("a power of two");
            let aligned = Arc::new(aligned);
            let other = spawn({
                let aligned = Arc::clone(&aligned);
                move || come_and_go(&aligned)
            });
            let mine = come_and_go(&aligned);
            let both = other.join().unwrap() && mine;
            assert!(both || count == 1);
            SEEN[usize::from(both)].note(count == 1);
            assert_eq!(aligned.book().moved_blocks(), 0);
            assert_eq!(Aligned::upstream(&aligned).free_count() as u64, count);
        });
    }
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "one after the other, and not: {SEEN:?}");
}

/// The protocol written down once more: one block, which is free or not, and whether the book says that it was moved.
fn close_by_hand(closes_first: bool) {
    explore(move || {
        let place = Arc::new((Mutex::new(true), Mutex::new(false)));
        let come_and_go = move |(is_free, is_moved): &(Mutex<bool>, Mutex<bool>)| {
            if !std::mem::replace(&mut *is_free.lock().unwrap(), false) {
                return;
            }
            *is_moved.lock().unwrap() = true;
            let close = || std::mem::replace(&mut *is_moved.lock().unwrap(), false);
            if closes_first {
                assert!(close(), "it goes back from where it did not begin");
                *is_free.lock().unwrap() = true;
            } else {
                assert!(*is_moved.lock().unwrap(), "it goes back from where it did not begin");
                *is_free.lock().unwrap() = true;
                close();
            }
        };
        let other = spawn({
            let place = Arc::clone(&place);
            move || come_and_go(&place)
        });
        come_and_go(&place);
        other.join().unwrap();
    });
}

#[test]
fn closing_before_freeing_is_right() {
    close_by_hand(true);
}

/// Shows that the model can see the mistake that it is there for.
#[test]
#[should_panic(expected = "it goes back from where it did not begin")]
fn closing_after_freeing_is_caught() {
    close_by_hand(false);
}
