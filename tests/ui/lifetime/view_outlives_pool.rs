//! "A view cannot outlive the pool that it borrows."

use alluvion::source::CudaAsync;
use alluvion::{Resource, Sim};

fn main() {
    let sim = Sim::new();
    let view = {
        let owner = CudaAsync::new(&sim.device(0)).unwrap();
        owner.view()
    };
    let _ = view.id();
}
