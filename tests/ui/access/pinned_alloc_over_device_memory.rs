//! `PinnedAlloc` takes memory that both sides touch, not memory of the device alone.

use alluvion::source::CudaAsync;
use alluvion::{PinnedAlloc, Sim};

fn main() {
    let sim = Sim::new();
    let _ = PinnedAlloc::from_resource(CudaAsync::new(&sim.device(0)).unwrap());
}
