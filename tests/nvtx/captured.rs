//! What a graph uses may be used for as long as it can be launched.

#![expect(unsafe_code, reason = "says that a graph is gone")]

use alluvion::driver::CaptureMode;
use alluvion::source::Cuda;
use alluvion::{PoolConfig, Resource, ResourceExt};

use crate::raw_block::Held;
use crate::{announced_sim, note, told};

#[test]
fn memory_of_a_graph_is_announced_until_it_is_released() {
    let picture = told("captured::memory_of_a_graph_is_announced_until_it_is_released", "", || {
        let sim = announced_sim();
        let stream = sim.device(0).stream().unwrap();
        let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
        let before = Held::of(&pool, 5000, stream.as_ref());
        let outside = before.pointer.address();
        sim.begin_capture(0, stream.raw(), CaptureMode::Global).unwrap();
        let mut memory = pool.capture(&stream).unwrap();
        let first = Held::of(&pool, 70_000, stream.as_ref());
        let inside = first.pointer.address();
        first.free(stream.as_ref());
        let second = Held::of(&memory, 1000, stream.as_ref());
        let also_inside = second.pointer.address();
        second.free(stream.as_ref());
        // A block from before, which the graph uses as well.
        before.free(stream.as_ref());
        let graph = sim.end_capture(0, stream.raw()).unwrap();
        memory.end().unwrap();
        // All of it is free, and may be used at each launch.
        let used = [(outside, 5000), (inside, 70_000), (also_inside, 1000)];
        for (address, bytes) in used {
            note(&format!("inside {address:x} {bytes}"));
        }
        drop(graph);
        // SAFETY: the graph is gone, and was not launched.
        unsafe { memory.release() }.unwrap();
        for (address, bytes) in used {
            note(&format!("dead {address:x} {bytes}"));
        }
        drop(memory);
        pool.trim(0).unwrap();
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
}
