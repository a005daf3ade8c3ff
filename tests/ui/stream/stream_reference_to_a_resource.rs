//! "The methods of `Resource` take the `StreamRef` itself": `stream.as_ref()`.

use alluvion::{Layout, Resource, Sim, source::Cuda};

fn main() {
    let sim = Sim::new();
    let device = sim.device(0);
    let stream = device.stream().unwrap();
    let _ = Cuda::new(&device).allocate(Layout::from_bytes(8).unwrap(), &stream);
}
