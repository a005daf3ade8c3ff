//! What a pool costs that goes on while parts of it sleep, counted in driver calls.

#![expect(unsafe_code, reason = "frees by hand")]

use alluvion::driver::CaptureMode;
use alluvion::source::Mapped;
use alluvion::{
    DevicePtr, DeviceVec, Layout, Pool, PoolConfig, Resource, ResourceExt, Sim, SleepConfig, Stream,
};

use crate::raw_block::layout_of;

const MIB: usize = 1 << 20;

struct Rig {
    sim: Sim,
    stream: Stream,
    pool: Pool<Mapped>,
}

impl Rig {
    fn new() -> Self {
        let sim = Sim::new();
        let device = sim.device(0);
        let stream = device.stream().expect("there are numbers left");
        let pool = Mapped::new(&device).and_then(|mapped| mapped.pool(PoolConfig::default()));
        Self { sim, stream, pool: pool.expect("the device maps pages") }
    }

    fn vector(&self, bytes: usize) -> DeviceVec<u8, &Pool<Mapped>> {
        DeviceVec::uninit_in(bytes, &self.stream, &self.pool).expect("there is room")
    }

    fn pair(&self, layout: Layout) -> DevicePtr {
        let block = self.pool.allocate(layout, self.stream.as_ref()).expect("there is room");
        // SAFETY: the block came from the pool with this layout, and nothing uses it.
        unsafe { self.pool.deallocate(block, layout, self.stream.as_ref()) };
        block
    }
}

/// Weights sleep at both ends of what the pool goes on with.
#[test]
fn a_pair_between_blocks_that_sleep_asks_no_driver() {
    let rig = Rig::new();
    let (low, mid, _fence, high) =
        (rig.vector(2 * MIB), rig.vector(MIB / 2), rig.vector(MIB), rig.vector(2 * MIB));
    let (first, last) = (low.as_device_ptr(), high.as_device_ptr());
    drop(mid);
    let sleep = |vector: DeviceVec<u8, _>| vector.sleep(SleepConfig::default()).expect("nothing forbids it");
    let asleep = (sleep(low), sleep(high));
    let layout = layout_of(MIB / 2);
    let block = rig.pair(layout);
    assert!(first < block && block < last, "{block:?} lies outside of {first:?} and {last:?}");
    let before = rig.sim.calls().total();
    for _ in 0..100 {
        assert_eq!(rig.pair(layout), block);
        // Nor is a lock taken that is held for long.
        assert_eq!(rig.pool.allocate_at_once(layout, rig.stream.as_ref()), Some(block));
        // SAFETY: the block came from the pool with this layout, and nothing uses it.
        assert!(unsafe { rig.pool.deallocate_at_once(block, layout, rig.stream.as_ref()) });
        // SAFETY: as above.
        let freed = unsafe {
            let again = rig.pool.allocate(layout, rig.stream.as_ref()).expect("it is in the cache");
            rig.pool.try_deallocate(again, layout, &rig.stream)
        };
        freed.expect("it is live");
    }
    assert_eq!(rig.sim.calls().total(), before, "the driver was asked");
    drop((asleep.0.wake().expect("there is memory"), asleep.1));
}

/// And memory of a graph, with what is freed behind it, is found beside what sleeps.
#[test]
fn memory_of_a_graph_is_freed_beside_blocks_that_sleep() {
    let rig = Rig::new();
    let asleep = rig.vector(2 * MIB).sleep(SleepConfig::default()).expect("nothing forbids it");
    rig.sim.begin_capture(0, rig.stream.raw(), CaptureMode::Relaxed).expect("it can capture");
    let mut memory = rig.pool.capture(&rig.stream).expect("it captures");
    let inside = DeviceVec::filled_in(1000, 1_u8, &rig.stream, &memory).expect("there is room");
    let address = inside.as_device_ptr();
    drop(inside);
    let again = DeviceVec::filled_in(1000, 2_u8, &rig.stream, &memory).expect("there is room");
    assert_eq!(again.as_device_ptr(), address, "the capture reuses what it has freed");
    let graph = rig.sim.end_capture(0, rig.stream.raw()).expect("the capture is whole");
    memory.end().expect("it is open");
    let held = rig.pool.status().graph_bytes;
    // Freed outside: the graph's until it is released.
    drop(again);
    assert_eq!(rig.pool.status().graph_bytes, held);
    drop((graph, asleep));
    rig.stream.synchronize().expect("nothing fails");
    // SAFETY: the graph is gone, and was never launched.
    unsafe { memory.release() }.expect("no block is out");
    assert!(rig.sim.hazards().is_empty(), "{:?}", rig.sim.hazards());
    rig.pool.trim(0).expect("nothing forbids it");
    assert_eq!(rig.pool.pool_size(), 0);
}
