//! `Programs`: what the threads of a program allocated and freed, each on a thread of its own.

use core::hint;
use core::sync::atomic::{AtomicBool, Ordering};
#[expect(clippy::disallowed_types, reason = "no model of loom looks at the program")]
use std::sync::Mutex;
use std::sync::{OnceLock, PoisonError};
use std::time::Instant;
use std::{io, thread};

use alluvion::trace::{EventKind, Trace};
use alluvion::{Error, Resource};

use super::Lanes;
use crate::failure::Failure;
use crate::timing::ns_since;
use crate::workload::{Block, StartLine};

/// So many threads run at most: the programs that logs are of have a few hundred at most. Each one more has a stack, and its
/// turn whenever others wait.
const MOST_THREADS: usize = 4096;

/// What each thread of a log does, apart from the others: only a free waits, until its block has been allocated.
///
/// Nobody waits for ever: an allocation waits for nothing, and of all that is still to be done, what comes first in the log can
/// be done.
#[derive(Debug)]
pub(crate) struct Programs {
    threads: Vec<Program>,
    /// Blocks that another thread frees than the one that allocates them.
    handed_over: usize,
}

/// What one thread does.
#[derive(Debug, Default)]
struct Program {
    steps: Vec<Step>,
    /// Blocks that nobody else frees.
    own: usize,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    /// Its place in the log.
    event: usize,
    kind: EventKind,
    block: Held,
    stream: u32,
    bytes: usize,
}

/// Where a block is held while it is live.
#[derive(Clone, Copy, Debug)]
enum Held {
    /// By the thread.
    Own(usize),
    /// Where all threads reach it.
    Handed(usize),
}

/// A block that one thread allocates and another frees.
struct Slot<'r, R> {
    is_there: AtomicBool,
    #[expect(clippy::disallowed_types, reason = "no model of loom looks at the program")]
    block: Mutex<Option<Block<'r, R>>>,
}

impl<'r, R> Slot<'r, R> {
    #[expect(clippy::disallowed_types, reason = "no model of loom looks at the program")]
    fn new() -> Self {
        Self { is_there: AtomicBool::new(false), block: Mutex::new(None) }
    }

    /// Nothing is put in where the allocation failed.
    fn put(&self, block: Option<Block<'r, R>>) {
        *self.block.lock().unwrap_or_else(PoisonError::into_inner) = block;
        // Release: pairs with the acquire in `wait`.
        self.is_there.store(true, Ordering::Release);
    }

    fn wait(&self) -> Option<Block<'r, R>> {
        for spins in 0_usize.. {
            if self.is_there.load(Ordering::Acquire) {
                break;
            }
            // About 1 µs; then others may have the processor.
            if spins < 100 { hint::spin_loop() } else { thread::yield_now() }
        }
        self.take()
    }

    fn take(&self) -> Option<Block<'r, R>> {
        self.block.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Programs {
    /// Fails where a log has more threads than may run at once.
    pub(crate) fn of(trace: &Trace) -> Result<Self, Failure> {
        if trace.threads as usize > MOST_THREADS {
            return Err(Failure::Failed(format!(
                "the log has {} threads, and {MOST_THREADS} may run at once: play it in the order of the log",
                trace.threads
            )));
        }
        // Who allocates a block; then where it is held, which only its free can tell.
        let mut allocator = vec![0; trace.blocks as usize];
        let mut is_handed = vec![false; trace.blocks as usize];
        for event in &trace.events {
            let block = event.block as usize;
            match event.kind {
                EventKind::Allocate => allocator[block] = event.thread,
                EventKind::Free => is_handed[block] = allocator[block] != event.thread,
            }
        }
        let mut programs = Self { threads: Vec::new(), handed_over: 0 };
        programs.threads.resize_with(trace.threads as usize, Program::default);
        let mut held = vec![Held::Own(0); trace.blocks as usize];
        for (at, event) in trace.events.iter().enumerate() {
            let (block, thread) = (event.block as usize, &mut programs.threads[event.thread as usize]);
            if event.kind == EventKind::Allocate {
                let next = if is_handed[block] { &mut programs.handed_over } else { &mut thread.own };
                held[block] = if is_handed[block] { Held::Handed(*next) } else { Held::Own(*next) };
                *next += 1;
            }
            thread.steps.push(Step {
                event: at,
                kind: event.kind,
                block: held[block],
                stream: event.stream,
                bytes: event.bytes as usize,
            });
        }
        Ok(programs)
    }

    /// Runs them all at once. Returns nanoseconds from the first step to the last, and which allocations failed; what is still
    /// live in the end is given back after the clock stopped. Fails if the system has not as many threads.
    pub(crate) fn run<R: Resource + Sync>(
        &self,
        lanes: &Lanes<'_, R>,
    ) -> Result<(f64, Vec<(usize, Error)>), Failure> {
        let mut slots = Vec::new();
        slots.resize_with(self.handed_over, Slot::new);
        let (slots, line) = (&slots[..], &StartLine::new(self.threads.len() + 1));
        let mut refused = Vec::new();
        // Whether there is a thread for each: those that are there wait to hear it, and go home if not.
        let are_all_there = &OnceLock::new();
        let ns = thread::scope(|scope| {
            let running: io::Result<Vec<_>> = self
                .threads
                .iter()
                .map(|program| {
                    thread::Builder::new().spawn_scoped(scope, move || {
                        if *are_all_there.wait() { program.run(lanes, slots, line) } else { Vec::new() }
                    })
                })
                .collect();
            are_all_there.get_or_init(|| running.is_ok());
            let running = running.map_err(|error| {
                Failure::while_doing("the log's threads: the system has no more threads", error)
            })?;
            line.wait();
            let start = Instant::now();
            line.wait();
            let ns = ns_since(start);
            for thread in running {
                // No resource unwinds.
                refused.extend(thread.join().unwrap_or_default());
            }
            Ok::<f64, Failure>(ns)
        })?;
        lanes.give_back(slots.iter().filter_map(Slot::take));
        refused.sort_by_key(|(event, _)| *event);
        Ok((ns, refused))
    }
}

impl Program {
    fn run<'r, R: Resource>(
        &self,
        lanes: &Lanes<'r, R>,
        slots: &[Slot<'r, R>],
        line: &StartLine,
    ) -> Vec<(usize, Error)> {
        let mut own = Vec::new();
        own.resize_with(self.own, || None);
        let mut refused = Vec::new();
        line.wait();
        for step in &self.steps {
            let lane = lanes.lane(step.stream);
            let stream = lane.stream.as_ref();
            match step.kind {
                EventKind::Allocate => {
                    let block = match Block::take(lane.resource, step.bytes, stream) {
                        Ok(block) => Some(block),
                        Err(error) => {
                            refused.push((step.event, error));
                            None
                        }
                    };
                    match step.block {
                        Held::Own(at) => own[at] = block,
                        Held::Handed(at) => slots[at].put(block),
                    }
                }
                EventKind::Free => {
                    let block = match step.block {
                        Held::Own(at) => own[at].take(),
                        Held::Handed(at) => slots[at].wait(),
                    };
                    if let Some(block) = block {
                        block.give_back(stream);
                    }
                }
            }
        }
        line.wait();
        lanes.give_back(own.into_iter().flatten());
        refused
    }
}

#[cfg(test)]
mod tests {
    use alluvion::Sim;
    use alluvion::source::Cuda;
    use alluvion::suballoc::{Pool, PoolConfig};

    use super::*;

    /// Eight threads, of which each frees what the one before it allocated, most of it long before that one gets there.
    fn ring() -> Trace {
        let mut log = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
        for round in 0..200 {
            for thread in 0..8 {
                let address = (round * 8 + thread + 1) * 4096;
                log += &format!("{thread},00:00:00.000000,allocate,{address:#x},1000,{thread:#x}\n");
            }
            for thread in 0..8 {
                let address = (round * 8 + (thread + 7) % 8 + 1) * 4096;
                log += &format!("{thread},00:00:00.000000,free,{address:#x},1000,{thread:#x}\n");
            }
        }
        Trace::from_rmm_csv(log.as_bytes()).unwrap()
    }

    #[test]
    fn what_one_thread_allocates_another_frees() {
        let sim = Sim::new();
        let trace = ring();
        let programs = Programs::of(&trace).unwrap();
        assert_eq!((programs.threads.len(), programs.handed_over), (8, 1600));
        let pool = Pool::new(Cuda::new(&sim.device(0)), PoolConfig::default()).unwrap();
        let lanes = Lanes::on_one(&trace, &sim.device(0), &pool).unwrap();
        let (ns, refused) = programs.run(&lanes).unwrap();
        assert!(ns > 0.0 && refused.is_empty(), "{refused:?}");
        assert_eq!(pool.status().live_blocks, 0);
    }

    #[test]
    fn what_fails_keeps_nobody_waiting() {
        let sim = Sim::new();
        let trace = ring();
        let pool = Pool::new(Cuda::new(&sim.device(0)), PoolConfig::default().maximum(1024)).unwrap();
        let lanes = Lanes::on_one(&trace, &sim.device(0), &pool).unwrap();
        let (_, refused) = Programs::of(&trace).unwrap().run(&lanes).unwrap();
        assert!(!refused.is_empty() && refused.is_sorted_by_key(|(event, _)| *event));
        assert!(refused.iter().all(|(_, error)| error.is_out_of_memory()));
        assert_eq!(pool.status().live_blocks, 0);
    }
}
