//! The core beside a plain list of intervals, which says after each call what there must be.

use smallvec::SmallVec;

use super::bins::Bin;
use super::{BlockSeen, Core, Inspected, NotOut, Owner, SeenState, Segment, UNIT};
use crate::stream::{Epoch, StreamId};

/// One call. Streams are slots, 0 is nobody; what is out is picked by its number, modulo how many there are.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Allocate {
        taker: usize,
        units: u32,
        align_units: u32,
        reach: Reach,
    },
    AllocateRun {
        taker: usize,
        units: u32,
        count: u32,
    },
    /// `age`: how many epochs ago.
    Release {
        pick: usize,
        on: usize,
        age: u64,
    },
    ReleaseWrong {
        address: u64,
    },
    /// The stream records an event.
    Advance {
        stream: usize,
    },
    Settle {
        stream: usize,
        age: u64,
    },
    Gather {
        taker: usize,
        reach: Reach,
    },
    Leave {
        stream: usize,
    },
    /// `gap`: units between it and the last one.
    AddSegment {
        units: u32,
        gap: u64,
    },
    TakeSegment {
        at_most: u64,
    },
}

/// Of each stream how many epochs ago its reach is, or that there is none.
pub(super) type Reach = [Option<u64>; STREAMS];

pub(super) const STREAMS: usize = 3;

struct Slot {
    stream: StreamId,
    epoch: u64,
    entered: bool,
}

/// The core and what it must hold.
pub(super) struct Pair {
    core: Core,
    segments: Vec<(Segment, Vec<BlockSeen>)>,
    streams: [Slot; STREAMS],
    entered: usize,
}

type Points<S> = Vec<(S, Epoch)>;

type State = Option<(StreamId, Epoch)>;

fn free(block: &BlockSeen) -> Option<State> {
    match block.state {
        SeenState::Out => None,
        SeenState::Free(state) => Some(state),
    }
}

/// Joins `second` into `first`.
fn merge(blocks: &mut Vec<BlockSeen>, first: usize, state: State) {
    let second = blocks.remove(first + 1);
    blocks[first].units += second.units;
    blocks[first].state = SeenState::Free(state);
}

impl Pair {
    pub(super) fn new() -> Self {
        let slot = |index| Slot { stream: StreamId::new(1, index), epoch: 5, entered: false };
        Self { core: Core::new(), segments: Vec::new(), streams: [slot(0), slot(1), slot(2)], entered: 0 }
    }

    pub(super) fn call(&mut self, call: &Call) {
        match *call {
            Call::Allocate { taker, units, align_units, reach } => {
                self.allocate(taker, units, align_units, reach);
            }
            Call::AllocateRun { taker, units, count } => self.allocate_run(taker, units, count),
            Call::Release { pick, on, age } => self.release(pick, on, age),
            Call::ReleaseWrong { address } => self.release_wrong(address),
            Call::Advance { stream } => self.streams[stream].epoch += 1,
            Call::Settle { stream, age } => self.settle(stream, age),
            Call::Gather { taker, reach } => self.gather(taker, reach),
            Call::Leave { stream } => self.leave(stream),
            Call::AddSegment { units, gap } => self.add_segment(units, gap),
            Call::TakeSegment { at_most } => self.take_segment(at_most),
        }
    }

    /// The core agrees with the list, and with itself.
    pub(super) fn check(&self) {
        self.core.verify();
        let blocks: Vec<BlockSeen> = self.blocks().copied().collect();
        let seen: Vec<BlockSeen> = self.core.blocks().collect();
        if let Some(at) = (0..seen.len().max(blocks.len())).find(|&at| seen.get(at) != blocks.get(at)) {
            panic!("block {at} is {:?}, not {:?}", seen.get(at), blocks.get(at));
        }
        let segments = self.segments.iter().map(|(segment, _)| *segment).collect::<Vec<_>>();
        assert_eq!(self.core.segments(), segments);
        let sum = |of: &dyn Fn(&BlockSeen) -> bool| {
            blocks.iter().filter(|block| of(block)).map(|b| u64::from(b.units)).sum::<u64>()
        };
        assert_eq!(self.core.free_units(), sum(&|block| free(block).is_some()));
        assert_eq!(self.core.nobody_units(), sum(&|block| free(block) == Some(None)));
        assert_eq!(self.core.out_units(), sum(&|block| free(block).is_none()));
        assert_eq!(self.core.reserved_units(), sum(&|_| true));
        assert_eq!(self.core.out_blocks(), blocks.iter().filter(|block| free(block).is_none()).count());
        let largest = blocks.iter().filter(|block| free(block).is_some()).map(|block| block.units).max();
        assert_eq!(self.core.largest_free(), largest.unwrap_or(0));
        for owned in self.core.owners() {
            let own = |block: &BlockSeen| matches!(block.state, SeenState::Free(Some((stream, _))) if stream == owned.stream);
            assert_eq!(owned.free_units, sum(&own));
            let owner = self.core.owner_of(owned.stream).expect("an owner of blocks is entered");
            assert_eq!(self.core.stream_of(owner), Some(owned.stream));
            let newest = blocks
                .iter()
                .filter_map(|block| free(block).flatten().filter(|(stream, _)| *stream == owned.stream));
            assert!(newest.map(|(_, epoch)| epoch).max().is_some_and(|newest| newest <= owned.newest));
        }
        let streams = blocks.iter().filter_map(|block| free(block).flatten()).map(|(stream, _)| stream);
        let streams = streams.collect::<std::collections::HashSet<_>>();
        assert_eq!(self.core.owners().count(), streams.len());
    }

    fn blocks(&self) -> impl Iterator<Item = &BlockSeen> {
        self.segments.iter().flat_map(|(_, blocks)| blocks)
    }

    /// The owner of a slot, entered if it is not.
    fn owner(&mut self, who: usize) -> Owner {
        let Some(slot) = who.checked_sub(1).map(|at| &mut self.streams[at]) else { return Owner::NOBODY };
        self.entered += usize::from(!slot.entered);
        slot.entered = true;
        self.core.enter(slot.stream)
    }

    fn stream(&self, who: usize) -> Option<StreamId> {
        who.checked_sub(1).map(|at| self.streams[at].stream)
    }

    /// For the core, and for the list.
    fn reach(&mut self, reach: Reach) -> (Points<Owner>, Points<StreamId>) {
        let mut all = (Vec::new(), Vec::new());
        for (at, age) in reach.into_iter().enumerate() {
            if let Some(age) = age.filter(|_| self.streams[at].entered) {
                let epoch = Epoch(self.streams[at].epoch.saturating_sub(age));
                all.0.push((self.owner(at + 1), epoch));
                all.1.push((self.streams[at].stream, epoch));
            }
        }
        all
    }

    fn allocate(&mut self, taker: usize, units: u32, align_units: u32, reach: Reach) {
        let owner = self.owner(taker);
        let (reach, reached) = self.reach(reach);
        let own = self.stream(taker);
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
        if from != own {
            assert_eq!(surely(own), None, "its own block first");
            assert!(from.is_none() || surely(None).is_none(), "nobody's next");
        }
        if align_units == 1 {
            assert_eq!(block.address, taken.address);
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

    fn allocate_run(&mut self, taker: usize, units: u32, count: u32) {
        let owner = self.owner(taker);
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
            assert!(from.is_none() || from == self.stream(taker));
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

    fn release(&mut self, pick: usize, on: usize, age: u64) {
        let out =
            self.blocks().filter(|block| free(block).is_none()).map(|block| (block.address, block.units));
        let out = out.collect::<Vec<_>>();
        if out.is_empty() {
            return;
        }
        let (address, units) = out[pick % out.len()];
        let owner = self.owner(on);
        let sole = self.entered == 1;
        let mut state =
            on.checked_sub(1).map(|at| (self.streams[at].stream, Epoch(self.streams[at].epoch - age)));
        assert_eq!(self.core.inspect(address), Inspected::Out { units });
        assert_eq!(self.core.release(address, owner, state.map_or(Epoch(99), |(_, epoch)| epoch)), Ok(units));
        let joins = |block: Option<&BlockSeen>, state: State| {
            let theirs = free(block?)?;
            match (state, theirs) {
                (None, None) => Some(None),
                (Some((stream, epoch)), Some((other, later))) if stream == other => {
                    Some(Some((stream, epoch.max(later))))
                }
                (Some(_), None) if sole => Some(state),
                _ => None,
            }
        };
        let (blocks, mut at) = self.block_mut(address);
        blocks[at].state = SeenState::Free(state);
        while let Some(both) = joins(blocks.get(at + 1), state) {
            merge(blocks, at, both);
            state = both;
        }
        while let Some(both) = joins(at.checked_sub(1).map(|before| &blocks[before]), state) {
            at -= 1;
            merge(blocks, at, both);
            state = both;
        }
    }

    fn block_mut(&mut self, address: u64) -> (&mut Vec<BlockSeen>, usize) {
        let with = |blocks: &Vec<BlockSeen>| blocks.iter().position(|block| block.address == address);
        self.segments.iter_mut().find_map(|(_, blocks)| with(blocks).map(|at| (blocks, at))).expect("a block")
    }

    fn release_wrong(&mut self, address: u64) {
        let block = self.blocks().find(|block| {
            block.address <= address && address < block.address + u64::from(block.units) * UNIT
        });
        let expected = match block {
            None => Inspected::Foreign,
            Some(&BlockSeen { address: start, units, state }) if start == address => match state {
                SeenState::Out => Inspected::Out { units },
                SeenState::Free(_) => Inspected::Free { units },
            },
            Some(block) => Inspected::Inside { block: block.address },
        };
        assert_eq!(self.core.inspect(address), expected);
        if !matches!(expected, Inspected::Out { .. }) {
            assert_eq!(self.core.release(address, Owner::NOBODY, Epoch(1)), Err(NotOut));
        }
    }

    fn settle(&mut self, stream: usize, age: u64) {
        let owner = self.owner(stream + 1);
        let done = Epoch(self.streams[stream].epoch.saturating_sub(age));
        self.core.settle(owner, done);
        self.settle_list(stream, done);
    }

    fn settle_list(&mut self, stream: usize, done: Epoch) {
        let stream = self.streams[stream].stream;
        for (_, blocks) in &mut self.segments {
            for block in &mut *blocks {
                if matches!(free(block), Some(Some((owner, epoch))) if owner == stream && epoch <= done) {
                    block.state = SeenState::Free(None);
                }
            }
            while let Some(at) =
                blocks.windows(2).position(|pair| pair.iter().all(|block| free(block) == Some(None)))
            {
                merge(blocks, at, None);
            }
        }
    }

    fn gather(&mut self, taker: usize, reach: Reach) {
        let owner = self.owner(taker);
        let (reach, reached) = self.reach(reach);
        let own = self.stream(taker);
        let result = taker.checked_sub(1).map(|at| (self.streams[at].stream, Epoch(self.streams[at].epoch)));
        let joined = self.core.gather(owner, result.map_or(Epoch(3), |(_, epoch)| epoch), &reach);
        let takes = |block: &BlockSeen| match free(block) {
            None => false,
            Some(None) => true,
            Some(Some((stream, epoch))) => {
                Some(stream) == own || reached.iter().any(|&(other, reach)| other == stream && epoch <= reach)
            }
        };
        let mut expected = 0;
        for (_, blocks) in &mut self.segments {
            while let Some(at) = blocks.windows(2).position(|pair| pair.iter().all(takes)) {
                merge(blocks, at, result);
                expected += 1;
            }
        }
        assert_eq!(joined, expected);
        let may = |block: &&BlockSeen| matches!(free(block), Some(state) if state.is_none() || state.map(|(stream, _)| stream) == own);
        let largest = self.blocks().filter(may).map(|block| block.units).max().unwrap_or(0);
        assert_eq!(self.core.largest(owner, &[]), largest, "after gathering, what is there is found");
    }

    /// The next stream in the slot is another one.
    fn leave(&mut self, stream: usize) {
        let owner = self.owner(stream + 1);
        self.core.leave(owner);
        self.settle_list(stream, Epoch(u64::MAX));
        let slot = &mut self.streams[stream];
        *slot = Slot { stream: slot.stream.successor().expect("few leave"), epoch: 5, entered: false };
    }

    fn add_segment(&mut self, units: u32, gap: u64) {
        let end =
            self.segments.last().map_or(0x7000_0000, |(last, _)| last.address + u64::from(last.units) * UNIT);
        let address = end + gap * UNIT;
        self.core.add_segment(address, units);
        self.segments.push((
            Segment { address, units },
            vec![BlockSeen { address, units, state: SeenState::Free(None) }],
        ));
    }

    fn take_segment(&mut self, at_most: u64) {
        let whole = |blocks: &[BlockSeen]| blocks.len() == 1 && free(&blocks[0]) == Some(None);
        let may = self
            .segments
            .iter()
            .filter(|(segment, blocks)| whole(blocks) && u64::from(segment.units) <= at_most);
        let largest = may.map(|(segment, _)| segment.units).max();
        let taken = self.core.take_segment(at_most);
        assert_eq!(taken.map(|segment| segment.units), largest);
        if let Some(taken) = taken {
            let at = self.segments.iter().position(|(segment, blocks)| *segment == taken && whole(blocks));
            self.segments.remove(at.expect("a whole segment"));
        }
    }

    /// All is given back and gathered: then all segments are whole.
    pub(super) fn end(mut self) {
        while self.blocks().any(|block| free(block).is_none()) {
            self.call(&Call::Release { pick: 0, on: 1, age: 0 });
            self.check();
        }
        (0..STREAMS).for_each(|stream| self.call(&Call::Leave { stream }));
        for _ in 0..self.segments.len() {
            self.call(&Call::TakeSegment { at_most: u64::MAX });
        }
        assert!(self.segments.is_empty() && self.core.reserved_units() == 0);
    }

    /// The core is dropped with whatever is out.
    pub(super) fn drain(mut self) {
        let expected = self
            .segments
            .iter()
            .map(|(segment, blocks)| (*segment, blocks.iter().any(|block| free(block).is_none())));
        assert_eq!(self.core.drain_segments(), expected.collect::<Vec<_>>());
        self.core.verify();
        assert_eq!((self.core.reserved_units(), self.core.out_blocks()), (0, 0));
    }
}
