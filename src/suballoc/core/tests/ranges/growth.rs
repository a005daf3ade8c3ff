//! Where a range grows, and what is never mapped.

use super::grown;
use super::machine::{PAGE, PAGE_BYTES, RANGE_PAGES, START};
use crate::stream::{Epoch, StreamId};
use crate::suballoc::core::{Core, Extent, UNIT};

#[test]
fn growth_is_contiguous_and_takes_only_what_misses() {
    let mut core = Core::new();
    core.add_range(START, RANGE_PAGES * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    let first = grown(&mut core, owner, 3 * PAGE, 0);
    let second = grown(&mut core, owner, PAGE / 2, 10);
    assert_eq!((first, second), (START, START + 3 * PAGE_BYTES));
    // Half a page is free behind: two pages and a half need two more.
    let third = grown(&mut core, owner, 2 * PAGE + PAGE / 2, 20);
    assert_eq!((third, core.reserved_units()), (second + PAGE_BYTES / 2, u64::from(6 * PAGE)));
    for address in [first, second, third] {
        core.release(address, owner, Epoch(2)).expect("it is out");
    }
    assert_eq!(core.largest(owner, &[]), 6 * PAGE, "what came in three growths is one piece");
    core.verify();
}

#[test]
fn a_hole_that_misses_a_page_is_mapped_again_before_the_range_grows() {
    let mut core = Core::new();
    core.add_range(START, RANGE_PAGES * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    let first = grown(&mut core, owner, 4 * PAGE, 0);
    let behind = grown(&mut core, owner, PAGE, 10);
    core.release(first, owner, Epoch(2)).expect("it is out");
    core.disown(owner, Epoch(2));
    let taken = core.take_pages(1, u64::MAX);
    assert_eq!(taken, [Extent { address: START, units: 4 * PAGE, number: 0 }]);
    core.finish_unmapping(taken[0]);
    assert_eq!(core.reserved_units(), u64::from(PAGE));
    assert_eq!(grown(&mut core, owner, 3 * PAGE, 20), START);
    core.release(behind, owner, Epoch(3)).expect("it is out");
    core.verify();
}

#[test]
fn addresses_that_are_lost_are_never_chosen_again() {
    let mut core = Core::new();
    core.add_range(START, RANGE_PAGES * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    let site = core.site(owner, 4 * PAGE, 1, &[]).expect("the range is empty");
    let growing = core.begin_growth(site, 0);
    let mapped = [Extent { address: START, units: PAGE, number: 0 }];
    let lost = Extent { address: START + PAGE_BYTES, units: PAGE, number: 1 };
    core.abandon_growth(&growing, &mapped, &[lost]);
    core.verify();
    let mut number = 10;
    while core.site(owner, PAGE, 1, &[]).is_some() {
        let address = grown(&mut core, owner, PAGE, number);
        assert!(address >= lost.end() || address + PAGE_BYTES <= lost.address, "{address:#x}");
        number += 1;
    }
    // One is lost, and the last one is never mapped.
    assert_eq!(core.reserved_units(), u64::from((RANGE_PAGES - 2) * PAGE));
    core.verify();
}

#[test]
fn the_last_page_is_never_mapped() {
    let mut core = Core::new();
    core.add_range(START, 4 * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    assert_eq!(core.site(owner, 3 * PAGE + 1, 1, &[]), None);
    let site = core.site(owner, 3 * PAGE, 1, &[]).expect("three pages of four");
    let growing = core.begin_growth(site, 100 * u64::from(PAGE));
    assert_eq!(growing.gap_units(), u64::from(3 * PAGE));
    core.abandon_growth(&growing, &[], &[]);
    core.verify();
}

#[test]
fn short_blocks_have_a_range_of_their_own() {
    let mut core = Core::new();
    core.add_range(START, 8192 * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    let early = grown(&mut core, owner, 1, 0);
    assert!(!core.wants_short_range(), "one range does while there is little");
    grown(&mut core, owner, (16 << 20) / UNIT as u32, 10);
    assert!(core.wants_short_range());
    let short = START + 9000 * PAGE_BYTES;
    core.add_short_range(short, RANGE_PAGES * PAGE, PAGE);
    core.verify();
    assert_eq!(core.allocate(owner, 1, 1, &[]), None, "what is free lies among the long blocks");
    assert_eq!(grown(&mut core, owner, 1, 20), short);
    assert_eq!(core.allocate(owner, 256, 1, &[]), None, "the page of the short ones has no room");
    let long = grown(&mut core, owner, 257, 30);
    assert!(long > early && long < short);
    assert!(core.allocate_elsewhere(owner, 1, 1, &[]).is_some_and(|taken| taken.address < short));
    core.verify();
    core.close_short_range();
    assert!(core.allocate(owner, 1, 1, &[]).is_some_and(|taken| taken.address < short));
    core.verify();
}

/// A free block among the short ones may be the longest of all, and still no long request is served from it.
#[test]
fn the_largest_block_is_that_of_either_range_and_the_largest_request_that_of_its_own() {
    let mut core = Core::new();
    core.add_range(START, 8192 * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    grown(&mut core, owner, (16 << 20) / UNIT as u32, 10);
    core.add_short_range(START + 9000 * PAGE_BYTES, 128 * PAGE, PAGE);
    let (number, short) = (1000, 256);
    let blocks = [0, 1, 2, 3].map(|at| grown(&mut core, owner, short, number + u64::from(at * short)));
    for address in blocks {
        assert!(core.release(address, owner, Epoch(2)).is_ok());
    }
    assert_eq!(core.largest_free(), 4 * short, "the free blocks of the range of short ones are one");
    assert_eq!(core.largest(owner, &[]), short, "the longest request that this range serves");
    assert!(core.allocate(owner, short + 1, 1, &[]).is_none());
    assert!(core.allocate(owner, short, 1, &[]).is_some());
    core.verify();
}
