//! Ranges that one page fills: they come whole, and go whole.

use crate::stream::{Epoch, StreamId};
use crate::suballoc::core::{Around, Core, Extent, Owner, Segment, UNIT};

const PAGE: u32 = 16;
const START: u64 = 0x7000_0000;

fn page(number: u64) -> Extent {
    let units = 4 * PAGE;
    Extent { address: START + number * u64::from(units + PAGE) * UNIT, units, number }
}

#[test]
fn a_page_that_fills_its_range_is_a_segment() {
    let mut core = Core::new();
    let owner = core.enter(StreamId::new(1, 1));
    for number in 0..3 {
        core.add_page(page(number), PAGE);
        core.verify();
    }
    assert_eq!(core.reserved_units(), 3 * u64::from(4 * PAGE));
    assert_eq!(core.allocate(owner, 4 * PAGE + 1, 1, &[]), None, "no block lies in two");
    let blocks: Vec<u64> =
        (0..5).map(|_| core.allocate(owner, 2 * PAGE, 1, &[]).expect("there is room").address).collect();
    core.verify();
    for &block in &blocks {
        let Around::Pages(pages) = core.around(block, u64::from(2 * PAGE) * UNIT) else {
            unreachable!("{block:#x} is on a page")
        };
        assert_eq!(pages.len(), 1);
    }
    // Nothing is empty while a page is mapped.
    assert_eq!(core.take_empty_ranges(), []);
    for block in blocks {
        core.release(block, Owner::UNOWNED, Epoch::NONE).expect("it is out");
    }
    core.verify();
    let taken = core.take_pages(u64::from(8 * PAGE), u64::from(8 * PAGE));
    assert_eq!(taken.len(), 2);
    assert_eq!(core.take_empty_ranges(), [], "they are being unmapped");
    taken.iter().for_each(|extent| core.finish_unmapping(*extent));
    core.verify();
    let ranges = core.take_empty_ranges();
    core.verify();
    let wanted = taken.iter().map(|extent| Segment { address: extent.address, units: 5 * PAGE });
    let mut wanted: Vec<Segment> = wanted.collect();
    wanted.sort_by_key(|segment| segment.address);
    assert_eq!(ranges, wanted);
    assert_eq!((core.reserved_units(), core.take_empty_ranges()), (u64::from(4 * PAGE), vec![]));
    // The addresses may come again.
    core.add_page(taken[0], PAGE);
    core.verify();
}

#[test]
fn a_range_in_which_a_block_sleeps_is_not_empty() {
    let mut core = Core::new();
    let owner = core.enter(StreamId::new(1, 1));
    core.add_page(page(0), PAGE);
    let block = core.allocate(owner, PAGE, 1, &[]).expect("there is room").address;
    assert_eq!(core.fall_asleep(block), Some(PAGE));
    let given_up = core.give_up_pages([block].into_iter());
    assert_eq!(given_up, [page(0)]);
    core.finish_giving_up(given_up[0].address);
    core.verify();
    assert_eq!((core.reserved_units(), core.take_empty_ranges()), (0, vec![]));
    assert!(core.free_asleep(block).is_some());
    core.verify();
    assert_eq!(core.take_empty_ranges(), [Segment { address: START, units: 5 * PAGE }]);
    core.verify();
}
