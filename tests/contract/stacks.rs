//! Stacks made up at random, up to five layers over a source, keep every clause of the contract: the products of what the other
//! files of this program take one by one.
//!
//! A stack is the line that a user would write, so a failure names what to type to see it again; and the seed that drew it, which
//! `PROPTEST_RNG_SEED` sets. What a failure leaves is the smallest stack that fails.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use alluvion::recipe::Recipe;
use alluvion::testing::{Bench, suite};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

use crate::trials::is_night;

/// The largest block of the layer that serves blocks of one size.
const FIXED_BYTES: usize = 64 << 10;

/// Layers that may stand anywhere over anything. Those that limit leave room for what a clause asks for.
const LAYERS: &[&str] = &[
    "stats",
    "tracking",
    "guard",
    "limiting(500MiB)",
    "budget(hard=500MiB, soft=1MiB)",
    "aligned(512)",
    "aligned(4096, threshold=64KiB)",
    "prefetch",
    "fallback(managed)",
    "logging(file=/dev/null, tags=true, reserved=true)",
    "pool",
    "pool(growth=exact)",
    "pool(growth=doubling)",
    "pool(growth=3MiB)",
    "pool(reuse=own)",
    "pool(reuse=completed)",
    "pool(initial=8MiB, maximum=500MiB)",
    "pool(checked=false)",
    "binning(from=4KiB, to=256KiB, blocks=8)",
    "arena(120MiB)",
    "fixed-size(64KiB, blocks=16)",
];

const SOURCES: &[&str] = &["cuda", "cuda-async", "cuda-async-managed", "managed", "mapped", "pinned"];

/// Those that ask for more at once, when they are made, than a layer has that serves blocks of one size.
fn begins_large(layer: &str) -> bool {
    layer.starts_with("arena") || layer.contains("initial=")
}

/// A source, and up to five layers over it. No arena over another: both are as large.
fn stacks() -> impl Strategy<Value = String> {
    (vec(select(LAYERS), 1..=5), select(SOURCES)).prop_map(|(layers, source)| {
        let mut line: Vec<&str> = Vec::new();
        for layer in layers {
            let is_second_arena = layer.starts_with("arena") && line.contains(&layer);
            let is_too_small =
                layer.starts_with("fixed-size") && line.iter().any(|above| begins_large(above));
            if !is_second_arena && !is_too_small {
                line.push(layer);
            }
        }
        line.push(source);
        line.join(" | ")
    })
}

/// Eight times the memory of a plain bench: layers keep some each, and a clause may make three stacks at once.
fn bench(line: &str) -> Bench {
    const BYTES: usize = 512 << 20;
    let bench = Bench::sim_with(Bench::config().memory_bytes(BYTES).pinned_bytes(BYTES));
    // A segment of a pool over such blocks is one of them, of which alignment may take half.
    if line.contains("fixed-size") { bench.largest_bytes(FIXED_BYTES / 2) } else { bench }
}

/// Every clause.
fn hold(line: &str) {
    let recipe: Recipe = line.parse().expect("the line is a recipe");
    for (name, clause) in suite::clauses() {
        // Shown when a clause fails, and only then.
        println!("{line}: {name}");
        clause(&bench(line), &|device| recipe.build(device).expect("the stack can be made"));
    }
}

/// A stack takes some four seconds of one core in a debug build. What a push proves is the same each time; a night draws others.
fn config(of_a_push: u64) -> ProptestConfig {
    let seed = match ProptestConfig::default().rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random if is_night() => RandomState::new().hash_one(of_a_push),
        RngSeed::Random => of_a_push,
    };
    println!("PROPTEST_RNG_SEED={seed}");
    ProptestConfig {
        cases: if is_night() { 100 } else { 2 },
        max_shrink_iters: 50,
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    }
}

// Two, which run side by side.
proptest! {
    #![proptest_config(config(1))]

    #[test]
    fn stacks_keep_the_contract(line in stacks()) {
        hold(&line);
    }
}

proptest! {
    #![proptest_config(config(2))]

    #[test]
    fn other_stacks_keep_it_too(line in stacks()) {
        hold(&line);
    }
}
