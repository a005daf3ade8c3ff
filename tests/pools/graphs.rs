//! Memory of a pool that belongs to captured graphs: it serves its graph, and nobody else.

#![expect(unsafe_code, reason = "launches graphs, and gives their memory back")]

use std::sync::Arc;

use alluvion::driver::CaptureMode;
use alluvion::source::Cuda;
use alluvion::suballoc::Growth;
use alluvion::{
    DeviceVec, Error, ErrorKind, GraphMemory, Layout, MisuseKind, PoolConfig, Resource, ResourceExt, Sim,
    Stream,
};

use crate::graph_rig::{MIB, Rig, is_apart, release};
use crate::raw_block::{Held, layout_of};

#[test]
fn a_capture_reuses_what_it_has_freed() {
    for through_the_pool in [true, false] {
        let rig = Rig::new(PoolConfig::default());
        rig.begin(&rig.main);
        let memory = rig.pool.capture(&rig.main).unwrap();
        let mut addresses = Vec::new();
        for round in 0..20 {
            for bytes in [1000, 100_000, 3 * MIB] {
                let layout = layout_of(bytes);
                let address = if through_the_pool {
                    let block = Held::allocate(&rig.pool, layout, rig.main.as_ref()).unwrap();
                    block.fill(round, rig.main.as_ref());
                    let address = block.pointer;
                    block.free(rig.main.as_ref());
                    address
                } else {
                    let block = Held::allocate(&memory, layout, rig.main.as_ref()).unwrap();
                    block.fill(round, rig.main.as_ref());
                    let address = block.pointer;
                    block.free(rig.main.as_ref());
                    address
                };
                addresses.push(address);
            }
        }
        let graph = rig.end(&rig.main);
        memory.end().unwrap();
        addresses.sort();
        addresses.dedup();
        assert!(addresses.len() <= 6, "{} blocks for three sizes", addresses.len());
        assert_eq!(memory.reserved_bytes(), rig.pool.status().graph_bytes);
        assert!(memory.reserved_bytes() <= 8 * MIB, "{memory:?}");
        assert_eq!(graph.node_count(), 60);
        for _ in 0..10 {
            rig.launch(&graph, &rig.side);
        }
        rig.side.synchronize().unwrap();
        rig.check();
    }
}

#[test]
fn what_belongs_to_a_graph_serves_nobody_else() {
    let rig = Rig::new(PoolConfig::default().maximum(32 * MIB));
    rig.begin(&rig.main);
    let mut memory = rig.pool.capture(&rig.main).unwrap();
    let scratch = Held::of(&rig.pool, 2 * MIB, rig.main.as_ref());
    scratch.fill(1, rig.main.as_ref());
    let mut of_graph = vec![scratch.range()];
    scratch.free(rig.main.as_ref());
    let output = Held::of(&rig.pool, MIB, rig.main.as_ref());
    output.fill(2, rig.main.as_ref());
    of_graph.push(output.range());
    let graph = rig.end(&rig.main);
    memory.end().unwrap();
    // All that there is, in pieces and as one, on each stream and synchronously.
    for stream in [&rig.main, &rig.side] {
        let mut taken = Vec::new();
        for bytes in [4 * MIB, MIB, 10_000, 256] {
            while let Ok(block) = Held::allocate(&rig.pool, layout_of(bytes), stream.as_ref()) {
                is_apart(block.range(), &of_graph);
                block.fill(3, stream.as_ref());
                taken.push(block);
                if taken.len() > 100 {
                    break;
                }
            }
        }
        rig.launch(&graph, &rig.side);
        taken.into_iter().for_each(|block| block.free(stream.as_ref()));
        rig.pool.trim(0).unwrap();
    }
    while let Ok(block) = Held::allocate_sync(&rig.pool, layout_of(3 * MIB)) {
        is_apart(block.range(), &of_graph);
    }
    rig.launch(&graph, &rig.main);
    output.check(2, rig.main.as_ref());
    rig.side.synchronize().unwrap();
    // SAFETY: it is refused, because the output is out.
    let refused = unsafe { memory.release() };
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InUse);
    output.free(rig.main.as_ref());
    let held = rig.pool.status().graph_bytes;
    assert_eq!(release(&mut memory, graph).unwrap(), held);
    assert_eq!(rig.pool.status().graph_bytes, 0);
    rig.check();
}

/// The graph has the address of a block that was there before, and uses it at each launch, freed or not.
#[test]
fn a_block_that_is_freed_in_a_capture_is_the_graphs() {
    let rig = Rig::new(PoolConfig::default().initial(8 * MIB).maximum(8 * MIB));
    let before = Held::of(&rig.pool, 4 * MIB, rig.main.as_ref());
    before.fill(1, rig.main.as_ref());
    let range = before.range();
    rig.begin(&rig.main);
    let mut memory = rig.pool.capture(&rig.main).unwrap();
    before.fill(2, rig.main.as_ref());
    before.free(rig.main.as_ref());
    let graph = rig.end(&rig.main);
    memory.end().unwrap();
    assert_eq!(rig.pool.status().graph_bytes, 4 * MIB);
    rig.side.wait_for_stream(&rig.main).unwrap();
    for stream in [&rig.main, &rig.side] {
        let other = Held::of(&rig.pool, 4 * MIB, stream.as_ref());
        is_apart(other.range(), &[range]);
        other.fill(3, stream.as_ref());
        rig.launch(&graph, &rig.side);
        assert!(rig.pool.allocate(layout_of(MIB), stream.as_ref()).unwrap_err().is_out_of_memory());
        other.check(3, stream.as_ref());
        other.free(stream.as_ref());
        stream.synchronize().unwrap();
    }
    rig.side.synchronize().unwrap();
    assert_eq!(release(&mut memory, graph).unwrap(), 4 * MIB);
    let all = Held::of(&rig.pool, 8 * MIB, rig.side.as_ref());
    all.fill(4, rig.side.as_ref());
    all.free(rig.side.as_ref());
    assert_eq!(rig.pool.status().live_blocks, 0);
    rig.check();
}

/// A block of the graph that is freed elsewhere stays the graph's, and the work before its free is waited for.
#[test]
fn what_is_freed_elsewhere_waits_for_the_release() {
    let rig = Rig::new(PoolConfig::default());
    rig.begin(&rig.main);
    let mut memory = rig.pool.capture(&rig.main).unwrap();
    let outputs = [100, 3000, MIB].map(|bytes| Held::of(&rig.pool, bytes, rig.main.as_ref()));
    outputs.iter().for_each(|output| output.fill(5, rig.main.as_ref()));
    let graph = rig.end(&rig.main);
    memory.end().unwrap();
    rig.launch(&graph, &rig.main);
    let ranges = outputs.each_ref().map(Held::range);
    let [first, second, third] = outputs;
    first.check(5, rig.main.as_ref());
    first.free_sync();
    rig.side.wait_for_stream(&rig.main).unwrap();
    second.fill(6, rig.side.as_ref());
    second.free(rig.side.as_ref());
    // SAFETY: it is refused, because a block is out.
    let refused = unsafe { memory.release() };
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InUse);
    third.free(rig.main.as_ref());
    for stream in [&rig.main, &rig.side] {
        for range in ranges {
            let other = Held::of(&rig.pool, (range.1 - range.0) as usize, stream.as_ref());
            is_apart(other.range(), &ranges);
            other.free(stream.as_ref());
        }
    }
    rig.main.synchronize().unwrap();
    release(&mut memory, graph).unwrap();
    // The work on the other stream is over: what comes next needs no order.
    let next = Held::allocate_sync(&rig.pool, layout_of(2 * MIB)).unwrap();
    next.fill(7, rig.main.as_ref());
    next.check(7, rig.main.as_ref());
    next.free(rig.main.as_ref());
    rig.check();
}

#[test]
fn streams_of_a_capture_reuse_what_they_follow() {
    let rig = Rig::new(PoolConfig::default());
    rig.begin(&rig.main);
    let memory = rig.pool.capture(&rig.main).unwrap();
    let take = |stream: &Stream, word| {
        let block = Held::of(&rig.pool, MIB, stream.as_ref());
        block.fill(word, stream.as_ref());
        block
    };
    let first = take(&rig.main, 1);
    memory.follow(&rig.side, &rig.main).unwrap();
    let freed = first.pointer;
    first.free(rig.main.as_ref());
    // The side stream goes on beside that free.
    let beside = take(&rig.side, 2);
    assert_ne!(beside.pointer, freed);
    memory.follow(&rig.side, &rig.main).unwrap();
    let behind = take(&rig.side, 3);
    assert_eq!(behind.pointer, freed);
    beside.free(rig.side.as_ref());
    behind.free(rig.side.as_ref());
    assert_ne!(take(&rig.main, 4).pointer, freed, "the main stream comes after nothing of the side");
    memory.follow(&rig.main, &rig.side).unwrap();
    assert!([freed].contains(&take(&rig.main, 5).pointer) || take(&rig.main, 6).pointer == freed);
    let graph = rig.end(&rig.main);
    memory.end().unwrap();
    for _ in 0..5 {
        rig.launch(&graph, &rig.side);
    }
    rig.side.synchronize().unwrap();
    rig.check();
}

/// Nothing of a capture says anything about work that runs, or the other way round.
#[test]
fn the_order_of_a_capture_is_its_own() {
    let rig = Rig::new(PoolConfig::default().initial(MIB).maximum(4 * MIB).growth(Growth::Exact));
    let freed = Held::of(&rig.pool, MIB, rig.main.as_ref());
    let held = alluvion::testing::Stall::on(rig.main.as_ref());
    freed.fill(1, rig.main.as_ref());
    let address = freed.pointer;
    freed.free(rig.main.as_ref());
    rig.begin(&rig.main);
    let memory = rig.pool.capture(&rig.main).unwrap();
    memory.follow(&rig.side, &rig.main).unwrap();
    // The side stream follows the main one in the graph alone.
    let in_graph = Held::of(&rig.pool, MIB, rig.side.as_ref());
    assert_ne!(in_graph.pointer, address, "work that runs still uses that");
    memory.follow(&rig.main, &rig.side).unwrap();
    let _graph = rig.end(&rig.main);
    memory.end().unwrap();
    let beside = Held::of(&rig.pool, MIB, rig.side.as_ref());
    assert!(beside.pointer != address || !rig.side.is_idle().unwrap());
    drop(held);
    beside.fill(2, rig.side.as_ref());
    rig.side.synchronize().unwrap();
    rig.main.synchronize().unwrap();
    rig.check();
}

/// The next capture of the same stream has nothing of the memory, whether or not anybody has said that the first has ended.
#[test]
fn memory_is_of_one_capture() {
    let rig = Rig::new(PoolConfig::default());
    rig.begin(&rig.main);
    let memory = rig.pool.capture(&rig.main).unwrap();
    let first = Held::of(&rig.pool, MIB, rig.main.as_ref());
    let range = first.range();
    first.free(rig.main.as_ref());
    let _graph = rig.end(&rig.main);
    let is_refused = |stream: &Stream| {
        let error = memory.allocate(layout_of(1000), stream.as_ref()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    };
    is_refused(&rig.main);
    let outside = Held::of(&rig.pool, MIB, rig.main.as_ref());
    is_apart(outside.range(), &[range]);
    outside.free(rig.main.as_ref());
    rig.begin(&rig.main);
    is_refused(&rig.main);
    let of_pool = Held::of(&rig.pool, MIB, rig.main.as_ref());
    is_apart(of_pool.range(), &[range]);
    let other = rig.pool.capture(&rig.main).unwrap();
    let of_other = Held::of(&rig.pool, MIB, rig.main.as_ref());
    is_apart(of_other.range(), &[range, of_pool.range()]);
    is_refused(&rig.side);
    let _other_graph = rig.end(&rig.main);
    other.end().unwrap();
    memory.end().unwrap();
    rig.check();
}

#[test]
fn graphs_that_share_use_the_same_bytes() {
    let rig = Rig::new(PoolConfig::default());
    let mut graphs = Vec::new();
    let mut handles: Vec<GraphMemory<'_, Cuda>> = Vec::new();
    let mut outputs = Vec::new();
    for word in 1..=3 {
        rig.begin(&rig.main);
        let memory = match handles.first() {
            None => rig.pool.capture(&rig.main),
            // SAFETY: all graphs are launched on one stream.
            Some(first) => unsafe { first.share(&rig.main) },
        };
        let memory = memory.unwrap();
        let scratch = Held::of(&rig.pool, MIB, rig.main.as_ref());
        scratch.fill(word, rig.main.as_ref());
        scratch.free(rig.main.as_ref());
        let output = Held::of(&rig.pool, 1000, rig.main.as_ref());
        output.fill(word, rig.main.as_ref());
        graphs.push(rig.end(&rig.main));
        memory.end().unwrap();
        handles.push(memory);
        outputs.push((output, word));
    }
    assert_eq!(rig.pool.status().graph_bytes, 2 * MIB, "for three graphs");
    for _ in 0..3 {
        graphs.iter().for_each(|graph| rig.launch(graph, &rig.side));
    }
    for (output, word) in outputs {
        output.check(word, rig.side.as_ref());
        output.free(rig.side.as_ref());
    }
    let bytes = handles.iter_mut().zip(graphs).map(|(memory, graph)| release(memory, graph).unwrap());
    assert_eq!(bytes.collect::<Vec<_>>(), [0, 0, 2 * MIB], "with the last one");
    // SAFETY: the graph is gone.
    assert_eq!(unsafe { handles[0].release() }.unwrap(), 0, "once");
    // SAFETY: it is refused, because the memory is gone.
    let refused = unsafe { handles[0].share(&rig.main) };
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    rig.check();
}

#[test]
fn what_cannot_be_is_refused() {
    let rig = Rig::new(PoolConfig::default().checked(true));
    let kind = |error: Error| error.kind();
    assert_eq!(rig.pool.capture(&rig.main).map(drop).map_err(kind), Err(ErrorKind::InvalidArgument));
    let elsewhere = rig.sim.device(1).stream().unwrap();
    rig.begin(&rig.main);
    assert_eq!(rig.pool.capture(&elsewhere).map(drop).map_err(kind), Err(ErrorKind::DeviceMismatch));
    let memory = rig.pool.capture(&rig.main).unwrap();
    assert_eq!(rig.pool.capture(&rig.main).map(drop).map_err(kind), Err(ErrorKind::InvalidArgument));
    // SAFETY: no second graph comes of it.
    let shared = unsafe { memory.share(&rig.main) };
    assert_eq!(shared.map(drop).map_err(kind), Err(ErrorKind::InvalidArgument));
    assert_eq!(memory.allocate_sync(layout_of(1)).map_err(kind), Err(ErrorKind::Unsupported));
    let refused = memory.allocate(layout_of(1), rig.side.as_ref());
    assert_eq!(refused.map_err(kind), Err(ErrorKind::InvalidArgument));
    assert_eq!(memory.follow(&rig.main, &rig.side).map_err(kind), Err(ErrorKind::InvalidArgument));
    let wide = Layout::new(1, 4 * MIB).unwrap();
    assert_eq!(memory.allocate(wide, rig.main.as_ref()).map_err(kind), Err(ErrorKind::UnsupportedAlignment));
    assert_eq!(
        rig.pool.allocate(wide, rig.main.as_ref()).map_err(kind),
        Err(ErrorKind::UnsupportedAlignment)
    );
    let none = layout_of(0);
    assert_eq!(rig.pool.allocate(none, rig.main.as_ref()).unwrap(), none.dangling());
    assert_eq!(memory.allocate(none, rig.main.as_ref()).unwrap(), none.dangling());

    let (block, layout) = Held::of(&rig.pool, 1000, rig.main.as_ref()).into_parts();
    // SAFETY: if it is live, nothing uses it.
    let free = |layout: Layout| unsafe { rig.pool.try_deallocate(block, layout, &rig.main) };
    let wrong = free(layout_of(5000)).unwrap_err().misuse().map(|misuse| misuse.what);
    assert_eq!(wrong, Some(MisuseKind::WrongSize { allocated_bytes: 1024 }));
    free(layout).unwrap();
    assert!(free(layout).unwrap_err().misuse().is_some());
    // SAFETY: it is refused, because the block is not live.
    unsafe { rig.pool.deallocate(block, layout, rig.main.as_ref()) };
    // SAFETY: as above.
    unsafe { memory.deallocate(block, layout, rig.main.as_ref()) };
    assert_eq!(rig.sim.take_hazards().len(), 2);

    let _graph = rig.end(&rig.main);
    memory.end().unwrap();
    assert_eq!(memory.end().map_err(kind), Err(ErrorKind::InvalidArgument));
    rig.check();
}

/// A pool without room refuses, the capture stays whole, and what it has got serves it on.
#[test]
fn a_full_pool_refuses_a_capture() {
    let rig = Rig::new(PoolConfig::default().initial(4 * MIB).maximum(4 * MIB));
    let before = Held::of(&rig.pool, 3 * MIB, rig.side.as_ref());
    rig.begin(&rig.main);
    let memory = rig.pool.capture(&rig.main).unwrap();
    // No whole page is left, and less does.
    let fits = Held::of(&memory, MIB / 2, rig.main.as_ref());
    let error = memory.allocate(layout_of(MIB), rig.main.as_ref()).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    assert!(rig.pool.allocate(layout_of(MIB), rig.main.as_ref()).unwrap_err().is_out_of_memory());
    let address = fits.pointer;
    fits.free(rig.main.as_ref());
    assert_eq!(Held::of(&memory, MIB / 2, rig.main.as_ref()).pointer, address);
    let _graph = rig.end(&rig.main);
    before.free(rig.side.as_ref());
    rig.check();
}

/// Whoever leaks the handle may launch the graph as long as he likes, the pool's end notwithstanding.
#[test]
fn memory_without_a_handle_is_leaked() {
    for is_forgotten in [true, false] {
        let rig = Rig::new(PoolConfig::default());
        let before = Held::of(&rig.pool, MIB, rig.main.as_ref());
        rig.begin(&rig.main);
        let memory = rig.pool.capture(&rig.main).unwrap();
        before.fill(1, rig.main.as_ref());
        before.free(rig.main.as_ref());
        let block = Held::of(&rig.pool, 3 * MIB, rig.main.as_ref());
        block.fill(1, rig.main.as_ref());
        block.free(rig.main.as_ref());
        let graph = rig.end(&rig.main);
        if is_forgotten {
            std::mem::forget(memory);
        } else {
            drop(memory);
        }
        assert_eq!(rig.pool.status().graph_bytes, 5 * MIB);
        let held = rig.sim.live().allocations();
        rig.pool.trim(0).unwrap();
        let Rig { sim, pool, main, side } = rig;
        drop(pool);
        assert!((1..=held).contains(&sim.live().allocations()), "{}", sim.live());
        for stream in [&main, &side] {
            // SAFETY: what the graph touches was leaked.
            unsafe { sim.launch_graph(0, stream.raw(), &graph) }.unwrap();
            stream.synchronize().unwrap();
        }
        assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
    }
}

/// Where nobody tells the pool, it asks.
#[test]
fn a_pool_that_watches_keeps_what_is_freed_in_a_capture() {
    for checked in [true, false] {
        let config = PoolConfig::default().watch_captures(true).checked(checked);
        let rig = Rig::new(config.maximum(32 * MIB));
        let before = Held::of(&rig.pool, 3 * MIB, rig.main.as_ref());
        rig.begin(&rig.main);
        let inside = Held::of(&rig.pool, MIB, rig.main.as_ref());
        let of_graph = [before.range(), inside.range()];
        for block in [before, inside] {
            block.fill(1, rig.main.as_ref());
            block.free(rig.main.as_ref());
        }
        let graph = rig.end(&rig.main);
        assert_eq!(rig.pool.status().graph_bytes, 4 * MIB);
        for stream in [&rig.main, &rig.side] {
            let taken =
                [3 * MIB, MIB, 3 * MIB, 5000].map(|bytes| Held::of(&rig.pool, bytes, stream.as_ref()));
            for block in &taken {
                is_apart(block.range(), &of_graph);
                block.fill(2, stream.as_ref());
            }
            rig.launch(&graph, &rig.side);
            taken.into_iter().for_each(|block| block.free(stream.as_ref()));
            stream.synchronize().unwrap();
        }
        rig.side.synchronize().unwrap();
        // A session has the blocks that are freed in its own capture, and gives them back.
        let before = Held::of(&rig.pool, 3 * MIB, rig.main.as_ref());
        rig.begin(&rig.main);
        let mut memory = rig.pool.capture(&rig.main).unwrap();
        before.free(rig.main.as_ref());
        let second = rig.end(&rig.main);
        assert_eq!(rig.pool.status().graph_bytes, 7 * MIB);
        assert_eq!(release(&mut memory, second).unwrap(), 3 * MIB);
        drop(memory);
        assert_eq!(rig.pool.status().graph_bytes, 4 * MIB);
        rig.check();
        let Rig { sim, pool, main, .. } = rig;
        drop(pool);
        // SAFETY: what the graph touches was leaked.
        unsafe { sim.launch_graph(0, main.raw(), &graph) }.unwrap();
        main.synchronize().unwrap();
        assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
    }
}

/// Containers need not know; the handle may live in a structure beside the graph.
#[test]
fn containers_work_in_a_capture() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let pool = Arc::new(Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap());
    let mut output = DeviceVec::<u32, _>::zeroed_in(1000, &stream, Arc::clone(&pool)).unwrap();
    sim.begin_capture(0, stream.raw(), CaptureMode::Global).unwrap();
    let memory = Arc::new(pool.capture_owned(&stream).unwrap());
    for step in 0..8 {
        let scratch = DeviceVec::filled_in(1000, step, &stream, Arc::clone(&pool)).unwrap();
        let other = DeviceVec::filled_in(1000, 100 * step, &stream, Arc::clone(&memory)).unwrap();
        output.copy_from(if step % 2 == 0 { scratch.as_slice() } else { other.as_slice() }, &stream).unwrap();
    }
    let graph = sim.end_capture(0, stream.raw()).unwrap();
    memory.end().unwrap();
    assert_eq!(pool.status().graph_bytes, 2 * MIB);
    for _ in 0..3 {
        // SAFETY: the output's home is this stream, and the rest is the graph's.
        unsafe { sim.launch_graph(0, stream.raw(), &graph) }.unwrap();
        assert_eq!(output.to_vec(&stream).unwrap(), [700; 1000]);
    }
    drop((graph, output));
    let mut memory = Arc::into_inner(memory).expect("no container has it");
    // SAFETY: the graph is gone, and was waited for.
    assert_eq!(unsafe { memory.release() }.unwrap(), 2 * MIB);
    drop(memory);
    drop(pool);
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
    assert_eq!(sim.live().allocations(), 0);
}
