//! `StreamPool` lends its streams: what `next` returns ends with the pool.

use alluvion::{Sim, StreamPool};

fn main() {
    let sim = Sim::new();
    let borrowed = {
        let pool = StreamPool::new(&sim.device(0), 2).unwrap();
        pool.next()
    };
    let _ = borrowed.id();
}
