//! A pool on a simulated device that captures graphs, and what several files of tests do with it.

#![expect(unsafe_code, reason = "launches graphs, and gives their memory back")]

use alluvion::driver::CaptureMode;
use alluvion::sim::{SimConfig, SimGraph};
use alluvion::source::Cuda;
use alluvion::{Error, GraphMemory, Pool, PoolConfig, ResourceExt, Sim, Stream};

pub(crate) const MIB: usize = 1 << 20;

/// A simulated machine with a pool and two streams.
pub(crate) struct Rig {
    pub(crate) sim: Sim,
    pub(crate) pool: Pool<Cuda>,
    pub(crate) main: Stream,
    pub(crate) side: Stream,
}

impl Rig {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self::on(Sim::with_config(SimConfig::default().devices(2).seed(7)), config)
    }

    pub(crate) fn on(sim: Sim, config: PoolConfig) -> Self {
        let device = sim.device(0);
        let pool = Cuda::new(&device).pool(config).expect("a right configuration");
        let (main, side) = (device.stream().expect("there are numbers"), device.stream().expect("as before"));
        Self { sim, pool, main, side }
    }

    pub(crate) fn begin(&self, stream: &Stream) {
        self.sim.begin_capture(0, stream.raw(), CaptureMode::Global).expect("it can capture");
    }

    pub(crate) fn end(&self, stream: &Stream) -> SimGraph {
        self.sim.end_capture(0, stream.raw()).expect("the capture is whole")
    }

    pub(crate) fn launch(&self, graph: &SimGraph, stream: &Stream) {
        // SAFETY: the stream lives, and what the graph touches is under test; the simulator reports a conflict.
        unsafe { self.sim.launch_graph(0, stream.raw(), graph) }.expect("it can be launched");
    }

    #[track_caller]
    pub(crate) fn check(&self) {
        assert!(self.sim.hazards().is_empty(), "{:#?}", self.sim.hazards());
    }
}

/// Gives the memory of a graph back.
pub(crate) fn release(memory: &mut GraphMemory<'_, Cuda>, graph: SimGraph) -> Result<usize, Error> {
    drop(graph);
    // SAFETY: the graph is gone, and the test has waited for its launches.
    unsafe { memory.release() }
}

#[track_caller]
pub(crate) fn is_apart(one: (u64, u64), others: &[(u64, u64)]) {
    let overlapping = others.iter().find(|other| one.0 < other.1 && other.0 < one.1);
    assert!(overlapping.is_none(), "{one:x?} is part of {overlapping:x?}");
}
