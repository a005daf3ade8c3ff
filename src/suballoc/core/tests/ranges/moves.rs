//! Pages that move to other addresses, and aliases.

use super::grown;
use super::machine::{PAGE, PAGE_BYTES, RANGE_PAGES, START};
use crate::stream::{Epoch, StreamId};
use crate::suballoc::core::site::Site;
use crate::suballoc::core::{Core, Extent, Stale};

/// A pool of six pages, of which every other one is free and nobody's, each a page of its own. Returns the blocks that are out.
fn checkered(core: &mut Core) -> Vec<u64> {
    core.add_range(START, RANGE_PAGES * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    let blocks: Vec<u64> = (0..6).map(|page| grown(core, owner, PAGE, page)).collect();
    for address in blocks.iter().step_by(2) {
        core.release(*address, owner, Epoch(2)).expect("it is out");
    }
    core.disown(owner, Epoch(2));
    blocks.into_iter().skip(1).step_by(2).collect()
}

/// The three free pages move to where a block of three pages fits.
fn moved(core: &mut Core) -> (u64, Vec<Extent>) {
    let owner = core.enter(StreamId::new(0, 1));
    let site = core.site(owner, 3 * PAGE, 1, &[]).expect("the range is long enough");
    let growing = core.begin_growth(site, 0);
    let returns = core.take_returns(&growing.gaps, growing.gap_units());
    let old =
        core.take_pages(growing.gap_units() - 3 * u64::from(PAGE) * u64::from(!returns.is_empty()), u64::MAX);
    assert!(core.take_stale(&growing.gaps, 0).is_empty());
    let mut mapped: Vec<Extent> = returns.iter().map(|of| of.to).collect();
    for of in &returns {
        core.leave_alias(of.from, of.to.address);
    }
    let mut at = growing.gaps[0].0;
    for extent in old {
        mapped.push(Extent { address: at, ..extent });
        core.leave_alias(extent, at);
        at += PAGE_BYTES;
    }
    let address = core.finish_growth(&growing, &mapped, owner, Epoch(3));
    core.verify();
    (address, mapped)
}

#[test]
fn a_page_that_has_moved_returns_to_where_it_was_and_back() {
    let mut core = Core::new();
    let kept = checkered(&mut core);
    let owner = core.enter(StreamId::new(0, 1));
    let (long, pages) = moved(&mut core);
    assert_eq!((core.aliases(), core.reserved_units()), (3, u64::from(6 * PAGE)));
    // The long block is free; a short one grows where a page was.
    core.release(long, owner, Epoch(4)).expect("it is out");
    core.disown(owner, Epoch(4));
    let gaps = [(START, PAGE)];
    let first_page = |core: &Core| {
        let first = core.ranges.absent[&START];
        Site { address: START, units: PAGE, missing: PAGE.into(), first }
    };
    let growing = core.begin_growth(first_page(&core), 0);
    assert_eq!(growing.gaps.as_slice(), gaps);
    let returns = core.take_returns(&growing.gaps, growing.gap_units());
    let [only] = returns[..] else { panic!("{returns:?}") };
    assert!(pages.contains(&only.from) && only.to.address == START && only.from.number == only.to.number);
    // It is given up: the page is free where it is, and the alias is there.
    core.abandon_growth(&growing, &[], &[]);
    core.abandon_return(only);
    core.verify();
    assert_eq!(core.aliases(), 3);
    // Of a page that is in use none returns.
    let again = core.allocate(owner, 3 * PAGE, 1, &[]).expect("it is free").address;
    assert_eq!(again, long);
    assert_eq!(core.take_returns(&gaps, u64::MAX), []);
    core.release(again, owner, Epoch(5)).expect("it is out");
    core.disown(owner, Epoch(5));
    let growing = core.begin_growth(first_page(&core), 0);
    let returns = core.take_returns(&growing.gaps, growing.gap_units());
    core.leave_alias(returns[0].from, returns[0].to.address);
    let short = core.finish_growth(&growing, &[returns[0].to], owner, Epoch(5));
    core.verify();
    assert_eq!((short, core.aliases(), core.reserved_units()), (START, 3, u64::from(6 * PAGE)));
    for address in kept.into_iter().chain([short]) {
        core.release(address, owner, Epoch(6)).expect("it is out");
    }
    core.verify();
}

#[test]
fn an_alias_that_cannot_be_unmapped_holds_its_addresses_and_its_page() {
    let mut core = Core::new();
    let _kept = checkered(&mut core);
    let owner = core.enter(StreamId::new(0, 1));
    let (long, pages) = moved(&mut core);
    let stale = core.take_stale(&[], 1);
    let [stuck] = <[Stale; 1]>::try_from(stale).expect("the oldest one");
    let alias = stuck.extent;
    core.settle_stale(stuck, false);
    core.verify();
    assert_eq!(core.aliases(), 2);
    // Nobody gets its addresses.
    let taken: Vec<u64> = (100..103).map(|number| grown(&mut core, owner, PAGE, number)).collect();
    assert!(!taken.contains(&alias.address), "{taken:x?}");
    core.verify();
    // With its page it is tried again.
    core.release(long, owner, Epoch(4)).expect("it is out");
    core.disown(owner, Epoch(4));
    let page = *pages.iter().find(|page| page.number == alias.number).expect("it has moved");
    let (mut tried, _) = core.take_aliases_of(&[page]);
    assert_eq!(core.take_aliases_of(&[page]).1, [page.number], "it is being tried");
    assert_eq!(tried.iter().map(|stale| stale.extent).collect::<Vec<_>>(), [alias]);
    core.settle_stale(tried.remove(0), true);
    core.verify();
    assert_eq!(grown(&mut core, owner, PAGE, 110), alias.address);
    core.verify();
}
