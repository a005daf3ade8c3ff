//! `Guard` "has the device fill and copy" blocks: it stands over no memory that the device may not touch.

use alluvion::adaptor::{Guard, GuardConfig};
use alluvion::source::{Cuda, Null};
use alluvion::{ResourceExt, Sim};

fn main() {
    let sim = Sim::new();
    let device = sim.device(0);
    let _ = Cuda::new(&device).guard(GuardConfig::default());
    let _ = Null::new(&device).guard(GuardConfig::default());
    let _ = Guard::new(Null::new(&device), GuardConfig::default());
}
