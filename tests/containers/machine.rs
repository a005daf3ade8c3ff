//! The simulated machine of these tests, and the kernels that they run on it.

#![expect(unsafe_code, reason = "launches kernels")]

use alluvion::sim::{Kernel, SimConfig};
use alluvion::{Sim, StreamRef};

/// Enough for every order of a handful of operations to come up; a run takes well under a millisecond.
pub(crate) const SEEDS: u64 = 200;

pub(crate) fn sim_of(seed: u64) -> Sim {
    Sim::with_config(SimConfig::default().devices(2).seed(seed))
}

/// No mistake was made, and nothing is out. The initial resource goes first, with the pool that it has.
pub(crate) fn check(sim: &Sim, context: &str) {
    assert!(sim.hazards().is_empty(), "{context}: {:#?}", sim.hazards());
    sim.machine().reset_current_resources();
    // A pool is destroyed once its frees have run. A device that is lost keeps what it had.
    sim.machine().devices().for_each(|device| drop(device.synchronize()));
    let live = sim.live();
    assert_eq!((live.allocations(), live.pools), (0, 0), "{context}: {live}");
}

pub(crate) fn launch(sim: &Sim, stream: StreamRef<'_>, kernel: Kernel) {
    // SAFETY: the stream is borrowed. The kernel touches memory of a container, in the order that is under test; the
    // simulator reports what conflicts, and what touches memory that is gone.
    unsafe { sim.launch(stream.device().ordinal(), stream.raw(), kernel) }.expect("a kernel can be launched");
}

pub(crate) fn doubling(address: u64, len: usize) -> Kernel {
    Kernel::new("double").writes(address, 4 * len).run(move |memory| {
        for at in (address..).step_by(4).take(len) {
            let value = memory.read_u32(at);
            memory.write_u32(at, value.wrapping_mul(2));
        }
    })
}

pub(crate) fn summing(from: u64, len: usize, to: u64) -> Kernel {
    Kernel::new("sum").reads(from, 4 * len).writes(to, 4).run(move |memory| {
        let values = (from..).step_by(4).take(len).map(|at| memory.read_u32(at));
        let sum = values.fold(0, u32::wrapping_add);
        memory.write_u32(to, sum);
    })
}
