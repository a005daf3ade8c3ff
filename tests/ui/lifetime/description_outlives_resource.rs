//! `Describe` reads the stack when it is printed, so it ends before the stack does.

use alluvion::source::Cuda;
use alluvion::{ResourceExt, Sim};

fn main() {
    let sim = Sim::new();
    let description = {
        let resource = Cuda::new(&sim.device(0));
        resource.describe()
    };
    println!("{description}");
}
