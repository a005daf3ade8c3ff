//! What a block that comes back, and what is over, must have done.

use super::{Pair, Reach, Slot, State, free, merge};
use crate::stream::Epoch;
use crate::suballoc::core::{BlockSeen, Disowning, Inspected, NotOut, Owner, SeenState, UNIT};

impl Pair {
    pub(super) fn release(&mut self, pick: usize, on: usize, age: u64) {
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

    pub(super) fn release_wrong(&mut self, address: u64) {
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
            assert_eq!(self.core.release(address, Owner::UNOWNED, Epoch(1)), Err(NotOut));
        }
    }

    pub(super) fn disown(&mut self, stream: usize, age: u64) {
        let owner = self.owner(stream + 1);
        let done = Epoch(self.streams[stream].epoch.saturating_sub(age));
        // In pieces, however small they are.
        let mut disowning = Disowning::up_to(done);
        while !self.core.disown_some(owner, &mut disowning, &mut (1 + age as usize % 3)) {}
        self.disown_list(stream, done);
    }

    pub(super) fn disown_list(&mut self, stream: usize, done: Epoch) {
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

    pub(super) fn gather(&mut self, requester: usize, reach: Reach) {
        let owner = self.owner(requester);
        let (reach, reached) = self.reach(reach);
        let own = self.stream(requester);
        let result =
            requester.checked_sub(1).map(|at| (self.streams[at].stream, Epoch(self.streams[at].epoch)));
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
    pub(super) fn leave(&mut self, stream: usize) {
        let owner = self.owner(stream + 1);
        self.core.leave(owner);
        self.disown_list(stream, Epoch(u64::MAX));
        let slot = &mut self.streams[stream];
        *slot = Slot { stream: slot.stream.successor().expect("few leave"), epoch: 5, entered: false };
    }
}
