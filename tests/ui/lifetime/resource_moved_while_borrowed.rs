//! A resource cannot be moved under a handle that names it.

use alluvion::source::CudaAsync;
use alluvion::{AnyResource, Resource, ResourceRef, Sim};

fn main() {
    let sim = Sim::new();
    let resource = CudaAsync::new(&sim.device(0)).unwrap();
    let borrowed = ResourceRef::new(&resource);
    let _owned = AnyResource::new(resource);
    let _ = borrowed.id();
}
