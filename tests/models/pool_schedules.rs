//! Every small program over a pool, under every schedule: each kernel finds its own pattern, and no use races with another's.
//!
//! The pool holds two units, so that what a stream takes is what another has freed.

#![expect(unsafe_code, reason = "launches kernels, and frees by hand")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use alluvion::sim::{Kernel, SimConfig, SimDriver, explore};
use alluvion::source::{Cuda, Mapped};
use alluvion::suballoc::{Growth, PageBudget, Reuse};
use alluvion::{Device, DevicePtr, Frontier, Layout, Pool, PoolConfig, Resource, ResourceExt, Sim, Stream};

use crate::trials::is_night;

/// Steps of a program. One more takes ten to fifty times as long, which is for a night, or for an optimised build.
fn takes_and_frees() -> usize {
    4 + usize::from(is_night()) + usize::from(!cfg!(debug_assertions))
}

const OF_EVERYTHING: usize = if cfg!(debug_assertions) { 3 } else { 4 };

const OF_PAGES: usize = if cfg!(debug_assertions) { 2 } else { 3 };

const STREAMS: usize = 3;
const UNIT: usize = Layout::MIN_ALIGN;
const POOL: usize = 2 * UNIT;

/// One step. Streams and blocks are numbered in the order in which they come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Allocates one unit or two on a stream, and runs a kernel on it. May be refused.
    Take(usize, usize),
    /// Frees a block on the stream that it was taken on.
    Free(usize),
    /// Frees a block on another stream, which is made to wait.
    FreeOn(usize, usize),
    TakeSync(usize),
    Synchronize(usize),
    Query(usize),
    /// Makes a stream wait for all that is on another.
    Wait(usize, usize),
    Merge(usize),
    /// Ends a stream and makes another, which gets its handle.
    Renew(usize),
    Defragment,
    Trim,
}
use Step::{Defragment, Free, FreeOn, Merge, Query, Renew, Synchronize, Take, TakeSync, Trim, Wait};

struct Block {
    pointer: DevicePtr,
    layout: Layout,
    stream: usize,
    last_use: Frontier,
    word: u32,
}

struct World<U: Resource> {
    sim: Sim,
    pool: Pool<U>,
    unit: usize,
    streams: Vec<Stream>,
    blocks: Vec<Option<Block>>,
    wrong: Arc<AtomicBool>,
}

impl<U: Resource> World<U> {
    /// A pool, of which one unit of a step is so many bytes.
    fn new(driver: &Arc<SimDriver>, unit: usize, pool: impl Fn(&Device) -> Pool<U>) -> Self {
        let sim = Sim::with_driver(Arc::clone(driver));
        let device = sim.device(0);
        let pool = pool(&device);
        let streams = (0..STREAMS).map(|_| device.stream().expect("a stream can be made")).collect();
        Self { sim, pool, unit, streams, blocks: Vec::new(), wrong: Arc::default() }
    }

    /// Queues a kernel that finds the old word, if there is one, and writes the new one.
    fn launch(&self, stream: usize, pointer: DevicePtr, layout: Layout, old: Option<u32>, new: u32) {
        let (address, last) = (pointer.address(), pointer.address() + layout.bytes() as u64 - 4);
        let wrong = Arc::clone(&self.wrong);
        let kernel = Kernel::new("pattern").writes(address, layout.bytes()).run(move |memory| {
            for at in [address, last] {
                if old.is_some_and(|old| memory.read_u32(at) != old) {
                    wrong.store(true, Ordering::Relaxed);
                }
                memory.write_u32(at, new);
            }
        });
        // SAFETY: the stream is there, and the block live until a free behind the kernel; a conflict is reported.
        unsafe { self.sim.launch(0, self.streams[stream].as_ref().raw(), kernel) }
            .expect("it can be launched");
    }

    fn take(&mut self, stream: usize, units: usize, synchronous: bool) {
        let layout = Layout::from_bytes(units * self.unit).expect("it is small");
        let served = if synchronous {
            self.pool.allocate_sync(layout)
        } else {
            self.pool.allocate(layout, self.streams[stream].as_ref())
        };
        let block = match served {
            Ok(pointer) => {
                let word = 0x0100_0193 * (1 + self.blocks.len() as u32);
                self.launch(stream, pointer, layout, None, word);
                let last_use = Frontier::of(self.streams[stream].as_ref().release());
                Some(Block { pointer, layout, stream, last_use, word })
            }
            Err(error) => {
                assert!(error.is_out_of_memory(), "{error}");
                let live: usize = self.blocks.iter().flatten().map(|block| block.layout.bytes()).sum();
                assert!(live > 0, "nothing is live: {error}");
                None
            }
        };
        self.blocks.push(block);
    }

    fn free(&mut self, block: usize, stream: Option<usize>) {
        let Some(block) = self.blocks[block].take() else { return };
        let stream = stream.unwrap_or(block.stream);
        if !self.streams[stream].as_ref().may_reuse(&block.last_use) {
            self.streams[stream].as_ref().wait_for(&block.last_use).expect("nothing fails");
        }
        self.launch(stream, block.pointer, block.layout, Some(block.word), !block.word);
        // SAFETY: the block is live and the pool's, with this layout; the stream comes after its uses.
        unsafe { self.pool.deallocate(block.pointer, block.layout, self.streams[stream].as_ref()) };
    }

    fn step(&mut self, step: Step) {
        match step {
            Take(stream, units) => self.take(stream, units, false),
            TakeSync(units) => self.take(0, units, true),
            Free(block) => self.free(block, None),
            FreeOn(block, stream) => self.free(block, Some(stream)),
            Synchronize(stream) => self.streams[stream].synchronize().expect("nothing fails"),
            Query(stream) => _ = self.streams[stream].is_idle().expect("nothing fails"),
            Wait(stream, on) => {
                self.streams[stream].wait_for_stream(&self.streams[on]).expect("nothing fails");
            }
            Merge(stream) => self.pool.merge(self.streams[stream].as_ref()).expect("nothing fails"),
            Renew(stream) => {
                drop(self.streams.remove(stream));
                self.streams.insert(stream, self.sim.device(0).stream().expect("a stream can be made"));
            }
            Defragment => self.pool.defragment().expect("nothing fails"),
            Trim => _ = self.pool.trim(0).expect("nothing fails"),
        }
    }

    /// Checks what is live, frees it, and lets go of everything.
    fn end(mut self) {
        for block in 0..self.blocks.len() {
            self.free(block, None);
        }
        self.sim.device(0).synchronize().expect("nothing fails");
        assert!(!self.wrong.load(Ordering::Relaxed), "a kernel has found what is not its own");
        if let Some(hazard) = self.sim.hazards().first() {
            panic!("{hazard}");
        }
        self.pool.trim(0).expect("nothing fails");
        assert_eq!(self.pool.pool_size(), 0, "{:?}", self.pool.status());
        drop(self.pool);
        let left = self.sim.live();
        assert_eq!(left.allocations() + left.physical + left.mappings + left.reservations, 0, "{left}");
    }
}

/// Runs a program under every schedule. Returns how many there are.
fn schedules_of(program: &[Step], reuse: Reuse, segments: usize) -> u64 {
    let explored = explore(SimConfig::default(), |driver| {
        let mut world = World::new(driver, UNIT, |device| {
            let config = PoolConfig::default().maximum(POOL).reuse(reuse).growth(Growth::Exact);
            let config = if segments == 1 { config.initial(POOL) } else { config };
            Cuda::new(device).pool(config).expect("there is room")
        });
        program.iter().for_each(|step| world.step(*step));
        world.end();
    });
    assert!(explored.complete, "{program:?}");
    explored.schedules
}

/// All programs of `length` steps over an alphabet that depends on the streams and blocks that there are.
fn programs(
    length: usize,
    alphabet: fn(streams: usize, live: &BTreeSet<usize>) -> Vec<Step>,
) -> Vec<Vec<Step>> {
    let mut all = vec![vec![Take(0, 1)], vec![Take(0, 2)]];
    for _ in 1..length {
        all = all
            .into_iter()
            .flat_map(|program| {
                let (mut streams, mut taken, mut live) = (1, 0, BTreeSet::new());
                for step in &program {
                    match *step {
                        Take(stream, _) | FreeOn(_, stream) | Wait(stream, _) => {
                            streams = streams.max(stream + 1);
                        }
                        _ => {}
                    }
                    match *step {
                        Take(..) | TakeSync(_) => {
                            live.insert(taken);
                            taken += 1;
                        }
                        Free(block) | FreeOn(block, _) => _ = live.remove(&block),
                        _ => {}
                    }
                }
                // Streams that have done nothing are alike: the first of them stands for all.
                let steps = alphabet(STREAMS.min(streams + 1), &live);
                steps.into_iter().map(move |step| [&program[..], &[step]].concat())
            })
            .collect();
    }
    all
}

fn explore_all(programs: &[Vec<Step>], reuses: &[Reuse], segments: &[usize]) {
    let mut schedules = 0;
    for program in programs {
        for &reuse in reuses {
            for &segments in segments {
                schedules += schedules_of(program, reuse, segments);
            }
        }
    }
    println!("{} programs, {schedules} schedules", programs.len());
    assert!(schedules > programs.len() as u64, "hardly a program has a choice");
}

/// Allocate, use, free and steal.
#[test]
fn every_program_of_takes_and_frees_is_in_order() {
    let alphabet = |streams: usize, live: &BTreeSet<usize>| {
        let takes = (0..streams).flat_map(|stream| [Take(stream, 1), Take(stream, 2)]);
        takes.chain(live.iter().map(|block| Free(*block))).collect()
    };
    explore_all(&programs(takes_and_frees(), alphabet), &[Reuse::Wait], &[1, 2]);
}

/// What one stream frees at two times lies side by side, and another has waited for the first time alone, or for both.
#[test]
fn every_program_of_two_streams_that_wait_is_in_order() {
    let alphabet = |streams: usize, live: &BTreeSet<usize>| {
        let two = streams.min(2);
        let takes = (0..two).map(|stream| Take(stream, 1));
        let waits = (0..two).map(|stream| Wait(stream, 1 - stream));
        takes.chain(waits).chain(live.iter().map(|block| Free(*block))).collect()
    };
    let mut all = programs(takes_and_frees(), alphabet);
    all.iter_mut().for_each(|program| program.push(Take(1, 2)));
    explore_all(&all, &[Reuse::Wait], &[1]);
}

/// All that can be done, in fewer steps.
#[test]
fn every_shorter_program_of_everything_is_in_order() {
    let alphabet = |streams: usize, live: &BTreeSet<usize>| {
        let mut steps = vec![TakeSync(1), Defragment, Trim];
        for stream in 0..streams {
            steps.extend([Take(stream, 1), Take(stream, 2), Merge(stream)]);
            steps.extend([Synchronize(stream), Query(stream), Renew(stream)]);
            steps.extend(live.iter().map(|block| FreeOn(*block, stream)));
        }
        steps
    };
    let mut all = programs(OF_EVERYTHING, alphabet);
    // Behind each, somebody takes everything.
    all.iter_mut().for_each(|program| program.extend([Take(2, 1), Take(1, 1)]));
    explore_all(&all, &[Reuse::Wait], &[1, 2]);
}

/// The merge that lost a dependency, in each of its forms and under each policy (scenario 1).
#[test]
fn scenario_01_three_streams_and_a_merge() {
    let begin = [Take(0, 1), Take(1, 1), Free(0), Free(1)];
    let end = [Take(2, 1), Take(2, 1)];
    let forms: [&[Step]; 5] = [
        &[Take(1, 2), Free(2)],
        &[Merge(1)],
        &[Merge(1), Take(1, 2), Free(2)],
        &[Take(1, 2), FreeOn(2, 0)],
        &[Defragment],
    ];
    for form in forms {
        let program = [&begin[..], form, &end[..]].concat();
        for reuse in [Reuse::Own, Reuse::Completed, Reuse::Wait] {
            let schedules = schedules_of(&program, reuse, 1);
            assert!(schedules > 1, "{program:?} has one schedule");
        }
    }
}

/// Three pages, of which the first and the last are free, behind work of two streams or of one; then anything: a block of two pages
/// needs one of them moved, or a wait.
#[test]
fn every_program_over_pages_that_move_is_in_order() {
    const PAGE: usize = 2 << 20;
    static MOVES: AtomicU64 = AtomicU64::new(0);
    let alphabet = |live: &BTreeSet<usize>| -> Vec<Step> {
        let mut steps = vec![Trim, Take(0, 2), Take(1, 1), Take(1, 2)];
        steps.extend(live.iter().map(|block| FreeOn(*block, 1)));
        steps
    };
    let begins = [
        [Take(0, 1), Take(0, 1), Take(1, 1), Free(0), Free(2)],
        [Take(0, 1), Take(1, 1), Take(0, 1), Free(0), Free(2)],
    ];
    let live = |program: &[Step]| {
        let takes = program.iter().filter(|step| matches!(step, Take(..) | TakeSync(_))).count();
        let is_free = |block: &usize| {
            program.iter().any(|step| matches!(step, Free(of) | FreeOn(of, _) if of == block))
        };
        (0..takes).filter(|block| !is_free(block)).collect::<BTreeSet<_>>()
    };
    let mut all: Vec<Vec<Step>> = begins.iter().map(|begin| begin.to_vec()).collect();
    for _ in 0..OF_PAGES {
        let longer = |program: Vec<Step>| {
            let steps = alphabet(&live(&program));
            steps.into_iter().map(move |step| [&program[..], &[step]].concat())
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    let reuses: &[Reuse] = if is_night() { &[Reuse::Wait, Reuse::Completed] } else { &[Reuse::Wait] };
    let mut schedules = 0;
    for program in &all {
        for &reuse in reuses {
            for budget in [false, true] {
                let explored = explore(SimConfig::default().memory_bytes(4 * PAGE), |driver| {
                    let mut world = World::new(driver, PAGE, |device| {
                        let config = PoolConfig::default().reuse(reuse).growth(Growth::Exact);
                        let config = match budget {
                            true => config.budget(PageBudget::TimesPeak(1.0)),
                            false => config.maximum(3 * PAGE),
                        };
                        Mapped::new(device)
                            .and_then(|source| source.pool(config))
                            .expect("the device maps pages")
                    });
                    program.iter().for_each(|step| world.step(*step));
                    MOVES.fetch_add(world.pool.status().moves, Ordering::Relaxed);
                    world.end();
                });
                assert!(explored.complete, "{program:?}");
                schedules += explored.schedules;
            }
        }
    }
    let moves = MOVES.load(Ordering::Relaxed);
    println!("{} programs, {schedules} schedules, {moves} moves", all.len());
    assert!(
        schedules > 2 * (reuses.len() * all.len()) as u64 && moves > schedules / 20,
        "{moves} moves in {schedules} schedules"
    );
}
