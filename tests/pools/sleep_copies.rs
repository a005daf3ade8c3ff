//! Copies of what sleeps that could not be waited for: no page is unmapped under them, and nothing is kept for ever.

#![expect(unsafe_code, reason = "puts a pool to sleep")]

use alluvion::driver::{Call, Code};
use alluvion::sim::{Fault, SimConfig};
use alluvion::source::{Mapped, Pinned};
use alluvion::testing::Stall;
use alluvion::{
    Asleep, Device, DeviceVec, Pool, PoolConfig, Resource, ResourceExt, Sim, SleepConfig, Stream,
};

const PAGE: usize = 2 << 20;

struct Rig {
    sim: Sim,
    device: Device,
    stream: Stream,
    pool: Pool<Mapped>,
    host: Pinned,
}

type Vector<'p> = DeviceVec<u32, &'p Pool<Mapped>>;

impl Rig {
    fn new(seed: u64, config: PoolConfig) -> Self {
        let sim = Sim::with_config(SimConfig::default().seed(seed));
        let device = sim.device(0);
        let stream = device.stream().expect("there are numbers left");
        let pool = Mapped::new(&device).and_then(|mapped| mapped.pool(config)).expect("it has pages");
        let host = Pinned::new(&device).expect("addresses are common");
        Self { sim, device, stream, pool, host }
    }

    fn keep(&self) -> SleepConfig<'_> {
        SleepConfig::default().keep_in(&self.host)
    }

    fn vector(&self, len: u32, seed: u32) -> Vector<'_> {
        DeviceVec::from_slice_in(&numbers(len, seed), &self.stream, &self.pool).expect("there is room")
    }

    /// The driver refuses to wait for a stream.
    fn refuse_to_wait(&self) {
        self.sim.inject(Fault::every(Call::StreamSynchronize, Code::NOT_PERMITTED));
    }

    /// Wakes it while the driver refuses to wait for the copies.
    fn wake_in_vain<'p>(&self, asleep: Asleep<'p, Vector<'p>>) -> Asleep<'p, Vector<'p>> {
        self.refuse_to_wait();
        let refused = asleep.wake().expect_err("the copies cannot be waited for");
        assert_eq!(refused.error().code(), Some(Code::NOT_PERMITTED), "{refused}");
        refused.into_value()
    }

    #[track_caller]
    fn holds(&self, vector: &Vector<'_>, len: u32, seed: u32) {
        let found = vector.to_vec(&self.stream).expect("it is awake");
        assert!(found == numbers(len, seed), "the contents of {seed} have changed");
    }

    #[track_caller]
    fn check(&self) {
        assert!(self.sim.hazards().is_empty(), "{:#?}", self.sim.hazards());
    }
}

fn numbers(len: u32, seed: u32) -> Vec<u32> {
    (0..len).map(|at| at.wrapping_mul(0x9E37_79B9) ^ seed).collect()
}

#[test]
fn a_page_is_not_unmapped_under_the_copies_of_a_wake_that_failed() {
    for seed in 0..8 {
        for whole in [false, true] {
            let rig = Rig::new(seed, PoolConfig::default());
            let (first, second) = (rig.vector(10_000, 1), rig.vector(10_000, 2));
            let first = rig.wake_in_vain(first.sleep(rig.keep()).expect("nothing forbids it"));
            assert_eq!(rig.pool.status().pages, 1);
            // While nobody says that the copies are over, no other may sleep: it is as it was.
            let second = second.sleep(rig.keep()).expect_err("the driver refuses still").into_value();
            assert_eq!(rig.pool.status().pages, 1);
            rig.check();
            rig.sim.clear_faults();
            rig.holds(&second, 10_000, 2);
            let second = if whole {
                // SAFETY: nothing uses the vectors until they are awake.
                let mut sleeper = unsafe { rig.pool.sleep(rig.keep()) }.expect("nothing forbids it");
                assert_eq!(rig.pool.status().pages, 0, "both sleep");
                rig.check();
                sleeper.wake().expect("there is memory");
                second
            } else {
                let second = second.sleep(rig.keep()).expect("nothing forbids it");
                assert_eq!(rig.pool.status().pages, 0, "both sleep");
                rig.check();
                second.wake().expect("there is memory")
            };
            let first = first.wake().expect("there is memory");
            rig.holds(&first, 10_000, 1);
            rig.holds(&second, 10_000, 2);
            rig.check();
        }
    }
}

#[test]
fn what_is_dropped_after_a_wake_that_failed_is_free() {
    let rig = Rig::new(3, PoolConfig::default().maximum(4 * PAGE));
    let len = (PAGE / 4) as u32;
    for round in 0..4 {
        let asleep = rig.vector(len, round).sleep(rig.keep()).expect("nothing forbids it");
        let asleep = rig.wake_in_vain(asleep);
        let is_later = round % 2 == 1;
        if is_later {
            // Nobody can say yet that it is free.
            drop(asleep);
            rig.sim.clear_faults();
            let status = rig.pool.status();
            assert_eq!((status.live_blocks, status.asleep_bytes), (0, PAGE));
        } else {
            rig.sim.clear_faults();
            drop(asleep);
        }
        if round < 2 {
            rig.pool.trim(0).expect("nothing forbids it");
            assert_eq!(rig.pool.status().reserved_bytes, 0);
        }
        // All that the pool may have: only if what was dropped is free.
        let whole = rig.vector(4 * len, 9);
        let status = rig.pool.status();
        assert_eq!((status.live_blocks, status.asleep_bytes), (1, 0), "round {round}");
        drop(whole);
        rig.check();
    }
}

/// The contents were on their way to the host when the sleep failed, and the vector is as it was: in use, and then free.
#[test]
fn a_page_is_not_unmapped_under_the_copies_of_a_sleep_that_failed() {
    for is_dropped_later in [false, true] {
        let rig = Rig::new(5, PoolConfig::default());
        let vector = rig.vector(PAGE as u32, 1);
        rig.refuse_to_wait();
        let refused = vector.sleep(rig.keep()).expect_err("the copies cannot be waited for");
        let vector = refused.into_value();
        if is_dropped_later {
            rig.sim.clear_faults();
            rig.holds(&vector, PAGE as u32, 1);
            drop(vector);
        } else {
            // What is freed while nobody can say when the copies are over is leaked.
            drop(vector);
            rig.sim.clear_faults();
        }
        while !rig.stream.is_idle().expect("nothing fails") {}
        rig.pool.trim(0).expect("nothing forbids it");
        rig.check();
        assert_eq!(rig.pool.pool_size(), if is_dropped_later { 0 } else { 4 * PAGE });
        // Others sleep and wake beside it.
        let next = rig.vector(PAGE as u32, 2);
        let next = next.sleep(rig.keep()).expect("nothing forbids it").wake().expect("there is memory");
        rig.holds(&next, PAGE as u32, 2);
        drop(next);
        rig.device.synchronize().expect("nothing fails");
        rig.check();
    }
}

/// A vector that has come back from a sleep that failed is used by work that goes on while it is freed.
#[test]
fn what_comes_back_from_a_sleep_that_failed_is_freed_behind_its_work() {
    let rig = Rig::new(11, PoolConfig::default());
    let other = rig.device.stream().expect("there are numbers left");
    let vector = rig.vector(10_000, 1);
    rig.refuse_to_wait();
    let mut vector = vector.sleep(rig.keep()).expect_err("the copies cannot be waited for").into_value();
    rig.sim.clear_faults();
    // The copies are over by now, but the pool has not heard of it.
    rig.device.synchronize().expect("nothing fails");
    let mut stall = Stall::on(&rig.stream);
    vector.fill(7, &rig.stream).expect("it is awake");
    drop(vector);
    let mut theirs = DeviceVec::<u32, _>::uninit_in(10_000, &other, &rig.pool).expect("there is room");
    theirs.fill(8, &other).expect("it is live");
    stall.let_go();
    rig.device.synchronize().expect("nothing fails");
    assert!(theirs.to_vec(&other).expect("it is live") == vec![8; 10_000], "the contents have changed");
    rig.check();
}
