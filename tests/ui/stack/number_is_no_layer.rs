//! "What is no layer does not compile": the answer would be none for ever.

use alluvion::source::Cuda;
use alluvion::{ResourceExt, Sim};

fn main() {
    let sim = Sim::new();
    let resource = Cuda::new(&sim.device(0)).stats();
    let _ = resource.find::<u32>();
}
