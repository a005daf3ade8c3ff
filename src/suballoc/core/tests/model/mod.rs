//! The core beside a plain list of intervals, which says after each call what there must be.

mod giving;
mod taking;

use crate::stream::{Epoch, StreamId};
use crate::suballoc::core::{BlockSeen, Core, Owner, SeenState, Segment, UNIT};

/// One call. Streams are slots, 0 is nobody; what is out is picked by its number, modulo how many there are.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Allocate {
        requester: usize,
        units: u32,
        align_units: u32,
        reach: Reach,
    },
    AllocateRun {
        requester: usize,
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
    Disown {
        stream: usize,
        age: u64,
    },
    Gather {
        requester: usize,
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
            Call::Allocate { requester, units, align_units, reach } => {
                self.allocate(requester, units, align_units, reach);
            }
            Call::AllocateRun { requester, units, count } => self.allocate_run(requester, units, count),
            Call::Release { pick, on, age } => self.release(pick, on, age),
            Call::ReleaseWrong { address } => self.release_wrong(address),
            Call::Advance { stream } => self.streams[stream].epoch += 1,
            Call::Disown { stream, age } => self.disown(stream, age),
            Call::Gather { requester, reach } => self.gather(requester, reach),
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
        let stretches = segments.iter().map(|segment| (segment.address, u64::from(segment.units)));
        assert_eq!(self.core.stretches(), stretches.collect::<Vec<_>>());
        let sum = |of: &dyn Fn(&BlockSeen) -> bool| {
            blocks.iter().filter(|block| of(block)).map(|b| u64::from(b.units)).sum::<u64>()
        };
        assert_eq!(self.core.free_units(), sum(&|block| free(block).is_some()));
        assert_eq!(self.core.unowned_units(), sum(&|block| free(block) == Some(None)));
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
        let Some(slot) = who.checked_sub(1).map(|at| &mut self.streams[at]) else { return Owner::UNOWNED };
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
        assert_eq!(self.core.drain_segments(|holder| holder == Owner::OUT), expected.collect::<Vec<_>>());
        self.core.verify();
        assert_eq!((self.core.reserved_units(), self.core.out_blocks()), (0, 0));
    }
}
