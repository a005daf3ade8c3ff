//! What an allocation must have done.

use smallvec::SmallVec;

use super::{Pair, Reach, free};
use crate::stream::StreamId;
use crate::suballoc::core::bins::Bin;
use crate::suballoc::core::{BlockSeen, SeenState, Segment, UNIT};

impl Pair {
    pub(super) fn allocate(&mut self, requester: usize, units: u32, align_units: u32, reach: Reach) {
        let owner = self.owner(requester);
        let (reach, reached) = self.reach(reach);
        let own = self.stream(requester);
        let largest = self.core.largest(owner, &reach);
        let found = self.core.allocate(owner, units, align_units, &reach);
        let of = |whose: Option<StreamId>| {
            move |block: &&BlockSeen| {
                free(block).is_some_and(|state| state.map(|(stream, _)| stream) == whose)
            }
        };
        // A block of a larger bin does, wherever the core looks.
        let surely = |whose| {
            self.blocks()
                .filter(of(whose))
                .filter(|block| Bin::of(block.units) > Bin::of(units + align_units - 1))
                .min_by_key(|block| Bin::of(block.units))
        };
        let Some(taken) = found else {
            assert!(align_units > 1 || units > largest, "{units} units of {largest} not found");
            assert_eq!((surely(own), surely(None)), (None, None));
            return;
        };
        let from = self.core.stream_of(taken.from);
        assert!(
            units <= largest || !reach.is_empty(),
            "{units} units found, where the largest was {largest}"
        );
        let covers = |block: &&BlockSeen| {
            block.address <= taken.address && taken.address < block.address + u64::from(block.units) * UNIT
        };
        let block = *self.blocks().find(covers).expect("an address in a segment");
        match free(&block) {
            Some(None) => assert_eq!(from, None),
            Some(Some((stream, epoch))) => {
                assert_eq!(from, Some(stream));
                assert!(
                    own == from || reached.iter().any(|&(other, reach)| other == stream && epoch <= reach)
                );
            }
            None => panic!("{block:?} is out"),
        }
        if from != own && from.is_some() {
            assert_eq!((surely(own), surely(None)), (None, None), "its own and nobody's first");
        }
        if align_units == 1 {
            assert_eq!(block.address, taken.address);
            for other in [own, None].into_iter().filter_map(surely) {
                assert!(Bin::of(block.units) <= Bin::of(other.units), "the smaller of its own and nobody's");
            }
            if from == own || from.is_none() {
                assert!(
                    surely(from).is_none_or(|surely| Bin::of(block.units) <= Bin::of(surely.units)),
                    "a good fit"
                );
                let bin =
                    self.blocks().filter(of(from)).filter(|block| Bin::of(block.units) == Bin::of(units));
                let sizes = bin.map(|block| block.units).collect::<Vec<_>>();
                if let Some(&best) =
                    sizes.iter().filter(|size| **size >= units).min().filter(|_| sizes.len() <= 4)
                {
                    assert_eq!(block.units, best, "the best fit of {sizes:?}");
                }
            }
        }
        self.split(taken.address, units, align_units);
    }

    /// Cuts the list as `allocate` has done.
    fn split(&mut self, address: u64, units: u32, align_units: u32) {
        assert!(
            address.is_multiple_of(u64::from(align_units) * UNIT),
            "{address:#x} is aligned to {align_units} units"
        );
        let holds = |segment: &Segment| {
            segment.address <= address && address < segment.address + u64::from(segment.units) * UNIT
        };
        let (_, blocks) = self.segments.iter_mut().find(|(segment, _)| holds(segment)).expect("a segment");
        let at = blocks.iter().rposition(|block| block.address <= address).expect("a block");
        let BlockSeen { address: start, units: whole, state } = blocks[at];
        let front = ((address - start) / UNIT) as u32;
        let pieces = [
            BlockSeen { address: start, units: front, state },
            BlockSeen { address, units, state: SeenState::Out },
            BlockSeen { address: address + u64::from(units) * UNIT, units: whole - front - units, state },
        ];
        blocks.splice(at..=at, pieces.into_iter().filter(|piece| piece.units > 0));
    }

    pub(super) fn allocate_run(&mut self, requester: usize, units: u32, count: u32) {
        let owner = self.owner(requester);
        let largest = self.core.largest(owner, &[]);
        let mut out = SmallVec::from_slice(&[7]);
        let from = self.core.allocate_run(owner, units, count, &mut out);
        assert_eq!(out.remove(0), 7);
        let expected = std::iter::successors(Some(count), |count| Some(count / 2))
            .find(|count| u64::from(*count) * u64::from(units) <= u64::from(largest));
        assert_eq!(out.len(), expected.unwrap_or(0) as usize);
        assert_eq!(from.is_some(), expected.is_some_and(|count| count > 0));
        if let Some(from) = from {
            let from = self.core.stream_of(from);
            assert!(from.is_none() || from == self.stream(requester));
            let first = self.blocks().find(|block| block.address == out[0]).expect("low addresses first");
            assert_eq!(free(first).map(|state| state.map(|(stream, _)| stream)), Some(from));
        }
        for pair in out.windows(2) {
            assert_eq!(pair[1], pair[0] + u64::from(units) * UNIT, "out of one block");
        }
        for address in out {
            self.split(address, units, 1);
        }
    }
}
