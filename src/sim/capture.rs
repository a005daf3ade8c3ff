//! Stream capture: recording work instead of running it, and the calls that it forbids.
//!
//! The rules are CUDA's. A stream that captures records; one that waits for an event of a capture joins it; a dependency between
//! the capture and work outside of it is refused, and breaks it. Calls that are *potentially unsafe* are refused, and break the
//! captures they conflict with, by the modes of the captures and of the calling thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use super::clock::{LaneClock, LaneId, Point};
use super::graph::{GraphMemory, GraphNode, GraphState};
use super::hazard::HazardKind;
use super::kernel::Range;
use super::lane::{LaneKind, Work};
use super::machine::SimMachine;
use super::stream::SimStream;
use crate::driver::{Call, CaptureId, CaptureMode, CaptureStatus, Code, RawGraph};

/// CUDA's code for a dependency between two captures.
const CAPTURE_MERGE: Code = Code(902);

/// CUDA's code for ending a capture on a stream that it was not begun on.
const CAPTURE_UNMATCHED: Code = Code(903);

/// A stream's part in a capture. Its lane and its clock are the capture's own, not the machine's.
#[derive(Debug)]
struct Branch {
    ordinal: u32,
    lane: LaneId,
    recorded: u64,
    clock: LaneClock,
}

/// A capture that was begun and not ended.
#[derive(Debug)]
struct Capture {
    ordinal: u32,
    mode: CaptureMode,
    thread: ThreadId,
    origin: u64,
    invalidated: bool,
    branches: Vec<Branch>,
    nodes: Vec<GraphNode>,
    memory: Vec<GraphMemory>,
}

/// Captures, and their graphs.
#[derive(Debug, Default)]
pub(super) struct Captures {
    modes: HashMap<ThreadId, CaptureMode>,
    captures: HashMap<u64, Capture>,
    /// The capture and the branch of each stream that captures.
    streams: HashMap<u64, (u64, usize)>,
    pub(super) graphs: HashMap<u64, GraphState>,
    ids: u64,
}

/// The destination of work on a stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum WorkTarget {
    /// Into a queue.
    Queue(LaneId),
    /// Into a branch of a capture.
    Capture(u64, usize),
}

/// Returns `true` for calls that are potentially unsafe during a capture.
const fn is_potentially_unsafe(call: Call) -> bool {
    matches!(
        call,
        Call::ContextSynchronize
            | Call::EventQuery
            | Call::EventSynchronize
            | Call::AllocateDevice
            | Call::FreeDevice
            | Call::AllocateManaged
            | Call::AllocatePinned
            | Call::FreePinned
            | Call::RegisterHost
            | Call::UnregisterHost
            | Call::PoolCreate
            | Call::PoolDestroy
            | Call::PoolTrim
            | Call::PoolAttribute
            | Call::PoolSetAttribute
            | Call::Copy
            | Call::DeviceUuid
            | Call::MemoryHandle
            | Call::MemoryOpen
            | Call::MemoryClose
            | Call::EventHandle
            | Call::EventOpen
            | Call::PoolExport
            | Call::PoolImport
            | Call::PoolExportPointer
            | Call::PoolImportPointer
            | Call::MemoryImport
            | Call::CanReach
            | Call::Reach
            | Call::PoolSetAccess
    )
}

/// Returns `true` for calls that are potentially unsafe on a stream which does not capture: measured on an H200 with driver
/// 580, where recording, waiting, copying and filling beside a capture are fine and these are not.
const fn is_potentially_unsafe_outside(call: Call) -> bool {
    matches!(call, Call::AllocateAsync | Call::FreeAsync | Call::StreamSynchronize | Call::StreamQuery)
}

impl SimMachine {
    pub(super) fn exchange_capture_mode(&mut self, mode: CaptureMode) -> CaptureMode {
        let thread = thread::current().id();
        // Threads in their initial mode are not kept, because their number is not bounded.
        match mode {
            CaptureMode::Global => self.process.captures.modes.remove(&thread),
            _ => self.process.captures.modes.insert(thread, mode),
        }
        .unwrap_or_default()
    }

    /// Refuses a potentially unsafe call that a capture forbids to the calling thread, and breaks that capture.
    pub(super) fn check_capture_modes(&mut self, call: Call, ordinal: Option<u32>) -> Result<(), Code> {
        if is_potentially_unsafe(call) { self.check_modes(call, ordinal) } else { Ok(()) }
    }

    /// The same for a call on a stream that does not capture.
    pub(super) fn check_modes_outside(&mut self, call: Call, stream: &SimStream) -> Result<(), Code> {
        if is_potentially_unsafe_outside(call) {
            self.check_modes(call, Some(stream.ordinal))
        } else {
            Ok(())
        }
    }

    fn check_modes(&mut self, call: Call, ordinal: Option<u32>) -> Result<(), Code> {
        if self.process.captures.captures.is_empty() {
            return Ok(());
        }
        let thread = thread::current().id();
        let mode = self.process.captures.modes.get(&thread).copied().unwrap_or_default();
        let conflicts = |capture: &Capture| {
            let is_own = capture.thread == thread && capture.mode != CaptureMode::Relaxed;
            let is_global = capture.mode == CaptureMode::Global;
            let is_encompassed = call == Call::ContextSynchronize && ordinal == Some(capture.ordinal);
            is_encompassed
                || match mode {
                    CaptureMode::Global => is_own || is_global,
                    CaptureMode::ThreadLocal => is_own,
                    CaptureMode::Relaxed => false,
                }
        };
        let broken: Vec<u64> = self
            .process
            .captures
            .captures
            .iter()
            .filter(|(_, capture)| conflicts(capture))
            .map(|(&id, _)| id)
            .collect();
        if broken.is_empty() {
            return Ok(());
        }
        let words = format!(
            "{} breaks {} captures; lift the rule for this thread with `RelaxedCapture`, or call it before or after",
            call.symbol(),
            broken.len()
        );
        Err(self.break_captures(&broken, words, Code::CAPTURE_UNSUPPORTED))
    }

    /// Breaks captures, reports the reason, and returns the code for the call that broke them.
    fn break_captures(&mut self, broken: &[u64], words: String, code: Code) -> Code {
        for id in broken {
            if let Some(capture) = self.process.captures.captures.get_mut(id) {
                capture.invalidated = true;
            }
        }
        self.refuse(HazardKind::IllegalDuringCapture, words, code)
    }

    /// The captures that the legacy stream of a device would be ordered with.
    fn captures_of_blocking_streams(&self, ordinal: u32) -> Vec<u64> {
        let is_blocking = |handle: u64| {
            let stream = self.process.streams.by_handle(handle).filter(|stream| stream.ordinal == ordinal);
            let lane = stream.and_then(|stream| self.lanes.get(stream.lane));
            lane.is_some_and(|lane| lane.kind == LaneKind::Blocking)
        };
        self.process
            .captures
            .streams
            .iter()
            .filter(|&(&handle, _)| is_blocking(handle))
            .map(|(_, &(id, _))| id)
            .collect()
    }

    /// The destination of work on the stream, if it may be submitted now.
    pub(super) fn target(&mut self, stream: &SimStream) -> Result<WorkTarget, Code> {
        if let Some(&(id, branch)) = self.process.captures.streams.get(&stream.handle) {
            return match self.process.captures.captures.get(&id) {
                Some(capture) if !capture.invalidated => Ok(WorkTarget::Capture(id, branch)),
                _ => Err(Code::CAPTURE_INVALIDATED),
            };
        }
        self.check_legacy(stream)?;
        Ok(WorkTarget::Queue(stream.lane))
    }

    /// The legacy stream cannot be used while a blocking stream of its device captures.
    fn check_legacy(&mut self, stream: &SimStream) -> Result<(), Code> {
        if !stream.is_legacy() || self.process.captures.streams.is_empty() {
            return Ok(());
        }
        let broken = self.captures_of_blocking_streams(stream.ordinal);
        if broken.is_empty() {
            return Ok(());
        }
        let words = format!(
            "the legacy stream of gpu {} was used while a blocking stream captures, which it would be ordered with",
            stream.ordinal
        );
        Err(self.break_captures(&broken, words, Code::CAPTURE_IMPLICIT))
    }

    /// A stream that captures can be neither waited for nor queried.
    pub(super) fn check_not_capturing(&mut self, call: Call, stream: &SimStream) -> Result<(), Code> {
        let Some(&(id, _)) = self.process.captures.streams.get(&stream.handle) else {
            self.check_legacy(stream)?;
            return self.check_modes_outside(call, stream);
        };
        let words = format!("{} on stream {}, whose work is recorded and not run", call.symbol(), stream.id);
        Err(self.break_captures(&[id], words, Code::CAPTURE_UNSUPPORTED))
    }

    /// The number of a stream that captures cannot be queried, in any mode: the query breaks the capture.
    pub(super) fn check_id_may_be_asked(&mut self, call: Call, stream: &SimStream) -> Result<(), Code> {
        let Some(&(id, _)) = self.process.captures.streams.get(&stream.handle) else { return Ok(()) };
        let words = format!("{} on stream {}, which captures", call.symbol(), stream.id);
        Err(self.break_captures(&[id], words, Code::CAPTURE_UNSUPPORTED))
    }

    pub(super) fn capture_status(&self, stream: &SimStream) -> Result<CaptureStatus, Code> {
        if stream.is_legacy() && !self.captures_of_blocking_streams(stream.ordinal).is_empty() {
            return Err(Code::CAPTURE_IMPLICIT);
        }
        let Some((id, _)) = self.process.captures.streams.get(&stream.handle) else {
            return Ok(CaptureStatus::None);
        };
        Ok(match self.process.captures.captures.get(id) {
            Some(capture) if !capture.invalidated => CaptureStatus::Active,
            _ => CaptureStatus::Invalidated,
        })
    }

    /// The capture that a stream takes part in. The graph that comes of it has the capture's number.
    pub(super) fn capture_id(&self, stream: &SimStream) -> Result<Option<CaptureId>, Code> {
        let status = self.capture_status(stream)?;
        let capture =
            self.process.captures.streams.get(&stream.handle).filter(|_| status == CaptureStatus::Active);
        Ok(capture.map(|&(number, _)| CaptureId { number, graph: RawGraph(number) }))
    }

    /// Queues or records work.
    pub(super) fn put(&mut self, target: WorkTarget, work: Work, name: Arc<str>, ranges: &[Range]) {
        match target {
            WorkTarget::Queue(lane) => {
                self.submit(lane, work, name, ranges);
            }
            WorkTarget::Capture(id, branch) => {
                let Some(capture) = self.process.captures.captures.get_mut(&id) else { return };
                let Some(branch) = capture.branches.get_mut(branch) else { return };
                branch.recorded += 1;
                let point = Point { lane: branch.lane, sequence: branch.recorded };
                let needs = branch.clock.clone();
                branch.clock.raise(point);
                let ordinal = branch.ordinal;
                capture.nodes.push(GraphNode { ordinal, work, name, ranges: ranges.into(), point, needs });
            }
        }
    }

    /// The memory that a capture has allocated.
    pub(super) fn capture_memory(&mut self, id: u64) -> Option<&mut Vec<GraphMemory>> {
        self.process.captures.captures.get_mut(&id).map(|capture| &mut capture.memory)
    }

    /// The clock of an event that is recorded on a branch.
    pub(super) fn branch_clock(&self, id: u64, branch: usize) -> LaneClock {
        let capture = self.process.captures.captures.get(&id);
        capture
            .and_then(|capture| capture.branches.get(branch))
            .map_or_else(LaneClock::default, |b| b.clock.clone())
    }

    /// Orders a stream after an event, either of which may belong to a capture.
    pub(super) fn wait_captured(
        &mut self,
        stream: &SimStream,
        event: Option<(u64, LaneClock)>,
        is_recorded: bool,
    ) -> Result<Option<LaneId>, Code> {
        match (self.target(stream)?, event) {
            (WorkTarget::Queue(lane), None) => Ok(Some(lane)),
            (WorkTarget::Queue(_), Some((id, clock))) => {
                let capture = self.process.captures.captures.get(&id);
                let (is_over, is_open) = (capture.is_none(), capture.is_some_and(|it| !it.invalidated));
                if !is_open || stream.is_legacy() {
                    let code = self.captured_event(id, "was waited for outside of it");
                    // The code of an H200 for an event whose capture is over.
                    return Err(if is_over { Code::INVALID_VALUE } else { code });
                }
                self.join_capture(stream, id, clock);
                Ok(None)
            }
            (WorkTarget::Capture(id, branch), Some((other, clock))) if id == other => {
                let capture = self.process.captures.captures.get_mut(&id);
                if let Some(branch) = capture.and_then(|capture| capture.branches.get_mut(branch)) {
                    branch.clock.join(&clock);
                }
                Ok(None)
            }
            (WorkTarget::Capture(id, _), Some((other, _)))
                if self.process.captures.captures.contains_key(&other) =>
            {
                let words = "a stream of one capture waited for an event of another".to_owned();
                Err(self.break_captures(&[id, other], words, CAPTURE_MERGE))
            }
            (WorkTarget::Capture(..), None) if !is_recorded => Ok(None),
            (WorkTarget::Capture(id, _), _) => {
                let words = format!(
                    "stream {} captures and waited for an event from outside of the capture",
                    stream.id
                );
                Err(self.break_captures(&[id], words, Code::CAPTURE_ISOLATION))
            }
        }
    }

    /// Refuses the use of an event that was last recorded in a capture, and breaks the capture.
    pub(super) fn captured_event(&mut self, id: u64, what: &str) -> Code {
        let words = format!("an event that was last recorded in a capture {what}");
        self.break_captures(&[id], words, Code::CAPTURED_EVENT)
    }

    fn join_capture(&mut self, stream: &SimStream, id: u64, clock: LaneClock) {
        let Some(capture) = self.process.captures.captures.get_mut(&id) else { return };
        let index = capture.branches.len();
        let lane = LaneId(u32::try_from(index).unwrap_or(u32::MAX));
        capture.branches.push(Branch { ordinal: stream.ordinal, lane, recorded: 0, clock });
        self.process.captures.streams.insert(stream.handle, (id, index));
    }

    pub(super) fn begin_capture(&mut self, stream: &SimStream, mode: CaptureMode) -> Result<(), Code> {
        if stream.is_legacy() || self.process.captures.streams.contains_key(&stream.handle) {
            return Err(Code::INVALID_VALUE);
        }
        self.process.captures.ids += 1;
        let id = self.process.captures.ids;
        let capture = Capture {
            ordinal: stream.ordinal,
            mode,
            thread: thread::current().id(),
            origin: stream.handle,
            invalidated: false,
            branches: Vec::new(),
            nodes: Vec::new(),
            memory: Vec::new(),
        };
        self.process.captures.captures.insert(id, capture);
        self.join_capture(stream, id, LaneClock::default());
        Ok(())
    }

    /// Ends the capture that was begun on the stream. Returns the graph's number and its nodes.
    pub(super) fn end_capture(&mut self, stream: &SimStream) -> Result<(u64, Vec<GraphNode>), Code> {
        let &(id, _) = self.process.captures.streams.get(&stream.handle).ok_or(Code::INVALID_VALUE)?;
        let capture = self.process.captures.captures.get(&id).ok_or(Code::INVALID_VALUE)?;
        if capture.origin != stream.handle {
            let words = format!("stream {} joined the capture that it was asked to end", stream.id);
            return Err(self.break_captures(&[id], words, CAPTURE_UNMATCHED));
        }
        if capture.mode != CaptureMode::Relaxed && capture.thread != thread::current().id() {
            return Err(Code::CAPTURE_WRONG_THREAD);
        }
        let is_joined = capture.branches.first().is_none_or(|origin| {
            capture.branches.iter().all(|branch| origin.clock.get(branch.lane) >= branch.recorded)
        });
        let invalidated = capture.invalidated;
        let Some(capture) = self.remove_capture(id) else { return Err(Code::INVALID_VALUE) };
        if invalidated {
            self.discard_capture(capture);
            return Err(Code::CAPTURE_INVALIDATED);
        }
        if !is_joined {
            self.discard_capture(capture);
            let words = format!(
                "the capture begun on stream {} was ended before that stream waited for all that forked from it",
                stream.id
            );
            return Err(self.refuse(HazardKind::IllegalDuringCapture, words, Code::CAPTURE_UNJOINED));
        }
        self.process.captures.graphs.insert(id, GraphState::new(capture.memory));
        Ok((id, capture.nodes))
    }

    /// Destroying a stream ends the capture that was begun on it.
    pub(super) fn forget_capture_of(&mut self, handle: u64) {
        let Some((id, _)) = self.process.captures.streams.remove(&handle) else { return };
        if self.process.captures.captures.get(&id).is_some_and(|capture| capture.origin == handle)
            && let Some(capture) = self.remove_capture(id)
        {
            self.discard_capture(capture);
        }
    }

    fn remove_capture(&mut self, id: u64) -> Option<Capture> {
        self.process.captures.streams.retain(|_, (capture, _)| *capture != id);
        self.process.captures.captures.remove(&id)
    }

    /// Drops every capture and every graph of the process in front, by its end. The memory goes with the other mappings.
    pub(super) fn discard_captures(&mut self) {
        let Captures { captures, .. } = core::mem::take(&mut self.process.captures);
        let nodes = captures.into_values().flat_map(|capture| capture.nodes);
        self.discarded.extend(nodes.map(|node| node.work));
    }

    fn discard_capture(&mut self, capture: Capture) {
        self.discarded.extend(capture.nodes.into_iter().map(|node| node.work));
        for memory in capture.memory {
            self.release_graph_memory(&memory);
        }
    }
}
