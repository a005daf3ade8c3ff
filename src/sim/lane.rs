//! Queues of work, first in first out.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::clock::{LaneClock, LaneId, Point};
use super::hazard::StreamLabel;
use super::host_function::QueuedFunction;
use super::kernel::Kernel;
use super::process::ProcessId;
use crate::driver::FillValue;

/// The order of a lane with the others of its device, apart from explicit waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneKind {
    /// Waits for every blocking lane, which wait for it too.
    Legacy,
    /// Ordered with the legacy lane.
    Blocking,
    /// Ordered with no other lane.
    Independent,
}

/// One side of a copy or a fill.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) address: u64,
    /// Ordinary memory of the host, which is as the caller has promised.
    pub(super) pageable: bool,
}

/// The work of an operation.
#[derive(Clone)]
pub(super) enum Work {
    Copy {
        to: Side,
        from: Side,
        bytes: u64,
    },
    Fill {
        to: Side,
        value: FillValue,
        count: u64,
    },
    Kernel(Kernel),
    Host(Arc<QueuedFunction>),
    /// Memory of a pool gets a new owner.
    Allocate {
        address: u64,
        bytes: u64,
    },
    /// Changes no bytes: a free, a prefetch.
    Nothing,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copy { .. } => "Copy",
            Self::Fill { .. } => "Fill",
            Self::Kernel(_) => "Kernel",
            Self::Host(_) => "Host",
            Self::Allocate { .. } => "Allocate",
            Self::Nothing => "Nothing",
        })
    }
}

/// Work in a queue.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) work: Work,
    pub(super) name: Arc<str>,
    pub(super) point: Point,
    /// The operations that must have run before it.
    pub(super) needs: LaneClock,
}

/// One queue.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) process: ProcessId,
    pub(super) ordinal: u32,
    pub(super) kind: LaneKind,
    pub(super) label: StreamLabel,
    /// The operations that later work on the lane is ordered after.
    pub(super) clock: LaneClock,
    submitted: u64,
    completed: u64,
    observed: u64,
    queue: VecDeque<Operation>,
    running: bool,
    retired: bool,
}

/// Every queue of the machine.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<LaneId, Lane>,
    /// Lanes with queued work.
    busy: BTreeSet<LaneId>,
    /// The lanes of processes that were killed before their work had run, and how far each had come. The rest never runs, so a wait for
    /// it never ends.
    cut_short: HashMap<LaneId, u64>,
    next: u32,
}

impl Lanes {
    pub(super) fn add(
        &mut self,
        process: ProcessId,
        ordinal: u32,
        kind: LaneKind,
        label: StreamLabel,
    ) -> LaneId {
        let id = LaneId(self.next);
        self.next += 1;
        let lane = Lane {
            process,
            ordinal,
            kind,
            label,
            clock: LaneClock::default(),
            submitted: 0,
            completed: 0,
            observed: 0,
            queue: VecDeque::new(),
            running: false,
            retired: false,
        };
        self.lanes.insert(id, lane);
        id
    }

    pub(super) fn get(&self, id: LaneId) -> Option<&Lane> {
        self.lanes.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.lanes.get_mut(&id)
    }

    /// The operations that work submitted to the lane now would be ordered after, including the rules of the legacy stream.
    pub(super) fn joined(&self, id: LaneId) -> LaneClock {
        let Some(lane) = self.lanes.get(&id) else { return LaneClock::default() };
        let mut clock = lane.clock.clone();
        let partner = match lane.kind {
            LaneKind::Legacy => LaneKind::Blocking,
            LaneKind::Blocking => LaneKind::Legacy,
            LaneKind::Independent => return clock,
        };
        let place = (lane.process, lane.ordinal);
        for other in self
            .lanes
            .values()
            .filter(|other| other.kind == partner && (other.process, other.ordinal) == place)
        {
            clock.join(&other.clock);
        }
        clock
    }

    /// The next place on the lane.
    pub(super) fn next_point(&self, lane: LaneId) -> Point {
        Point { lane, sequence: self.lanes.get(&lane).map_or(0, |lane| lane.submitted) + 1 }
    }

    /// Queues work behind what the lane holds.
    pub(super) fn push(&mut self, work: Work, name: Arc<str>, mut needs: LaneClock, point: Point) {
        self.prune(&mut needs);
        if let Some(lane) = self.lanes.get_mut(&point.lane) {
            lane.submitted = point.sequence;
            lane.clock = needs.clone();
            lane.clock.raise(point);
            lane.queue.push_back(Operation { work, name, point, needs });
            self.busy.insert(point.lane);
        }
    }

    /// Returns `true` if all that the clock covers has run.
    pub(super) fn completed(&self, clock: &LaneClock) -> bool {
        clock.points().all(|point| self.has_run(point))
    }

    pub(super) fn has_run(&self, point: Point) -> bool {
        self.lanes
            .get(&point.lane)
            .map_or_else(|| !self.never_runs(point), |lane| lane.completed >= point.sequence)
    }

    /// How far a lane that is gone had come; `u64::MAX` for one that came to its end.
    fn end_of(&self, id: LaneId) -> u64 {
        self.cut_short.get(&id).copied().unwrap_or(u64::MAX)
    }

    /// Returns `true` if the operation was of a process that was killed before.
    pub(super) fn never_runs(&self, point: Point) -> bool {
        self.end_of(point.lane) < point.sequence
    }

    /// Returns `true` if the operation has been taken from its queue, whether it is done or not.
    pub(super) fn has_started(&self, point: Point) -> bool {
        self.lanes.get(&point.lane).is_none_or(|lane| {
            lane.queue.front().is_none_or(|operation| operation.point.sequence > point.sequence)
        })
    }

    /// Returns `true` if work with that clock, submitted now, comes after `point`.
    pub(super) fn covers(&self, clock: &LaneClock, point: Point) -> bool {
        clock.get(point.lane) >= point.sequence || self.is_observed(point)
    }

    /// Returns `true` if the host has seen it done: all work submitted from now on comes after it.
    pub(super) fn is_observed(&self, point: Point) -> bool {
        self.lanes
            .get(&point.lane)
            .map_or_else(|| !self.never_runs(point), |lane| lane.observed >= point.sequence)
    }

    /// The last operation of the lane that has run, and all before it; `u64::MAX` for a lane that is over.
    pub(super) fn run_until(&self, id: LaneId) -> u64 {
        self.lanes.get(&id).map_or_else(|| self.end_of(id), |lane| lane.completed)
    }

    /// The last operation of the lane that the host has seen done, and all before it; `u64::MAX` for a lane that is over.
    pub(super) fn observed_until(&self, id: LaneId) -> u64 {
        self.lanes.get(&id).map_or_else(|| self.end_of(id), |lane| lane.observed)
    }

    /// Notes that the host has seen all of it done.
    pub(super) fn observe(&mut self, clock: &LaneClock) {
        for point in clock.points() {
            if let Some(lane) = self.lanes.get_mut(&point.lane) {
                lane.observed = lane.observed.max(point.sequence);
            }
            self.remove_if_over(point.lane);
        }
    }

    /// Drops operations that the host has seen done from a clock: all later work comes after them.
    pub(super) fn prune(&self, clock: &mut LaneClock) {
        clock.retain(|point| !self.is_observed(point));
    }

    /// All work of a process on a device.
    pub(super) fn all_of(&self, process: ProcessId, ordinal: u32) -> LaneClock {
        let mut clock = LaneClock::default();
        for lane in self.lanes.values().filter(|lane| (lane.process, lane.ordinal) == (process, ordinal)) {
            clock.join(&lane.clock);
        }
        clock
    }

    /// The lanes whose next operation could run now.
    pub(super) fn ready(&self) -> Vec<LaneId> {
        let is_ready = |id: &LaneId| {
            self.lanes.get(id).is_some_and(|lane| {
                !lane.running && lane.queue.front().is_some_and(|operation| self.completed(&operation.needs))
            })
        };
        self.busy.iter().copied().filter(is_ready).collect()
    }

    /// Takes the lane's next operation to run it.
    pub(super) fn start(&mut self, id: LaneId) -> Option<Operation> {
        let lane = self.lanes.get_mut(&id)?;
        let operation = lane.queue.pop_front()?;
        lane.running = true;
        if lane.queue.is_empty() {
            self.busy.remove(&id);
        }
        Some(operation)
    }

    /// Notes that a started operation is done.
    pub(super) fn finish(&mut self, point: Point) {
        if let Some(lane) = self.lanes.get_mut(&point.lane) {
            lane.running = false;
            lane.completed = lane.completed.max(point.sequence);
        }
        self.remove_if_over(point.lane);
    }

    /// Removes all work of a process on a device, as if it had run.
    pub(super) fn discard(&mut self, process: ProcessId, ordinal: u32) -> Vec<Work> {
        let mut discarded = Vec::new();
        let place = (process, ordinal);
        for (id, lane) in self.lanes.iter_mut().filter(|(_, lane)| (lane.process, lane.ordinal) == place) {
            discarded.extend(lane.queue.drain(..).map(|operation| operation.work));
            lane.completed = lane.submitted;
            self.busy.remove(id);
        }
        discarded
    }

    /// Removes all lanes of a process that is over, and returns the work that never runs.
    pub(super) fn end(&mut self, process: ProcessId) -> Vec<Work> {
        let ended: Vec<LaneId> =
            self.lanes.iter().filter(|(_, lane)| lane.process == process).map(|(&id, _)| id).collect();
        let mut discarded = Vec::new();
        for id in ended {
            self.busy.remove(&id);
            let Some(lane) = self.lanes.remove(&id) else { continue };
            if lane.completed < lane.submitted {
                self.cut_short.insert(id, lane.completed);
            }
            discarded.extend(lane.queue.into_iter().map(|operation| operation.work));
        }
        discarded
    }

    /// Notes that no more work will be submitted to the lane.
    pub(super) fn retire(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.retired = true;
        }
        self.remove_if_over(id);
    }

    /// A lane that is gone counts as observed everywhere.
    fn remove_if_over(&mut self, id: LaneId) {
        let is_over = self.lanes.get(&id).is_some_and(|lane| {
            lane.retired && !lane.running && lane.queue.is_empty() && lane.observed >= lane.submitted
        });
        if is_over {
            self.lanes.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(lanes: &mut Lanes, lane: LaneId) -> Point {
        let point = lanes.next_point(lane);
        let needs = lanes.joined(lane);
        lanes.push(Work::Nothing, "test".into(), needs, point);
        point
    }

    fn lane(lanes: &mut Lanes, kind: LaneKind) -> LaneId {
        lanes.add(ProcessId(0), 0, kind, StreamLabel::Legacy { ordinal: 0 })
    }

    #[test]
    fn the_legacy_lane_joins_blocking_lanes_and_no_others() {
        let mut lanes = Lanes::default();
        let legacy = lane(&mut lanes, LaneKind::Legacy);
        let blocking = lane(&mut lanes, LaneKind::Blocking);
        let free = lane(&mut lanes, LaneKind::Independent);
        let first = push(&mut lanes, blocking);
        let other = push(&mut lanes, free);
        let middle = push(&mut lanes, legacy);
        let last = push(&mut lanes, blocking);
        let clock = lanes.get(blocking).unwrap().clock.clone();
        assert!(lanes.covers(&clock, first) && lanes.covers(&clock, middle) && lanes.covers(&clock, last));
        assert!(!lanes.covers(&clock, other));
        assert_eq!(lanes.ready(), [blocking, free]);
    }

    #[test]
    fn a_lane_runs_in_order_and_needs_what_it_waits_for() {
        let mut lanes = Lanes::default();
        let (a, b) = (lane(&mut lanes, LaneKind::Independent), lane(&mut lanes, LaneKind::Independent));
        let first = push(&mut lanes, a);
        lanes.get_mut(b).unwrap().clock = lanes.joined(a);
        let second = push(&mut lanes, b);
        assert_eq!(lanes.ready(), [a]);
        assert!(!lanes.has_started(first));
        let operation = lanes.start(a).unwrap();
        assert_eq!(operation.point, first);
        assert!(lanes.has_started(first) && !lanes.has_run(first));
        assert!(lanes.ready().is_empty());
        lanes.finish(first);
        assert_eq!(lanes.ready(), [b]);
        assert!(!lanes.completed(&LaneClock::of(second)));
    }

    #[test]
    fn what_a_lane_that_was_cut_short_had_left_never_runs() {
        let mut lanes = Lanes::default();
        let (whole, cut) = (lane(&mut lanes, LaneKind::Independent), lane(&mut lanes, LaneKind::Independent));
        let [first, second] = [push(&mut lanes, cut), push(&mut lanes, cut)];
        let done = push(&mut lanes, whole);
        for id in [whole, cut] {
            let operation = lanes.start(id).unwrap();
            lanes.finish(operation.point);
        }
        assert_eq!(lanes.end(ProcessId(0)).len(), 1);
        assert!(lanes.ready().is_empty());
        for over in [first, done] {
            assert!(lanes.has_run(over) && lanes.is_observed(over) && !lanes.never_runs(over));
        }
        assert!(!lanes.has_run(second) && !lanes.is_observed(second) && lanes.never_runs(second));
        assert_eq!((lanes.run_until(cut), lanes.observed_until(whole)), (1, u64::MAX));
    }

    #[test]
    fn a_retired_lane_stays_until_it_is_drained_and_seen() {
        let mut lanes = Lanes::default();
        let id = lane(&mut lanes, LaneKind::Independent);
        let point = push(&mut lanes, id);
        lanes.retire(id);
        lanes.start(id);
        lanes.finish(point);
        assert!(lanes.get(id).is_some() && !lanes.is_observed(point));
        lanes.observe(&LaneClock::of(point));
        assert!(lanes.get(id).is_none() && lanes.is_observed(point) && lanes.has_run(point));
    }
}
