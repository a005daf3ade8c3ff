//! `Blocks`: what layers of the crate have carved out of memory, and which parts of it are out.
//!
//! A block goes out and comes back in the order of the calls, as memory of a driver's pool does: nothing is queued for it. What is
//! submitted after it came back is a use after free, on whatever stream; what was submitted before is none, whenever it runs. Work may
//! use a block if it is ordered after what its stream had been given when the block went out. The past of the bytes is kept: work that
//! still uses them races with that of the next owner.
//!
//! The layers' own work, such as the fences around a block, may go anywhere.

use std::collections::{BTreeMap, HashMap};

use smallvec::SmallVec;

use super::allocation::{Allocation, AllocationKind, Allocations};
use super::clock::{LaneId, Point};
use super::driver::SimDriver;
use super::hazard::{Access, AccessMode, Hazard, HazardKind, StreamLabel};
use super::kernel::Range;
use super::machine::SimMachine;
use crate::driver::{BlockWatch, RawStream, in_own_work};

/// The block that a carved piece is a part of, and where it begins, if there is one.
type Around = Option<(u64, Allocation)>;

/// What layers have carved.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Carved memory: where it begins and ends. None lies in another.
    carved: BTreeMap<u64, u64>,
    /// Pieces of it that are carved once more, by address and bytes. One piece may be carved by several, of whom the last ends first.
    divided: HashMap<(u64, u64), SmallVec<[Around; 1]>>,
    /// The blocks that are out, and those that came back lately.
    blocks: Allocations,
}

impl Blocks {
    /// Returns `true` if the address is in carved memory.
    fn is_carved(&self, address: u64) -> bool {
        self.carved.range(..=address).next_back().is_some_and(|(_, end)| address < *end)
    }

    fn divide(&mut self, address: u64, bytes: u64) {
        if !self.is_carved(address) {
            self.carved.insert(address, address + bytes);
            return;
        }
        let around = self.blocks.containing(address).map(|(start, block)| (start, block.clone()));
        if let Some((start, _)) = around {
            self.blocks.withdraw(start);
        }
        self.divided.entry((address, bytes)).or_default().push(around);
    }

    fn unite(&mut self, address: u64, bytes: u64) {
        let key = (address, bytes);
        let Some(all) = self.divided.get_mut(&key) else {
            if self.carved.get(&address) == Some(&(address + bytes)) {
                self.forget(address, bytes);
            }
            return;
        };
        let around = all.pop().flatten();
        if all.is_empty() {
            self.divided.remove(&key);
        }
        self.blocks.forget_all(address, bytes);
        if let Some((start, block)) = around {
            self.blocks.add(start, block);
        }
    }

    /// The memory has gone back to the machine, with all that was carved out of it.
    pub(super) fn forget(&mut self, address: u64, bytes: u64) {
        if self.carved.is_empty() {
            return;
        }
        let end = address.saturating_add(bytes);
        self.carved.retain(|start, _| !(address..end).contains(start));
        self.divided.retain(|(start, _), _| !(address..end).contains(start));
        self.blocks.forget_all(address, bytes);
    }
}

impl SimMachine {
    /// The hazard of an access to carved memory, if it goes beyond the block that is out there.
    pub(super) fn judge_in_blocks(&self, access: &Access) -> Option<Hazard> {
        let Blocks { blocks, .. } = &self.process.blocks;
        if !self.process.blocks.is_carved(access.address) || in_own_work() {
            return None;
        }
        let hazard = |kind, first: Option<&Access>, missing: String| {
            Some(Hazard { kind, first: first.cloned(), second: Some(access.clone()), missing })
        };
        if let Some((start, block)) = blocks.containing(access.address) {
            let over = access.address.saturating_add(access.bytes).saturating_sub(start + block.bytes);
            let words = || format!("it ends {over} bytes behind the end of the block");
            return if over == 0 {
                None
            } else {
                hazard(HazardKind::OutOfBounds, Some(&block.made), words())
            };
        }
        match blocks.freed_containing(access.address) {
            Some(freed) => hazard(
                HazardKind::UseAfterFree,
                Some(&freed.freed),
                format!("it was submitted after the free, #{}", freed.freed.submission),
            ),
            None => {
                let words = format!("no block has the address {:#x}: a suballocator has it", access.address);
                hazard(HazardKind::OutOfBounds, None, words)
            }
        }
    }

    /// The access that handed out the block of an address, if it lies in one.
    pub(super) fn made_in_blocks(&self, address: u64) -> Option<&Access> {
        let block = self.process.blocks.blocks.containing(address).filter(|_| !in_own_work());
        block.map(|(_, block)| &block.made)
    }

    fn is_memory(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        let allocation = self.process.allocations.containing(address);
        allocation.is_some_and(|(start, allocation)| end <= start + allocation.bytes)
            || self
                .process
                .virtual_memory
                .reservations()
                .any(|(start, bytes)| (start..start + bytes).contains(&address) && end <= start + bytes)
    }

    /// A call of a layer about a block, as hazards name it: after all that its stream has been given.
    fn by_layer(&mut self, layer: &str, ordinal: u32, range: Range, stream: Option<RawStream>) -> Access {
        let Range { address, bytes, mode } = range;
        let lane = stream.and_then(|stream| self.lane_of(ordinal, stream));
        let label = lane.and_then(|lane| Some(self.lanes.get(lane)?.label));
        Access {
            operation: layer.into(),
            process: self.process.id,
            stream: label.unwrap_or(StreamLabel::Host),
            address,
            bytes,
            mode,
            submission: self.submissions,
            point: lane.and_then(|lane| self.last_point(lane)),
        }
    }

    /// The last operation of a lane; `None` if it has had none.
    fn last_point(&self, lane: LaneId) -> Option<Point> {
        let sequence = self.lanes.next_point(lane).sequence - 1;
        (sequence > 0).then_some(Point { lane, sequence })
    }

    fn report_wrong_free(&mut self, free: Access) {
        let address = free.address;
        // A layer that carves nothing, as one that tracks, refuses blocks of the driver.
        let blocks = match self.process.blocks.is_carved(address) {
            true => &self.process.blocks.blocks,
            false => &self.process.allocations,
        };
        let (kind, first, missing) = match (blocks.containing(address), blocks.freed_containing(address)) {
            (Some((start, block)), _) if start == address => (
                HazardKind::InvalidFree,
                Some(block.made.clone()),
                format!("the block has {} bytes", block.bytes),
            ),
            (Some((start, block)), _) => (
                HazardKind::InvalidFree,
                Some(block.made.clone()),
                format!("the address is {} bytes inside of a block", address - start),
            ),
            (None, Some(freed)) if freed.freed.address == address => {
                (HazardKind::DoubleFree, Some(freed.freed.clone()), "the block was free already".to_owned())
            }
            _ => (HazardKind::InvalidFree, None, "no block is out there".to_owned()),
        };
        self.report(Hazard { kind, first, second: Some(free), missing });
    }
}

impl BlockWatch for SimDriver {
    fn divide(&self, address: u64, bytes: usize) -> bool {
        let divide = |machine: &mut SimMachine| {
            let is_memory = bytes > 0 && machine.is_memory(address, bytes as u64);
            if is_memory {
                machine.process.blocks.divide(address, bytes as u64);
            }
            is_memory
        };
        self.look(divide).unwrap_or_default()
    }

    fn unite(&self, address: u64, bytes: usize) {
        let _ = self.look(|machine| machine.process.blocks.unite(address, bytes as u64));
    }

    fn enter(&self, layer: &str, ordinal: u32, address: u64, bytes: usize, stream: Option<RawStream>) {
        let bytes = bytes as u64;
        let enter = |machine: &mut SimMachine| {
            if bytes == 0 || !machine.process.blocks.is_carved(address) {
                return;
            }
            let range = Range { address, bytes, mode: AccessMode::Allocate };
            let made = machine.by_layer(layer, ordinal, range, stream);
            let block = Allocation { kind: AllocationKind::Carved, ordinal, bytes, made };
            machine.process.blocks.blocks.add(address, block);
        };
        let _ = self.look(enter);
    }

    fn leave(
        &self,
        layer: &str,
        ordinal: u32,
        address: u64,
        bytes: usize,
        stream: Option<RawStream>,
    ) -> bool {
        let bytes = bytes as u64;
        let leave = |machine: &mut SimMachine| {
            if bytes == 0 || !machine.process.blocks.is_carved(address) {
                return true;
            }
            let range = Range { address, bytes, mode: AccessMode::Free };
            let freed = machine.by_layer(layer, ordinal, range, stream);
            machine.process.blocks.blocks.remove(address, freed).is_some()
        };
        self.look(leave).unwrap_or(true)
    }

    fn refuse(&self, layer: &str, ordinal: u32, address: u64, bytes: usize, stream: Option<RawStream>) {
        let refuse = |machine: &mut SimMachine| {
            let range = Range { address, bytes: bytes as u64, mode: AccessMode::Free };
            let free = machine.by_layer(layer, ordinal, range, stream);
            machine.report_wrong_free(free);
        };
        let _ = self.look(refuse);
    }
}
