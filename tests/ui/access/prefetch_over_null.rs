//! `Prefetch` brings blocks to the device: it stands over no memory that the device may not touch.

use alluvion::adaptor::Prefetch;
use alluvion::source::{Managed, Null};
use alluvion::{ResourceExt, Sim};

fn main() {
    let sim = Sim::new();
    let device = sim.device(0);
    let _ = Managed::new(&device).unwrap().prefetch();
    let _ = Null::new(&device).prefetch();
    let _ = Prefetch::new(Null::new(&device));
}
