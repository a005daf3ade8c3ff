//! When queued work runs, and in which order.
//!
//! Work runs when it must: when the host waits for it, or for work behind it; when a query decides to run work; when a pool is out
//! of memory and waits for pending frees. If several queues could go on, the scheduler picks one. There is one exception: a thread
//! of the machine runs a host function that was not waited for within [`HOST_CALL_PATIENCE`], because hardware would have run it,
//! too.
//!
//! # Host functions and kernels
//!
//! A kernel runs on the thread that forces it, a host function on a thread of its own, both with no lock held. A host function
//! that does not return stalls only its stream and the work that waits for it: the thread that forced it goes on with other
//! streams after [`HOST_CALL_GRACE`], and waits only if no other work is left.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::clock::{LaneClock, LaneId, Point};
use super::device_bytes::mix;
use super::explore::Scripted;
use super::hazard::{Hazard, HazardKind, StreamLabel};
use super::kernel::run_callback;
use super::lane::{Operation, Work};
use super::machine::{MachineGuard, SharedMachine, SimMachine};
use super::process::ProcessId;
use crate::contain::contain;
use crate::driver::Code;

/// The time for a started host function to return before other work overtakes it. So short functions (all but deliberate stalls)
/// run as if at once, and a seed gives one schedule.
const HOST_CALL_GRACE: Duration = Duration::from_millis(20);

/// The same when every schedule is explored: a late function must not look like another schedule.
const EXPLORED_HOST_CALL_GRACE: Duration = Duration::from_secs(5);

/// The time that a host function stays in its queue without a wait.
const HOST_CALL_PATIENCE: Duration = Duration::from_millis(50);

/// Makes the choices that are random on hardware.
#[derive(Debug)]
pub(super) enum Scheduler {
    /// Adversarial and random, from a seed.
    Seeded(Seeded),
    /// Exhaustive: follows a script.
    Scripted(Scripted),
}

/// The treatment of work that a wait does not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Does not run it, so that work without a wait has not happened.
    Late,
    /// Runs it first, so that all work that could run has happened.
    Early,
    /// Either.
    Mixed,
}

/// A scheduler that makes unlikely schedules likely.
#[derive(Debug)]
pub(super) struct Seeded {
    state: u64,
    mood: Mood,
}

impl Seeded {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: mix(seed), mood: Mood::Late }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(1);
        (mix(self.state) % bound.max(1) as u64) as usize
    }

    fn pick(&mut self, ready: &[LaneId], needed: &[LaneId]) -> LaneId {
        let others: Vec<LaneId> = ready.iter().copied().filter(|lane| !needed.contains(lane)).collect();
        let among = match self.mood {
            Mood::Late if !needed.is_empty() => needed,
            Mood::Early if !others.is_empty() => &others,
            _ => ready,
        };
        among[self.below(among.len())]
    }
}

impl Scheduler {
    /// A wait begins.
    fn begin_wait(&mut self) {
        match self {
            Self::Seeded(seeded) => {
                seeded.mood = [Mood::Late, Mood::Early, Mood::Mixed][seeded.below(3)];
            }
            Self::Scripted(_) => {}
        }
    }

    /// The most operations that a query on unfinished work runs before it returns.
    fn query_steps(&mut self, submissions: u64, goal: &LaneClock) -> usize {
        match self {
            Self::Seeded(seeded) => [0, 0, 1, 4][seeded.below(4)],
            Self::Scripted(scripted) => match scripted.query_advances(submissions, goal) {
                true => usize::MAX,
                false => 0,
            },
        }
    }

    /// Picks one of the lanes that could go on. `needed` are those that the wait is for.
    fn pick(&mut self, ready: &[LaneId], needed: &[LaneId]) -> LaneId {
        match self {
            Self::Seeded(seeded) => seeded.pick(ready, needed),
            Self::Scripted(scripted) => ready[scripted.choose(ready.len())],
        }
    }
}

impl SimMachine {
    /// The lane whose next operation runs next, if any can.
    fn pick(&mut self, goal: &LaneClock) -> Option<LaneId> {
        let ready = self.lanes.ready();
        if ready.is_empty() {
            return None;
        }
        let needed: Vec<LaneId> = ready
            .iter()
            .copied()
            .filter(|&lane| {
                let sequence = goal.get(lane);
                sequence > 0 && !self.lanes.has_run(Point { lane, sequence })
            })
            .collect();
        Some(self.scheduler.pick(&ready, &needed))
    }

    /// The oldest host function that is still in its queue, and when its patience ends.
    fn waiting_host_call(&mut self) -> Option<(Point, Instant)> {
        while let Some(&(point, queued)) = self.host_calls.front() {
            if !self.lanes.has_started(point) {
                return Some((point, queued + HOST_CALL_PATIENCE));
            }
            self.host_calls.pop_front();
        }
        None
    }
}

impl SharedMachine {
    /// Runs work until all of `goal` has run, or the process is killed.
    pub(super) fn run_until<'a>(
        self: &'a Arc<Self>,
        mut machine: MachineGuard<'a>,
        goal: &LaneClock,
    ) -> MachineGuard<'a> {
        machine.scheduler.begin_wait();
        while !machine.lanes.completed(goal) && !machine.process.is_over() {
            machine = match machine.pick(goal) {
                Some(lane) => self.run_one(machine, lane),
                // All work that could run is running, on other threads.
                None => self.wait(machine),
            };
        }
        self.drop_discarded(machine)
    }

    /// Lets a query run some work, without waiting.
    pub(super) fn nudge<'a>(
        self: &'a Arc<Self>,
        mut machine: MachineGuard<'a>,
        goal: &LaneClock,
    ) -> MachineGuard<'a> {
        if machine.lanes.completed(goal) {
            return machine;
        }
        let submissions = machine.submissions;
        for _ in 0..machine.scheduler.query_steps(submissions, goal) {
            if machine.lanes.completed(goal) {
                break;
            }
            let Some(lane) = machine.pick(goal) else { break };
            machine = self.run_one(machine, lane);
        }
        self.drop_discarded(machine)
    }

    /// Runs all that could run, if the streams of this machine keep up.
    pub(super) fn keep_up<'a>(self: &'a Arc<Self>, mut machine: MachineGuard<'a>) -> MachineGuard<'a> {
        if !machine.config.streams_keep_up {
            return machine;
        }
        while let Some(lane) = machine.pick(&LaneClock::default()) {
            machine = self.run_one(machine, lane);
        }
        self.drop_discarded(machine)
    }

    /// Runs the next operation of a lane, as its process, and comes back to the process that asked for it.
    fn run_one<'a>(self: &'a Arc<Self>, mut machine: MachineGuard<'a>, lane: LaneId) -> MachineGuard<'a> {
        let Some(operation) = machine.lanes.start(lane) else { return machine };
        let Some((process, ordinal, label)) =
            machine.lanes.get(lane).map(|lane| (lane.process, lane.ordinal, lane.label))
        else {
            return machine;
        };
        let caller = machine.process.id;
        machine.switch_to(process);
        let mut machine = self.run_operation(machine, operation, ordinal, label);
        machine.switch_to(caller);
        machine
    }

    fn run_operation<'a>(
        self: &'a Arc<Self>,
        mut machine: MachineGuard<'a>,
        operation: Operation,
        ordinal: u32,
        label: StreamLabel,
    ) -> MachineGuard<'a> {
        let Operation { work, point, name, needs } = operation;
        let process = machine.process.id;
        match work {
            Work::Kernel(kernel) => {
                drop(machine);
                let outcome = kernel.execute(self, process, ordinal, label);
                // Its closure is foreign code, and may panic when it is dropped; that must not leave a waiting thread waiting for
                // ever.
                contain(|| drop(kernel));
                self.done(self.lock_as(process), ordinal, point, outcome)
            }
            Work::Host(function) => {
                // The function may tell the host that all before it is done.
                machine.lanes.observe(&needs);
                drop(machine);
                let Some(function) = function.take() else {
                    return self.done(self.lock_as(process), ordinal, point, Ok(()));
                };
                let what = format!("host function `{name}` on {label}");
                self.start_host_call(function, what, process, ordinal, point);
                self.wait_for_host_call(self.lock_as(process), point)
            }
            work => {
                let outcome = machine.perform(&work);
                self.done(machine, ordinal, point, outcome)
            }
        }
    }

    fn done<'a>(
        &'a self,
        mut machine: MachineGuard<'a>,
        ordinal: u32,
        point: Point,
        outcome: Result<(), Code>,
    ) -> MachineGuard<'a> {
        machine.lanes.finish(point);
        if let Err(code) = outcome {
            machine.lose(ordinal, code);
        }
        self.changed.notify_all();
        machine
    }

    /// Runs a function of the host on a thread of its own.
    fn start_host_call(
        self: &Arc<Self>,
        function: Box<dyn FnOnce() + Send>,
        what: String,
        process: ProcessId,
        ordinal: u32,
        point: Point,
    ) {
        let shared = Arc::clone(self);
        let run = move |function: Box<dyn FnOnce() + Send>| {
            let outcome = run_callback(function);
            let mut machine = shared.lock_as(process);
            if let Err(words) = outcome {
                machine.report(Hazard::rule(HazardKind::Panic, format!("{what} panicked: {words}")));
            }
            drop(shared.done(machine, ordinal, point, Ok(())));
        };
        // The function is sent, not captured, so that it can still run here if no thread can be started.
        let (sender, receiver) = mpsc::channel();
        let run_there = run.clone();
        let thread =
            std::thread::Builder::new().name("simulated host function".to_owned()).spawn(move || {
                if let Ok(function) = receiver.recv() {
                    run_there(function);
                }
            });
        match thread {
            Ok(_) => drop(sender.send(function)),
            Err(_) => run(function),
        }
    }

    fn wait_for_host_call<'a>(&'a self, mut machine: MachineGuard<'a>, point: Point) -> MachineGuard<'a> {
        let grace = match machine.scheduler {
            Scheduler::Seeded(_) => HOST_CALL_GRACE,
            Scheduler::Scripted(_) => EXPLORED_HOST_CALL_GRACE,
        };
        let deadline = Instant::now() + grace;
        while !machine.lanes.has_run(point) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            machine = self.wait_timeout(machine, left);
        }
        machine
    }

    /// Drops the work of a lost context, unlocked: its closures are foreign code.
    pub(super) fn drop_discarded<'a>(&'a self, mut machine: MachineGuard<'a>) -> MachineGuard<'a> {
        if machine.discarded.is_empty() {
            return machine;
        }
        let (process, discarded) = (machine.process.id, core::mem::take(&mut machine.discarded));
        drop(machine);
        for work in discarded {
            contain(|| drop(work));
        }
        self.lock_as(process)
    }

    /// Runs host functions that no call waits for, until the machine is closed.
    pub(super) fn run_overdue_host_calls(self: &Arc<Self>) {
        let mut machine = self.machine.lock();
        while !machine.closed {
            let Some((point, deadline)) = machine.waiting_host_call() else {
                machine = self.wait(machine);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                machine = self.wait_timeout(machine, left);
                continue;
            }
            machine = match machine.pick(&LaneClock::of(point)) {
                Some(lane) => self.run_one(machine, lane),
                None => self.wait(machine),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The picks of a scheduler in a mood among three lanes, of which the first is needed.
    fn picked(mood: Mood, needed: &[LaneId]) -> Vec<LaneId> {
        let ready = [LaneId(1), LaneId(2), LaneId(3)];
        let mut picked: Vec<LaneId> =
            (0..50).map(|seed| Seeded { mood, ..Seeded::new(seed) }.pick(&ready, needed)).collect();
        picked.sort_unstable();
        picked.dedup();
        picked
    }

    #[test]
    fn a_mood_decides_what_goes_first() {
        let needed = [LaneId(1)];
        assert_eq!(picked(Mood::Late, &needed), needed);
        assert_eq!(picked(Mood::Early, &needed), [LaneId(2), LaneId(3)]);
        assert_eq!(picked(Mood::Mixed, &needed), [LaneId(1), LaneId(2), LaneId(3)]);
    }

    #[test]
    fn what_is_needed_indirectly_is_found_in_every_mood() {
        assert_eq!(picked(Mood::Late, &[]).len(), 3);
        assert_eq!(picked(Mood::Early, &[]).len(), 3);
    }
}
