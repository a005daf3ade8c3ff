//! Graphs: recorded work, to be launched as one.

#![expect(unsafe_code, reason = "launching a graph is as unsafe as queueing what is in it")]

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::allocation::{Allocation, AllocationKind, UNIT};
use super::capture::WorkTarget;
use super::clock::{LaneClock, LaneId, Point};
use super::driver::SimDriver;
use super::hazard::{Access, AccessMode, Hazard, HazardKind, StreamLabel};
use super::kernel::Range;
use super::lane::{LaneKind, Work};
use super::machine::{SharedMachine, SimMachine};
use super::memory::{Rights, SimMapping};
use super::process::ProcessId;
use super::stream::SimStream;
use super::virtual_memory::GRANULARITY;
use crate::contain::contain;
use crate::driver::{Call, CaptureMode, Code, RawGraph, RawStream};

/// A recorded operation. Its point and its dependencies refer to lanes of the capture.
#[derive(Clone, Debug)]
pub(super) struct GraphNode {
    pub(super) ordinal: u32,
    pub(super) work: Work,
    pub(super) name: Arc<str>,
    pub(super) ranges: Box<[Range]>,
    pub(super) point: Point,
    pub(super) needs: LaneClock,
}

/// The memory of an allocation that was recorded in a graph. It belongs to the graph; each launch allocates it again.
#[derive(Clone, Copy, Debug)]
pub(super) struct GraphMemory {
    address: u64,
    bytes: u64,
}

/// A number that no graph has: they count up from 0.
const NO_GRAPH: u64 = u64::MAX;

/// The state of a graph in the machine.
#[derive(Debug)]
pub(super) struct GraphState {
    memory: Vec<GraphMemory>,
    /// The work that must have run before the graph's memory may be freed.
    last: LaneClock,
    dropped: bool,
}

impl GraphState {
    pub(super) fn new(memory: Vec<GraphMemory>) -> Self {
        Self { memory, last: LaneClock::default(), dropped: false }
    }
}

/// Work that a capture recorded.
///
/// Dropping it frees the memory of its allocations, once it is no longer used.
pub struct SimGraph {
    shared: Arc<SharedMachine>,
    process: ProcessId,
    id: u64,
    nodes: Vec<GraphNode>,
}

impl SimGraph {
    /// The number of operations. Event records and waits are edges, not nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }
}

impl SimGraph {
    /// A handle without the operations, which can only be destroyed.
    pub(super) fn into_raw(mut self) -> RawGraph {
        self.drop_nodes();
        let id = core::mem::replace(&mut self.id, NO_GRAPH);
        RawGraph(id)
    }

    /// Their closures are foreign code, and may panic when they are dropped.
    fn drop_nodes(&mut self) {
        for node in core::mem::take(&mut self.nodes) {
            contain(|| drop(node));
        }
    }
}

impl fmt::Debug for SimGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimGraph").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

impl Drop for SimGraph {
    fn drop(&mut self) {
        self.drop_nodes();
        if let Some(mut machine) = self.shared.lock_unless_forked_as(self.process) {
            machine.drop_graph(self.id);
        }
    }
}

impl SimDriver {
    /// Begins to record the work that is queued on a stream, instead of running it.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for the legacy stream and for a stream that captures already.
    pub fn begin_capture(&self, ordinal: u32, stream: RawStream, mode: CaptureMode) -> Result<(), Code> {
        let mut machine =
            self.enter_uncounted(Call::StreamCaptureStatus, ordinal).map_err(|error| error.code)?;
        let stream = machine.stream(ordinal, stream)?;
        machine.begin_capture(&stream, mode)
    }

    /// Ends a capture on the stream that it was begun on.
    ///
    /// # Errors
    ///
    /// [`Code::CAPTURE_INVALIDATED`] if something broke it, [`Code::CAPTURE_UNJOINED`] if a stream that joined it
    /// was not waited for; in both cases it is over. [`Code::CAPTURE_WRONG_THREAD`], unless it was begun in the
    /// relaxed mode. [`Code::INVALID_VALUE`] if the stream does not capture.
    pub fn end_capture(&self, ordinal: u32, stream: RawStream) -> Result<SimGraph, Code> {
        let mut machine =
            self.enter_uncounted(Call::StreamCaptureStatus, ordinal).map_err(|error| error.code)?;
        let stream = machine.stream(ordinal, stream)?;
        let ended = machine.end_capture(&stream);
        drop(self.shared.drop_discarded(machine));
        let (id, nodes) = ended?;
        Ok(SimGraph { shared: Arc::clone(&self.shared), process: self.process, id, nodes })
    }

    /// Queues all of a graph on a stream.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] if memory that the graph allocates is still live from the launch before, or if it holds a host
    /// function that was launched: functions of this seam run once. [`Code::CAPTURE_UNSUPPORTED`] if the stream captures.
    ///
    /// # Safety
    ///
    /// What queueing each operation of the graph asks for.
    pub unsafe fn launch_graph(&self, ordinal: u32, stream: RawStream, graph: &SimGraph) -> Result<(), Code> {
        let mut machine = self.enter_uncounted(Call::StreamHostCall, ordinal).map_err(|error| error.code)?;
        if !Arc::ptr_eq(&self.shared, &graph.shared) || self.process != graph.process {
            return Err(Code::INVALID_VALUE);
        }
        let stream = machine.stream(ordinal, stream)?;
        machine.launch_graph(&stream, graph)?;
        let has_host_calls = !machine.host_calls.is_empty();
        drop(machine);
        if has_host_calls {
            self.start_host_call_runner();
        }
        Ok(())
    }
}

impl SimMachine {
    /// Records an allocation: memory of the graph's own, at an address that stays.
    pub(super) fn record_allocation(
        &mut self,
        id: u64,
        branch: usize,
        ordinal: u32,
        asked: u64,
    ) -> Result<u64, Code> {
        if asked == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let bytes = asked.checked_next_multiple_of(GRANULARITY).ok_or(Code::OUT_OF_MEMORY)?;
        self.take_bytes(ordinal, bytes)?;
        let Some(address) = self.addresses.take(bytes, UNIT) else {
            self.free_device_bytes(ordinal, bytes);
            return Err(Code::OUT_OF_MEMORY);
        };
        let backing = self.backings.add_device(ordinal, bytes);
        let rights = Rights::Device(ordinal);
        self.process.memory.map(address, SimMapping { bytes, backing, offset: 0, rights });
        if let Some(memory) = self.capture_memory(id) {
            memory.push(GraphMemory { address, bytes });
        }
        let work = Work::Allocate { address, bytes };
        let range = Range { address, bytes: asked, mode: AccessMode::Allocate };
        self.put(WorkTarget::Capture(id, branch), work, Call::AllocateAsync.symbol().into(), &[range]);
        Ok(address)
    }

    /// Records a free of memory that this capture, or another graph, allocates.
    pub(super) fn record_free(&mut self, id: u64, branch: usize, address: u64) -> Result<(), Code> {
        let is_own =
            self.capture_memory(id).is_some_and(|memory| memory.iter().any(|m| m.address == address));
        let is_graphs = is_own
            || self
                .process
                .captures
                .graphs
                .values()
                .any(|graph| graph.memory.iter().any(|m| m.address == address));
        if !is_graphs {
            let words = format!("a capture freed {address:#x}, which no graph allocates");
            return Err(self.refuse(HazardKind::IllegalDuringCapture, words, Code::INVALID_VALUE));
        }
        let range = Range { address, bytes: 0, mode: AccessMode::Free };
        self.put(WorkTarget::Capture(id, branch), Work::Nothing, Call::FreeAsync.symbol().into(), &[range]);
        Ok(())
    }

    fn launch_graph(&mut self, stream: &SimStream, graph: &SimGraph) -> Result<(), Code> {
        let lane = match self.target(stream)? {
            WorkTarget::Queue(lane) => lane,
            WorkTarget::Capture(..) => return Err(Code::CAPTURE_UNSUPPORTED),
        };
        let is_out = |node: &GraphNode| match node.work {
            Work::Allocate { address, .. } => self.process.allocations.get(address).is_some(),
            Work::Host(ref function) => function.was_queued(),
            _ => false,
        };
        if graph.nodes.iter().any(is_out) {
            return Err(Code::INVALID_VALUE);
        }
        let mut base = self.lanes.joined(lane);
        // Launches of one graph follow each other, on any streams.
        if let Some(state) = self.process.captures.graphs.get_mut(&graph.id) {
            self.lanes.prune(&mut state.last);
            base.join(&state.last);
        }
        let mut lanes: HashMap<LaneId, LaneId> = HashMap::new();
        let mut after: HashMap<Point, LaneClock> = HashMap::new();
        let mut end = base.clone();
        for node in &graph.nodes {
            let (ordinal, branch) = (node.ordinal, node.point.lane.0);
            let label = StreamLabel::Graph { ordinal, branch };
            let lane = *lanes
                .entry(node.point.lane)
                .or_insert_with(|| self.lanes.add(self.process.id, ordinal, LaneKind::Independent, label));
            let mut needs = base.clone();
            for point in node.needs.points() {
                if let Some(clock) = after.get(&point) {
                    needs.join(clock);
                }
            }
            if let Some(lane) = self.lanes.get_mut(lane) {
                lane.clock = needs;
            }
            self.submit_node(node, lane, graph.id);
            let clock = self.lanes.joined(lane);
            end.join(&clock);
            after.insert(node.point, clock);
        }
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.clock.join(&end);
        }
        for lane in lanes.into_values() {
            self.lanes.retire(lane);
        }
        if let Some(state) = self.process.captures.graphs.get_mut(&graph.id) {
            state.last.join(&end);
        }
        Ok(())
    }

    fn submit_node(&mut self, node: &GraphNode, lane: LaneId, graph: u64) {
        let (work, name) = (node.work.clone(), Arc::clone(&node.name));
        match node.ranges[..] {
            [Range { address, bytes, mode: AccessMode::Allocate }] => {
                self.forget_past(address, bytes);
                let point = self.submit(lane, work, Arc::clone(&name), &[]);
                let made =
                    self.by_lane(lane, name, Range { address, bytes, mode: AccessMode::Allocate }, point);
                let kind = AllocationKind::Graph(graph);
                self.process
                    .allocations
                    .add(address, Allocation { kind, ordinal: node.ordinal, bytes, made });
            }
            [Range { address, mode: AccessMode::Free, .. }] => {
                if self.check_free(node.ordinal, address, Call::FreeAsync).is_ok() {
                    self.end_allocation(lane, address);
                }
            }
            _ => {
                if let Work::Host(function) = &work {
                    function.set_queued();
                }
                self.submit(lane, work, name, &node.ranges);
            }
        }
    }

    /// Queues the free of a stream-ordered allocation. Returns its bytes and its place.
    pub(super) fn end_allocation(&mut self, lane: LaneId, address: u64) -> (u64, Point) {
        let name: Arc<str> = Call::FreeAsync.symbol().into();
        let needs = self.lanes.joined(lane);
        let point = self.submit(lane, Work::Nothing, Arc::clone(&name), &[]);
        let bytes = self.process.allocations.get(address).map_or(0, |allocation| allocation.bytes);
        let freed = self.by_lane(lane, name, Range { address, bytes, mode: AccessMode::Free }, point);
        let here_alone = self.is_imported(address);
        if let Some(made) = self.process.allocations.get(address).map(|allocation| allocation.made.clone()) {
            self.check_not_imported(&made, &freed);
        }
        self.watch_free(&freed, &needs, here_alone);
        self.process.allocations.remove(address, freed);
        self.process.blocks.forget(address, bytes);
        (bytes, point)
    }

    /// The access of an operation that was just submitted, for hazards.
    pub(super) fn by_lane(&self, lane: LaneId, operation: Arc<str>, range: Range, point: Point) -> Access {
        let Range { address, bytes, mode } = range;
        let stream = self.lanes.get(lane).map_or(StreamLabel::Host, |lane| lane.label);
        let (process, submission) = (self.process.id, self.submissions);
        Access { operation, process, stream, address, bytes, mode, submission, point: Some(point) }
    }

    /// Drops a graph, and frees its memory once it is no longer used. Returns `false` if there is no graph of that number.
    pub(super) fn drop_graph(&mut self, id: u64) -> bool {
        let Some(graph) = self.process.captures.graphs.get_mut(&id).filter(|graph| !graph.dropped) else {
            return false;
        };
        graph.dropped = true;
        self.release_dropped_graphs();
        true
    }

    /// Frees the memory of dropped graphs, unless it is still used.
    pub(super) fn release_dropped_graphs(&mut self) {
        let graphs = &self.process.captures.graphs;
        let is_over = |graph: &GraphState| {
            let is_out = |memory: &GraphMemory| self.process.allocations.get(memory.address).is_some();
            graph.dropped && self.lanes.completed(&graph.last) && !graph.memory.iter().any(is_out)
        };
        let over: Vec<u64> = graphs.iter().filter(|(_, graph)| is_over(graph)).map(|(&id, _)| id).collect();
        for id in over {
            for memory in self.process.captures.graphs.remove(&id).into_iter().flat_map(|graph| graph.memory)
            {
                self.release_graph_memory(&memory);
            }
        }
    }

    pub(super) fn release_graph_memory(&mut self, memory: &GraphMemory) {
        if let Some(mapping) = self.process.memory.unmap(memory.address) {
            self.let_go(mapping.backing);
            self.addresses.free(memory.address, memory.bytes, UNIT);
        }
    }

    /// A hazard for a graph that holds memory.
    pub(super) fn graph_leaks(&self) -> impl Iterator<Item = Hazard> {
        let held =
            self.process.captures.graphs.values().filter(|graph| !graph.dropped && !graph.memory.is_empty());
        held.map(|graph| {
            let bytes: u64 = graph.memory.iter().map(|memory| memory.bytes).sum();
            Hazard::rule(HazardKind::Leak, format!("a graph that was not dropped holds {bytes} bytes"))
        })
    }
}
