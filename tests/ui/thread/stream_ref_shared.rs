//! `StreamRef` "does not leave the thread", behind a reference neither.

use alluvion::{Sim, Stream};

fn share<T: Sync>(_: &T) {}

fn main() {
    let sim = Sim::new();
    let stream: Stream = sim.device(0).stream().unwrap();
    share(&stream);
    share(&stream.as_ref());
}
