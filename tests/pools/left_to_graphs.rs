//! Blocks that several streams use, of which some capture, and that are dropped meanwhile: they are the graphs', and go back with their memory.

#![expect(unsafe_code, reason = "gives the memory of graphs back, and frees blocks")]

use std::sync::mpsc;
use std::thread;

use alluvion::compose::StackGraphMemory;
use alluvion::driver::{Call, CaptureMode, RawStream};
use alluvion::source::Cuda;
use alluvion::suballoc::SuballocBook;
use alluvion::{
    AnyResource, DeviceVec, ErrorKind, Frontier, Layout, PoolConfig, Recipe, Resource, ResourceExt, Sim,
    SleepConfig, Stream,
};

use crate::graph_rig::{MIB, Rig, release};
use crate::raw_block::Held;

/// A stack, with the stream that captures and one that joins.
fn rig(recipe: &str) -> (Sim, AnyResource, Stream, Stream) {
    let sim = Sim::new();
    let device = sim.device(0);
    let stack = recipe.parse::<Recipe>().expect("it is one").build(&device).expect("it can be built");
    let (main, side) = (device.stream().expect("there are numbers"), device.stream().expect("as before"));
    (sim, stack, main, side)
}

#[test]
fn a_container_of_the_capture_goes_back_with_its_memory() {
    let rig = Rig::new(PoolConfig::default());
    rig.begin(&rig.main);
    let mut memory = rig.pool.capture(&rig.main).unwrap();
    memory.follow(&rig.side, &rig.main).unwrap();
    let block = DeviceVec::<u8, _>::filled_in(MIB, 1, &rig.main, &rig.pool).unwrap();
    let address = block.as_device_ptr();
    block.record_use(&rig.side).unwrap();
    drop(block);
    let next = DeviceVec::<u8, _>::filled_in(MIB, 2, &rig.main, &rig.pool).unwrap();
    assert_ne!(next.as_device_ptr(), address, "the other stream may still use it, in each launch");
    drop(next);
    memory.follow(&rig.main, &rig.side).unwrap();
    let graph = rig.end(&rig.main);
    memory.end().unwrap();
    assert_eq!(release(&mut memory, graph).unwrap(), 2 * MIB);
    assert_eq!((rig.pool.status().graph_bytes, rig.pool.status().live_bytes), (0, 0));
    rig.check();
}

#[test]
fn a_container_that_was_there_before_is_the_graphs_until_the_release() {
    let rig = Rig::new(PoolConfig::default());
    let before = DeviceVec::<u8, _>::filled_in(MIB, 1, &rig.main, &rig.pool).unwrap();
    let address = before.as_device_ptr();
    rig.begin(&rig.main);
    let mut memory = rig.pool.capture(&rig.main).unwrap();
    memory.follow(&rig.side, &rig.main).unwrap();
    before.record_use(&rig.side).unwrap();
    drop(before);
    assert_eq!(rig.pool.status().graph_bytes, MIB, "it is the graph's from its free on");
    memory.follow(&rig.main, &rig.side).unwrap();
    let graph = rig.end(&rig.main);
    memory.end().unwrap();
    let others: Vec<_> =
        (0..8).map(|_| DeviceVec::<u8, _>::uninit_in(MIB, &rig.side, &rig.pool).unwrap()).collect();
    assert!(others.iter().all(|other| other.as_device_ptr() != address));
    drop(others);
    assert_eq!(release(&mut memory, graph).unwrap(), MIB);
    assert_eq!((rig.pool.status().graph_bytes, rig.pool.status().live_bytes), (0, 0));
    rig.check();
}

/// The books above the pool hear of the free as of any other.
#[test]
fn a_block_that_is_left_is_freed_through_all_layers() {
    let (sim, stack, main, side) = rig("stats | tracking | pool | cuda");
    let layout = Layout::from_bytes(1000).expect("it is short");
    let before = stack.allocate(layout, main.as_ref()).expect("there is memory");
    sim.begin_capture(0, main.raw(), CaptureMode::Global).expect("it can capture");
    let memory = stack.capture(&main).expect("there is a pool");
    memory.follow(&side, &main).expect("it joins");
    let within = stack.allocate(layout, main.as_ref()).expect("there is memory");
    let uses = Frontier::of(side.release());
    for block in [within, before] {
        assert!(main.wait_for(&uses).expect_err("it captures").is_capture());
        assert!(stack.leave_to_graph(block, &main, &uses));
        // SAFETY: the block came from there with this layout; what uses it is of the graph, which has it now.
        unsafe { stack.deallocate(block, layout, main.as_ref()) };
    }
    memory.follow(&main, &side).expect("they are of one capture");
    drop(sim.end_capture(0, main.raw()).expect("the capture is whole"));
    let live = stack.find::<alluvion::adaptor::Stats>().expect("there is one").counts().bytes.live;
    assert_eq!(live, 0, "nothing is out");
    // SAFETY: the graph is gone, and was never launched.
    assert!(unsafe { memory.release() }.expect("none is out") > 2 * MIB);
    let status = stack.find::<SuballocBook>().expect("there is a pool").status();
    assert_eq!((status.graph_bytes, status.live_bytes), (0, 0));
}

/// What frees a block that was left need be no stream of the capture, nor a stream.
#[test]
fn one_that_is_left_is_the_graphs_on_whatever_stream_it_is_freed() {
    for with_stream in [true, false] {
        let (sim, stack, main, side) = rig("pool | cuda");
        let layout = Layout::from_bytes(MIB).expect("it is short");
        let block = stack.allocate(layout, main.as_ref()).expect("there is memory");
        sim.begin_capture(0, main.raw(), CaptureMode::Global).expect("it can capture");
        let memory = stack.capture(&main).expect("there is a pool");
        assert!(stack.leave_to_graph(block, &main, &Frontier::of(side.release())));
        drop(sim.end_capture(0, main.raw()).expect("the capture is whole"));
        memory.end().expect("it is open");
        if with_stream {
            // SAFETY: the block came from there with this layout, and nothing uses it.
            unsafe { stack.deallocate(block, layout, side.as_ref()) };
        } else {
            // SAFETY: as above.
            unsafe { stack.deallocate_sync(block, layout) };
        }
        assert_eq!(memory.reserved_bytes(), MIB);
        // SAFETY: the graph is gone, and was never launched.
        assert_eq!(unsafe { memory.release() }.expect("none is out"), MIB);
    }
}

/// The release waits for work that runs and that the free could not wait for.
#[test]
fn the_release_waits_for_uses_that_run() {
    let (sim, stack, main, side) = rig("pool | cuda");
    let block = DeviceVec::<u8, _>::filled_in(MIB, 1, &main, &stack).expect("there is memory");
    sim.begin_capture(0, side.raw(), CaptureMode::Global).expect("it can capture");
    sim.begin_capture(0, main.raw(), CaptureMode::Global).expect("and so can this one");
    let memory = stack.capture(&main).expect("there is a pool");
    block.record_use(&side).expect("it is of this machine");
    drop(block);
    drop(sim.end_capture(0, main.raw()).expect("the capture is whole"));
    // SAFETY: the graph is gone, and was never launched.
    let early = unsafe { memory.release() }.expect_err("the other stream still captures");
    assert!(early.is_capture(), "{early}");
    assert_eq!(memory.reserved_bytes(), MIB);
    drop(sim.end_capture(0, side.raw()).expect("the capture is whole"));
    // SAFETY: as above.
    assert_eq!(unsafe { memory.release() }.expect("it is tried again"), MIB);
    let status = stack.find::<SuballocBook>().expect("there is a pool").status();
    assert_eq!((status.graph_bytes, status.live_bytes), (0, 0));
    assert_eq!(status.free_bytes + status.cached_bytes, status.reserved_bytes);
}

#[test]
fn a_block_that_no_graph_has_to_do_with_is_left_to_none() {
    let (sim, stack, main, side) = rig("pool | cuda");
    let layout = Layout::from_bytes(1000).expect("it is short");
    let block = stack.allocate(layout, main.as_ref()).expect("there is memory");
    let uses = Frontier::of(side.release());
    assert!(!stack.leave_to_graph(block, &main, &uses), "no graph is there");
    sim.begin_capture(0, main.raw(), CaptureMode::Global).expect("it can capture");
    let memory = stack.capture(&main).expect("there is a pool");
    assert!(!stack.leave_to_graph(block, &side, &uses), "that stream captures nothing");
    let elsewhere = Sim::new();
    let foreign = elsewhere.device(0).stream().expect("there are numbers");
    assert!(!stack.leave_to_graph(block, &foreign, &uses), "it is of another machine");
    drop(sim.end_capture(0, main.raw()).expect("the capture is whole"));
    // SAFETY: the block came from there with this layout, and nothing uses it.
    unsafe { stack.deallocate(block, layout, main.as_ref()) };
    // SAFETY: the graph is gone, and was never launched.
    assert_eq!(unsafe { memory.release() }.expect("none is out"), 0, "it was freed to the pool");
    let (_sim, stack, main, _side) = rig("cuda");
    assert!(!stack.leave_to_graph(block, &main, &Frontier::quiescent()), "no pool is there");
    assert_eq!(stack.capture(&main).expect_err("as before").kind(), ErrorKind::Unsupported);
}

/// A layer that hands out other addresses than the pool does: the pool does not know which block is meant.
#[test]
fn a_block_of_another_address_than_the_pools_is_left_to_none() {
    for recipe in ["guard | pool | cuda", "aligned(4MiB) | pool | cuda"] {
        let (sim, stack, main, side) = rig(recipe);
        let layout = Layout::from_bytes(1000).expect("it is short");
        let pad = stack.allocate(layout, main.as_ref()).expect("there is memory");
        let before = stack.allocate(layout, main.as_ref()).expect("there is memory");
        sim.begin_capture(0, main.raw(), CaptureMode::Global).expect("it can capture");
        let memory = stack.capture(&main).expect("there is a pool");
        memory.follow(&side, &main).expect("it joins");
        let within = [(); 2].map(|()| stack.allocate(layout, main.as_ref()).expect("there is memory"));
        let uses = Frontier::of(side.release());
        for block in [within[1], before] {
            assert!(!stack.leave_to_graph(block, &main, &uses), "{recipe}: {block:?}");
        }
        memory.follow(&main, &side).expect("they are of one capture");
        for block in [within[0], within[1], before, pad] {
            // SAFETY: the block came from there with this layout; the stream has waited for what uses it.
            unsafe { stack.deallocate(block, layout, main.as_ref()) };
        }
        drop(sim.end_capture(0, main.raw()).expect("the capture is whole"));
    }
}

/// A free that the ledger refuses changes nothing, so that the one that comes leaves the block to its graph.
#[test]
fn a_free_that_is_refused_leaves_the_mark() {
    let (sim, stack, main, side) = rig("pool(checked=true) | cuda");
    let layout = Layout::from_bytes(MIB).expect("it is short");
    let block = stack.allocate(layout, main.as_ref()).expect("there is memory");
    sim.begin_capture(0, main.raw(), CaptureMode::Global).expect("it can capture");
    let memory = stack.capture(&main).expect("there is a pool");
    assert!(stack.leave_to_graph(block, &main, &Frontier::of(side.release())));
    drop(sim.end_capture(0, main.raw()).expect("the capture is whole"));
    memory.end().expect("it is open");
    let other = Layout::from_bytes(MIB / 2).expect("it is short");
    // SAFETY: a ledger refuses what is not of the size.
    unsafe { stack.deallocate(block, other, side.as_ref()) };
    assert_eq!((sim.take_hazards().len(), memory.reserved_bytes()), (1, 0), "it is not free");
    // SAFETY: the block came from there with this layout, and nothing but the graph uses it.
    unsafe { stack.deallocate(block, layout, side.as_ref()) };
    assert_eq!(memory.reserved_bytes(), MIB, "it is the graph's");
    // SAFETY: the graph is gone, and was never launched.
    assert_eq!(unsafe { memory.release() }.expect("none is out"), MIB);
}

/// A graph may be launched at any time, so that what it will have stays where it is; and what sleeps is left to none.
#[test]
fn a_block_that_is_left_does_not_sleep() {
    let (sim, stack, main, side) = rig("pool | mapped");
    let layout = Layout::from_bytes(4 * MIB).expect("it is short");
    let [left, other] = [(); 2].map(|()| stack.allocate(layout, main.as_ref()).expect("there is memory"));
    let uses = Frontier::of(side.release());
    sim.begin_capture(0, main.raw(), CaptureMode::Global).expect("it can capture");
    let memory = stack.capture(&main).expect("there is a pool");
    assert!(stack.leave_to_graph(left, &main, &uses));
    drop(sim.end_capture(0, main.raw()).expect("the capture is whole"));

    // SAFETY: nothing uses the blocks.
    let one = unsafe { stack.sleep_block(left, &Frontier::quiescent(), SleepConfig::default()) };
    assert_eq!(one.expect_err("a graph has it").kind(), ErrorKind::InvalidArgument);
    // SAFETY: as above.
    let all = unsafe { stack.sleep(SleepConfig::default()) }.expect("it has pages");
    assert_eq!((all.blocks(), all.bytes()), (1, 4 * MIB), "the other block");

    let again = sim.device(0).stream().expect("there are numbers");
    sim.begin_capture(0, again.raw(), CaptureMode::Global).expect("it can capture");
    let next = stack.capture(&again).expect("there is a pool");
    assert!(!stack.leave_to_graph(other, &again, &uses), "it sleeps");
    drop(sim.end_capture(0, again.raw()).expect("the capture is whole"));
    all.wake().expect("there is room");
    for block in [left, other] {
        // SAFETY: the block came from there with this layout, and nothing but the graph uses it.
        unsafe { stack.deallocate(block, layout, side.as_ref()) };
    }
    assert_eq!((memory.reserved_bytes(), next.reserved_bytes()), (4 * MIB, 0));
    // SAFETY: the graph is gone, and was never launched.
    let of_first = unsafe { memory.release() };
    // SAFETY: as above.
    let of_next = unsafe { next.release() };
    assert_eq!((of_first.expect("none is out"), of_next.expect("none is out")), (4 * MIB, 0));
}

/// The memory of a graph may be released before a block that was left to it is freed: then nothing looks for it any more.
#[test]
fn a_mark_goes_with_the_memory_of_its_graph() {
    let (sim, stack, main, side) = rig("pool | cuda");
    let layout = Layout::from_bytes(MIB).expect("it is short");
    let block = stack.allocate(layout, main.as_ref()).expect("there is memory");
    sim.begin_capture(0, main.raw(), CaptureMode::Global).expect("it can capture");
    let memory = stack.capture(&main).expect("there is a pool");
    assert!(stack.leave_to_graph(block, &main, &Frontier::of(side.release())));
    drop(sim.end_capture(0, main.raw()).expect("the capture is whole"));
    memory.end().expect("it is open");
    let questions_of_a_pair = || {
        let before = sim.calls()[Call::StreamCaptureId];
        drop(DeviceVec::<u8, _>::uninit_in(MIB, &side, &stack).expect("there is memory"));
        sim.calls()[Call::StreamCaptureId] - before
    };
    assert!(questions_of_a_pair() > 0, "each free looks for the mark");
    // SAFETY: the graph is gone, and was never launched.
    assert_eq!(unsafe { memory.release() }.expect("none is out"), 0);
    assert_eq!(questions_of_a_pair(), 0);
    // SAFETY: the block came from there with this layout, and nothing uses it.
    unsafe { stack.deallocate(block, layout, main.as_ref()) };
    let status = stack.find::<SuballocBook>().expect("there is a pool").status();
    assert_eq!((status.graph_bytes, status.live_bytes), (0, 0));
}

/// Whoever drops the handle may launch the graph after the end of the pool, also where the block that it has was never freed.
#[test]
fn a_block_that_is_left_outlives_its_pool() {
    let (sim, stack, main, side) = rig("pool | cuda");
    let block = Held::of(&stack, MIB, main.as_ref());
    sim.begin_capture(0, main.raw(), CaptureMode::Global).expect("it can capture");
    let memory = stack.capture(&main).expect("there is a pool");
    block.fill(1, main.as_ref());
    let (address, _) = block.into_parts();
    assert!(stack.leave_to_graph(address, &main, &Frontier::of(side.release())));
    let graph = sim.end_capture(0, main.raw()).expect("the capture is whole");
    drop((memory, stack));
    // SAFETY: what the graph touches was leaked.
    unsafe { sim.launch_graph(0, main.raw(), &graph) }.expect("it can be launched");
    main.synchronize().expect("the device goes on");
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

/// Two streams that capture, each with memory of its graph.
fn two_captures(sim: &Sim, stack: &AnyResource, streams: [&Stream; 2]) -> [StackGraphMemory; 2] {
    streams.map(|stream| {
        sim.begin_capture(0, stream.raw(), CaptureMode::Relaxed).expect("it can capture");
        stack.capture(stream).expect("there is a pool")
    })
}

/// A block that two graphs use is there until both have gone, in whatever order, and wherever its home is.
#[test]
fn a_container_that_two_captures_use_goes_back_with_the_last_one() {
    for (home_captures, first) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        let (sim, stack, main, side) = rig("pool | cuda");
        let outside = sim.device(0).stream().expect("there are numbers");
        let home = if home_captures { &main } else { &outside };
        let block = DeviceVec::<u8, _>::filled_in(MIB, 1, home, &stack).expect("there is memory");
        let address = block.as_device_ptr();
        home.synchronize().expect("nothing fails");
        let memories = two_captures(&sim, &stack, [&main, &side]);
        let uses = if home_captures { vec![&side] } else { vec![&main, &side] };
        for stream in uses {
            block.record_use(stream).expect("it is of this machine");
        }
        drop(block);
        let status = || stack.find::<SuballocBook>().expect("there is a pool").status();
        assert_eq!((status().graph_bytes, memories[0].reserved_bytes()), (MIB, MIB), "it is held once");
        for stream in [&main, &side] {
            drop(sim.end_capture(0, stream.raw()).expect("the capture is whole"));
        }
        let [one, other] = [&memories[first], &memories[1 - first]];
        // SAFETY: the graph is gone, and was never launched.
        assert_eq!(unsafe { one.release() }.expect("none is out"), 0, "the other graph has it");
        assert_eq!((status().graph_bytes, other.reserved_bytes()), (MIB, MIB));
        let others: Vec<_> = (0..8)
            .map(|_| DeviceVec::<u8, _>::uninit_in(MIB, &outside, &stack).expect("there is memory"))
            .collect();
        assert!(others.iter().all(|other| other.as_device_ptr() != address));
        drop(others);
        // SAFETY: as above.
        assert_eq!(unsafe { other.release() }.expect("none is out"), MIB);
        assert_eq!((status().graph_bytes, status().live_bytes), (0, 0));
        assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
    }
}

/// The stream that frees a block need not capture: it is the graph's whose capture has used it.
#[test]
fn a_container_whose_home_does_not_capture_is_the_graphs() {
    let (sim, stack, main, side) = rig("stats | pool | cuda");
    let outside = sim.device(0).stream().expect("there are numbers");
    let block = DeviceVec::<u8, _>::filled_in(MIB, 1, &outside, &stack).expect("there is memory");
    sim.begin_capture(0, main.raw(), CaptureMode::Global).expect("it can capture");
    let memory = stack.capture(&main).expect("there is a pool");
    memory.follow(&side, &main).expect("it joins");
    for stream in [&main, &side] {
        block.record_use(stream).expect("it is of this machine");
    }
    drop(block);
    assert_eq!(memory.reserved_bytes(), MIB);
    memory.follow(&main, &side).expect("they are of one capture");
    drop(sim.end_capture(0, main.raw()).expect("the capture is whole"));
    // SAFETY: the graph is gone, and was never launched.
    assert_eq!(unsafe { memory.release() }.expect("none is out"), MIB);
    let status = stack.find::<SuballocBook>().expect("there is a pool").status();
    assert_eq!((status.graph_bytes, status.live_bytes), (0, 0));
}

/// A mark adds to one that was there, and goes with the memory of one graph for that graph alone.
#[test]
fn a_block_that_is_left_to_one_graph_and_to_another_is_left_to_both() {
    for released_before_the_free in [0, 1] {
        let (sim, stack, main, side) = rig("pool | cuda");
        let layout = Layout::from_bytes(MIB).expect("it is short");
        let block = stack.allocate(layout, main.as_ref()).expect("there is memory");
        let memories = two_captures(&sim, &stack, [&main, &side]);
        for stream in [&main, &side] {
            assert!(stack.leave_to_graph(block, stream, &Frontier::quiescent()));
        }
        for stream in [&main, &side] {
            drop(sim.end_capture(0, stream.raw()).expect("the capture is whole"));
        }
        let [gone, left] = [&memories[released_before_the_free], &memories[1 - released_before_the_free]];
        // SAFETY: the graph is gone, and was never launched.
        assert_eq!(unsafe { gone.release() }.expect("none is out"), 0);
        // SAFETY: the block came from there with this layout, and nothing but the graph uses it.
        unsafe { stack.deallocate(block, layout, main.as_ref()) };
        assert_eq!(left.reserved_bytes(), MIB, "it is the other graph's");
        // SAFETY: as above.
        assert_eq!(unsafe { left.release() }.expect("none is out"), MIB);
    }
}

/// The stream that frees a block which was left may be one of another capture: that graph has it, too.
#[test]
fn one_that_is_left_to_one_graph_and_freed_in_another_is_left_to_both() {
    for first in [0, 1] {
        let (sim, stack, main, side) = rig("pool | cuda");
        let layout = Layout::from_bytes(MIB).expect("it is short");
        let block = stack.allocate(layout, main.as_ref()).expect("there is memory");
        let memories = two_captures(&sim, &stack, [&main, &side]);
        assert!(stack.leave_to_graph(block, &side, &Frontier::quiescent()));
        // SAFETY: the block came from there with this layout, and nothing but the graphs uses it.
        unsafe { stack.deallocate(block, layout, main.as_ref()) };
        for stream in [&main, &side] {
            drop(sim.end_capture(0, stream.raw()).expect("the capture is whole"));
        }
        let [one, other] = [&memories[first], &memories[1 - first]];
        // SAFETY: the graph is gone, and was never launched.
        assert_eq!(unsafe { one.release() }.expect("none is out"), 0, "the other graph has it");
        assert_eq!(other.reserved_bytes(), MIB);
        // SAFETY: as above.
        assert_eq!(unsafe { other.release() }.expect("none is out"), MIB);
    }
}

/// Where captures are watched, a block that is freed in one without memory is never handed out again, also if it was left to a graph before.
#[test]
fn one_that_is_left_and_freed_in_a_capture_that_is_watched_stays_for_good() {
    let (sim, _, main, side) = rig("pool | cuda");
    let config = PoolConfig::default().watch_captures(true);
    let pool = Cuda::new(&sim.device(0)).pool(config).expect("a right configuration");
    let stack = AnyResource::new(pool);
    let layout = Layout::from_bytes(MIB).expect("it is short");
    let block = stack.allocate(layout, main.as_ref()).expect("there is memory");
    for stream in [&main, &side] {
        sim.begin_capture(0, stream.raw(), CaptureMode::Relaxed).expect("it can capture");
    }
    let memory = stack.capture(&side).expect("there is a pool");
    assert!(stack.leave_to_graph(block, &side, &Frontier::quiescent()));
    // SAFETY: the block came from there with this layout, and nothing but the graphs uses it.
    unsafe { stack.deallocate(block, layout, main.as_ref()) };
    for stream in [&main, &side] {
        drop(sim.end_capture(0, stream.raw()).expect("the capture is whole"));
    }
    // SAFETY: the graph is gone, and was never launched.
    let released = unsafe { memory.release() }.expect("none is out");
    assert_eq!(released, 0, "nobody says that the other graph is gone");
    let status = stack.find::<SuballocBook>().expect("there is a pool").status();
    assert_eq!((status.graph_bytes, status.cached_bytes), (MIB, 0));
}

/// A stream that comes by its handle is asked for its capture, too, after the call that it came with.
#[test]
fn a_container_that_the_capture_of_a_raw_stream_uses_goes_back_with_the_last_one() {
    for first in [0, 1] {
        let (sim, stack, main, side) = rig("pool | cuda");
        let device = sim.device(0);
        let block = DeviceVec::<u8, _>::filled_in(MIB, 1, &main, &stack).expect("there is memory");
        main.synchronize().expect("nothing fails");
        let memories = two_captures(&sim, &stack, [&main, &side]);
        // SAFETY: the stream is live until the test is over.
        unsafe { device.raw_streams().with(side.raw(), |side| block.record_use(side)) }
            .expect("it is of this device")
            .expect("it is of this machine");
        drop(block);
        for stream in [&main, &side] {
            drop(sim.end_capture(0, stream.raw()).expect("the capture is whole"));
        }
        let [one, other] = [&memories[first], &memories[1 - first]];
        // SAFETY: the graph is gone, and was never launched.
        assert_eq!(unsafe { one.release() }.expect("none is out"), 0, "the other graph has it");
        // SAFETY: as above.
        assert_eq!(unsafe { other.release() }.expect("none is out"), MIB);
    }
}

/// No thread can ask what the default stream of another one captures: the block is that of every graph which is being captured.
#[test]
fn a_container_that_the_default_stream_of_another_thread_uses_goes_back_with_the_last_one() {
    for first in [0, 1] {
        let (sim, stack, main, _) = rig("pool | cuda");
        let block = DeviceVec::<u8, _>::filled_in(MIB, 1, &main, &stack).expect("there is memory");
        main.synchronize().expect("nothing fails");
        let ((used, block_used), (dropped, is_dropped)) = (mpsc::channel(), mpsc::channel());
        let capture_there = {
            let (sim, stack) = (&sim, &stack);
            move || {
                let own = sim.device(0).per_thread_stream().expect("there are numbers");
                sim.begin_capture(0, RawStream::PER_THREAD, CaptureMode::Relaxed).expect("it can capture");
                let memory = stack.capture(&*own).expect("there is a pool");
                block.record_use(&*own).expect("it is of this machine");
                used.send(block).expect("it is waited for");
                is_dropped.recv().expect("it is sent");
                drop(sim.end_capture(0, RawStream::PER_THREAD).expect("the capture is whole"));
                memory
            }
        };
        let memories = thread::scope(|scope| {
            let there = scope.spawn(capture_there);
            let block = block_used.recv().expect("it is sent");
            sim.begin_capture(0, main.raw(), CaptureMode::Relaxed).expect("it can capture");
            let memory = stack.capture(&main).expect("there is a pool");
            drop(block);
            dropped.send(()).expect("it is waited for");
            [memory, there.join().expect("nothing fails")]
        });
        drop(sim.end_capture(0, main.raw()).expect("the capture is whole"));
        let [one, other] = [&memories[first], &memories[1 - first]];
        // SAFETY: the graph is gone, and was never launched.
        assert_eq!(unsafe { one.release() }.expect("none is out"), 0, "the other graph has it");
        // SAFETY: as above.
        assert_eq!(unsafe { other.release() }.expect("none is out"), MIB);
    }
}
