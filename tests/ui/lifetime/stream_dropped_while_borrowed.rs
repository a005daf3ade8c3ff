//! `StreamRef`: "a borrowed stream: one word, `Copy`, and proof that the stream lives".

use alluvion::Sim;

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let borrowed = stream.as_ref();
    drop(stream);
    let _ = borrowed.id();
}
