//! A training run: what forward makes lives until backward has used it, in reverse.

use super::random::Random;
use super::tape::{Held, Tape};

/// How the batches of two steps differ.
#[derive(Clone, Copy, Debug)]
enum Batches {
    Same,
    /// The last one of an epoch of so many steps is shorter.
    ShortLast {
        every: u64,
    },
    /// One of a few lengths.
    Lengths([u64; 5]),
    /// Some hundredths more or less.
    Near(u64),
}

impl Batches {
    fn any(random: &mut Random) -> Self {
        match random.weighted(&[4, 2, 2, 2]) {
            0 => Self::Same,
            1 => Self::ShortLast { every: random.between(3, 12) },
            2 => Self::Lengths([0; 5].map(|_| random.between(25, 100))),
            _ => Self::Near(random.between(2, 50)),
        }
    }

    /// The size of a step's batch, in hundredths of the usual one.
    fn draw(self, step: u64, random: &mut Random) -> u64 {
        match self {
            Self::Same => 100,
            Self::ShortLast { every } if (step + 1).is_multiple_of(every) => random.between(5, 95),
            Self::ShortLast { .. } => 100,
            Self::Lengths(lengths) => random.pick(&lengths),
            Self::Near(hundredths) => random.near(100, hundredths),
        }
    }
}

/// One layer of a network.
#[derive(Debug)]
struct Layer {
    /// What forward keeps for backward, at the usual batch.
    kept: Vec<u64>,
    /// What forward makes and drops.
    scratch: Vec<u64>,
    weights: Vec<u64>,
}

struct Network {
    layers: Vec<Layer>,
    batches: Batches,
    /// Gradients are dropped after each step, and made anew.
    drops_gradients: bool,
    /// How many tensors of a weight's size the optimiser keeps.
    moments: u64,
    scalars_percent: u64,
    evaluates_every: u64,
    input: u64,
    /// The size of the buffers in which gradients travel, on a stream of their own; 0 is none.
    bucket: u64,
}

impl Network {
    fn any(random: &mut Random) -> Self {
        let layers = match random.below(3) {
            0 => transformer(random),
            1 => convolutions(random),
            _ => dense(random),
        };
        Self {
            layers,
            batches: Batches::any(random),
            drops_gradients: random.chance(60),
            moments: random.between(0, 2),
            scalars_percent: random.between(0, 60),
            evaluates_every: random.pick(&[0, 0, 3, 5, 10]),
            input: random.over_doublings(64 << 10, 64 << 20),
            bucket: random.pick(&[0, 0, 1 << 20, 25 << 20]),
        }
    }
}

/// Layers that are all alike.
fn transformer(random: &mut Random) -> Vec<Layer> {
    let layers = random.between(4, 40);
    let width = random.pick(&[256, 512, 768, 1024, 1600, 2048, 4096]);
    let tokens = random.over_doublings(512, 16 << 10);
    let bytes = random.pick(&[2, 4]);
    let heads = random.between(4, 32);
    let length = random.pick(&[128, 256, 512, 1000, 1024]);
    let unit = width * tokens * bytes;
    let scores = random.chance(50).then_some(heads * tokens * length.min(tokens) * bytes);
    let matrix = width * width * bytes;
    let mut kept = vec![unit, 3 * unit, unit, unit, 4 * unit, 4 * unit, tokens * 4];
    kept.extend(scores);
    let scratch = vec![unit, random.between(1, 4) * unit, tokens * 8];
    let weights =
        vec![3 * matrix, matrix, 4 * matrix, 4 * matrix, width * bytes, width * bytes, 4 * width * bytes];
    (0..layers)
        .map(|_| Layer { kept: kept.clone(), scratch: scratch.clone(), weights: weights.clone() })
        .collect()
}

/// Layers that have less and less pixels and more and more channels.
fn convolutions(random: &mut Random) -> Vec<Layer> {
    let stages = random.between(3, 5);
    let images = random.between(4, 256);
    let mut side = random.pick(&[32_u64, 64, 112, 224, 300]);
    let mut channels = random.pick(&[16, 32, 64]);
    let mut layers = Vec::new();
    for _ in 0..stages {
        for _ in 0..random.between(1, 6) {
            let unit = images * side * side * channels * 4;
            let workspace = random.over_doublings(64 << 10, 64 << 20);
            let kept = if random.chance(50) { vec![unit, unit, channels * 8] } else { vec![unit] };
            layers.push(Layer {
                kept,
                scratch: vec![workspace],
                weights: vec![channels * channels * 36, channels * 4],
            });
        }
        (side, channels) = (side.div_ceil(2), channels * 2);
    }
    layers
}

/// Layers of any widths.
fn dense(random: &mut Random) -> Vec<Layer> {
    let rows = random.over_doublings(128, 256 << 10);
    let mut width = random.over_doublings(16, 4096);
    (0..random.between(3, 30))
        .map(|_| {
            let next = random.over_doublings(16, 4096);
            let layer = Layer {
                kept: vec![rows * next * 4, rows * next.div_ceil(8)],
                scratch: if random.chance(30) { vec![rows * next * 4] } else { Vec::new() },
                weights: vec![width * next * 4, next * 4],
            };
            width = next;
            layer
        })
        .collect()
}

pub(super) fn run(tape: &mut Tape, random: &mut Random, most_events: usize) {
    let network = Network::any(random);
    let compute = tape.stream(0);
    let mut whole_run = Vec::new();
    for layer in &network.layers {
        whole_run.extend(layer.weights.iter().map(|&bytes| tape.allocate(bytes, compute)));
    }
    whole_run.push(tape.allocate(random.pick(&[4, 8, 32]) << 20, compute));
    let mut gradients: Vec<Held> = Vec::new();
    let mut step = 0;
    while tape.len() < most_events {
        let hundredths = network.batches.draw(step, random);
        let input = load(tape, &network, hundredths);
        let kept = forward(tape, random, &network, hundredths, true);
        if random.chance(network.scalars_percent) {
            // What the program has printed, kept in a list.
            whole_run.push(tape.allocate(4, compute));
        }
        backward(tape, random, &network, kept, hundredths, &mut gradients);
        tape.free_about(random, input, compute);
        if step == 0 {
            for layer in &network.layers {
                for &bytes in &layer.weights {
                    whole_run.extend((0..network.moments).map(|_| tape.allocate(bytes, compute)));
                }
            }
        }
        for layer in &network.layers {
            layer.weights.iter().for_each(|&bytes| tape.scratch(bytes, compute));
        }
        if network.drops_gradients {
            gradients.drain(..).for_each(|gradient| tape.free(gradient, compute));
        }
        step += 1;
        if network.evaluates_every > 0 && step % network.evaluates_every == 0 {
            for _ in 0..random.between(1, 3) {
                let input = load(tape, &network, 150);
                let kept = forward(tape, random, &network, 150, false);
                kept.into_iter().flatten().for_each(|held| tape.free(held, compute));
                tape.free(input, compute);
            }
        }
    }
    if random.chance(50) {
        gradients.into_iter().chain(whole_run).for_each(|held| tape.free(held, compute));
    }
}

/// The input of a step, which a stream of its own brings if there are two.
fn load(tape: &mut Tape, network: &Network, hundredths: u64) -> Held {
    tape.allocate(network.input * hundredths / 100, tape.stream(1))
}

fn forward(
    tape: &mut Tape,
    random: &mut Random,
    network: &Network,
    hundredths: u64,
    keeps: bool,
) -> Vec<Vec<Held>> {
    let compute = tape.stream(0);
    let mut kept: Vec<Vec<Held>> = Vec::new();
    for layer in &network.layers {
        let mut here = Vec::new();
        for (at, &bytes) in layer.kept.iter().enumerate() {
            here.push(tape.allocate(bytes * hundredths / 100, compute));
            if let Some(&bytes) = layer.scratch.get(at) {
                tape.scratch(bytes * hundredths / 100, compute);
            }
            if random.chance(network.scalars_percent / 4) {
                tape.scratch(random.between(1, 2048), compute);
            }
        }
        if !keeps && let Some(before) = kept.last_mut() {
            // Nobody comes back for it: the layer after has used it.
            before.drain(..).for_each(|held| tape.free(held, compute));
        }
        kept.push(here);
    }
    kept
}

fn backward(
    tape: &mut Tape,
    random: &mut Random,
    network: &Network,
    kept: Vec<Vec<Held>>,
    hundredths: u64,
    gradients: &mut Vec<Held>,
) {
    let (compute, travel) = (tape.stream(0), tape.stream(2));
    let makes_gradients = gradients.is_empty();
    let mut flowing: Option<Held> = None;
    let mut unsent = 0;
    for (layer, kept) in network.layers.iter().zip(kept).rev() {
        for held in kept.into_iter().rev() {
            let next = tape.allocate(held.bytes(), compute);
            if let Some(before) = flowing.replace(next) {
                tape.free(before, compute);
            }
            tape.free_about(random, held, compute);
        }
        layer.scratch.iter().for_each(|&bytes| tape.scratch(bytes * hundredths / 100, compute));
        for &bytes in layer.weights.iter().rev() {
            if makes_gradients {
                gradients.push(tape.allocate(bytes, compute));
            } else {
                tape.scratch(bytes, compute);
            }
            unsent += bytes;
        }
        if network.bucket > 0 && unsent >= network.bucket {
            // Filled on one stream, sent on another.
            let bucket = tape.allocate(unsent, compute);
            tape.free_about(random, bucket, travel);
            unsent = 0;
        }
    }
    if let Some(last) = flowing {
        tape.free(last, compute);
    }
}
