//! Graphs of programs at random, under every schedule, and with each call failing.

#![expect(unsafe_code, reason = "launches kernels, and frees blocks that it has")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvion::driver::{Call, CaptureMode, DriverError};
use alluvion::sim::{Kernel, SimConfig, SimDriver, explore};
use alluvion::source::Cuda;
use alluvion::testing::{Bench, Sweep};
use alluvion::{DevicePtr, Error, GraphMemory, Layout, PoolConfig, Resource, ResourceExt, Sim, Stream};

use crate::graph_rig::{MIB, Rig};
use crate::raw_block::{Held, layout_of};

/// A small generator, so that a program is its seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A kernel of a program: counts each word that is not as expected, and writes another.
fn step(
    rig: &Rig,
    stream: &Stream,
    block: (DevicePtr, Layout),
    old: Option<u32>,
    new: u32,
    wrong: &Arc<AtomicU64>,
) {
    let (address, bytes) = (block.0.address(), block.1.bytes());
    let places = [address, address + bytes as u64 - 4];
    let wrong = Arc::clone(wrong);
    let kernel = Kernel::new("step").writes(address, bytes).run(move |memory| {
        for at in places.into_iter().take(if bytes > 4 { 2 } else { 1 }) {
            if old.is_some_and(|old| memory.read_u32(at) != old) {
                wrong.fetch_add(1, Ordering::Relaxed);
            }
            memory.write_u32(at, new);
        }
    });
    // SAFETY: the stream lives, and so does the block until a free behind this; the simulator reports a conflict.
    unsafe { rig.sim.launch(0, stream.raw(), kernel) }.expect("it can be launched");
}

/// A program at random: on three streams of one capture, or on two that run. Each block is written, checked and freed.
struct Program<'r> {
    rig: &'r Rig,
    streams: Vec<Stream>,
    live: Vec<(DevicePtr, Layout, usize, u32)>,
    wrong: Arc<AtomicU64>,
    words: u32,
}

impl Program<'_> {
    fn go(&mut self, dice: &mut Dice, memory: Option<&GraphMemory<'_, Cuda>>) {
        let on = dice.below(self.streams.len() as u64) as usize;
        let stream = &self.streams[on];
        match dice.below(10) {
            0..5 => {
                let layout = layout_of([4, 300, 5000, 70_000, MIB, 3 * MIB][dice.below(6) as usize]);
                let Ok(block) = self.rig.pool.allocate(layout, stream.as_ref()) else { return };
                self.words += 1;
                step(self.rig, stream, (block, layout), None, self.words, &self.wrong);
                self.live.push((block, layout, on, self.words));
            }
            5..9 if !self.live.is_empty() => {
                let at = dice.below(self.live.len() as u64) as usize;
                let (block, layout, of, word) = self.live.swap_remove(at);
                let stream = &self.streams[of];
                step(self.rig, stream, (block, layout), Some(word), !word, &self.wrong);
                // SAFETY: the block is live, and used on this stream alone.
                unsafe { self.rig.pool.deallocate(block, layout, stream.as_ref()) };
            }
            _ => {
                let other = &self.streams[dice.below(self.streams.len() as u64) as usize];
                match memory {
                    Some(memory) => memory.follow(stream, other).unwrap(),
                    None => stream.wait_for_stream(other).unwrap(),
                }
            }
        }
    }
}

/// Graphs of programs at random are launched many times beside a program that allocates: no use conflicts with another, and each
/// kernel finds what the one before has written.
#[test]
fn graphs_run_beside_a_program_that_allocates() {
    for seed in 0..if cfg!(debug_assertions) { 4 } else { 100 } {
        let sim = Sim::with_config(SimConfig::default().seed(seed));
        let rig = Rig::on(sim, PoolConfig::default().maximum(60 * MIB));
        let wrong = Arc::new(AtomicU64::new(0));
        let mut dice = Dice(seed);
        let streams = || (0..2).map(|_| rig.sim.device(0).stream().unwrap()).collect();
        let (launcher, rig) = (rig.sim.device(0).stream().unwrap(), &rig);
        let program = |streams| Program { rig, streams, live: Vec::new(), wrong: wrong.clone(), words: 0 };
        let mut running = program(streams());
        let mut graphs = Vec::new();
        for _ in 0..2 {
            let mut captured = program(vec![rig.main.clone(), rig.side.clone(), launcher.clone()]);
            rig.begin(&rig.main);
            let memory = rig.pool.capture(&rig.main).unwrap();
            for joined in [&rig.side, &launcher] {
                memory.follow(joined, &rig.main).unwrap();
            }
            for _ in 0..60 {
                captured.go(&mut dice, Some(&memory));
                running.go(&mut dice, None);
            }
            for joined in [&rig.side, &launcher] {
                memory.follow(&rig.main, joined).unwrap();
            }
            graphs.push((rig.end(&rig.main), memory));
            graphs.last().expect("it was pushed").1.end().unwrap();
            // The outputs stay, written anew by each launch.
            captured.live.clear();
        }
        for _ in 0..50 {
            let at = dice.below(2) as usize;
            rig.launch(&graphs[at].0, [&launcher, &rig.side][dice.below(2) as usize]);
            for _ in 0..5 {
                running.go(&mut dice, None);
            }
        }
        for stream in [&launcher, &rig.side] {
            stream.synchronize().unwrap();
        }
        running.streams.iter().for_each(|stream| stream.synchronize().unwrap());
        assert_eq!(wrong.load(Ordering::Relaxed), 0, "seed {seed}");
        assert!(rig.sim.hazards().is_empty(), "seed {seed}: {:#?}", rig.sim.hazards());
    }
}

/// Two branches of a graph, and a program beside it, under every schedule.
#[test]
fn every_schedule_of_a_small_graph_is_sound() {
    for followed in [true, false] {
        let explored = explore(SimConfig::default(), |driver: &Arc<SimDriver>| {
            let rig = Rig::on(Sim::with_driver(Arc::clone(driver)), PoolConfig::default().maximum(8 * MIB));
            let wrong = Arc::new(AtomicU64::new(0));
            let layout = layout_of(2 * MIB);
            let mut words = 0;
            let mut work = |stream: &Stream| {
                let block = rig.pool.allocate(layout, stream.as_ref()).unwrap();
                words += 1;
                step(&rig, stream, (block, layout), None, words, &wrong);
                step(&rig, stream, (block, layout), Some(words), !words, &wrong);
                // SAFETY: the block is live, and used on this stream alone.
                unsafe { rig.pool.deallocate(block, layout, stream.as_ref()) };
                block
            };
            rig.begin(&rig.main);
            let memory = rig.pool.capture(&rig.main).unwrap();
            memory.follow(&rig.side, &rig.main).unwrap();
            let first = work(&rig.main);
            if followed {
                memory.follow(&rig.side, &rig.main).unwrap();
            }
            assert_eq!(work(&rig.side) == first, followed);
            memory.follow(&rig.main, &rig.side).unwrap();
            let graph = rig.end(&rig.main);
            memory.end().unwrap();
            rig.launch(&graph, &rig.main);
            work(&rig.side);
            rig.main.synchronize().unwrap();
            rig.side.synchronize().unwrap();
            assert_eq!(wrong.load(Ordering::Relaxed), 0);
            rig.check();
        });
        assert!(explored.complete && explored.schedules > 1, "{explored:?}");
    }
}

/// What the sweep runs: each call below it fails once.
fn use_in_a_capture(sim: &Sim) -> Result<(), Error> {
    let device = sim.device(0);
    drop(Cuda::new(&device).pool(PoolConfig::default().initial(256))?);
    let (main, side) = (device.stream()?, device.stream()?);
    let pool = Cuda::new(&device).pool(PoolConfig::default().maximum(8 * MIB).checked(true))?;
    let before = Held::allocate(&pool, layout_of(MIB), main.as_ref())?;
    if let Err(code) = sim.begin_capture(0, main.raw(), CaptureMode::Global) {
        before.free(main.as_ref());
        return Err(DriverError::new(Call::BeginCapture, code).into());
    }
    let opened = pool.capture(&main);
    let used = opened.as_ref().map_or(Ok(()), |memory| {
        for (stream, bytes) in [(&main, 1000), (&main, 3 * MIB), (&side, 1000), (&side, 3 * MIB)] {
            if *stream == side {
                memory.follow(&side, &main)?;
            }
            let block = Held::allocate(&pool, layout_of(bytes), stream.as_ref())?;
            let filled = block.try_fill(1, stream.as_ref());
            block.free(stream.as_ref());
            filled?;
        }
        Ok(())
    });
    before.free(main.as_ref());
    // A capture ends well only if it is joined.
    if let Ok(memory) = &opened
        && side.is_capturing().or_else(|_| side.is_capturing()).unwrap_or(false)
    {
        let _ = memory.follow(&main, &side).or_else(|_| memory.follow(&main, &side));
    }
    drop(sim.end_capture(0, main.raw()));
    let mut memory = opened?;
    // SAFETY: the graph is gone, and was never launched.
    let released = unsafe { memory.release() };
    if released.is_err() {
        // Nothing has changed, and there is one fault.
        // SAFETY: as above.
        unsafe { memory.release() }?;
    }
    drop(memory);
    let status = pool.status();
    assert_eq!((status.graph_bytes, status.live_blocks), (0, 0), "{status:?}");
    used.and(released.map(drop))
}

#[test]
fn each_call_of_a_capture_may_fail() {
    let swept = Sweep::new().config(Bench::config().devices(1)).run(use_in_a_capture);
    assert!(swept.calls >= 40, "the program hardly calls the driver: {swept}");
    assert!(swept.errors >= swept.runs / 8, "hardly a fault was noticed: {swept}");
}
