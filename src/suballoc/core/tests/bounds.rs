//! What a call costs, counted in visits of nodes and in bytes, not in time.

use smallvec::SmallVec;

use crate::stream::{Epoch, StreamId};
use crate::suballoc::core::{Core, Disowning, Extent, Owner, SeenState, UNIT};

/// Numbers without a pattern: xorshift.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    /// As many of each power of two, up to 1 MiB.
    fn units(&mut self) -> u32 {
        let most = 1 << self.next(13);
        1 + self.next(most) as u32
    }
}

/// A core, its streams, and what is out.
struct Heap {
    core: Core,
    streams: Vec<Owner>,
    out: Vec<u64>,
    end: u64,
    numbers: Numbers,
}

impl Heap {
    fn new(streams: u32) -> Self {
        let mut core = Core::new();
        let streams = (0..streams).map(|index| core.enter(StreamId::new(1, index))).collect();
        Self { core, streams, out: Vec::new(), end: 1 << 40, numbers: Numbers(0x1234_5678_9abc_def1) }
    }

    fn pick(&mut self) -> Owner {
        self.streams[self.numbers.next(self.streams.len() as u64) as usize]
    }

    /// Allocates, growing if nothing fits, and returns how many nodes the last attempt has visited.
    fn allocate(&mut self, requester: Owner, units: u32, reach: &[(Owner, Epoch)]) -> usize {
        loop {
            self.core.nodes.take_visits();
            if let Some(taken) = self.core.allocate(requester, units, 1, reach) {
                let visits = self.core.nodes.take_visits();
                self.out.push(taken.address);
                return visits;
            }
            self.core.add_segment(self.end, 1 << 20);
            self.end += 1 << 28;
        }
    }

    fn release(&mut self, pick: u64, on: Owner, epoch: u64) -> usize {
        let address = self.out.swap_remove(pick as usize % self.out.len());
        self.core.nodes.take_visits();
        assert!(self.core.release(address, on, Epoch(epoch)).is_ok());
        self.core.nodes.take_visits()
    }

    /// Twice as many blocks, half of which are free again, in epochs 0 to 99, no two beside each other.
    fn with_holes(streams: u32, holes: usize) -> Self {
        let mut heap = Self::new(streams);
        for _ in 0..2 * holes {
            let (requester, units) = (heap.pick(), heap.numbers.units());
            heap.allocate(requester, units, &[]);
        }
        let all = std::mem::take(&mut heap.out);
        for (at, pair) in all.chunks(2).enumerate() {
            let (on, epoch) = (heap.pick(), Epoch((at * 100 / holes) as u64));
            heap.out.push(pair[0]);
            assert!(heap.core.release(pair[1], on, epoch).is_ok());
        }
        heap
    }
}

/// The most nodes that one call visits: a few neighbours, and a few candidates, for an allocation of its own and of nobody's.
const ALLOCATE: usize = 20;
const RELEASE: usize = 16;
/// For each stream that is searched: eight candidates from below and eight from above, and the step to each.
const FOREIGN: usize = 36;

#[test]
fn a_call_visits_as_many_nodes_with_100_000_holes_as_with_ten() {
    for (streams, holes) in [(1, 10), (1, 100_000), (3, 100_000)] {
        let mut heap = Heap::with_holes(streams, holes);
        assert!(streams > 1 || heap.core.blocks().count() > 3 * holes / 2, "there are holes");
        let (mut allocate, mut release) = (0, 0);
        for round in 0..20_000 {
            let (pick, on) = (heap.numbers.next(u64::MAX), heap.pick());
            release = release.max(heap.release(pick, on, 100 + round / 100));
            let (requester, units) = (heap.pick(), heap.numbers.units());
            allocate = allocate.max(heap.allocate(requester, units, &[]));
        }
        assert!(allocate <= ALLOCATE, "{allocate} visits for an allocation, {holes} holes");
        assert!(release <= RELEASE, "{release} visits for a release, {holes} holes");
        heap.core.verify();
    }
}

/// The stream that asks has nothing; of two others some is within reach, and the rest is too young.
#[test]
fn a_search_within_reach_is_bounded() {
    let mut heap = Heap::with_holes(2, 50_000);
    let requester = heap.core.enter(StreamId::new(1, 7));
    while let Some(whole) = heap.core.largest(requester, &[]).checked_sub(1) {
        heap.core.allocate(requester, whole + 1, 1, &[]);
    }
    let reach = [(heap.streams[0], Epoch(50)), (heap.streams[1], Epoch(0))];
    let (mut most, mut found) = (0, 0);
    for _ in 0..5_000 {
        let units = heap.numbers.units();
        heap.core.nodes.take_visits();
        found += usize::from(heap.core.allocate(requester, units, 1, &reach).is_some());
        most = most.max(heap.core.nodes.take_visits());
    }
    assert!(most <= ALLOCATE + 2 * FOREIGN, "{most} visits");
    assert!(found > 4_000, "{found} of 5,000 found");
}

#[test]
fn a_block_costs_at_most_64_bytes() {
    let mut heap = Heap::new(2);
    while heap.out.len() < 200_000 {
        let (requester, units) = (heap.pick(), heap.numbers.units());
        heap.allocate(requester, units, &[]);
        if heap.out.len() >= 20_000 && heap.out.len().is_multiple_of(500) {
            // All of them out, which costs most.
            let (bytes, blocks) = (heap.core.metadata_bytes(), heap.out.len());
            assert!(bytes <= 64 * blocks, "{bytes} bytes for {blocks} blocks");
        }
    }
    let heap = Heap::with_holes(2, 50_000);
    let (bytes, blocks) = (heap.core.metadata_bytes(), heap.core.blocks().count());
    assert!(blocks > 80_000 && bytes <= 64 * blocks, "{bytes} bytes for {blocks} blocks");
}

#[test]
fn a_program_of_one_stream_needs_no_gathering() {
    let mut heap = Heap::new(1);
    let stream = heap.streams[0];
    for round in 0..20_000_u64 {
        let pick = heap.numbers.next(u64::MAX);
        if heap.out.len() > 200 {
            heap.release(pick, stream, round);
        }
        let units = heap.numbers.units();
        heap.allocate(stream, units, &[]);
        if round.is_multiple_of(100) {
            heap.core.disown(stream, Epoch(round.saturating_sub(50)));
        }
        if round.is_multiple_of(1_000) {
            assert_eq!(heap.core.gather(stream, Epoch(round), &[]), 0, "in round {round}");
        }
    }
}

/// A thousand blocks are one search and a constant for each.
#[test]
fn a_run_is_found_once() {
    let mut heap = Heap::with_holes(1, 10_000);
    heap.core.nodes.take_visits();
    let mut out = SmallVec::new();
    assert!(heap.core.allocate_run(heap.streams[0], 4, 1_000, &mut out).is_some());
    assert_eq!(out.len(), 1_000);
    let visits = heap.core.nodes.take_visits();
    assert!(visits <= 10 * 1_000, "{visits} visits");
}

/// 10,000 segments to give back, among as many of the same size that a block is out of.
#[test]
fn a_segment_to_give_back_is_found_at_once() {
    let mut core = Core::new();
    let stream = core.enter(StreamId::new(1, 0));
    for at in 0..10_000 {
        core.add_segment((1 << 40) + (at << 20), 1000);
        assert!(core.allocate(stream, 1, 1, &[]).is_some());
    }
    for at in 0..10_000 {
        core.add_segment((2 << 40) + (at << 20), 999 - (at % 3) as u32);
    }
    core.verify();
    let (mut most, mut last) = (0, u32::MAX);
    for _ in 0..10_000 {
        core.nodes.take_visits();
        let taken = core.take_segment(u64::MAX).expect("there are more");
        most = most.max(core.nodes.take_visits());
        assert!(taken.units <= last, "the largest first");
        last = taken.units;
    }
    assert_eq!(core.take_segment(u64::MAX), None);
    assert!(most <= 8, "{most} visits for a segment");
    core.verify();
}

/// However many blocks are about as large as the largest one, a few of them say how large that is.
#[test]
fn the_largest_block_is_found_in_a_few_looks() {
    for holes in [10, 100_000] {
        let (mut core, mut largest) = (Core::new(), 0);
        for at in 0..holes {
            let units = 1000 + (at * 7 % 16) as u32;
            core.add_segment((1 << 40) + (at << 20), units);
            largest = largest.max(units);
        }
        core.nodes.take_visits();
        let found = core.largest_free();
        let visits = core.nodes.take_visits();
        assert!(visits <= 130, "{visits} visits among {holes} holes");
        assert!(found <= largest && largest - found <= largest / 32, "{found} of {largest} units");
        assert!(holes > 10 || found == largest, "of a few it is exactly the largest");
    }
}

/// What is over becomes nobody's in pieces, with all kinds of things between them.
#[test]
fn disowning_goes_in_pieces_that_let_others_in() {
    let mut heap = Heap::with_holes(2, 5_000);
    let (stream, other) = (heap.streams[0], heap.streams[1]);
    let (done, mut pieces) = (Epoch(60), 0);
    let mut disowning = Disowning::up_to(done);
    loop {
        let mut looks = 50;
        heap.core.nodes.take_visits();
        let is_through = heap.core.disown_some(stream, &mut disowning, &mut looks);
        let visits = heap.core.nodes.take_visits();
        assert!(visits <= 50 * RELEASE + 2, "{visits} visits in a piece");
        heap.core.verify();
        if is_through {
            break;
        }
        pieces += 1;
        let (pick, units) = (heap.numbers.next(u64::MAX), heap.numbers.units());
        match pieces % 5 {
            // Older than what is over: nothing says that it must become nobody's in this round.
            0 => drop(heap.release(pick, stream, 40)),
            1 => drop(heap.release(pick, stream, 100)),
            2 => drop(heap.allocate(stream, units, &[])),
            3 => drop(heap.allocate(other, units, &[(stream, Epoch(50))])),
            _ if pieces % 20 == 4 => drop(heap.core.gather(stream, Epoch(101), &[(other, Epoch(30))])),
            _ => drop(heap.release(pick, other, 101)),
        }
        heap.core.verify();
    }
    assert!(pieces > 10, "{pieces} pieces");
    // With nothing between its pieces it leaves nothing.
    let mut disowning = Disowning::up_to(done);
    while !heap.core.disown_some(stream, &mut disowning, &mut 50) {}
    heap.core.verify();
    let over = heap.core.blocks().filter(
        |block| matches!(block.state, SeenState::Free(Some((of, epoch))) if of.index() == 0 && epoch <= done),
    );
    assert_eq!(over.count(), 0);
}

/// Each with a block out of it, and a rest that does for nobody; and a few that do.
#[test]
fn a_call_visits_as_many_nodes_beside_100_000_segments_as_beside_ten() {
    for segments in [10, 100_000] {
        let mut heap = Heap::new(2);
        for at in 0..segments {
            heap.core.add_segment((1 << 44) + (at << 16), 64);
            assert!(heap.core.allocate(heap.streams[0], 60, 1, &[]).is_some());
        }
        let (mut allocate, mut release) = (0, 0);
        for round in 0..5_000 {
            let (requester, units) = (heap.pick(), 60 + heap.numbers.units());
            allocate = allocate.max(heap.allocate(requester, units, &[]));
            let (pick, on) = (heap.numbers.next(u64::MAX), heap.pick());
            if round % 3 > 0 {
                release = release.max(heap.release(pick, on, round));
            }
        }
        assert!(allocate <= ALLOCATE, "{allocate} visits for an allocation, {segments} segments");
        assert!(release <= RELEASE, "{release} visits for a release, {segments} segments");
    }
}

/// Units of a page of the ranges below.
const PAGE: u32 = 16;

/// A core with so many unowned free blocks of two pages less a unit, no two beside each other. Where they `begin_on_pages` each
/// has one whole page; else each has the end of one and the beginning of the next.
fn with_free_pages(count: u32, begin_on_pages: bool) -> Core {
    let mut core = Core::new();
    core.add_range(1 << 40, (3 * count + 8) * PAGE, PAGE);
    let owner = core.enter(StreamId::new(1, 0));
    let mut number = 0;
    let mut take = |units: u32| {
        if let Some(taken) = core.allocate(owner, units, 1, &[]) {
            return taken.address;
        }
        let site = core.site(owner, units, 1, &[]).expect("the range is long enough");
        let growing = core.begin_growth(site, 0);
        let mut mapped = Vec::new();
        for &(address, units) in &growing.gaps {
            for page in 0..units / PAGE {
                number += 1;
                let address = address + u64::from(page * PAGE) * UNIT;
                mapped.push(Extent { address, units: PAGE, number });
            }
        }
        core.finish_growth(&growing, &mapped, owner, Epoch(1))
    };
    let long = if begin_on_pages { 2 * PAGE - 1 } else { 2 * PAGE - 2 };
    if !begin_on_pages {
        take(1);
    }
    let blocks: Vec<u64> = (0..count).flat_map(|_| [take(long), take(2 * PAGE - long)]).step_by(2).collect();
    for address in blocks {
        assert!(core.release(address, owner, Epoch(2)).is_ok());
    }
    core.disown(owner, Epoch(2));
    core
}

#[test]
fn pages_are_taken_from_the_first_blocks_that_have_them() {
    for count in [10, 20_000] {
        let mut core = with_free_pages(count, true);
        core.nodes.take_visits();
        let taken = core.take_pages(u64::from(4 * PAGE), u64::MAX);
        let visits = core.nodes.take_visits();
        assert_eq!(taken.len(), 4);
        assert!(visits <= 100, "{visits} visits for four pages, {count} blocks that have one");
    }
}

/// One walk for any number of pages. A block is looked at again at the next one.
#[test]
fn blocks_without_a_whole_page_are_looked_at_once() {
    for count in [10, 20_000] {
        let mut core = with_free_pages(count, false);
        for least in [1, u64::from(PAGE), u64::MAX] {
            core.nodes.take_visits();
            assert_eq!(core.take_pages(least, u64::MAX), []);
            let visits = core.nodes.take_visits();
            assert!(visits <= 3 * count as usize + 8, "{visits} visits, {count} blocks without a page");
        }
    }
}

/// A page of a few hundred blocks is looked at when the last of them sleeps, and not each time.
#[test]
fn blocks_that_fall_asleep_one_by_one_cost_each_the_same() {
    const BLOCKS: u64 = 512;
    let orders: [fn(u64) -> u64; 3] = [
        |at| at,
        |at| BLOCKS - 1 - at,
        |at| if at < BLOCKS / 2 { 2 * at } else { 2 * (at - BLOCKS / 2) + 1 },
    ];
    for order in orders {
        let mut core = Core::new();
        core.add_range(1 << 40, 8 * BLOCKS as u32, BLOCKS as u32);
        let owner = core.enter(StreamId::new(1, 0));
        let site = core.site(owner, BLOCKS as u32, 1, &[]).expect("the range is long enough");
        let growing = core.begin_growth(site, 0);
        let page = Extent { address: site.address, units: BLOCKS as u32, number: 1 };
        let whole = core.finish_growth(&growing, &[page], owner, Epoch(1));
        assert!(core.release(whole, Owner::UNOWNED, Epoch(0)).is_ok());
        let all: Vec<u64> =
            (0..BLOCKS).map(|_| core.allocate(owner, 1, 1, &[]).expect("there is room").address).collect();
        let mut most = 0;
        for at in 0..BLOCKS {
            let address = all[order(at) as usize];
            assert_eq!(core.fall_asleep(address), Some(1));
            core.nodes.take_visits();
            let given_up = core.give_up_pages(core::iter::once(address));
            let visits = core.nodes.take_visits();
            assert_eq!(given_up.len(), usize::from(at + 1 == BLOCKS), "{at}");
            if given_up.is_empty() {
                most = most.max(visits);
            }
        }
        assert!(most <= 16, "{most} visits for one of {BLOCKS} blocks");
    }
}
