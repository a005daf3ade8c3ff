//! How many nodes a call looks at.

use super::grown;
use super::machine::{PAGE, START};
use crate::stream::{Epoch, StreamId};
use crate::suballoc::core::{Core, Owner};

/// With many holes without memory a search looks at a bounded number of nodes.
#[test]
fn a_search_for_a_site_is_bounded_for_any_number_of_holes() {
    let visits = |holes: u32| {
        let mut core = Core::new();
        core.add_range(START, (4 * holes + 100) * PAGE, PAGE);
        let owner = core.enter(StreamId::new(0, 1));
        let all: Vec<u64> = (0..2 * holes).map(|at| grown(&mut core, owner, PAGE, at.into())).collect();
        for &address in all.iter().step_by(2) {
            core.release(address, owner, Epoch(2)).expect("it is out");
        }
        core.disown(owner, Epoch(2));
        for extent in core.take_pages(u64::MAX, u64::MAX) {
            core.finish_unmapping(extent);
        }
        core.nodes.take_visits();
        core.site(owner, 2 * PAGE, 1, &[]).expect("there is room behind");
        core.nodes.take_visits()
    };
    let (few, many) = (visits(400), visits(20_000));
    assert!(many <= few + few / 4, "{few} visits with 400 holes, {many} with 20,000");
}

/// Pages with a block of one unit in every second one, and the rest free; the blocks are `owners` streams'.
fn holey(pages: u32, owners: u32) -> (Core, Vec<Owner>, Vec<u64>) {
    let mut core = Core::new();
    core.add_range(START, (4 * pages + 100) * PAGE, PAGE);
    let owners: Vec<Owner> = (1..=owners).map(|stream| core.enter(StreamId::new(0, stream))).collect();
    let of = |at: u32| owners[at as usize % owners.len()];
    let all: Vec<u64> = (0..pages).map(|at| grown(&mut core, of(at / 2), PAGE, at.into())).collect();
    for (at, &address) in (0..pages).zip(&all).filter(|(at, _)| at % 2 == 0) {
        core.release(address, of(at / 2), Epoch(2)).expect("it is out");
    }
    (core, owners, all)
}

fn disown_all(core: &mut Core, owners: &[Owner]) {
    owners.iter().for_each(|&owner| core.disown(owner, Epoch(9)));
}

/// Twice as many pages cost twice as many visits.
#[test]
fn a_trim_of_100_000_pages_visits_each_a_few_times() {
    let (mut core, owners, _) = holey(200_000, 3);
    disown_all(&mut core, &owners);
    core.nodes.take_visits();
    let taken = core.take_pages(u64::MAX, u64::MAX);
    assert_eq!(taken.len(), 100_000);
    taken.into_iter().for_each(|extent| core.finish_unmapping(extent));
    let visits = core.nodes.take_visits();
    assert!(visits <= 20 * 100_000, "{visits} visits");
    assert_eq!(core.extents(), 100_000);
    core.verify();
}

/// Free blocks that are longer than a page, and have no whole one, because a page of theirs is longer still.
#[test]
fn blocks_without_a_whole_page_are_looked_at_once() {
    const BLOCKS: u32 = 10_000;
    let mut core = Core::new();
    core.add_range(START, 12 * BLOCKS * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    let mut holes = Vec::new();
    for at in 0..BLOCKS {
        // One page four times as long as the shortest, of which one unit stays out.
        let long = grown(&mut core, owner, 4 * PAGE, u64::from(2 * at));
        grown(&mut core, owner, PAGE, u64::from(2 * at + 1));
        core.release(long, owner, Epoch(2)).expect("it is out");
        holes.push(core.allocate(owner, 4 * PAGE - 1, 1, &[]).expect("there is room").address);
        core.allocate(owner, 1, 1, &[]).expect("there is room");
    }
    // As many blocks of one page, which are shorter.
    let short: Vec<u64> =
        (0..2 * BLOCKS).map(|at| grown(&mut core, owner, PAGE, u64::from(2 * BLOCKS + at))).collect();
    for &address in short.iter().step_by(2).chain(&holes) {
        core.release(address, owner, Epoch(2)).expect("it is out");
    }
    disown_all(&mut core, &[owner]);
    core.nodes.take_visits();
    let taken = core.take_pages(u64::MAX, u64::MAX);
    assert_eq!(taken.len(), BLOCKS as usize);
    taken.into_iter().for_each(|extent| core.finish_unmapping(extent));
    let visits = core.nodes.take_visits();
    assert!(visits <= 20 * 2 * BLOCKS as usize, "{visits} visits");
    core.verify();
}

/// Beside holes without memory, pages, and streams.
#[test]
fn a_growth_and_a_free_visit_a_bounded_number_of_nodes() {
    let visits = |pages: u32, streams: u32, absent: bool| {
        let (mut core, owners, _) = holey(pages, streams);
        if absent {
            disown_all(&mut core, &owners);
            for extent in core.take_pages(u64::MAX, u64::MAX) {
                core.finish_unmapping(extent);
            }
        }
        core.nodes.take_visits();
        let address = grown(&mut core, owners[0], 3 * PAGE, u64::from(pages));
        let growth = core.nodes.take_visits();
        core.release(address, owners[0], Epoch(3)).expect("it is out");
        (growth, core.nodes.take_visits())
    };
    for absent in [false, true] {
        let few = visits(1_000, 10, absent);
        for (pages, streams) in [(20_000, 10), (20_000, 1_000)] {
            let many = visits(pages, streams, absent);
            let words = format!(
                "{few:?} visits beside 500 holes, {many:?} beside {pages} pages of {streams} streams"
            );
            assert!(many.0 <= few.0 + few.0 / 4 && many.1 <= 16, "{words}");
        }
    }
}
