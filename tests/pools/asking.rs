//! What a request costs a pool at its maximum, where hundreds of streams have freed: counted in driver calls.

#![expect(unsafe_code, reason = "waits for raw streams, behind the back of the crate")]

use alluvion::driver::{Call, Code};
use alluvion::sim::{CallCounts, Fault};
use alluvion::source::Cuda;
use alluvion::suballoc::Growth;
use alluvion::testing::{Bench, Stall};
use alluvion::{Pool, PoolConfig, Resource, ResourceExt, Stream, StreamRef};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;
const STREAMS: usize = 300;

/// Streams of which each has freed a block of 1 MiB, one after another, in the order of the addresses. That is all that the pool
/// may have.
struct Crowd {
    /// What those that are busy wait for. It is dropped first, so that the pool can end.
    _stall: Stall,
    bench: Bench,
    pool: Pool<Cuda>,
    _streams: Vec<Stream>,
}

impl Crowd {
    /// Those that `is_over` names by their turn have nothing left to do, which nobody has asked yet; the others are busy.
    fn new(count: usize, is_over: impl Fn(usize) -> bool) -> Self {
        let bench = Bench::sim_with(Bench::config().memory_bytes((count + 16) * MIB));
        let config = PoolConfig::default().checked(false).growth(Growth::Exact);
        let pool = Cuda::new(&bench.device()).pool(config.initial(count * MIB).maximum(count * MIB)).unwrap();
        let held_up = bench.stream();
        let stall = Stall::on(held_up.as_ref());
        let streams: Vec<_> = (0..count).map(|_| bench.stream()).collect();
        let blocks: Vec<_> = streams.iter().map(|stream| Held::of(&pool, MIB, stream.as_ref())).collect();
        for (at, (block, stream)) in blocks.into_iter().zip(&streams).enumerate() {
            if is_over(at) {
                block.free(stream.as_ref());
                drop(stream.record().unwrap());
                wait_silently(stream.as_ref());
            } else {
                stream.wait_for_stream(&held_up).unwrap();
                block.free(stream.as_ref());
            }
        }
        Self { bench, pool, _streams: streams, _stall: stall }
    }

    /// What the driver is asked during a request, which is served.
    fn calls_of(&self, bytes: usize, stream: &Stream) -> (Held<'_, Pool<Cuda>>, CallCounts) {
        let sim = self.bench.simulated().unwrap();
        let before = sim.calls();
        let block = Held::of(&self.pool, bytes, stream.as_ref());
        (block, sim.calls() - before)
    }
}

/// Waits for all work of a stream, which the crate does not get to know.
fn wait_silently(stream: StreamRef<'_>) {
    let device = stream.device();
    // SAFETY: the stream is live and of this device.
    let waited = unsafe { device.driver().stream_synchronize(device.ordinal(), stream.raw()) };
    waited.unwrap();
}

/// No stream has a block that is large enough, two neighbours together have: they are waited for, and nobody else.
#[test]
fn a_request_waits_for_as_few_streams_as_it_needs() {
    for count in [10, STREAMS] {
        let crowd = Crowd::new(count, |_| false);
        let taking = crowd.bench.stream();
        let (block, made) = crowd.calls_of(2 * MIB, &taking);
        let asked = count.min(64) as u64;
        assert!(made[Call::StreamWaitEvent] <= 2, "{count} streams: {made:?}");
        assert!(made[Call::EventQuery] <= asked, "{count} streams: {made:?}");
        assert!(made[Call::EventRecord] <= asked + 2, "{count} streams: {made:?}");
        block.free(taking.as_ref());
    }
}

/// Those that have freed longest ago are asked first, and nobody once there is enough.
#[test]
fn asking_ends_when_there_is_enough() {
    let crowd = Crowd::new(STREAMS, |turn| turn < 4);
    let taking = crowd.bench.stream();
    let mut blocks = Vec::new();
    for _ in 0..2 {
        let (block, made) = crowd.calls_of(2 * MIB, &taking);
        assert!(made[Call::EventQuery] <= 2, "{made:?}");
        assert_eq!(made[Call::EventRecord] + made[Call::StreamWaitEvent], 0, "{made:?}");
        blocks.push(block);
    }
    blocks.into_iter().for_each(|block| block.free(taking.as_ref()));
}

/// Where the first ones are busy, the next request asks others.
#[test]
fn everybody_is_asked_in_turn() {
    let crowd = Crowd::new(STREAMS, |turn| turn == STREAMS - 1);
    let taking = crowd.bench.stream();
    let mut blocks = Vec::new();
    let rounds = STREAMS.div_ceil(64);
    for round in 1..=rounds {
        let before = crowd.pool.status().waits;
        let (block, made) = crowd.calls_of(MIB, &taking);
        blocks.push(block);
        assert!(made[Call::EventQuery] <= 65, "{made:?}");
        let has_waited = crowd.pool.status().waits > before;
        assert_eq!(has_waited, round < rounds, "round {round}: {made:?}");
    }
    blocks.into_iter().for_each(|block| block.free(taking.as_ref()));
}

/// One stream cannot be asked; what another one has freed is found all the same, by a request and by a trim.
#[test]
fn a_stream_that_fails_hides_no_other() {
    let bench = Bench::sim();
    let sim = bench.simulated().unwrap();
    let config = PoolConfig::default().checked(false).growth(Growth::Exact).maximum(2 * MIB);
    let pool = Cuda::new(&bench.device()).pool(config).unwrap();
    let streams = [(); 3].map(|()| bench.stream());
    let blocks = [0, 1].map(|at: usize| Held::of(&pool, MIB, streams[at].as_ref()));
    for (block, stream) in blocks.into_iter().zip(&streams) {
        block.free(stream.as_ref());
        drop(stream.record().unwrap());
        wait_silently(stream.as_ref());
    }
    assert_eq!(pool.status().reserved_bytes, 2 * MIB);
    sim.inject(Fault::nth(Call::EventQuery, 1, Code::INVALID_VALUE));
    let block = Held::allocate(&pool, layout_of(MIB), streams[2].as_ref()).unwrap();
    assert_eq!((sim.faults_left(), pool.status().waits), (0, 0));
    block.free(streams[2].as_ref());
    drop(streams[2].record().unwrap());
    wait_silently(streams[2].as_ref());
    sim.inject(Fault::nth(Call::EventQuery, 1, Code::INVALID_VALUE));
    assert_eq!(pool.trim(0).unwrap_err().code(), Some(Code::INVALID_VALUE));
    assert_eq!((sim.faults_left(), pool.status().reserved_bytes), (0, MIB));
    assert_eq!(pool.trim(0).unwrap(), MIB);
}
