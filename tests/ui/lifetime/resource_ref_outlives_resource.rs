//! `ResourceRef`: "it cannot outlive what it names".

use alluvion::source::Cuda;
use alluvion::{Resource, ResourceRef, Sim};

fn main() {
    let sim = Sim::new();
    let borrowed = {
        let resource = Cuda::new(&sim.device(0));
        ResourceRef::erase(&resource)
    };
    let _ = borrowed.id();
}
