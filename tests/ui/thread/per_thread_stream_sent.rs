//! `PerThreadStream`: "one handle value names a different stream on each thread, so the type does not leave its
//! thread".

use alluvion::Sim;

fn send<T: Send>(_: T) {}

fn main() {
    let sim = Sim::new();
    send(sim.device(0).per_thread_stream().unwrap());
}
