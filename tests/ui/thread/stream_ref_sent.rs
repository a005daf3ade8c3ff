//! `StreamRef` "does not leave the thread": send the `Stream`, or a reference to it.

use alluvion::{Sim, Stream};

fn send<T: Send>(_: T) {}

fn main() {
    let sim = Sim::new();
    let stream: Stream = sim.device(0).stream().unwrap();
    send(&stream);
    send(stream.as_ref());
}
