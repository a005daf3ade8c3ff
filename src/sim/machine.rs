//! The state of a simulated machine, and the rules that every call passes through.

#![expect(unsafe_code, reason = "copies to and from memory of the host whose lifetime the caller promised")]

use std::collections::VecDeque;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use super::access_check::Watch;
use super::addresses::Addresses;
use super::backing::Backings;
use super::clock::{LaneClock, LaneId, Point};
use super::config::SimConfig;
use super::hazard::{Access, AccessMode, Hazard, HazardKind, StreamLabel};
use super::host_bytes::{read_pageable, write_pageable};
use super::kernel::Range;
use super::lane::{Lanes, Side, Work};
use super::lent::Lent;
use super::memory::{AccessRefusal, Accessor, DEVICE_START};
use super::process::{ProcessId, Processes, SimProcess};
use super::schedule::Scheduler;
use crate::driver::{Call, Code, DeviceAttribute, FillValue, HandleType};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Bytes that a copy moves at a time: a page or more, and small enough for a stack.
const CHUNK: usize = 16 << 10;

/// The machine, shared between threads, and a condition that is notified at each change.
#[derive(Debug)]
pub(super) struct SharedMachine {
    /// From 1: the program that runs is no simulated machine.
    pub(super) number: u32,
    pub(super) machine: Mutex<SimMachine>,
    pub(super) changed: Condvar,
    pub(super) host_call_runner: Once,
}

impl SharedMachine {
    /// Locks the machine for a process.
    pub(super) fn lock_as(&self, process: ProcessId) -> MachineGuard<'_> {
        let mut machine = self.machine.lock();
        machine.switch_to(process);
        machine
    }

    /// The same, unless this is a child of the process (of the operating system) that made the machine.
    pub(super) fn lock_unless_forked_as(&self, process: ProcessId) -> Option<MachineGuard<'_>> {
        let mut machine = self.machine.lock_unless_forked()?;
        machine.switch_to(process);
        Some(machine)
    }

    /// Waits for a change, and comes back to the same process.
    pub(super) fn wait<'a>(&'a self, machine: MachineGuard<'a>) -> MachineGuard<'a> {
        let process = machine.process.id;
        let mut machine = self.changed.wait(machine);
        machine.switch_to(process);
        machine
    }

    /// The same, for some time at most.
    pub(super) fn wait_timeout<'a>(&'a self, machine: MachineGuard<'a>, time: Duration) -> MachineGuard<'a> {
        let process = machine.process.id;
        let mut machine = self.changed.wait_timeout(machine, time);
        machine.switch_to(process);
        machine
    }
}

/// A locked machine.
pub(super) type MachineGuard<'a> = MutexGuard<'a, SimMachine>;

/// One device.
#[derive(Debug)]
pub(super) struct SimDevice {
    pub(super) total_bytes: u64,
    pub(super) free_bytes: u64,
}

/// The state of the machine: what its processes have in common, and that of each of them.
#[derive(Debug)]
pub(super) struct SimMachine {
    pub(super) config: SimConfig,
    pub(super) devices: Vec<SimDevice>,
    pub(super) lanes: Lanes,
    pub(super) addresses: Addresses,
    pub(super) backings: Backings,
    pub(super) scheduler: Scheduler,
    pub(super) pinned_bytes: u64,
    pub(super) submissions: u64,
    /// The streams of all processes so far.
    pub(super) stream_ids: u64,
    pub(super) watch: Watch,
    /// Host functions in queues, oldest first, and when they were queued.
    pub(super) host_calls: VecDeque<(Point, Instant)>,
    /// Work that will never run. Its closures are foreign code, so it is dropped with no lock held.
    pub(super) discarded: Vec<Work>,
    /// The process that the call in progress belongs to, or whose work runs.
    pub(super) process: Box<SimProcess>,
    pub(super) processes: Processes,
    pub(super) lent: Lent,
    pub(super) closed: bool,
}

impl SimMachine {
    pub(super) fn new(config: SimConfig, scheduler: Scheduler) -> Self {
        let total_bytes = config.memory_bytes as u64;
        let device = || SimDevice { total_bytes, free_bytes: total_bytes };
        let mut machine = Self {
            devices: (0..config.devices).map(|_| device()).collect(),
            lanes: Lanes::default(),
            addresses: Addresses::default(),
            backings: Backings::new(config.seed),
            scheduler,
            pinned_bytes: 0,
            submissions: 0,
            stream_ids: 0,
            watch: Watch::default(),
            host_calls: VecDeque::new(),
            discarded: Vec::new(),
            process: Box::new(SimProcess::over(ProcessId::NONE)),
            processes: Processes::default(),
            lent: Lent::default(),
            closed: false,
            config,
        };
        let first = machine.begin_process();
        machine.switch_to(first);
        machine
    }

    /// Counts and charges a call; returns the code of an injected fault.
    pub(super) fn charge(&mut self, call: Call, ordinal: Option<u32>, bytes: u64) -> Result<(), Code> {
        self.process.calls.add(call);
        self.process.clock_ns = self.process.clock_ns.saturating_add(self.config.cost.cost_ns(call, bytes));
        let Some((code, sticky)) = self.process.faults.strike(call) else { return Ok(()) };
        if sticky {
            // A call without a device loses all contexts, so that its error is true.
            let all = 0..self.config.devices;
            ordinal.map_or(all, |ordinal| ordinal..ordinal + 1).for_each(|ordinal| self.lose(ordinal, code));
        }
        Err(code)
    }

    /// Charges what a call for a range costs for all handles but the first, which [`charge`](Self::charge) has charged.
    pub(super) fn charge_more_handles(&mut self, call: Call, handles: usize) {
        let more_ns = self.config.cost.more_handles_ns(call, handles.saturating_sub(1) as u64);
        self.process.clock_ns = self.process.clock_ns.saturating_add(more_ns);
    }

    pub(super) fn device(&self, ordinal: u32) -> Result<&SimDevice, Code> {
        self.devices.get(ordinal as usize).ok_or(Code::INVALID_DEVICE)
    }

    pub(super) fn device_mut(&mut self, ordinal: u32) -> Result<&mut SimDevice, Code> {
        self.devices.get_mut(ordinal as usize).ok_or(Code::INVALID_DEVICE)
    }

    /// The error that the device's context was lost by, if it was.
    pub(super) fn health(&self, ordinal: u32) -> Result<(), Code> {
        self.device(ordinal)?;
        self.process.lost(ordinal).map_or(Ok(()), Err)
    }

    /// Loses the context: drops queued work, and every later call fails with the first error.
    pub(super) fn lose(&mut self, ordinal: u32, code: Code) {
        if self.device(ordinal).is_ok() && self.process.lost(ordinal).is_none() {
            self.process.lose(ordinal, code);
            let gone = self.lanes.discard(self.process.id, ordinal);
            self.discarded.extend(gone);
        }
    }

    pub(super) fn has(&self, ordinal: u32, attribute: DeviceAttribute) -> Result<(), Code> {
        if self.config.attribute_of(ordinal, attribute) == 0 { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
    }

    pub(super) fn check_pool_types(&self, ordinal: u32, handle_types: HandleType) -> Result<(), Code> {
        let known = self.config.attribute_of(ordinal, DeviceAttribute::PoolHandleTypes);
        known_types(HandleType(u32::try_from(known).unwrap_or_default()), handle_types)
    }

    pub(super) fn check_memory_types(&self, ordinal: u32, handle_types: HandleType) -> Result<(), Code> {
        let has = |attribute| self.config.attribute_of(ordinal, attribute) != 0;
        let mut known = HandleType::NONE;
        if has(DeviceAttribute::MemoryDescriptors) {
            known = known.with(HandleType::POSIX_FILE_DESCRIPTOR);
        }
        if has(DeviceAttribute::MemoryFabricHandles) {
            known = known.with(HandleType::FABRIC);
        }
        known_types(known, handle_types)
    }

    /// Reports a broken rule and returns the code for the caller.
    pub(super) fn refuse(&mut self, kind: HazardKind, words: String, code: Code) -> Code {
        self.report(Hazard::rule(kind, words));
        code
    }

    /// Takes device memory, if there is enough.
    pub(super) fn take_bytes(&mut self, ordinal: u32, bytes: u64) -> Result<(), Code> {
        self.release_orphans();
        let device = self.device_mut(ordinal)?;
        device.free_bytes = device.free_bytes.checked_sub(bytes).ok_or(Code::OUT_OF_MEMORY)?;
        Ok(())
    }

    pub(super) fn free_device_bytes(&mut self, ordinal: u32, bytes: u64) {
        if let Ok(device) = self.device_mut(ordinal) {
            device.free_bytes += bytes;
        }
    }

    /// Queues work on a lane, and checks its accesses.
    pub(super) fn submit(&mut self, lane: LaneId, work: Work, name: Arc<str>, ranges: &[Range]) -> Point {
        let point = self.lanes.next_point(lane);
        let needs = self.lanes.joined(lane);
        self.submissions += 1;
        if let Some((stream, ordinal)) = self.lanes.get(lane).map(|lane| (lane.label, lane.ordinal)) {
            let accessor = match work {
                Work::Kernel(_) => Accessor::Kernel(ordinal),
                _ => Accessor::CopyEngine,
            };
            for &Range { address, bytes, mode } in ranges {
                let (operation, process) = (Arc::clone(&name), self.process.id);
                let (submission, point) = (self.submissions, Some(point));
                let access = Access { operation, process, stream, address, bytes, mode, submission, point };
                self.watch(access, accessor, &needs);
            }
        }
        if matches!(work, Work::Host(_)) {
            self.host_calls.push_back((point, Instant::now()));
        }
        self.lanes.push(work, name, needs, point);
        point
    }

    /// Notes that the host has waited for all operations of `clock`.
    pub(super) fn host_waited(&mut self, ordinal: u32, clock: &LaneClock) {
        self.lanes.observe(clock);
        self.release_over_threshold(ordinal);
        self.unmap_given_back();
        self.release_dropped_graphs();
    }

    /// One side of a copy or a fill: memory of the machine, all of it, or ordinary memory of the host.
    pub(super) fn side(&mut self, call: Call, lane: LaneId, range: Range) -> Result<Side, Code> {
        let Range { address, bytes, mode } = range;
        if address < DEVICE_START && !self.process.memory.is_mapped(address) {
            return Ok(Side { address, pageable: true });
        }
        if self.process.memory.pieces(address, bytes, Accessor::CopyEngine, mode == AccessMode::Write).is_ok()
        {
            return Ok(Side { address, pageable: false });
        }
        let stream = self.lanes.get(lane).map_or(StreamLabel::Host, |lane| lane.label);
        let (operation, process) = (call.symbol().into(), self.process.id);
        let submission = self.submissions + 1;
        let access = Access { operation, process, stream, address, bytes, mode, submission, point: None };
        if let Some(hazard) = self.judge(&access, Accessor::CopyEngine) {
            self.report(hazard);
        }
        Err(Code::INVALID_VALUE)
    }

    /// Runs an operation that calls no foreign code.
    pub(super) fn perform(&mut self, work: &Work) -> Result<(), Code> {
        match *work {
            Work::Copy { to, from, bytes } => self.copy(to, from, bytes),
            Work::Fill { to, value, count } => self.fill(to, value, count),
            Work::Allocate { address, bytes } => {
                self.scramble(address, bytes);
                Ok(())
            }
            Work::Kernel(_) | Work::Host(_) | Work::Nothing => Ok(()),
        }
    }

    fn copy(&mut self, to: Side, from: Side, bytes: u64) -> Result<(), Code> {
        let mut buffer = [0; CHUNK];
        let mut done = 0;
        while done < bytes {
            let chunk = &mut buffer[..usize::try_from(bytes - done).map_or(CHUNK, |rest| rest.min(CHUNK))];
            self.read_side(from, done, chunk)?;
            self.write_side(to, done, chunk)?;
            done += chunk.len() as u64;
        }
        Ok(())
    }

    fn fill(&mut self, to: Side, value: FillValue, count: u64) -> Result<(), Code> {
        let bytes = count * value.bytes() as u64;
        let mut pattern = [0; CHUNK];
        let pattern = &mut pattern[..usize::try_from(bytes).map_or(CHUNK, |bytes| bytes.min(CHUNK))];
        let (one, unit) = match value {
            FillValue::U8(byte) => ([byte, 0, 0, 0], 1),
            FillValue::U16(half) => {
                let [first, second] = half.to_ne_bytes();
                ([first, second, 0, 0], 2)
            }
            FillValue::U32(word) => (word.to_ne_bytes(), 4),
        };
        // One repetition, then twice as many each time.
        let mut filled = unit.min(pattern.len());
        pattern[..filled].copy_from_slice(&one[..filled]);
        while filled < pattern.len() {
            let more = filled.min(pattern.len() - filled);
            pattern.copy_within(..more, filled);
            filled += more;
        }
        let mut done = 0;
        while done < bytes {
            let length = usize::try_from(bytes - done).map_or(CHUNK, |rest| rest.min(CHUNK));
            self.write_side(to, done, &pattern[..length])?;
            done += length as u64;
        }
        Ok(())
    }

    fn read_side(&self, side: Side, offset: u64, into: &mut [u8]) -> Result<(), Code> {
        if side.pageable {
            // SAFETY: the bytes are mapped and not written meanwhile: whoever queued the copy promised it, until the
            // copy has run (`Driver::copy_async`), and it has not.
            unsafe { read_pageable(side.address + offset, into) };
            return Ok(());
        }
        self.read(side.address + offset, into, Accessor::CopyEngine).map_err(refused)
    }

    fn write_side(&mut self, side: Side, offset: u64, from: &[u8]) -> Result<(), Code> {
        if side.pageable {
            // SAFETY: the bytes are mapped, writable and not used meanwhile: whoever queued the copy or the fill
            // promised it, until it has run (`Driver::copy_async`, `Driver::fill_async`), and it has not.
            unsafe { write_pageable(side.address + offset, from) };
            return Ok(());
        }
        self.write(side.address + offset, from, Accessor::CopyEngine).map_err(refused)
    }

    pub(super) fn kernel_read(
        &self,
        ordinal: u32,
        address: u64,
        into: &mut [u8],
        declared: bool,
    ) -> Result<(), Code> {
        // A kernel that outlives its context touches nothing: nobody waits for it any more.
        self.health(ordinal)?;
        if self.is_reachable_pageable(ordinal, address, declared) {
            // SAFETY: the kernel declared the bytes, and whoever launched it promised that what it touches is
            // mapped and not written meanwhile (`SimDriver::launch`).
            unsafe { read_pageable(address, into) };
            return Ok(());
        }
        self.read(address, into, Accessor::Kernel(ordinal)).map_err(refused)
    }

    pub(super) fn kernel_write(
        &mut self,
        ordinal: u32,
        address: u64,
        from: &[u8],
        declared: bool,
    ) -> Result<(), Code> {
        // A kernel that outlives its context touches nothing: nobody waits for it any more.
        self.health(ordinal)?;
        if self.is_reachable_pageable(ordinal, address, declared) {
            // SAFETY: as in `kernel_read`; and not used by others meanwhile.
            unsafe { write_pageable(address, from) };
            return Ok(());
        }
        self.write(address, from, Accessor::Kernel(ordinal)).map_err(refused)
    }

    /// Returns `true` for ordinary memory of the host, on a device that can access it, if the kernel declared it.
    fn is_reachable_pageable(&self, ordinal: u32, address: u64, declared: bool) -> bool {
        declared
            && address < DEVICE_START
            && !self.process.memory.is_mapped(address)
            && self.has(ordinal, DeviceAttribute::PageableMemoryAccess).is_ok()
    }
}

/// The code for handle types that are not among those that are known.
fn known_types(known: HandleType, asked: HandleType) -> Result<(), Code> {
    if known.contains(asked) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// The code of work with a forbidden access.
pub(super) fn refused(refusal: AccessRefusal) -> Code {
    match refusal {
        AccessRefusal::Unmapped(_) | AccessRefusal::Forbidden(_) => Code::ILLEGAL_ADDRESS,
    }
}
