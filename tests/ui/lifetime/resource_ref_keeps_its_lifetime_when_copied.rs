//! `ResourceRef` is `Copy`, and a copy ends when the resource does.

use alluvion::source::Cuda;
use alluvion::{AnyResource, Resource, ResourceRef, Sim};

fn longest<'a>(resource: &'a AnyResource) -> ResourceRef<'static> {
    resource.as_ref()
}

fn main() {
    let sim = Sim::new();
    let resource = AnyResource::new(Cuda::new(&sim.device(0)));
    let _ = longest(&resource).id();
}
