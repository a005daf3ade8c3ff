//! Streams that come by their raw handles again and again: what an event for many frees saves, and what it costs nobody.

#![expect(unsafe_code, reason = "names streams by their raw handles")]

use alluvion::driver::{Call, Driver, RawStream, StreamFlags};
use alluvion::source::CudaAsync;
use alluvion::{
    Device, DevicePtr, DeviceVec, Layout, Pool, PoolConfig, Resource, ResourceExt, Sim, StreamRef,
};

struct Rig {
    sim: Sim,
    device: Device,
    pool: Pool<CudaAsync>,
    /// Blocks come and go as in the functions of C, which first try to do so at once.
    at_once: bool,
}

const BYTES: usize = 4096;

impl Rig {
    fn new(at_once: bool) -> Self {
        let sim = Sim::new();
        let device = sim.device(0);
        let pool = CudaAsync::new(&device).unwrap().pool(PoolConfig::default()).unwrap();
        Self { sim, device, pool, at_once }
    }

    fn both() -> [Self; 2] {
        [false, true].map(Self::new)
    }

    fn make(&self) -> RawStream {
        self.sim.stream_create(0, StreamFlags::default()).unwrap()
    }

    fn destroy(&self, raw: RawStream) {
        // SAFETY: the test made it, and nothing has it.
        unsafe { self.sim.stream_destroy(0, raw) }.unwrap();
    }

    fn allocate(&self, raw: RawStream, bytes: usize) -> DevicePtr {
        let layout = Layout::from_bytes(bytes).unwrap();
        let at_once = |stream: StreamRef<'_>| {
            let block = if self.at_once { self.pool.allocate_at_once(layout, stream) } else { None };
            block.map(Ok)
        };
        let allocate = |stream: StreamRef<'_>| self.pool.allocate(layout, stream);
        // SAFETY: the test keeps the stream alive.
        let block = unsafe { self.device.raw_streams().with_or_at_once(raw, at_once, allocate) };
        block.unwrap().unwrap()
    }

    fn free(&self, raw: RawStream, block: DevicePtr, bytes: usize) {
        let layout = Layout::from_bytes(bytes).unwrap();
        let streams = self.device.raw_streams();
        // SAFETY: the block came from the pool with this layout, and its uses are on this stream.
        let at_once = |stream: StreamRef<'_>| unsafe { self.pool.deallocate_at_once(block, layout, stream) };
        // SAFETY: the test keeps the stream alive.
        if self.at_once && unsafe { streams.visit(raw, at_once) } {
            return;
        }
        // SAFETY: as above.
        let free = |stream: StreamRef<'_>| unsafe { self.pool.deallocate(block, layout, stream) };
        // SAFETY: the test keeps the stream alive.
        unsafe { streams.with(raw, free) }.unwrap();
    }

    fn pair(&self, raw: RawStream, bytes: usize) -> DevicePtr {
        let block = self.allocate(raw, bytes);
        self.free(raw, block, bytes);
        block
    }

    /// A stream that has come so often that its frees are covered together.
    fn regular(&self) -> RawStream {
        let raw = self.make();
        (0..300).for_each(|_| _ = self.pair(raw, BYTES));
        raw
    }

    fn records(&self) -> u64 {
        self.sim.calls()[Call::EventRecord]
    }

    /// Queues a fill of a block on a stream.
    fn write(&self, raw: RawStream, block: DevicePtr, bytes: usize, value: u8) {
        use alluvion::driver::FillValue;
        // SAFETY: a block of the test's, whose uses are ordered on the stream.
        unsafe { self.sim.fill_async(0, block.address(), FillValue::U8(value), bytes, raw) }.unwrap();
    }
}

#[test]
fn the_frees_of_a_guest_are_covered_one_by_one_and_those_of_a_regular_together() {
    for rig in Rig::both() {
        let raw = rig.make();
        let before = rig.records();
        (0..100).for_each(|_| _ = rig.pair(raw, BYTES));
        // The first request of a size asks where other streams are, and is covered for that.
        assert!((100..=101).contains(&(rig.records() - before)), "{} events", rig.records() - before);
        (0..200).for_each(|_| _ = rig.pair(raw, BYTES));
        // By their number, or by bytes: so many, or 32 MiB.
        let sizes = [
            (BYTES, 1024),
            (32 << 10, 1024),
            (64 << 10, 512),
            (1 << 20, 32),
            (16 << 20, 2),
            (32 << 20, 1),
            (64 << 20, 1),
        ];
        for (bytes, each) in sizes {
            rig.pair(raw, bytes);
            let before = rig.records();
            (0..4096).for_each(|_| _ = rig.pair(raw, bytes));
            let events = rig.records() - before;
            assert!((4096 / each..=4096 / each + 1).contains(&events), "{bytes}: {events} events");
        }
        rig.destroy(raw);
    }
}

#[test]
fn what_no_event_covers_serves_its_own_stream_alone() {
    for rig in Rig::both() {
        let (raw, other) = (rig.regular(), rig.make());
        for round in 0..200 {
            let block = rig.allocate(raw, BYTES);
            rig.write(raw, block, BYTES, round as u8);
            rig.free(raw, block, BYTES);
            let theirs = rig.allocate(other, BYTES);
            rig.write(other, theirs, BYTES, 0xFF);
            rig.free(other, theirs, BYTES);
            assert_eq!(rig.pair(raw, BYTES), block, "the stream gets what it freed last");
        }
        rig.device.synchronize().unwrap();
        assert!(rig.sim.hazards().is_empty(), "{:?}", rig.sim.hazards());
        rig.destroy(raw);
        rig.destroy(other);
    }
}

#[test]
fn a_stream_may_be_destroyed_after_any_call_and_its_handle_come_again() {
    for rig in Rig::both() {
        for round in 0..20 {
            let raw = rig.regular();
            let blocks: Vec<_> = (0..10).map(|_| rig.allocate(raw, BYTES)).collect();
            for &block in &blocks {
                rig.write(raw, block, BYTES, round);
                rig.free(raw, block, BYTES);
            }
            rig.destroy(raw);
            let next = rig.make();
            assert_eq!(next, raw, "the driver gives the handle out again");
            for _ in 0..20 {
                let block = rig.allocate(next, BYTES);
                rig.write(next, block, BYTES, 0xFF);
                rig.free(next, block, BYTES);
            }
            rig.destroy(next);
        }
        drop(rig.pool);
        rig.sim.assert_clean();
    }
}

/// The stream of the last call is gone, and another one has its handle, when a block comes back that the other one has used.
#[test]
fn a_block_that_comes_back_on_the_handle_of_another_stream_waits_for_the_device() {
    let rig = Rig::new(true);
    let other = rig.make();
    for round in 0..20 {
        let raw = rig.regular();
        let block = rig.allocate(raw, BYTES);
        rig.destroy(raw);
        assert_eq!(rig.make(), raw, "the driver gives the handle out again");
        rig.write(raw, block, BYTES, round);
        let before = rig.sim.calls().total();
        rig.free(raw, block, BYTES);
        assert_eq!(rig.sim.calls().total(), before, "nothing is asked");
        for stream in [raw, other, raw] {
            let taken = rig.allocate(stream, BYTES);
            assert_ne!(taken, block);
            rig.write(stream, taken, BYTES, 0xFF);
            rig.free(stream, taken, BYTES);
        }
        rig.destroy(raw);
    }
    rig.device.synchronize().unwrap();
    rig.destroy(other);
    assert!(rig.pool.trim(0).unwrap() > 0);
    assert_eq!(rig.pool.status().reserved_bytes, 0);
    drop(rig.pool);
    rig.sim.assert_clean();
}

#[test]
fn a_trim_and_the_end_of_a_pool_take_all_of_it() {
    for rig in Rig::both() {
        let raw = rig.regular();
        let block = rig.allocate(raw, BYTES);
        rig.write(raw, block, BYTES, 1);
        rig.free(raw, block, BYTES);
        let waits = |sim: &Sim| sim.calls()[Call::ContextSynchronize];
        let before = waits(&rig.sim);
        assert!(rig.pool.trim(0).unwrap() > 0);
        assert_eq!((rig.pool.status().reserved_bytes, waits(&rig.sim) - before), (0, 1));
        // Where every free is covered, no trim waits for the device.
        let guest = rig.make();
        rig.pair(guest, BYTES);
        let before = waits(&rig.sim);
        while rig.pool.trim(0).unwrap() == 0 {}
        assert_eq!(waits(&rig.sim), before);
        // A pool that ends.
        let block = rig.allocate(raw, BYTES);
        rig.write(raw, block, BYTES, 2);
        rig.free(raw, block, BYTES);
        rig.destroy(raw);
        rig.destroy(guest);
        drop(rig.pool);
        rig.sim.assert_clean();
    }
}

#[test]
fn a_wait_for_its_frontier_waits_for_the_device_where_it_must() {
    for rig in Rig::both() {
        let raw = rig.regular();
        let block = rig.allocate(raw, BYTES);
        rig.free(raw, block, BYTES);
        // The points that a container hands out are covered when the call is over, also on a regular stream.
        // SAFETY: the stream lives until it is destroyed below.
        let stream = unsafe { rig.device.raw_streams().stream(raw) }.unwrap();
        let vector = DeviceVec::<u8, _>::zeroed_in(100, stream.as_ref(), &rig.pool).unwrap();
        let frontier = alluvion::Frontier::of(stream.release());
        drop((vector, stream));
        let before = rig.sim.calls()[Call::ContextSynchronize];
        rig.sim.machine().wait_quiescent(&frontier).unwrap();
        assert_eq!(rig.sim.calls()[Call::ContextSynchronize], before);
        rig.destroy(raw);
    }
}

#[test]
fn many_streams_that_end_so_end_the_saving_until_the_device_is_waited_for() {
    for rig in Rig::both() {
        // The table keeps 128 streams that are not in use; those before them have ended. Of 129 each may leave 508 KiB.
        let streams: Vec<RawStream> = (0..330)
            .map(|_| {
                let raw = rig.regular();
                rig.pair(raw, 480 << 10);
                raw
            })
            .collect();
        let regular = rig.regular();
        let before = rig.records();
        (0..640).for_each(|_| _ = rig.pair(regular, BYTES));
        assert_eq!(rig.records() - before, 640, "every free is covered");
        rig.device.synchronize().unwrap();
        let before = rig.records();
        (0..640).for_each(|_| _ = rig.pair(regular, BYTES));
        assert!(rig.records() - before <= 11, "{} events", rig.records() - before);
        streams.into_iter().chain([regular]).for_each(|raw| rig.destroy(raw));
        drop(rig.pool);
        rig.sim.assert_clean();
    }
}

/// What the owner of a bare stream submits after its last call is behind no point that is known here.
#[test]
fn a_pool_that_ends_waits_for_what_was_submitted_after_the_last_call() {
    for rig in Rig::both() {
        let raw = rig.make();
        let block = rig.allocate(raw, BYTES);
        rig.write(raw, block, BYTES, 1);
        let before = rig.sim.calls()[Call::ContextSynchronize];
        let Rig { sim, device, pool, .. } = rig;
        drop(pool);
        assert_eq!(sim.calls()[Call::ContextSynchronize] - before, 1);
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
        drop(device);
        // SAFETY: the test made it, and nothing has it.
        unsafe { sim.stream_destroy(0, raw) }.unwrap();
    }
}
