//! `StreamRef`: "a borrowed stream: one word, `Copy`, and proof that the stream lives".

use alluvion::Sim;

fn main() {
    let sim = Sim::new();
    let borrowed = {
        let stream = sim.device(0).stream().unwrap();
        stream.as_ref()
    };
    let _ = borrowed.id();
}
