//! `AnyResource` owns: it takes nothing that borrows.

use alluvion::source::Cuda;
use alluvion::{AnyResource, Sim};

fn main() {
    let sim = Sim::new();
    let kept = {
        let resource = Cuda::new(&sim.device(0));
        AnyResource::new(&resource)
    };
    let _ = kept.device();
}
