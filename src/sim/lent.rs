//! `Lent`: what processes have lent to each other: descriptors of memory and pools, blocks, events.

use std::collections::{BTreeSet, HashMap};

use super::backing::BackingId;
use super::machine::SimMachine;
use super::process::ProcessId;
use super::sealed::{Sealed, SealedKind};
use super::shared_event::SharedEvents;
use crate::driver::{Code, ExportedMemory, HandleType};

/// Closed descriptors are first looked for when there are this many, and then each time the number of those that are open has
/// doubled: a look is three calls of the operating system each.
const FIRST_SWEEP: usize = 64;

/// CUDA's code for an error of the operating system.
#[cfg(target_os = "linux")]
const OPERATING_SYSTEM: Code = Code(304);

/// What a descriptor or a fabric handle is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LentThing {
    /// Physical memory, which a descriptor keeps alive.
    Memory(BackingId),
    /// Physical memory for other drivers: nothing imports it here.
    DmaBuf(BackingId),
    /// A pool, and its device.
    Pool(PoolSource, u32),
}

/// A pool: its process, and its handle there.
pub(super) type PoolSource = (ProcessId, u64);

/// A block of a pool: its process, its address, the submission that allocated it.
pub(super) type LentBlock = (ProcessId, u64, u64);

/// What is lent.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) sealed: Sealed,
    pub(super) events: SharedEvents,
    /// How often each block of a pool is imported.
    pub(super) imports: HashMap<LentBlock, usize>,
    /// The descriptors that were open when they were last looked at.
    descriptors: HashMap<u64, LentThing>,
    by_backing: HashMap<BackingId, Vec<u64>>,
    /// Memory that nothing holds but descriptors.
    orphans: BTreeSet<BackingId>,
    numbers: u64,
    sweep_at: usize,
}

impl Default for Lent {
    fn default() -> Self {
        Self {
            sealed: Sealed::default(),
            events: SharedEvents::default(),
            imports: HashMap::new(),
            descriptors: HashMap::new(),
            by_backing: HashMap::new(),
            orphans: BTreeSet::new(),
            numbers: 0,
            sweep_at: FIRST_SWEEP,
        }
    }
}

impl Lent {
    /// The number of descriptors that keep memory alive.
    fn keepers(&self, id: BackingId) -> usize {
        self.by_backing.get(&id).map_or(0, Vec::len)
    }

    /// Notes that a holder of memory is gone, and how many are left.
    pub(super) fn note_let_go(&mut self, id: BackingId, holders: usize) {
        if self.keepers(id) == holders {
            self.orphans.insert(id);
        }
    }

    fn is_open(&self, number: u64) -> bool {
        #[cfg(target_os = "linux")]
        return super::descriptor::is_open(self.sealed.machine(), number);
        #[cfg(not(target_os = "linux"))]
        return self.descriptors.contains_key(&number);
    }

    /// What a process exported, if this machine made the handle. The codes are those of an H200.
    fn find(&self, exported: &ExportedMemory) -> Result<LentThing, Code> {
        match exported {
            #[cfg(target_os = "linux")]
            ExportedMemory::FileDescriptor(descriptor) => {
                use std::os::fd::AsFd;
                let number = super::descriptor::number_of(self.sealed.machine(), descriptor.as_fd());
                number.and_then(|number| self.descriptors.get(&number)).copied().ok_or(Code::UNKNOWN)
            }
            #[cfg(all(unix, not(target_os = "linux")))]
            ExportedMemory::FileDescriptor(_) => Err(Code::UNKNOWN),
            ExportedMemory::Fabric(handle) => {
                let memory = self.sealed.open(SealedKind::Fabric, handle);
                let memory = memory.map(|[backing, ..]| LentThing::Memory(BackingId(backing)));
                let pool = || {
                    let [process, pool, home] = self.sealed.open(SealedKind::FabricPool, handle)?;
                    let source = (ProcessId(u32::try_from(process).ok()?), pool);
                    Some(LentThing::Pool(source, u32::try_from(home).ok()?))
                };
                memory.or_else(pool).ok_or(Code::NOT_SUPPORTED)
            }
        }
    }
}

impl SimMachine {
    /// A handle of memory or of a pool.
    pub(super) fn lend(&mut self, thing: LentThing, handle_type: HandleType) -> Result<ExportedMemory, Code> {
        match handle_type {
            #[cfg(target_os = "linux")]
            HandleType::POSIX_FILE_DESCRIPTOR => {
                if self.lent.descriptors.len() >= self.lent.sweep_at {
                    let all: Vec<u64> = self.lent.descriptors.keys().copied().collect();
                    self.forget_closed(&all);
                    self.lent.sweep_at = FIRST_SWEEP.max(2 * self.lent.descriptors.len());
                }
                self.lent.numbers += 1;
                let number = self.lent.numbers;
                let descriptor = super::descriptor::make(self.lent.sealed.machine(), number)
                    .map_err(|_| OPERATING_SYSTEM)?;
                self.lent.descriptors.insert(number, thing);
                if let LentThing::Memory(backing) | LentThing::DmaBuf(backing) = thing {
                    self.backings.hold(backing);
                    self.lent.by_backing.entry(backing).or_default().push(number);
                }
                Ok(ExportedMemory::FileDescriptor(descriptor))
            }
            HandleType::FABRIC => {
                let (kind, numbers) = match thing {
                    LentThing::Memory(backing) => (SealedKind::Fabric, [backing.0, 0, 0]),
                    LentThing::DmaBuf(_) => return Err(Code::INVALID_VALUE),
                    LentThing::Pool((process, pool), home) => {
                        (SealedKind::FabricPool, [process.0.into(), pool, home.into()])
                    }
                };
                Ok(ExportedMemory::Fabric(Box::new(self.lent.sealed.seal(kind, numbers))))
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// What a process exported.
    pub(super) fn borrowed(&mut self, exported: &ExportedMemory) -> Result<LentThing, Code> {
        // A fabric handle must not find memory whose last descriptor is closed.
        self.release_orphans();
        self.lent.find(exported)
    }

    /// Fails unless a device may use memory of another one.
    pub(super) fn check_reachable(&self, ordinal: u32, home: u32) -> Result<(), Code> {
        if ordinal == home || self.config.reaches(ordinal, home) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    /// Gives memory back that only descriptors have held, of which no copy is open any more.
    pub(super) fn release_orphans(&mut self) {
        if self.lent.orphans.is_empty() {
            return;
        }
        for backing in core::mem::take(&mut self.lent.orphans) {
            let numbers = self.lent.by_backing.get(&backing).cloned().unwrap_or_default();
            // Somebody has imported it again: it is looked at when that one lets go.
            if self.backings.holders(backing) > numbers.len() {
                continue;
            }
            self.forget_closed(&numbers);
            if self.lent.keepers(backing) > 0 {
                self.lent.orphans.insert(backing);
            }
        }
    }

    /// Forgets descriptors of which no copy is open.
    fn forget_closed(&mut self, numbers: &[u64]) {
        for number in numbers {
            if self.lent.is_open(*number) {
                continue;
            }
            let removed = self.lent.descriptors.remove(number);
            if let Some(LentThing::Memory(backing) | LentThing::DmaBuf(backing)) = removed {
                if let Some(keepers) = self.lent.by_backing.get_mut(&backing) {
                    keepers.retain(|keeper| keeper != number);
                    if keepers.is_empty() {
                        self.lent.by_backing.remove(&backing);
                    }
                }
                self.let_go(backing);
            }
        }
    }
}
