//! `PerThreadStream` does not leave its thread, behind a reference neither.

use alluvion::Sim;

fn share<T: Sync>(_: &T) {}

fn main() {
    let sim = Sim::new();
    share(&sim.device(0).per_thread_stream().unwrap());
}
