//! Graphs that own their memory, launched beside a program that allocates.

#![expect(unsafe_code, reason = "launches graphs, and frees by hand")]

use std::sync::Arc;
use std::time::Duration;

use alluvion::source::{Cuda, CudaAsync};
use alluvion::{DeviceAccessible, DevicePtr, Layout, PoolConfig, Resource, ResourceExt, Stream};
use cudarc::driver::{CudaContext, sys};

use crate::gpu_kernels::Kernels;
use crate::raw_block::{Held, layout_of};

const LAUNCHES: u32 = 1000;
const NOW: Duration = Duration::ZERO;
/// Long enough that work of several streams overlaps.
const LATE: Duration = Duration::from_micros(20);
const THREAD_LOCAL: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

/// Numbers without an order, so that a run can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Writes a block, late, and counts what is not as written.
struct Checked<'k> {
    kernels: &'k Kernels,
    /// Counts in the program beside the graphs, and within them.
    others: DevicePtr,
}

impl Checked<'_> {
    fn write(&self, block: (DevicePtr, Layout), word: u32, wait: Duration, stream: &Stream) {
        self.kernels.write_late(stream.as_ref(), block.0, block.1.bytes() / 4, word, wait);
    }

    fn check(&self, block: (DevicePtr, Layout), word: u32, stream: &Stream) {
        self.kernels.count_others(stream.as_ref(), block.0, block.1.bytes() / 4, word, self.others);
    }
}

/// Allocates, writes, checks and frees `rounds` times.
fn churn<R: Resource>(pool: &R, checked: &Checked<'_>, word: u32, rounds: usize, stream: &Stream) {
    for round in 0..rounds {
        let layout = layout_of([60_000, 300, 2 << 20, 9000][round % 4]);
        let block = pool.allocate(layout, stream.as_ref()).expect("there is memory");
        checked.write((block, layout), word + round as u32, NOW, stream);
        checked.check((block, layout), word + round as u32, stream);
        // SAFETY: the block is live, and used on this stream alone.
        unsafe { pool.deallocate(block, layout, stream.as_ref()) };
    }
}

fn beside_a_program<U: DeviceAccessible + 'static>(upstream: U) {
    let kernels = Kernels::load();
    let context = CudaContext::new(0).expect("these tests need a GPU");
    let (theirs, beside) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let (main, side) = (Stream::from_cudarc(&theirs).unwrap(), Stream::from_cudarc(&beside).unwrap());
    let device = main.device().clone();
    let counter_source = Cuda::new(&device);
    let counter = Held::allocate_sync(&counter_source, layout_of(256)).unwrap();
    counter.fill(0, main.as_ref());
    main.synchronize().unwrap();
    let checked = Checked { kernels: &kernels, others: counter.pointer };
    let pool = Arc::new(upstream.pool(PoolConfig::default()).unwrap());
    let mut graphs = Vec::new();
    for number in 0..2_u32 {
        // Freed in the capture: the graph has it at each launch.
        let before = Held::of(&*pool, 100_000, main.as_ref());
        theirs.begin_capture(THREAD_LOCAL).unwrap();
        let memory = pool.capture_owned(&main).unwrap();
        let word = 0x1000_0000 * (number + 1);
        checked.write((before.pointer, before.layout), word, LATE, &main);
        checked.check((before.pointer, before.layout), word, &main);
        before.free(main.as_ref());
        churn(&*pool, &checked, word, 12, &main);
        memory.follow(&side, &main).unwrap();
        churn(&*pool, &checked, word + 100, 12, &side);
        churn(&*pool, &checked, word + 200, 12, &main);
        memory.follow(&main, &side).unwrap();
        churn(&*pool, &checked, word + 300, 12, &main);
        let layout = layout_of(1 << 20);
        let output = (pool.allocate(layout, main.as_ref()).unwrap(), layout);
        checked.write(output, word + 400, LATE, &main);
        let graph = memory.end_cudarc(&theirs, sys::CUgraphInstantiate_flags(0)).unwrap();
        graphs.push((graph, output, word + 400));
    }
    let held = pool.status().graph_bytes;
    assert!(held > 0);
    let streams: Vec<Stream> = (0..3).map(|_| device.stream().unwrap()).collect();
    let (mut dice, mut live) = (Dice(1), Vec::new());
    for launch in 0..LAUNCHES {
        let (graph, output, word) = &graphs[dice.below(2) as usize];
        graph.launch().unwrap();
        checked.check(*output, *word, &main);
        for _ in 0..4 {
            let on = dice.below(3) as usize;
            let bytes = [300, 9000, 60_000, 100_000, 1 << 20, 3 << 20][dice.below(6) as usize];
            let block = Held::of(&*pool, bytes, streams[on].as_ref());
            let word = 0x8000_0000 | launch;
            checked.write((block.pointer, block.layout), word, LATE, &streams[on]);
            live.push((block, on, word));
        }
        while live.len() > 40 {
            let at = dice.below(live.len() as u64) as usize;
            let (block, on, word) = live.swap_remove(at);
            checked.check((block.pointer, block.layout), word, &streams[on]);
            block.free(streams[on].as_ref());
        }
        if launch % 100 == 99 {
            pool.trim(0).unwrap();
        }
    }
    for (block, on, word) in live {
        checked.check((block.pointer, block.layout), word, &streams[on]);
        block.free(streams[on].as_ref());
    }
    streams.iter().chain([&main, &side]).for_each(|stream| stream.synchronize().unwrap());
    assert_eq!(counter.words(main.as_ref())[0], 0, "words were overwritten");
    assert_eq!(pool.status().graph_bytes, held, "nothing has come back, or been taken, meanwhile");
    for (graph, (block, layout), _) in graphs {
        // SAFETY: the block is live, and its uses are over.
        unsafe { pool.deallocate(block, layout, main.as_ref()) };
        drop(graph);
    }
    let status = pool.status();
    assert_eq!((status.graph_bytes, status.live_blocks), (0, 0), "{status:?}");
    counter.free_sync();
}

#[test]
fn graphs_are_launched_beside_a_program_that_allocates() {
    beside_a_program(Cuda::new(&alluvion::Device::cuda(0).unwrap()));
}

#[test]
fn graphs_are_launched_beside_a_program_over_pools_of_the_driver() {
    beside_a_program(CudaAsync::new(&alluvion::Device::cuda(0).unwrap()).unwrap());
}

#[test]
fn a_graph_of_cudarc_keeps_its_memory() {
    let context = CudaContext::new(0).expect("these tests need a GPU");
    let (theirs, elsewhere) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let ours = Stream::from_cudarc(&theirs).unwrap();
    let pool = Cuda::new(ours.device()).pool(PoolConfig::default()).unwrap();
    let capture = || {
        theirs.begin_capture(THREAD_LOCAL).unwrap();
        let memory = pool.capture(&ours).unwrap();
        let block = Held::of(&pool, 5000, ours.as_ref());
        block.fill(7, ours.as_ref());
        block.free(ours.as_ref());
        memory
    };
    let flags = || sys::CUgraphInstantiate_flags(0);
    // Not the stream of the capture: nothing is lost.
    let memory = capture().end_cudarc(&elsewhere, flags()).unwrap_err().into_value();
    let graph = memory.end_cudarc(&theirs, flags()).unwrap();
    assert_eq!(graph.memory().reserved_bytes(), 2 << 20);
    graph.upload().unwrap();
    graph.launch().unwrap();
    // Into another graph it is not launched.
    theirs.begin_capture(THREAD_LOCAL).unwrap();
    assert!(graph.launch().unwrap_err().is_capture());
    drop(theirs.end_capture(flags()).unwrap());
    assert_eq!(pool.status().graph_bytes, 2 << 20);
    drop(graph);
    assert_eq!(pool.status().graph_bytes, 0);
    // While its stream captures, nobody can wait for the launches.
    let graph = capture().end_cudarc(&theirs, flags()).unwrap();
    graph.launch().unwrap();
    theirs.begin_capture(THREAD_LOCAL).unwrap();
    drop(graph);
    drop(theirs.end_capture(flags()).unwrap());
    assert_eq!(pool.status().graph_bytes, 2 << 20, "leaked");
}
