//! Pools and blocks of pools that came from other processes.

use std::collections::{HashMap, HashSet};

use super::allocation::{Allocation, AllocationKind, Allocations, UNIT};
use super::clock::LaneClock;
use super::hazard::{Access, Hazard, HazardKind};
use super::lent::{LentBlock, LentThing};
use super::machine::SimMachine;
use super::memory::{Rights, SimMapping};
use super::sealed::SealedKind;
use crate::driver::{Call, Code, ExportedMemory, HandleType, PointerHandle, RawPool};

/// A block of a pool of another process.
#[derive(Clone, Copy, Debug)]
struct ImportedBlock {
    /// Its bytes, in units.
    held: u64,
    lent: LentBlock,
}

/// The blocks that a process has imported.
#[derive(Debug, Default)]
pub(super) struct ImportedBlocks {
    live: HashMap<u64, ImportedBlock>,
    /// The same, as their owners have them.
    lent: HashSet<LentBlock>,
    /// Blocks that were given back, mapped until the work before that has run.
    given_back: Vec<(u64, ImportedBlock, LaneClock)>,
}

impl ImportedBlocks {
    /// Where the blocks of an imported pool lie, and their bytes.
    pub(super) fn of(&self, allocations: &Allocations, pool: RawPool) -> impl Iterator<Item = (u64, u64)> {
        let is_of = move |address: u64| {
            let kind = allocations.get(address).map(|block| block.kind);
            kind == Some(AllocationKind::Pooled(pool.0))
        };
        self.live.iter().filter(move |(address, _)| is_of(**address)).map(|(&at, block)| (at, block.held))
    }
}

impl SimMachine {
    pub(super) fn pool_export(
        &mut self,
        ordinal: u32,
        raw: RawPool,
        handle_type: HandleType,
    ) -> Result<ExportedMemory, Code> {
        if !self.pool_exports(ordinal, raw)?.contains(handle_type) || handle_type == HandleType::NONE {
            return Err(Code::INVALID_VALUE);
        }
        self.lend(LentThing::Pool((self.process.id, raw.0), ordinal), handle_type)
    }

    pub(super) fn pool_import(&mut self, ordinal: u32, exported: &ExportedMemory) -> Result<RawPool, Code> {
        let LentThing::Pool(source, home) = self.borrowed(exported)? else {
            return Err(Code::NOT_SUPPORTED);
        };
        self.check_reachable(ordinal, home)?;
        Ok(self.add_imported_pool(ordinal, source, home))
    }

    pub(super) fn pool_export_pointer(&self, ordinal: u32, address: u64) -> Result<PointerHandle, Code> {
        let block = self.process.allocations.get(address).filter(|block| block.ordinal == ordinal);
        let block = block.ok_or(Code::INVALID_VALUE)?;
        match block.kind {
            AllocationKind::Pooled(pool) if self.process.pools.lends(pool) => {}
            _ => return Err(Code::INVALID_VALUE),
        }
        let numbers = [self.process.id.0.into(), address, block.made.submission];
        Ok(PointerHandle(self.lent.sealed.seal(SealedKind::Pointer, numbers)))
    }

    pub(super) fn pool_import_pointer(
        &mut self,
        ordinal: u32,
        raw: RawPool,
        handle: &PointerHandle,
    ) -> Result<u64, Code> {
        let (source, list) = self.imported_pool(ordinal, raw)?;
        let (owner, pool) = source.ok_or(Code::INVALID_VALUE)?;
        if self.lent.sealed.is_altered(SealedKind::Pointer, &handle.0) {
            let words =
                "the handle of a block was altered on its way; driver 580 may end the process".to_owned();
            return Err(self.refuse(HazardKind::Undefined, words, Code::INVALID_VALUE));
        }
        let opened = self.lent.sealed.open(SealedKind::Pointer, &handle.0);
        let [process, address, submission] = opened.ok_or(Code::INVALID_VALUE)?;
        let exporter = self.process_of(owner).filter(|_| u64::from(owner.0) == process);
        let exporter = exporter.ok_or(Code::INVALID_VALUE)?;
        let block = exporter.allocations.get(address).filter(|block| {
            (block.kind, block.made.submission) == (AllocationKind::Pooled(pool), submission)
        });
        let block = block.ok_or(Code::INVALID_VALUE)?.clone();
        let lent = (owner, address, submission);
        if self.process.opened.blocks.lent.contains(&lent) {
            let words =
                "the block is imported already; driver 580 may end the process when both are given back"
                    .to_owned();
            return Err(self.refuse(HazardKind::Undefined, words, Code::INVALID_VALUE));
        }
        let held = block.bytes.next_multiple_of(UNIT);
        let pieces = self.process_of(owner).ok_or(Code::INVALID_VALUE)?.memory.mapped_pieces(address, held);
        let start = self.addresses.take(held, UNIT).ok_or(Code::OUT_OF_MEMORY)?;
        for piece in pieces {
            self.backings.hold(piece.backing);
            let (at, rights) = (start + (piece.address - address), Rights::Pool(list.clone()));
            let (bytes, backing, offset) = (piece.bytes, piece.backing, piece.offset);
            self.process.memory.map(at, SimMapping { bytes, backing, offset, rights });
        }
        *self.lent.imports.entry(lent).or_default() += 1;
        self.process.opened.blocks.live.insert(start, ImportedBlock { held, lent });
        self.process.opened.blocks.lent.insert(lent);
        // Its uses come after the exporter's allocation, as those of the exporter do.
        let made = Access {
            operation: Call::PoolImportPointer.symbol().into(),
            process: self.process.id,
            address: start,
            ..block.made
        };
        self.add_to_pool(raw, block.bytes);
        let kind = AllocationKind::Pooled(raw.0);
        self.process.allocations.add(start, Allocation { kind, ordinal, bytes: block.bytes, made });
        Ok(start)
    }

    /// Gives a block back that was imported, once the work before has run. Returns `false` for a block of this process.
    pub(super) fn give_back_import(&mut self, address: u64, after: &LaneClock) -> bool {
        let Some(block) = self.process.opened.blocks.live.remove(&address) else { return false };
        self.forget_import(block.lent);
        self.process.opened.blocks.lent.remove(&block.lent);
        self.process.opened.blocks.given_back.push((address, block, after.clone()));
        true
    }

    fn forget_import(&mut self, lent: LentBlock) {
        if let Some(times) = self.lent.imports.get_mut(&lent) {
            *times -= 1;
            if *times == 0 {
                self.lent.imports.remove(&lent);
            }
        }
    }

    /// Unmaps imported blocks that were given back, where the work before has run.
    pub(super) fn unmap_given_back(&mut self) {
        if self.process.opened.blocks.given_back.is_empty() {
            return;
        }
        let (over, left): (Vec<_>, Vec<_>) = core::mem::take(&mut self.process.opened.blocks.given_back)
            .into_iter()
            .partition(|(.., after)| self.lanes.completed(after));
        self.process.opened.blocks.given_back = left;
        for (address, block, _) in over {
            let starts: Vec<u64> =
                self.process.memory.mappings_in(address, block.held).map(|(start, _)| start).collect();
            for start in starts {
                if let Some(mapping) = self.process.memory.unmap(start) {
                    self.let_go(mapping.backing);
                }
            }
            self.addresses.free(address, block.held, UNIT);
        }
    }

    /// Reports a free of a block that another process has not given back.
    pub(super) fn check_not_imported(&mut self, made: &Access, freed: &Access) {
        let lent = (self.process.id, made.address, made.submission);
        if self.lent.imports.contains_key(&lent) {
            let missing = "another process has imported the block, and must give it back before".to_owned();
            let (first, second) = (Some(made.clone()), Some(freed.clone()));
            self.report(Hazard { kind: HazardKind::FreeInUse, first, second, missing });
        }
    }

    /// What the process in front has imported is gone, by its end. The mappings are.
    pub(super) fn end_imports(&mut self) {
        let ImportedBlocks { live, given_back, .. } = core::mem::take(&mut self.process.opened.blocks);
        for block in live.values() {
            self.forget_import(block.lent);
        }
        let given_back = given_back.into_iter().map(|(address, block, _)| (address, block));
        for (address, block) in live.into_iter().chain(given_back) {
            self.addresses.free(address, block.held, UNIT);
        }
    }

    /// Returns `true` for a block that came from another process.
    pub(super) fn is_imported(&self, address: u64) -> bool {
        let kind = self.process.allocations.get(address).map(|allocation| allocation.kind);
        match kind {
            Some(AllocationKind::Pooled(pool)) => self.process.pools.source_of(pool).is_some(),
            _ => false,
        }
    }
}
