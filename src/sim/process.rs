//! `SimProcess`: what each process of the machine has of its own, and how processes begin, take turns and end.
//!
//! The devices, their memory and the queues are the machine's; handles, addresses and contexts belong to one process. The machine has
//! one process at a time in front of it, as a core has: that of the call in progress, or that of the work that runs.

use std::collections::HashMap;

use super::CallCounts;
use super::allocation::{Allocations, UNIT};
use super::blocks::Blocks;
use super::capture::Captures;
use super::context::CurrentDevices;
use super::event::Events;
use super::fault::Faults;
use super::hazard::{Hazard, StreamLabel};
use super::lane::LaneKind;
use super::machine::SimMachine;
use super::memory::{AddressSpace, Rights};
use super::opened::OpenedMemory;
use super::pool::Pools;
use super::stream::Streams;
use super::virtual_memory::VirtualMemory;
use crate::driver::Code;

/// The number of a process, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ProcessId(pub(super) u32);

impl ProcessId {
    /// The process that the machine was made with.
    pub(super) const FIRST: Self = Self(0);

    /// No process.
    pub(super) const NONE: Self = Self(u32::MAX);
}

/// What one process has.
#[derive(Debug)]
pub(super) struct SimProcess {
    pub(super) id: ProcessId,
    pub(super) current_devices: CurrentDevices,
    pub(super) streams: Streams,
    pub(super) events: Events,
    pub(super) captures: Captures,
    pub(super) memory: AddressSpace,
    pub(super) allocations: Allocations,
    pub(super) blocks: Blocks,
    pub(super) pools: Pools,
    pub(super) virtual_memory: VirtualMemory,
    pub(super) opened: OpenedMemory,
    pub(super) faults: Faults,
    pub(super) calls: CallCounts,
    pub(super) clock_ns: u64,
    pub(super) hazards: Vec<Hazard>,
    /// The number of hazards that the test has read.
    pub(super) hazards_seen: usize,
    /// The error that the context of each device was lost by.
    lost: HashMap<u32, Code>,
    /// It has ended: every call of it fails.
    is_over: bool,
    /// Nobody can make a call of it any more.
    is_gone: bool,
}

impl SimProcess {
    fn new(id: ProcessId) -> Self {
        Self {
            id,
            current_devices: CurrentDevices::default(),
            streams: Streams::default(),
            events: Events::default(),
            captures: Captures::default(),
            memory: AddressSpace::default(),
            allocations: Allocations::default(),
            blocks: Blocks::default(),
            pools: Pools::default(),
            virtual_memory: VirtualMemory::default(),
            opened: OpenedMemory::default(),
            faults: Faults::default(),
            calls: CallCounts::default(),
            clock_ns: 0,
            hazards: Vec::new(),
            hazards_seen: 0,
            lost: HashMap::new(),
            is_over: false,
            is_gone: false,
        }
    }

    /// One that is over, and has nothing.
    pub(super) fn over(id: ProcessId) -> Self {
        Self { is_over: true, is_gone: true, ..Self::new(id) }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The error that the context of a device was lost by.
    pub(super) fn lost(&self, ordinal: u32) -> Option<Code> {
        if self.is_over { Some(Code::DEINITIALIZED) } else { self.lost.get(&ordinal).copied() }
    }

    pub(super) fn lose(&mut self, ordinal: u32, code: Code) {
        self.lost.insert(ordinal, code);
    }
}

/// The processes that are not in front of the machine.
#[derive(Debug, Default)]
pub(super) struct Processes {
    parked: HashMap<ProcessId, Box<SimProcess>>,
    begun: u32,
    /// Those that calls can be made of.
    pub(super) reachable: u32,
}

impl Processes {
    /// Another process than the one in front, if it is alive.
    pub(super) fn alive(&self, id: ProcessId) -> Option<&SimProcess> {
        self.parked.get(&id).map(Box::as_ref).filter(|process| !process.is_over)
    }
}

impl SimMachine {
    /// A process that is alive.
    pub(super) fn process_of(&self, id: ProcessId) -> Option<&SimProcess> {
        if self.process.id == id { Some(&self.process) } else { self.processes.alive(id) }
    }

    /// A new process, which has nothing but what every process has of each device: the legacy stream and the default pools.
    pub(super) fn begin_process(&mut self) -> ProcessId {
        let id = ProcessId(self.processes.begun);
        self.processes.begun += 1;
        self.processes.reachable += 1;
        let mut process = Box::new(SimProcess::new(id));
        for ordinal in 0..self.config.devices {
            let lane = self.lanes.add(id, ordinal, LaneKind::Legacy, StreamLabel::Legacy { ordinal });
            process.streams.add_legacy(ordinal, lane, self.next_stream_id());
            process.pools.add_defaults(ordinal, self.config.memory_bytes as u64);
        }
        self.processes.parked.insert(id, process);
        id
    }

    /// Puts a process in front of the machine.
    pub(super) fn switch_to(&mut self, id: ProcessId) {
        if self.process.id == id {
            return;
        }
        let next = self.processes.parked.remove(&id).unwrap_or_else(|| Box::new(SimProcess::over(id)));
        let last = core::mem::replace(&mut self.process, next);
        if !last.is_gone {
            self.processes.parked.insert(last.id, last);
        }
    }

    /// Ends the process in front, as its death by a signal does: its queued work is dropped, and its memory goes as far as no other
    /// process has it. Memory of the host stays, because it is the test's: the test is not dead.
    pub(super) fn end_process(&mut self) {
        if self.process.is_over {
            return;
        }
        let gone = self.lanes.end(self.process.id);
        self.discarded.extend(gone);
        self.forget_what_never_runs();
        self.discard_captures();
        self.pinned_bytes -= self.process.allocations.host_bytes() + self.process.pools.host_bytes();
        for (address, mapping) in self.process.memory.unmap_all() {
            match mapping.rights {
                // The handle holds it, below.
                Rights::Virtual(_) => continue,
                Rights::Device(_) => self.addresses.free(address, mapping.bytes, UNIT),
                // The pool and the block have the addresses, below.
                Rights::Pool(_) | Rights::Everyone => {}
            }
            // A block of the host is leaked: it does not free itself.
            self.let_go(mapping.backing);
        }
        for (address, bytes, align) in self.process.pools.address_ranges() {
            self.addresses.free(address, bytes, align);
        }
        self.end_virtual_memory();
        self.end_imports();
        self.end_shared_events();
        let last = &mut *self.process;
        *last = SimProcess {
            is_over: true,
            faults: core::mem::take(&mut last.faults),
            calls: core::mem::take(&mut last.calls),
            clock_ns: last.clock_ns,
            hazards: core::mem::take(&mut last.hazards),
            hazards_seen: last.hazards_seen,
            ..SimProcess::new(last.id)
        };
    }

    /// Notes that no call can be made of the process in front any more, and returns `true` if it was the last one.
    pub(super) fn leave_process(&mut self) -> bool {
        self.process.is_gone = true;
        self.processes.reachable -= 1;
        self.processes.reachable == 0
    }
}
