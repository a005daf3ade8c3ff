//! "Only such resources can be erased" that are accessible to the device: `Null` has no memory.

use alluvion::source::Null;
use alluvion::{ResourceRef, Sim};

fn main() {
    let sim = Sim::new();
    let null = Null::new(&sim.device(0));
    let _ = ResourceRef::erase(&null);
}
