//! What others do while a pool falls asleep or wakes: from within the calls that it makes to its upstream.

#![expect(unsafe_code, reason = "implements an upstream, and puts pools to sleep over it")]

use std::cell::RefCell;
use std::fmt;
use std::thread;

use alluvion::driver::{Call, Code};
use alluvion::resource::{Page, Pages};
use alluvion::sim::Fault;
use alluvion::source::{Mapped, Pinned};
use alluvion::tag::{Tag, with_tag};
use alluvion::{
    Device, DeviceAccessible, DevicePtr, DeviceVec, Error, ErrorKind, Layout, Pool, PoolConfig, Resource,
    ResourceExt, ResourceId, Sim, SleepConfig, Stream, StreamRef,
};

const LEN: usize = 1 << 20;

/// A call of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Create,
    Map,
    Unmap,
}

/// A call, and what is done before it.
type Act = (At, Box<dyn FnOnce()>);

thread_local! {
    /// What is done once, before the call. A thread of its own for each test.
    static MEANWHILE: RefCell<Option<Act>> = const { RefCell::new(None) };
}

fn meanwhile(at: At, act: impl FnOnce() + 'static) {
    MEANWHILE.set(Some((at, Box::new(act))));
}

fn reach(at: At) {
    let act = MEANWHILE.with_borrow_mut(|act| act.take_if(|(wanted, _)| *wanted == at));
    if let Some((_, act)) = act {
        act();
    }
}

fn has_happened() -> bool {
    MEANWHILE.with_borrow(Option::is_none)
}

/// Pages that let others do something before a call.
struct Interrupted(Mapped);

impl Interrupted {
    fn pages(&self) -> &dyn Pages {
        self.0.pages().expect("it has them")
    }
}

// SAFETY: everything is forwarded to one source, which keeps the contract.
unsafe impl Resource for Interrupted {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.0.allocate(layout, stream)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // SAFETY: the caller's promises.
        unsafe { self.0.deallocate(block, layout, stream) }
    }

    fn device(&self) -> &Device {
        self.0.device()
    }

    fn id(&self) -> ResourceId {
        self.0.id()
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupted")
    }

    fn pages(&self) -> Option<&dyn Pages> {
        Some(self)
    }
}

// SAFETY: its blocks are those of a source that is.
unsafe impl DeviceAccessible for Interrupted {}

// SAFETY: everything is forwarded to one source, which keeps the contract.
unsafe impl Pages for Interrupted {
    fn page_bytes(&self) -> usize {
        self.pages().page_bytes()
    }

    fn may_alias(&self) -> bool {
        self.pages().may_alias()
    }

    fn reserve(&self, bytes: usize) -> Result<DevicePtr, Error> {
        self.pages().reserve(bytes)
    }

    unsafe fn unreserve(&self, range: DevicePtr, bytes: usize) {
        // SAFETY: the caller's promises.
        unsafe { self.pages().unreserve(range, bytes) }
    }

    fn create(&self, bytes: usize) -> Result<Page, Error> {
        reach(At::Create);
        self.pages().create(bytes)
    }

    unsafe fn release(&self, page: Page) {
        // SAFETY: the caller's promises.
        unsafe { self.pages().release(page) }
    }

    unsafe fn map(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        reach(At::Map);
        // SAFETY: the caller's promises.
        unsafe { self.pages().map(page, at) }
    }

    unsafe fn unmap(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        reach(At::Unmap);
        // SAFETY: the caller's promises.
        unsafe { self.pages().unmap(page, at) }
    }
}

struct Rig {
    sim: Sim,
    stream: Stream,
    pool: &'static Pool<Interrupted>,
    host: Pinned,
}

type Vector = DeviceVec<u32, &'static Pool<Interrupted>>;

impl Rig {
    fn new() -> Self {
        let sim = Sim::new();
        let device = sim.device(0);
        let stream = device.stream().expect("there are numbers left");
        let upstream = Interrupted(Mapped::new(&device).expect("it has pages"));
        let pool = upstream.pool(PoolConfig::default().checked(true)).expect("a right configuration");
        // What is done meanwhile must not borrow.
        let pool = Box::leak(Box::new(pool));
        let host = Pinned::new(&device).expect("addresses are common");
        Self { sim, stream, pool, host }
    }

    fn vector(&self, len: usize, seed: u32) -> Vector {
        DeviceVec::from_slice_in(&numbers(len, seed), &self.stream, self.pool).expect("there is room")
    }

    #[track_caller]
    fn holds(&self, vector: &Vector, seed: u32) {
        let found = vector.to_vec(&self.stream).expect("it is awake");
        assert!(found == numbers(vector.len(), seed), "the contents of {seed} have changed");
        assert!(self.sim.hazards().is_empty(), "{:#?}", self.sim.hazards());
    }
}

fn numbers(len: usize, seed: u32) -> Vec<u32> {
    (0..len as u32).map(|at| at.wrapping_mul(0x9E37_79B9) ^ seed).collect()
}

#[test]
fn what_is_freed_while_it_is_woken_is_free_afterwards() {
    for at in [At::Create, At::Map] {
        let rig = Rig::new();
        let (kept, freed, small) = (rig.vector(LEN, 1), rig.vector(LEN, 2), rig.vector(100, 3));
        let address = freed.as_device_ptr();
        // SAFETY: nothing uses the vectors until they are awake.
        let slept = unsafe { rig.pool.sleep(SleepConfig::default().keep_in(&rig.host)) };
        let mut sleeper = slept.expect("nothing forbids it");
        meanwhile(at, move || drop((freed, small)));
        sleeper.wake().expect("there is memory");
        assert!(has_happened());
        let status = rig.pool.status();
        assert_eq!((status.live_blocks, status.asleep_bytes), (1, 0));
        rig.holds(&kept, 1);
        let next = rig.vector(LEN, 4);
        assert_eq!(next.as_device_ptr(), address, "its addresses and pages serve others");
        rig.holds(&next, 4);
        rig.holds(&kept, 1);
    }
}

/// The other thread is through with its free, and with an allocation, before the call goes on.
#[test]
fn what_another_thread_frees_while_it_is_woken_is_free_afterwards() {
    for at in [At::Create, At::Map] {
        let rig = Rig::new();
        let awake = rig.vector(LEN, 3);
        let tag = with_tag("woken", Tag::current);
        let (kept, freed) = with_tag("woken", || (rig.vector(LEN, 4), rig.vector(LEN, 5)));
        let address = freed.as_device_ptr();
        // SAFETY: nothing uses the vectors until they are awake.
        let slept = unsafe { rig.pool.sleep(SleepConfig::default().keep_in(&rig.host).tag(tag)) };
        let mut sleeper = slept.expect("nothing forbids it");
        let (pool, stream) = (rig.pool, rig.stream.clone());
        meanwhile(at, move || {
            let other = thread::spawn(move || {
                drop(freed);
                DeviceVec::from_slice_in(&numbers(LEN, 6), &stream, pool).expect("there is room")
            });
            let made = other.join().expect("it does not panic");
            assert_ne!(made.as_device_ptr(), address, "it is being woken");
        });
        sleeper.wake().expect("there is memory");
        assert!(has_happened());
        rig.holds(&kept, 4);
        let next = rig.vector(LEN, 7);
        rig.holds(&next, 7);
        rig.holds(&awake, 3);
        assert_eq!((rig.pool.status().live_blocks, rig.pool.status().asleep_bytes), (3, 0));
    }
}

#[test]
fn what_is_freed_while_pages_are_unmapped_is_gone() {
    let rig = Rig::new();
    let (kept, freed) = (rig.vector(LEN, 1), rig.vector(LEN, 2));
    meanwhile(At::Unmap, move || drop(freed));
    // SAFETY: the pool has copied the contents when it unmaps, and nothing uses the vectors until they are awake.
    let slept = unsafe { rig.pool.sleep(SleepConfig::default().keep_in(&rig.host)) };
    let mut sleeper = slept.expect("nothing forbids it");
    assert!(has_happened());
    assert_eq!(rig.pool.status().asleep_bytes, 4 * LEN);
    sleeper.wake().expect("there is memory");
    rig.holds(&kept, 1);
    assert_eq!(rig.pool.status().live_blocks, 1);
    rig.pool.trim(0).expect("nothing forbids it");
    assert!(rig.pool.pool_size() <= 6 << 20, "{} for one block", rig.pool.pool_size());
}

#[test]
fn a_free_while_waking_fails_is_a_free() {
    let rig = Rig::new();
    let (kept, freed) = (rig.vector(LEN, 1), rig.vector(LEN, 2));
    // SAFETY: nothing uses the vectors until they are awake.
    let slept = unsafe { rig.pool.sleep(SleepConfig::default().keep_in(&rig.host)) };
    let mut sleeper = slept.expect("nothing forbids it");
    rig.sim.sim_driver().inject(Fault::nth(Call::MemoryMap, 1, Code::OUT_OF_MEMORY));
    meanwhile(At::Map, move || drop(freed));
    let error = sleeper.wake().expect_err("a page cannot be mapped");
    assert!(error.is_out_of_memory(), "{error}");
    assert!(has_happened() && sleeper.is_asleep());
    assert_eq!((rig.pool.status().asleep_bytes, rig.pool.pool_size()), (4 * LEN, 0));
    sleeper.wake().expect("a fault happens once");
    rig.holds(&kept, 1);
}

#[test]
fn sleep_within_sleep_is_refused() {
    let rig = Rig::new();
    let (vector, other) = (rig.vector(LEN, 1), rig.vector(LEN, 2));
    let pool = rig.pool;
    meanwhile(At::Unmap, move || {
        let refused = other.sleep(SleepConfig::default()).expect_err("the pool falls asleep");
        assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument, "{refused}");
        // SAFETY: nothing is used.
        let refused = unsafe { pool.sleep(SleepConfig::default()) }.expect_err("as before");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    });
    let asleep = vector.sleep(SleepConfig::default().keep_in(&rig.host)).expect("nothing forbids it");
    assert!(has_happened());
    let vector = asleep.wake().expect("there is memory");
    rig.holds(&vector, 1);
}

#[test]
fn the_rest_of_a_pool_goes_on_while_a_vector_is_woken() {
    let rig = Rig::new();
    let (vector, other) = (rig.vector(LEN, 1), rig.vector(LEN, 2));
    let asleep = vector.sleep(SleepConfig::default().keep_in(&rig.host)).expect("nothing forbids it");
    let (pool, stream) = (rig.pool, rig.stream.clone());
    meanwhile(At::Create, move || {
        for seed in 0..20 {
            let made =
                DeviceVec::from_slice_in(&numbers(LEN / 2, seed), &stream, pool).expect("there is room");
            assert!(made.to_vec(&stream).expect("it is live") == numbers(LEN / 2, seed));
        }
        pool.trim(0).expect("nothing forbids it");
    });
    let vector = asleep.wake().expect("there is memory");
    assert!(has_happened());
    rig.holds(&vector, 1);
    rig.holds(&other, 2);
}

/// A page gets no access when a block is woken, and that cannot be undone.
#[test]
fn a_wake_at_addresses_that_are_lost_is_tried_again() {
    let rig = Rig::new();
    let (kept, freed) = (rig.vector(LEN, 1), rig.vector(LEN, 2));
    let sleep =
        |vector: Vector| vector.sleep(SleepConfig::default().keep_in(&rig.host)).expect("nothing forbids it");
    let (kept, freed) = (sleep(kept), sleep(freed));
    rig.sim.inject(Fault::every(Call::MemorySetAccess, Code::NOT_PERMITTED));
    rig.sim.inject(Fault::every(Call::MemoryUnmap, Code::NOT_PERMITTED));
    let kept = kept.wake().expect_err("a page gets no access").into_value();
    let freed = freed.wake().expect_err("a page gets no access").into_value();
    let lost = rig.sim.live().mappings;
    assert_eq!((lost, rig.pool.status().pages), (2, 0), "{}", rig.sim.live());
    // The addresses of the one that is gone serve nobody.
    drop(freed);
    rig.sim.clear_faults();
    for seed in 10..20 {
        let vector = rig.vector(3 * LEN, seed);
        rig.holds(&vector, seed);
    }
    let kept = kept.wake().expect("nothing fails now");
    rig.holds(&kept, 1);
}
