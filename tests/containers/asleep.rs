//! Containers that sleep: nothing can be done with one, and it comes back as it was.

use std::sync::Arc;

use alluvion::driver::CaptureMode;
use alluvion::sim::SimConfig;
use alluvion::source::{Cuda, Mapped, Pinned};
use alluvion::{
    AnyResource, Device, DeviceBuffer, DeviceVec, Layout, Pool, PoolConfig, Resource, ResourceExt, Sim,
    SleepConfig, Stream,
};

const MIB: usize = 1 << 20;

struct Rig {
    sim: Sim,
    device: Device,
    stream: Stream,
    pool: Pool<Mapped>,
    host: Pinned,
}

impl Rig {
    fn new(memory_bytes: usize) -> Self {
        let sim = Sim::with_config(SimConfig::default().memory_bytes(memory_bytes));
        let device = sim.device(0);
        let stream = device.stream().expect("there are numbers left");
        let pool = Mapped::new(&device).and_then(|mapped| mapped.pool(PoolConfig::default()));
        let host = Pinned::new(&device).expect("addresses are common");
        Self { sim, device, stream, pool: pool.expect("it has pages"), host }
    }

    fn vector(&self, len: usize, seed: u32) -> DeviceVec<u32, &Pool<Mapped>> {
        DeviceVec::from_slice_in(&numbers(len, seed), &self.stream, &self.pool).expect("there is room")
    }

    fn keep(&self) -> SleepConfig<'_> {
        SleepConfig::default().keep_in(&self.host)
    }

    #[track_caller]
    fn check(&self) {
        assert!(self.sim.hazards().is_empty(), "{:#?}", self.sim.hazards());
    }
}

fn numbers(len: usize, seed: u32) -> Vec<u32> {
    (0..len as u32).map(|at| at.wrapping_mul(0x9E37_79B9) ^ seed).collect()
}

#[test]
fn a_vector_comes_back_with_its_address_and_its_elements() {
    let rig = Rig::new(256 * MIB);
    let (vector, other) = (rig.vector(MIB, 1), rig.vector(MIB, 2));
    let (address, before) = (vector.as_device_ptr(), rig.pool.pool_size());
    let asleep = vector.sleep(rig.keep()).expect("it can");
    assert_eq!(asleep.kept_bytes(), 4 * MIB);
    assert!(before - rig.pool.pool_size() >= 2 * MIB, "a page at least was its own");
    // The rest of the pool goes on.
    let more = rig.vector(2 * MIB, 3);
    assert_eq!(other.to_vec(&rig.stream).expect("it is awake"), numbers(MIB, 2));
    let mut vector = asleep.wake().expect("there is memory");
    assert_eq!((vector.as_device_ptr(), vector.len()), (address, MIB));
    assert_eq!(vector.to_vec(&rig.stream).expect("it is awake"), numbers(MIB, 1));
    assert_eq!(more.to_vec(&rig.stream).expect("it is awake"), numbers(2 * MIB, 3));
    // It is a vector like any other.
    vector.extend_from_slice(&[1, 2, 3], &rig.stream).expect("there is room");
    assert_eq!(vector.back(&rig.stream).expect("it is there"), 3);
    rig.check();
}

#[test]
fn many_on_one_page_sleep_one_by_one() {
    let rig = Rig::new(256 * MIB);
    let vectors: Vec<_> = (0..20).map(|seed| rig.vector(1000, seed)).collect();
    let asleep: Vec<_> =
        vectors.into_iter().map(|vector| vector.sleep(rig.keep()).expect("it can")).collect();
    assert_eq!((rig.pool.pool_size(), rig.pool.status().asleep_bytes), (0, 20 * 4096));
    for (seed, asleep) in asleep.into_iter().enumerate().rev() {
        let vector = asleep.wake().expect("there is memory");
        assert_eq!(vector.to_vec(&rig.stream).expect("it is awake"), numbers(1000, seed as u32));
    }
    rig.check();
}

#[test]
fn uses_on_every_stream_are_waited_for() {
    let rig = Rig::new(256 * MIB);
    let others = [(); 3].map(|()| rig.device.stream().expect("there are numbers left"));
    let mut buffer = DeviceBuffer::zeroed_in(3 * MIB, &rig.stream, &rig.pool).expect("there is room");
    for (at, stream) in others.iter().enumerate() {
        buffer
            .slice_mut(at * MIB..(at + 1) * MIB)
            .and_then(|mut part| part.fill(at as u8 + 1, stream))
            .expect("it can");
    }
    let asleep = buffer.sleep(rig.keep()).expect("it can");
    let bytes = asleep.wake().map(|buffer| buffer.to_vec(&rig.stream).expect("it is awake"));
    let bytes = bytes.expect("there is memory");
    assert!(bytes.chunks(MIB).zip(1_u8..).all(|(part, value)| part.iter().all(|byte| *byte == value)));
    rig.check();
}

#[test]
fn without_memory_it_stays_asleep_and_wakes_later() {
    let rig = Rig::new(32 * MIB);
    let vector = rig.vector(4 * MIB, 1);
    let mut asleep = vector.sleep(rig.keep()).expect("it can");
    let other = Cuda::new(&rig.device);
    let layout = Layout::from_bytes(24 * MIB).expect("it is small");
    let taken = DeviceBuffer::with_layout_in(layout, &rig.stream, &other).expect("all is free");
    for _ in 0..2 {
        let refused = asleep.wake().expect_err("8 MiB are free, and 16 are wanted");
        assert!(refused.error().is_out_of_memory(), "{refused}");
        assert_eq!(refused.error().requested_bytes(), Some(8 * MIB), "{refused}");
        asleep = refused.into_value();
    }
    drop(taken);
    rig.stream.synchronize().expect("the free is over");
    let vector = asleep.wake().expect("there is memory again");
    assert_eq!(vector.to_vec(&rig.stream).expect("it is awake"), numbers(4 * MIB, 1));
    rig.check();
}

#[test]
fn one_that_is_dropped_gives_everything_back() {
    let rig = Rig::new(256 * MIB);
    let vector = rig.vector(MIB, 1);
    drop(vector.sleep(rig.keep()).expect("it can"));
    let status = rig.pool.status();
    assert_eq!((status.live_blocks, status.asleep_bytes, status.reserved_bytes), (0, 0, 0));
    let vector = rig.vector(MIB, 2);
    assert_eq!(vector.to_vec(&rig.stream).expect("it is awake"), numbers(MIB, 2));
    rig.check();
    drop(vector);
    let Rig { sim, device, stream, pool, host } = rig;
    drop((pool, host, stream, device));
    sim.assert_clean();
}

#[test]
fn one_that_is_leaked_is_not_reused() {
    let rig = Rig::new(256 * MIB);
    let vector = rig.vector(MIB, 1);
    let address = vector.as_device_ptr();
    std::mem::forget(vector.sleep(SleepConfig::default()).expect("it can"));
    let others: Vec<_> = (0..8).map(|seed| rig.vector(MIB, seed)).collect();
    assert!(others.iter().all(|other| other.as_device_ptr() != address));
    rig.check();
}

#[test]
fn an_empty_one_sleeps_too() {
    let rig = Rig::new(256 * MIB);
    let empty = rig.vector(0, 1).sleep(rig.keep()).expect("it can");
    assert_eq!((empty.kept_bytes(), empty.wake().expect("there is nothing to map").len()), (0, 0));
    rig.check();
}

#[test]
fn handles_and_layers_pass_it_on_and_others_say_what_to_use() {
    let rig = Rig::new(256 * MIB);
    let erased = AnyResource::new(Arc::new(
        Mapped::new(&rig.device)
            .and_then(|mapped| mapped.pool(PoolConfig::default()))
            .expect("it has pages")
            .stats()
            .tracking()
            .limiting(64 * MIB),
    ));
    let vector = DeviceVec::from_slice_in(&numbers(MIB, 1), &rig.stream, erased).expect("there is room");
    let asleep = vector.sleep(rig.keep()).expect("each layer passes the blocks on");
    let vector = asleep.wake().expect("there is memory");
    assert_eq!(vector.to_vec(&rig.stream).expect("it is awake"), numbers(MIB, 1));

    let pool = Cuda::new(&rig.device).pool(PoolConfig::default()).expect("a right configuration");
    let vector = DeviceVec::from_slice_in(&[7_u8], &rig.stream, &pool).expect("there is room");
    let refused = vector.sleep(rig.keep()).expect_err("it has no pages");
    assert_eq!(
        refused.to_string(),
        "unsupported: sleep of a container of this resource: its memory cannot leave its address; allocate it from \
         a pool over `source::Mapped`"
    );
    assert_eq!(refused.into_value().to_vec(&rig.stream).expect("it is as it was"), [7]);
    rig.check();
}

#[test]
fn what_a_stream_captures_does_not_sleep() {
    let rig = Rig::new(256 * MIB);
    let (vector, other) = (rig.vector(MIB, 1), rig.vector(MIB, 2));
    rig.sim.begin_capture(0, rig.stream.raw(), CaptureMode::Relaxed).expect("it can capture");
    let refused = vector.sleep(rig.keep()).expect_err("its home captures");
    assert!(refused.error().is_capture(), "{refused}");
    rig.sim.end_capture(0, rig.stream.raw()).expect("it was not broken");
    let vector = refused.into_value().sleep(rig.keep()).expect("nothing captures").wake();
    assert_eq!(vector.expect("there is memory").to_vec(&rig.stream).expect("it is awake"), numbers(MIB, 1));
    assert_eq!(other.to_vec(&rig.stream).expect("it is awake"), numbers(MIB, 2));
    assert!(rig.pool.sleeping().is_some());
    rig.check();
}
