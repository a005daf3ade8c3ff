//! What the core decides, case by case.

use crate::stream::{Epoch, StreamId};
use crate::suballoc::core::{BlockSeen, Core, Disowning, Extent, NotOut, Owner, SeenState, Segment, UNIT};

const BASE: u64 = 0x7f00_0000_0000;

fn stream(index: u32) -> StreamId {
    StreamId::new(1, index)
}

/// Two streams and blocks of these sizes, side by side in one segment, all out.
fn core(units: &[u32]) -> (Core, Owner, Owner, Vec<u64>) {
    let mut core = Core::new();
    let (first, second) = (core.enter(stream(1)), core.enter(stream(2)));
    core.add_segment(BASE, units.iter().sum());
    let all = units.iter().map(|&units| core.allocate(first, units, 1, &[]).expect("room").address).collect();
    (core, first, second, all)
}

fn release(core: &mut Core, address: u64, owner: Owner, epoch: u64) {
    assert!(core.release(address, owner, Epoch(epoch)).is_ok());
    core.verify();
}

fn states(core: &Core) -> Vec<(u32, SeenState)> {
    core.blocks().map(|BlockSeen { units, state, .. }| (units, state)).collect()
}

#[test]
fn neighbours_of_one_stream_are_joined_at_the_later_epoch() {
    let (mut core, first, _, all) = core(&[4, 8, 16]);
    release(&mut core, all[0], first, 7);
    release(&mut core, all[2], first, 3);
    release(&mut core, all[1], first, 5);
    assert_eq!(states(&core), [(28, SeenState::Free(Some((stream(1), Epoch(7)))))]);
}

/// Of blocks side by side those at `free` are freed; then the first stream frees the one at `at`, and asks for as much.
#[test]
fn a_block_is_cut_in_place_where_the_core_would_cut_it_there() {
    for (units, free, at, expected) in [
        (&[64, 64, 64][..], &[][..], 1, true),
        // What lies before it is merged with it, and the next block is cut from the front.
        (&[64, 64, 64], &[0], 1, false),
        // What lies behind it is merged with it, and it is the best that there is.
        (&[64, 32, 1], &[1], 0, true),
        (&[64, 32, 1, 80, 1], &[1, 3], 0, false),
        (&[64, 32, 1, 200, 1], &[1, 3], 0, true),
        // A longer one elsewhere is no better than its own hole.
        (&[64, 1, 80, 1], &[2], 0, true),
    ] {
        let (mut core, first, _, all) = core(units);
        free.iter().for_each(|&free| release(&mut core, all[free], first, 1));
        assert_eq!(core.is_cut_in_place(all[at], first), expected, "{units:?} without {free:?}, {at}");
        // That is what becomes of it.
        release(&mut core, all[at], first, 2);
        let cut = core.allocate(first, units[at], 1, &[]).expect("it was freed").address;
        assert_eq!(cut == all[at], expected, "{units:?} without {free:?}, {at}");
    }
    // What would be merged with it fits alone, and might be no better than a third one: it goes to the core.
    let (mut core, first, _, all) = core(&[64, 64, 1]);
    release(&mut core, all[1], first, 1);
    assert!(!core.is_cut_in_place(all[0], first));
    let (mut core, first, second, all) = self::core(&[64, 64, 64]);
    release(&mut core, all[0], second, 1);
    assert!(core.is_cut_in_place(all[1], first), "what another stream has freed is not merged with it");
    assert!(!core.is_cut_in_place(all[0], first), "it is free");
    assert!(!core.is_cut_in_place(BASE + UNIT, first), "no block begins there");
}

#[test]
fn neighbours_of_two_streams_are_joined_by_gathering_only() {
    let (mut core, first, second, all) = core(&[4, 8, 16]);
    release(&mut core, all[0], first, 9);
    release(&mut core, all[1], second, 2);
    release(&mut core, all[2], Owner::UNOWNED, 0);
    assert_eq!(core.blocks().count(), 3);

    // The first stream has not waited for the second: its own block and nobody's are not neighbours.
    assert_eq!(core.gather(first, Epoch(10), &[(second, Epoch(1))]), 0);
    // Now it has. The epoch of the other says nothing about its own.
    assert_eq!(core.gather(first, Epoch(10), &[(second, Epoch(2))]), 2);
    core.verify();
    assert_eq!(states(&core), [(28, SeenState::Free(Some((stream(1), Epoch(10)))))]);
}

/// A caller that read the requester's epoch a little too early: its own blocks know better.
#[test]
fn gathering_never_makes_a_block_earlier() {
    for own in [0, 1] {
        let (mut core, first, second, all) = core(&[4, 8]);
        release(&mut core, all[own], first, 9);
        release(&mut core, all[1 - own], second, 2);
        assert_eq!(core.gather(first, Epoch(6), &[(second, Epoch(2))]), 1);
        assert_eq!(states(&core), [(12, SeenState::Free(Some((stream(1), Epoch(9)))))]);
    }
}

#[test]
fn gathering_for_nobody_makes_nobody_s_blocks() {
    let (mut core, first, second, all) = core(&[4, 8]);
    release(&mut core, all[0], first, 3);
    release(&mut core, all[1], second, 3);
    assert_eq!(core.gather(Owner::UNOWNED, Epoch(0), &[(first, Epoch(3)), (second, Epoch(3))]), 1);
    assert_eq!(core.take_segment(12), Some(Segment { address: BASE, units: 12 }));
}

#[test]
fn its_own_block_comes_first_then_nobody_s_then_what_is_within_reach() {
    let (mut core, first, second, all) = core(&[64, 1, 64, 1, 64, 1, 64]);
    release(&mut core, all[0], second, 4);
    release(&mut core, all[2], second, 6);
    release(&mut core, all[4], Owner::UNOWNED, 0);
    release(&mut core, all[6], first, 9);
    let mut take = |reach| {
        let taken = core.allocate(first, 64, 1, &[(second, Epoch(reach))]);
        core.verify();
        taken.map(|taken| (taken.address, taken.from))
    };
    assert_eq!(take(5), Some((all[6], first)));
    assert_eq!(take(5), Some((all[4], Owner::UNOWNED)));
    assert_eq!(take(3), None);
    assert_eq!(take(5), Some((all[0], second)));
    assert_eq!(take(5), None);
    assert_eq!(take(6), Some((all[2], second)));
}

#[test]
fn of_its_own_and_nobody_s_blocks_the_smaller_one_is_cut() {
    for own in [0, 2] {
        let (mut core, first, second, all) = core(&[64, 1, 500, 1, 64]);
        release(&mut core, all[own], first, 1);
        release(&mut core, all[2 - own], Owner::UNOWNED, 0);
        for (units, at) in [(40, all[0]), (400, all[2])] {
            let taken = core.allocate(first, units, 1, &[(second, Epoch(9))]);
            assert_eq!(taken.map(|taken| taken.address), Some(at), "{units} units");
            core.verify();
        }
    }
}

/// Blocks of 1024 to 1055 units share a bin. Of a few the smallest that is large enough is taken, else a larger bin.
#[test]
fn a_block_of_the_same_bin_may_be_too_small() {
    let (mut core, first, _, all) = core(&[1050, 1, 1024, 1, 1040, 1, 2048]);
    [6, 0, 4, 2].into_iter().for_each(|at| release(&mut core, all[at], first, 5));
    let mut take = |units| core.allocate(first, units, 1, &[]).map(|taken| taken.address);
    assert_eq!(take(1030), Some(all[4]));
    assert_eq!(take(1030), Some(all[0]));
    assert_eq!(take(1030), Some(all[6]));
    assert_eq!(take(1030), None);
}

#[test]
fn what_is_cut_off_stays_with_its_owner_at_its_epoch() {
    let (mut core, first, second, all) = core(&[100]);
    release(&mut core, all[0], second, 4);
    assert!(core.allocate(first, 40, 1, &[(second, Epoch(4))]).is_some());
    assert_eq!(states(&core), [(40, SeenState::Out), (60, SeenState::Free(Some((stream(2), Epoch(4)))))]);
    // In front of an aligned block, too.
    let aligned = core.allocate(first, 8, 16, &[(second, Epoch(4))]).expect("room");
    assert_eq!(aligned.address, BASE + 48 * UNIT);
    let free = SeenState::Free(Some((stream(2), Epoch(4))));
    assert_eq!(states(&core), [(40, SeenState::Out), (8, free), (8, SeenState::Out), (44, free)]);
    core.verify();
}

#[test]
fn a_foreign_block_is_sought_among_the_oldest() {
    let sizes: Vec<u32> = (0..100).flat_map(|_| [80, 1]).collect();
    let (mut core, first, second, all) = core(&sizes);
    (0..100).for_each(|at| release(&mut core, all[2 * at], second, at as u64));
    let taken = core.allocate(first, 80, 1, &[(second, Epoch(0))]);
    assert_eq!(taken.map(|taken| taken.address), Some(all[0]));
}

/// One large enough block behind many of its bin that are a little too small.
#[test]
fn gathering_shows_the_largest_block_of_a_bin() {
    let mut sizes: Vec<u32> = (0..20).flat_map(|_| [1024, 1]).collect();
    sizes[0] = 1030;
    for requester in [0, 1, 2] {
        let (mut core, first, second, all) = core(&sizes);
        (0..20).for_each(|at| release(&mut core, all[2 * at], first, 5));
        let (requester, reach) = match requester {
            0 => (first, &[][..]),
            1 => (second, &[(first, Epoch(5))][..]),
            _ => {
                core.disown(first, Epoch(5));
                (second, &[][..])
            }
        };
        core.gather(requester, Epoch(8), reach);
        core.verify();
        assert_eq!(core.largest(requester, reach), 1030);
        assert_eq!(core.allocate(requester, 1030, 1, reach).map(|taken| taken.address), Some(all[0]));
    }
}

#[test]
fn disowning_takes_what_is_over_and_leaves_the_rest() {
    let (mut core, first, _, all) = core(&[4, 1, 4, 1, 4]);
    (0..3).for_each(|at| release(&mut core, all[2 * at], first, 10 + at as u64));
    core.disown(first, Epoch(9));
    assert_eq!(core.unowned_units(), 0);
    core.disown(first, Epoch(11));
    core.verify();
    assert_eq!((core.unowned_units(), core.free_units()), (8, 12));
    assert_eq!(
        core.owners().map(|owned| (owned.stream, owned.free_units, owned.newest)).collect::<Vec<_>>(),
        [(stream(1), 4, Epoch(12))]
    );
}

#[test]
fn disowning_again_looks_at_nothing() {
    let sizes: Vec<u32> = (0..40).flat_map(|_| [4, 1]).collect();
    let (mut core, first, _, all) = core(&sizes);
    (0..40).for_each(|at| release(&mut core, all[2 * at], first, at as u64));
    core.disown(first, Epoch(20));
    core.nodes.take_visits();
    core.disown(first, Epoch(20));
    assert_eq!(core.nodes.take_visits(), 0);

    // The latest is taken: the next disowning says which one is the latest now.
    assert_eq!(core.allocate(first, 4, 1, &[]).map(|taken| taken.address), Some(all[78]));
    core.disown(first, Epoch(30));
    assert_eq!(core.owners().map(|owned| owned.newest).collect::<Vec<_>>(), [Epoch(38)]);
}

/// Pages of sixteen units for all gaps of a growth.
fn pages_for(gaps: &[(u64, u32)]) -> Vec<Extent> {
    let pages = gaps.iter().flat_map(|&(address, units)| {
        (0..units / 16).map(move |page| (address + u64::from(page) * 16 * UNIT, 16))
    });
    pages.zip(1..).map(|((address, units), number)| Extent { address, units, number }).collect()
}

/// Two streams over a range, and blocks of the first one of these sizes, side by side, all out.
fn core_over_pages(units: &[u32]) -> (Core, Owner, Vec<u64>) {
    let mut core = Core::new();
    core.add_range(BASE, 16 * 16, 16);
    let (first, _) = (core.enter(stream(1)), core.enter(stream(2)));
    let site = core.site(first, units.iter().sum(), 1, &[]).expect("the range is longer");
    let growing = core.begin_growth(site, 0);
    let whole = core.finish_growth(&growing, &pages_for(&growing.gaps), first, Epoch(1));
    release(&mut core, whole, Owner::UNOWNED, 0);
    let all = units.iter().map(|&units| core.allocate(first, units, 1, &[]).expect("room").address).collect();
    (core, first, all)
}

/// Else memory that the stream still uses would count as over with an earlier point of it.
#[test]
fn a_growth_in_place_while_memory_is_disowned_hides_no_epoch() {
    for gives_up in [false, true] {
        let (mut core, first, all) = core_over_pages(&[1, 1, 4, 1, 25]);
        [(0, 1), (2, 3), (4, 9)]
            .into_iter()
            .for_each(|(at, epoch)| release(&mut core, all[at], first, epoch));
        let (mut disowning, mut looks) = (Disowning::up_to(Epoch(1)), 2);
        assert!(!core.disown_some(first, &mut disowning, &mut looks), "the long block is left");
        // An aligned block takes the end of it, and leaves a beginning.
        let site = core.site(first, 40, 16, &[]).expect("the range is longer");
        let growing = core.begin_growth(site, 0);
        if gives_up {
            core.abandon_growth(&growing, &[], &[]);
        }
        assert!(core.disown_some(first, &mut disowning, &mut { usize::MAX }));
        if !gives_up {
            core.finish_growth(&growing, &pages_for(&growing.gaps), first, Epoch(10));
        }
        core.verify();
        assert_eq!(core.owners().map(|owned| owned.newest).collect::<Vec<_>>(), [Epoch(9)], "{gives_up}");
    }
}

/// As above; the block comes back from a growth that had begun before.
#[test]
fn a_growth_that_is_given_up_while_memory_is_disowned_hides_no_epoch() {
    let (mut core, first, all) = core_over_pages(&[1, 1, 4, 1, 60, 1, 28]);
    [(0, 1), (2, 3), (4, 4), (6, 9)]
        .into_iter()
        .for_each(|(at, epoch)| release(&mut core, all[at], first, epoch));
    let site = core.site(first, 70, 1, &[]).expect("the range is longer");
    let growing = core.begin_growth(site, 0);
    let (mut disowning, mut looks) = (Disowning::up_to(Epoch(1)), 2);
    assert!(!core.disown_some(first, &mut disowning, &mut looks), "the longest block is left");
    core.abandon_growth(&growing, &[], &[]);
    assert!(core.disown_some(first, &mut disowning, &mut { usize::MAX }));
    core.verify();
    assert_eq!(core.owners().map(|owned| owned.newest).collect::<Vec<_>>(), [Epoch(9)]);
}

#[test]
fn a_stream_that_leaves_makes_room_for_another() {
    let (mut core, first, _, all) = core(&[4, 8]);
    release(&mut core, all[0], first, 10);
    core.leave(first);
    core.verify();
    assert_eq!((core.unowned_units(), core.owners().count(), core.stream_of(first)), (4, 0, None));
    let third = core.enter(stream(3));
    assert_eq!((third, core.stream_of(third)), (first, Some(stream(3))));
    assert_eq!((core.enter(stream(3)), core.enter(stream(1)) == third), (third, false));
}

/// A segment is given back as it came: the one behind it in the address space is another one.
#[test]
fn segments_do_not_grow_together() {
    let mut core = Core::new();
    let owner = core.enter(stream(1));
    core.add_segment(BASE, 8);
    core.add_segment(BASE + 8 * UNIT, 16);
    assert_eq!((core.largest_free(), core.largest(owner, &[])), (16, 16));
    assert_eq!(core.allocate(owner, 24, 1, &[]), None);
    assert_eq!(core.take_segment(15), Some(Segment { address: BASE, units: 8 }));
    assert_eq!(core.take_segment(15), None);
    let taken = core.allocate(owner, 1, 1, &[]).expect("room");
    assert_eq!(core.take_segment(u64::MAX), None);
    assert_eq!(core.release(taken.address + UNIT, owner, Epoch(1)), Err(NotOut));
    assert_eq!(
        core.drain_segments(|holder| holder == Owner::OUT),
        [(Segment { address: BASE + 8 * UNIT, units: 16 }, true)]
    );
}

/// The largest that there can be, and at the end of the address space.
#[test]
fn nothing_overflows() {
    let mut core = Core::new();
    let owner = core.enter(stream(1));
    core.add_segment(0x1000, u32::MAX);
    core.add_segment(u64::MAX - 64 * UNIT + 1, 63);
    assert_eq!(core.largest_free(), u32::MAX);
    assert_eq!(core.allocate(owner, u32::MAX, 1 << 31, &[]), None);
    assert_eq!(core.allocate_run(owner, u32::MAX, 4, &mut smallvec::SmallVec::new()), Some(Owner::UNOWNED));
    assert_eq!(core.allocate(owner, 60, 1 << 31, &[]), None);
    assert_eq!(core.allocate(owner, 60, 64, &[]).map(|taken| taken.address), Some(u64::MAX - 64 * UNIT + 1));
    core.verify();
    assert_eq!(core.out_units(), u64::from(u32::MAX) + 60);
}

#[test]
fn a_block_of_another_length_is_not_released() {
    let (mut core, first, _, all) = core(&[64, 64]);
    for (address, units) in [(all[0], 63), (all[0], 128), (all[0] + UNIT, 64), (BASE + 128 * UNIT, 64)] {
        assert_eq!(
            core.release_exactly(address, units, first, Epoch(1)),
            Err(NotOut),
            "{units} at {address:#x}"
        );
        assert_eq!((core.units_out_at(all[0]), core.out_blocks()), (Some(64), 2));
        core.verify();
    }
    assert_eq!(core.release_exactly(all[0], 64, first, Epoch(1)), Ok(()));
    core.verify();
    assert_eq!((core.units_out_at(all[0]), core.units_out_at(all[1])), (None, Some(64)));
    assert_eq!(core.release_exactly(all[0], 64, first, Epoch(2)), Err(NotOut), "it is free");
}
