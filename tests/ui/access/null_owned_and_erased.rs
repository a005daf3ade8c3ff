//! `AnyResource` takes resources that are accessible to the device, and nothing else.

use alluvion::source::Null;
use alluvion::{AnyResource, Sim};

fn main() {
    let sim = Sim::new();
    let _ = AnyResource::new(Null::new(&sim.device(0)));
}
