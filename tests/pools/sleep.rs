//! Pools that sleep: addresses and contents stay, memory goes, and nothing is lost when waking fails.

#![expect(unsafe_code, reason = "puts blocks to sleep, and frees them")]

use std::sync::Arc;

use alluvion::adaptor::Tracking;
use alluvion::driver::{Call, CaptureMode};
use alluvion::sim::SimConfig;
use alluvion::source::{Cuda, Mapped, Pinned};
use alluvion::tag::{Tag, with_tag};
use alluvion::testing::{Bench, Sweep};
use alluvion::{
    Device, DeviceVec, Error, ErrorKind, MisuseKind, Pool, PoolConfig, Resource, ResourceExt, Sim,
    SleepConfig, Sleeper, Stream,
};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;
const PAGE: usize = 2 * MIB;

struct Rig {
    sim: Sim,
    device: Device,
    stream: Stream,
    pool: Pool<Mapped>,
    host: Pool<Pinned>,
}

impl Rig {
    fn new(config: PoolConfig) -> Self {
        Self::on(Sim::with_config(SimConfig::default().seed(7)), config)
    }

    fn on(sim: Sim, config: PoolConfig) -> Self {
        let device = sim.device(0);
        let stream = device.stream().expect("there are numbers left");
        let pool = Mapped::new(&device).and_then(|mapped| mapped.pool(config)).expect("it has pages");
        let host = Pinned::new(&device).expect("addresses are common");
        let host = host.pool(PoolConfig::default()).expect("a right configuration");
        Self { sim, device, stream, pool, host }
    }

    fn vector(&self, len: usize, seed: u32) -> DeviceVec<u32, &Pool<Mapped>> {
        DeviceVec::from_slice_in(&numbers(len, seed), &self.stream, &self.pool).expect("there is room")
    }

    fn keep(&self) -> SleepConfig<'_> {
        SleepConfig::default().keep_in(&self.host)
    }

    fn sleep<'p>(&'p self, config: SleepConfig<'p>) -> Sleeper<'p, Mapped> {
        // SAFETY: no test uses what sleeps.
        unsafe { self.pool.sleep(config) }.expect("nothing forbids it")
    }

    fn free_bytes(&self) -> usize {
        self.device.memory_info().expect("the driver answers").free_bytes
    }

    #[track_caller]
    fn holds(&self, vector: &DeviceVec<u32, &Pool<Mapped>>, seed: u32) {
        let found = vector.to_vec(&self.stream).expect("it is awake");
        assert!(found == numbers(vector.len(), seed), "the contents of {seed} have changed");
    }

    #[track_caller]
    fn check(&self) {
        assert!(self.sim.hazards().is_empty(), "{:#?}", self.sim.hazards());
    }
}

/// Numbers that differ from place to place, and from seed to seed.
fn numbers(len: usize, seed: u32) -> Vec<u32> {
    (0..len as u32).map(|at| at.wrapping_mul(0x9E37_79B9) ^ seed.wrapping_mul(0x85EB_CA6B)).collect()
}

#[test]
fn contents_and_addresses_come_back() {
    let rig = Rig::new(PoolConfig::default());
    // Small ones that share a page, one of many pages, one that crosses a border.
    let lens = [10, 1000, PAGE, 300_000, 7, 700_001];
    let vectors: Vec<_> = lens.iter().enumerate().map(|(at, len)| rig.vector(*len, at as u32)).collect();
    // Free memory between them, some of it in the cache.
    let between = rig.vector(500_000, 99);
    let last = rig.vector(5000, 98);
    drop(between);
    let addresses: Vec<_> = vectors.iter().map(DeviceVec::as_device_ptr).collect();
    for _ in 0..3 {
        let live = rig.pool.status();
        let mut sleeper = rig.sleep(rig.keep());
        let status = rig.pool.status();
        assert_eq!((status.reserved_bytes, status.live_bytes, status.live_blocks), (0, 0, 0));
        assert_eq!((status.asleep_bytes, status.pages), (live.live_bytes, 0));
        assert_eq!(sleeper.record().blocks(), live.live_blocks);
        assert_eq!(sleeper.record().kept_bytes(), live.live_bytes);
        let snapshot = rig.pool.snapshot();
        assert!(snapshot.segments.is_empty() && snapshot.blocks.is_empty(), "{snapshot:?}");
        assert_eq!(rig.free_bytes(), rig.device.memory_info().expect("as before").total_bytes);
        assert!(sleeper.is_asleep());
        sleeper.wake().expect("there is memory");
        assert!(!sleeper.is_asleep());
        sleeper.wake().expect("it is awake, and stays so");
        let status = rig.pool.status();
        assert_eq!((status.asleep_bytes, status.live_bytes), (0, live.live_bytes));
        assert_eq!(vectors.iter().map(DeviceVec::as_device_ptr).collect::<Vec<_>>(), addresses);
        for (at, vector) in vectors.iter().enumerate() {
            rig.holds(vector, at as u32);
        }
        rig.holds(&last, 98);
        assert_eq!(rig.host.status().live_bytes, 0, "what was kept went back");
    }
    // And the pool goes on.
    let more = rig.vector(3 * PAGE, 5);
    rig.holds(&more, 5);
    rig.check();
}

#[test]
fn contents_may_be_dropped() {
    let rig = Rig::new(PoolConfig::default());
    let mut vector = rig.vector(PAGE, 1);
    let address = vector.as_device_ptr();
    let mut sleeper = rig.sleep(SleepConfig::default());
    assert_eq!((sleeper.record().kept_bytes(), rig.pool.pool_size()), (0, 0));
    sleeper.wake().expect("there is memory");
    assert_eq!(vector.as_device_ptr(), address);
    vector.copy_from_slice(&numbers(PAGE, 2), &rig.stream).expect("it has memory");
    rig.holds(&vector, 2);
    rig.check();
}

#[test]
fn a_pool_that_sleeps_refuses_to_allocate_and_to_sleep() {
    let rig = Rig::new(PoolConfig::default());
    let vector = rig.vector(1000, 1);
    // In the cache of the stream, which is emptied.
    drop(rig.vector(1000, 2));
    let mut sleeper = rig.sleep(rig.keep());
    for refused in [
        rig.pool.allocate(layout_of(4000), rig.stream.as_ref()),
        rig.pool.allocate(layout_of(9 * MIB), rig.stream.as_ref()),
        rig.pool.allocate_sync(layout_of(256)),
    ] {
        let error = refused.expect_err("it sleeps");
        assert_eq!(error.kind(), ErrorKind::Asleep);
        assert_eq!(
            error.to_string(),
            "asleep: an allocation from a pool that sleeps: its memory has gone back to its upstream; wake the pool first, by \
             `Sleeper::wake`"
        );
    }
    // SAFETY: nothing is used.
    let again = unsafe { rig.pool.sleep(SleepConfig::default()) };
    assert_eq!(again.expect_err("it sleeps").kind(), ErrorKind::Asleep);
    sleeper.wake().expect("there is memory");
    drop(rig.vector(1000, 2));
    rig.holds(&vector, 1);
    rig.check();
}

#[test]
fn what_carries_a_tag_sleeps_and_the_rest_goes_on() {
    let rig = Rig::new(PoolConfig::default().checked(true));
    let weights = with_tag("weights", || rig.vector(3 * PAGE, 1));
    let inner = with_tag("weights", || with_tag("embedding", || rig.vector(PAGE / 4, 2)));
    let cache = with_tag("cache", || rig.vector(PAGE, 3));
    let tag = with_tag("weights", Tag::current);
    let before = rig.pool.pool_size();
    let mut sleeper = rig.sleep(rig.keep().tag(tag));
    assert_eq!(sleeper.record().blocks(), 2);
    let status = rig.pool.status();
    assert_eq!(status.live_blocks, 1);
    assert!(before - status.reserved_bytes >= 12 * MIB, "{} of {before} are left", status.reserved_bytes);
    // The rest is used, and more is allocated: at other addresses.
    rig.holds(&cache, 3);
    let more = rig.vector(4 * PAGE, 4);
    let (from, to) = (weights.as_device_ptr().address(), weights.as_device_ptr().address() + 12 * MIB as u64);
    assert!(!(from..to).contains(&more.as_device_ptr().address()));
    rig.pool.trim(0).expect("nothing forbids it");
    rig.pool.defragment().expect("as before");
    sleeper.wake().expect("there is memory");
    rig.holds(&weights, 1);
    rig.holds(&inner, 2);
    rig.holds(&cache, 3);
    rig.holds(&more, 4);
    rig.check();
}

#[test]
fn two_tags_sleep_on_one_page_and_wake_in_any_order() {
    for order in [[0, 1], [1, 0]] {
        let rig = Rig::new(PoolConfig::default().checked(true));
        let tags = ["first", "second"].map(|name| with_tag(name, Tag::current));
        let (a, b) = (with_tag("first", || rig.vector(1000, 1)), with_tag("second", || rig.vector(1000, 2)));
        let page = rig.pool.pool_size();
        let first = rig.sleep(rig.keep().tag(tags[0]));
        assert_eq!(rig.pool.pool_size(), page, "the other lies on the page");
        rig.holds(&b, 2);
        let second = rig.sleep(rig.keep().tag(tags[1]));
        assert_eq!(rig.pool.pool_size(), 0);
        let mut sleepers = [first, second];
        sleepers[order[0]].wake().expect("there is memory");
        assert_eq!(rig.pool.pool_size(), page);
        let vectors = [(&a, 1), (&b, 2)];
        rig.holds(vectors[order[0]].0, vectors[order[0]].1);
        sleepers[order[1]].wake().expect("there is memory");
        rig.holds(&a, 1);
        rig.holds(&b, 2);
        rig.check();
    }
}

#[test]
fn a_tracking_layer_knows_the_tags_where_the_pool_does_not() {
    let sim = Sim::new();
    let (device, stream) = (sim.device(0), sim.device(0).stream().expect("there are numbers left"));
    let pool = Arc::new(
        Mapped::new(&device)
            .and_then(|mapped| mapped.pool(PoolConfig::default().checked(false)))
            .expect("it has pages"),
    );
    let tracked = Arc::clone(&pool).tracking();
    let host = Pinned::new(&device).expect("addresses are common");
    let make =
        |seed| DeviceVec::from_slice_in(&numbers(PAGE, seed), &stream, &tracked).expect("there is room");
    let (named, other) = (with_tag("named", || make(1)), make(2));
    let tag = with_tag("named", Tag::current);
    // SAFETY: nothing uses what sleeps.
    let refused = unsafe { pool.sleep(SleepConfig::default().tag(tag)) }.expect_err("nobody knows the tags");
    assert!(refused.is_unsupported() && refused.to_string().contains("tags_of"), "{refused}");
    let book = tracked.find::<Tracking>().expect("it is there");
    // SAFETY: as before.
    let slept = unsafe { pool.sleep(SleepConfig::default().keep_in(host).tag(tag).tags_of(book)) };
    let mut sleeper = slept.expect("the tags are known");
    assert_eq!(sleeper.record().blocks(), 1);
    assert_eq!(other.to_vec(&stream).expect("it is awake"), numbers(PAGE, 2));
    sleeper.wake().expect("there is memory");
    assert_eq!(named.to_vec(&stream).expect("it is awake"), numbers(PAGE, 1));
    assert!(sim.hazards().is_empty());
}

#[test]
fn what_sleeps_may_be_freed() {
    let rig = Rig::new(PoolConfig::default().checked(true));
    let (a, b, c) = (rig.vector(PAGE, 1), rig.vector(1000, 2), rig.vector(PAGE, 3));
    let addresses = [&a, &b, &c].map(DeviceVec::as_device_ptr);
    let mut sleeper = rig.sleep(rig.keep());
    drop(b);
    drop(a);
    let status = rig.pool.status();
    assert_eq!(status.asleep_bytes, 4 * PAGE);
    // Freed once: the ledger and the pool know.
    // SAFETY: nothing uses the block.
    let again = unsafe { rig.pool.try_deallocate(addresses[0], layout_of(4 * PAGE), &rig.stream) };
    assert_eq!(
        again.expect_err("it was freed").misuse().map(|misuse| misuse.what),
        Some(MisuseKind::ForeignPointer)
    );
    sleeper.wake().expect("there is memory");
    assert!(rig.pool.pool_size() <= 5 * PAGE, "{} are mapped for one block", rig.pool.pool_size());
    rig.holds(&c, 3);
    // Their addresses are used again.
    let (d, e) = (rig.vector(PAGE, 4), rig.vector(1000, 5));
    rig.holds(&d, 4);
    rig.holds(&e, 5);
    drop((c, d, e));
    rig.stream.synchronize().expect("the work succeeds");
    rig.pool.trim(0).expect("nothing forbids it");
    assert_eq!(rig.pool.pool_size(), 0);
    rig.check();
}

#[test]
fn a_wrong_free_of_what_sleeps_is_refused() {
    let rig = Rig::new(PoolConfig::default().checked(true));
    let block = Held::of(&rig.pool, 5000, rig.stream.as_ref());
    let mut sleeper = rig.sleep(rig.keep());
    // SAFETY: nothing uses the block, and the size is under test.
    let wrong = unsafe { rig.pool.try_deallocate(block.pointer, layout_of(300), &rig.stream) };
    assert_eq!(
        wrong.expect_err("it is longer").misuse().map(|misuse| misuse.what),
        Some(MisuseKind::WrongSize { allocated_bytes: 5000 })
    );
    sleeper.wake().expect("there is memory");
    block.fill(7, rig.stream.as_ref());
    block.check(7, rig.stream.as_ref());
    block.free(rig.stream.as_ref());
    rig.check();
}

#[test]
fn without_memory_it_sleeps_on_and_wakes_later() {
    let rig = Rig::on(
        Sim::with_config(SimConfig::default().memory_bytes(64 * MIB)),
        PoolConfig::default().checked(true),
    );
    let vectors: Vec<_> = (0..5).map(|seed| rig.vector(PAGE, seed)).collect();
    let mut sleeper = rig.sleep(rig.keep());
    let other = Cuda::new(&rig.device);
    let taken = Held::allocate_sync(&other, layout_of(40 * MIB)).expect("all is free");
    for _ in 0..3 {
        let before = rig.free_bytes();
        let error = sleeper.wake().expect_err("24 MiB are not enough");
        assert!(error.is_out_of_memory(), "{error}");
        assert_eq!(error.requested_bytes(), Some(16 * MIB), "40 MiB less 24: {error}");
        assert_eq!(rig.free_bytes(), before, "what was created went back");
        assert!(sleeper.is_asleep());
        assert_eq!(rig.pool.status().asleep_bytes, 40 * MIB);
        assert_eq!(rig.pool.allocate_sync(layout_of(256)).expect_err("it sleeps").kind(), ErrorKind::Asleep);
    }
    taken.free_sync();
    sleeper.wake().expect("there is memory again");
    for (seed, vector) in vectors.iter().enumerate() {
        rig.holds(vector, seed as u32);
    }
    rig.check();
}

#[test]
fn waking_stays_within_the_maximum_and_gives_free_memory_up_first() {
    let rig = Rig::new(PoolConfig::default().maximum(8 * PAGE).checked(true));
    let named = with_tag("named", || rig.vector(PAGE, 1));
    let tag = with_tag("named", Tag::current);
    let mut sleeper = rig.sleep(rig.keep().tag(tag));
    let other = rig.vector(PAGE + PAGE / 2, 2);
    let error = sleeper.wake().expect_err("6 pages are taken, and 4 are wanted");
    assert!(error.is_out_of_memory() && error.requested_bytes() == Some(2 * PAGE), "{error}");
    rig.holds(&other, 2);
    // Free, but kept by the pool.
    drop(other);
    rig.stream.synchronize().expect("the work succeeds");
    sleeper.wake().expect("free pages make room");
    rig.holds(&named, 1);
    assert!(rig.pool.status().peak_reserved_bytes <= 8 * PAGE);
    rig.check();
}

#[test]
fn work_on_other_streams_is_waited_for() {
    let rig = Rig::new(PoolConfig::default());
    let other = rig.device.stream().expect("there are numbers left");
    let mut vector = rig.vector(PAGE, 1);
    vector.fill(0xAB, &other).expect("it is live");
    let mut sleeper = rig.sleep(rig.keep());
    sleeper.wake().expect("there is memory");
    assert_eq!(vector.to_vec(&rig.stream).expect("it is awake"), vec![0xAB; PAGE]);
    rig.check();
}

#[test]
fn use_while_it_sleeps_is_seen_by_the_simulator() {
    let rig = Rig::new(PoolConfig::default());
    let block = Held::of(&rig.pool, 5000, rig.stream.as_ref());
    let mut sleeper = rig.sleep(rig.keep());
    assert!(block.try_fill(1, rig.stream.as_ref()).is_err() || !rig.sim.hazards().is_empty());
    drop(rig.sim.sim_driver().take_hazards());
    let _ = sleeper.wake();
    block.free(rig.stream.as_ref());
    drop(sleeper);
}

#[test]
fn during_a_capture_nothing_changes() {
    let rig = Rig::new(PoolConfig::default());
    let (vector, other) = (rig.vector(PAGE, 1), rig.device.stream().expect("there are numbers left"));
    rig.sim.begin_capture(0, other.raw(), CaptureMode::Relaxed).expect("it can capture");
    let before = rig.pool.status();
    // SAFETY: nothing is used.
    let refused = unsafe { rig.pool.sleep(rig.keep()) }.expect_err("a stream captures");
    assert!(refused.is_capture(), "{refused}");
    let after = rig.pool.status();
    assert_eq!(
        (after.live_bytes, after.asleep_bytes, after.reserved_bytes),
        (before.live_bytes, 0, before.reserved_bytes)
    );
    rig.sim.end_capture(0, other.raw()).expect("it was not broken");
    rig.holds(&vector, 1);
    let mut sleeper = rig.sleep(rig.keep());
    sleeper.wake().expect("there is memory");
    rig.holds(&vector, 1);
    rig.check();
}

#[test]
fn memory_of_graphs_stays_awake() {
    let rig = Rig::new(PoolConfig::default());
    let vector = rig.vector(PAGE, 1);
    rig.sim.begin_capture(0, rig.stream.raw(), CaptureMode::Global).expect("it can capture");
    let mut memory = rig.pool.capture(&rig.stream).expect("it captures");
    drop(DeviceVec::filled_in(1000, 1_u8, &rig.stream, &memory).expect("there is room"));
    let graph = rig.sim.end_capture(0, rig.stream.raw()).expect("the capture is whole");
    memory.end().expect("it is open");
    let mut sleeper = rig.sleep(rig.keep());
    assert_eq!((sleeper.record().blocks(), rig.pool.status().graph_bytes), (1, 2 * MIB));
    assert!(rig.pool.pool_size() >= 2 * MIB);
    // SAFETY: the graph touches its own memory alone, which is there.
    unsafe { rig.sim.launch_graph(0, rig.stream.raw(), &graph) }.expect("it can be launched");
    rig.stream.synchronize().expect("the launch succeeds");
    sleeper.wake().expect("there is memory");
    rig.holds(&vector, 1);
    drop(graph);
    // SAFETY: the graph is gone, and its launch is over.
    unsafe { memory.release() }.expect("no block is out");
    rig.check();
}

#[test]
fn a_sleeper_that_is_dropped_leaves_the_pool_usable() {
    let rig = Rig::new(PoolConfig::default());
    let vector = rig.vector(PAGE, 1);
    let address = vector.as_device_ptr();
    drop(rig.sleep(rig.keep()));
    assert_eq!((rig.host.status().live_bytes, rig.pool.status().asleep_bytes), (0, 4 * PAGE));
    let more = rig.vector(PAGE, 2);
    assert_ne!(more.as_device_ptr(), address, "the block has its address until it is freed");
    rig.holds(&more, 2);
    drop(vector);
    assert_eq!(rig.pool.status().asleep_bytes, 0);
    rig.check();
}

#[test]
fn a_sleeper_that_is_leaked_leaks() {
    let rig = Rig::new(PoolConfig::default());
    let vector = rig.vector(PAGE, 1);
    std::mem::forget(rig.sleep(SleepConfig::default()));
    assert_eq!(rig.pool.allocate_sync(layout_of(256)).expect_err("it sleeps").kind(), ErrorKind::Asleep);
    drop(vector);
    assert_eq!((rig.pool.status().live_blocks, rig.pool.status().asleep_bytes), (0, 0));
    let Rig { sim, pool, stream, .. } = rig;
    drop(stream);
    drop(pool);
    assert!(sim.hazards().is_empty());
}

#[test]
fn only_pages_can_sleep() {
    let sim = Sim::new();
    let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).expect("a right configuration");
    // SAFETY: nothing is used.
    let refused = unsafe { pool.sleep(SleepConfig::default()) }.expect_err("it has no pages");
    assert_eq!(
        refused.to_string(),
        "unsupported: sleep of a pool over this upstream: it has no pages, so that memory cannot leave its addresses; make the \
         pool over `source::Mapped`"
    );
}

#[test]
fn an_empty_pool_sleeps_and_wakes() {
    let rig = Rig::new(PoolConfig::default().initial(8 * MIB));
    let mut sleeper = rig.sleep(rig.keep());
    assert_eq!((sleeper.record().blocks(), rig.pool.pool_size()), (0, 0));
    sleeper.wake().expect("there is nothing to map");
    drop(rig.vector(1000, 1));
    rig.check();
}

/// What a program does that sleeps and wakes: where either fails, the contents are there all the same. `look` is called when it is awake.
pub(crate) fn sleep_and_wake<'k>(
    sim: &Sim,
    config: impl FnOnce(&Device) -> Result<SleepConfig<'k>, Error>,
    look: impl FnOnce(),
) -> Result<(), Error> {
    let device = sim.device(0);
    drop(Cuda::new(&device).pool(PoolConfig::default().initial(256))?);
    let stream = device.stream()?;
    let pool = Mapped::new(&device)?.pool(PoolConfig::default().checked(true))?;
    let config = config(&device)?;
    let wanted = numbers(600_000, 1);
    let vector = DeviceVec::from_slice_in(&wanted, &stream, &pool)?;
    let small = DeviceVec::from_slice_in(&wanted[..100], &stream, &pool)?;
    // SAFETY: nothing uses the vectors meanwhile.
    let slept = match unsafe { pool.sleep(config) } {
        // A fault happens once.
        Ok(mut sleeper) => sleeper.wake().or_else(|error| sleeper.wake().and(Err(error))),
        Err(error) => Err(error),
    };
    look();
    let contents = [&vector, &small].map(|vector| vector.to_vec(&stream));
    for (found, wanted) in contents.into_iter().zip([&wanted[..], &wanted[..100]]) {
        assert!(found? == *wanted, "the contents are lost");
    }
    drop((vector, small));
    stream.synchronize().and(slept)
}

/// Each driver call of a program that sleeps and wakes fails once.
pub(crate) fn sweep() -> Sweep {
    Sweep::new()
        .config(Bench::config().devices(1))
        .may_leak(Call::MemoryUnmap)
        .may_leak(Call::MemoryRelease)
        .may_leak(Call::VirtualFree)
}

#[test]
fn every_driver_call_fails_once() {
    let keeps = |device: &Device| Ok(SleepConfig::default().keep_in(Pinned::new(device)?));
    let swept = sweep().run(|sim| sleep_and_wake(sim, keeps, || ()));
    assert!(swept.calls >= 60, "the program hardly calls the driver: {swept}");
}
