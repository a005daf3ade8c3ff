//! A graph neural network: each step draws another part of a graph, of another size.

use super::random::Random;
use super::tape::{Held, Tape};

struct Sampling {
    seeds: u64,
    /// Neighbours of a node that are drawn, a hop each.
    fanouts: Vec<u64>,
    /// How much hops of two steps differ, in hundredths of a doubling.
    differ: u64,
    features: u64,
    widths: Vec<u64>,
    /// Features of nodes that come often, kept; grows up to so many bytes, and is halved then.
    cache_bytes: u64,
}

impl Sampling {
    fn any(random: &mut Random) -> Self {
        let hops = random.between(2, 4);
        Self {
            seeds: random.over_doublings(256, 8192),
            fanouts: (0..hops).map(|_| random.between(3, 15)).collect(),
            differ: random.between(10, 70),
            features: random.pick(&[32, 64, 100, 128, 256, 602]),
            widths: (0..hops).map(|_| random.pick(&[16, 64, 128, 256, 512])).collect(),
            cache_bytes: if random.chance(50) { random.over_doublings(16 << 20, 2 << 30) } else { 0 },
        }
    }
}

/// No graph of these has more nodes.
const MOST_NODES: u64 = 4 << 20;

pub(super) fn run(tape: &mut Tape, random: &mut Random, most_events: usize) {
    let sampling = Sampling::any(random);
    let (compute, draws) = (tape.stream(0), tape.stream(1));
    let mut before = sampling.features;
    for &width in &sampling.widths {
        for bytes in [before * width * 4, width * 4, before * width * 8] {
            tape.allocate(bytes, compute);
        }
        before = width;
    }
    let (mut cache, mut cached): (Vec<Held>, u64) = (Vec::new(), 0);
    while tape.len() < most_events {
        // The part of the graph, drawn on a stream of its own where there are two.
        let mut nodes = vec![sampling.seeds];
        let mut edges = Vec::new();
        let mut lists = Vec::new();
        for &fanout in &sampling.fanouts {
            let last = nodes[nodes.len() - 1];
            let drawn = random.log_normal(last * fanout, sampling.differ).clamp(1, MOST_NODES * 8);
            tape.scratch(drawn * 8, draws);
            lists.push(tape.allocate(drawn * 8, draws));
            lists.push(tape.allocate(drawn * 8, draws));
            // Many neighbours are neighbours of two.
            let found = (last + drawn * random.between(40, 90) / 100).min(MOST_NODES);
            tape.scratch(found.next_power_of_two() * 16, draws);
            lists.push(tape.allocate(found * 8, draws));
            nodes.push(found);
            edges.push(drawn);
        }
        let gathered = nodes[nodes.len() - 1] * sampling.features * 4;
        let mut kept = vec![tape.allocate(gathered, draws)];
        if sampling.cache_bytes > 0 && random.chance(30) {
            let some = tape.allocate(gathered / random.between(4, 32), compute);
            cached += some.bytes();
            cache.push(some);
            while cached > sampling.cache_bytes {
                let dropped = cache.swap_remove(random.below(cache.len() as u64) as usize);
                cached -= dropped.bytes();
                tape.free_about(random, dropped, compute);
            }
        }
        let mut width = sampling.features;
        for (layer, &next) in sampling.widths.iter().enumerate() {
            let hop = edges.len() - 1 - layer;
            let messages = tape.allocate(edges[hop] * width.min(next) * 4, compute);
            kept.push(tape.allocate(nodes[hop] * width * 4, compute));
            tape.free(messages, compute);
            kept.push(tape.allocate(nodes[hop] * next * 4, compute));
            kept.push(tape.allocate(nodes[hop] * next, compute));
            width = next;
        }
        tape.scratch(sampling.seeds * 4, compute);
        tape.scratch(4, compute);
        for held in kept.into_iter().rev() {
            let gradient = tape.allocate(held.bytes(), compute);
            tape.free_about(random, held, compute);
            tape.free(gradient, compute);
        }
        for held in lists {
            tape.free_about(random, held, draws);
        }
    }
}
