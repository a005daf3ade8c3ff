//! "A layer is named over any upstream": not by the type of its book, where a layer alone has it.

use alluvion::adaptor::StatsBook;
use alluvion::source::Cuda;
use alluvion::{ResourceExt, Sim};

fn main() {
    let sim = Sim::new();
    let resource = Cuda::new(&sim.device(0)).stats();
    let _ = resource.find::<StatsBook>();
}
