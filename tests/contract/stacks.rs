//! Stacks made up at random, up to five layers over a source, keep every clause of the contract.
//!
//! A stack is the line that a user would write, so a failure names what to type to see it again.

use alluvion::recipe::Recipe;
use alluvion::testing::{Bench, suite};
use alluvion::{AnyResource, Device};

use crate::trials::trials;

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
    "binning(from=4KiB, to=256KiB, blocks=8)",
    "arena(40MiB)",
];

const SOURCES: &[&str] = &["cuda", "cuda-async", "managed", "pinned"];

type Make<'a> = &'a dyn Fn(&Device) -> AnyResource;
type Clause = fn(&Bench, Make<'_>);

const CLAUSES: &[(&str, Clause)] = &[
    ("zero_bytes_reach_nobody", |bench, make| suite::zero_bytes_reach_nobody(bench, make)),
    ("alignments_are_honoured_or_refused", |bench, make| {
        suite::alignments_are_honoured_or_refused(bench, make);
    }),
    ("blocks_are_disjoint", |bench, make| suite::blocks_are_disjoint(bench, make)),
    ("streams_of_others_are_refused", |bench, make| suite::streams_of_others_are_refused(bench, make)),
    ("free_on_another_thread", |bench, make| suite::free_on_another_thread(bench, make)),
    ("four_threads_at_once", |bench, make| suite::four_threads_at_once(bench, make)),
    ("every_handle_frees_every_block", |bench, make| suite::every_handle_frees_every_block(bench, make)),
    ("ids_say_who_frees_what", |bench, make| suite::ids_say_who_frees_what(bench, make)),
    ("the_description_is_one_line", |bench, make| suite::the_description_is_one_line(bench, make)),
    ("memory_info_is_plausible", |bench, make| suite::memory_info_is_plausible(bench, make)),
    ("nothing_leaks", |bench, make| suite::nothing_leaks(bench, make)),
    ("trimming_is_harmless", |bench, make| suite::trimming_is_harmless(bench, make)),
    ("captures_elsewhere_survive", |bench, make| suite::captures_elsewhere_survive(bench, make)),
    ("a_lost_context_fails_fast_and_silently", |bench, make| {
        suite::a_lost_context_fails_fast_and_silently(bench, make);
    }),
    ("blocks_hold_what_is_written", |bench, make| suite::blocks_hold_what_is_written(bench, make)),
    ("absurd_sizes_are_out_of_memory", |bench, make| suite::absurd_sizes_are_out_of_memory(bench, make)),
    ("freed_memory_is_reusable_on_its_stream", |bench, make| {
        suite::freed_memory_is_reusable_on_its_stream(bench, make);
    }),
    ("freed_memory_is_ordered", |bench, make| suite::freed_memory_is_ordered(bench, make)),
    ("allocating_synchronously_is_synchronous", |bench, make| {
        suite::allocating_synchronously_is_synchronous(bench, make);
    }),
    ("random_operations_agree_with_the_oracle", |bench, make| {
        suite::random_operations_agree_with_the_oracle(bench, make);
    }),
    ("four_threads_keep_their_bytes", |bench, make| suite::four_threads_keep_their_bytes(bench, make)),
    ("erased_handles_free_every_block", |bench, make| suite::erased_handles_free_every_block(bench, make)),
    ("exhaustion_is_not_the_end", |bench, make| suite::exhaustion_is_not_the_end(bench, make)),
    ("freeing_synchronously_really_frees", |bench, make| {
        suite::freeing_synchronously_really_frees(bench, make);
    }),
    ("every_schedule_keeps_the_order", |bench, make| suite::every_schedule_keeps_the_order(bench, make)),
];

/// Numbers that are the same on every machine, so that a failure is seen again: a splitmix generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    fn one_of(&mut self, words: &[&'static str]) -> &'static str {
        words[self.below(words.len())]
    }

    /// A source, and up to five layers over it. No arena over another: both are as large.
    fn stack(&mut self) -> String {
        let mut line: Vec<&str> = Vec::new();
        for _ in 0..=self.below(5) {
            let layer = self.one_of(LAYERS);
            if !(layer.starts_with("arena") && line.contains(&layer)) {
                line.push(layer);
            }
        }
        line.push(self.one_of(SOURCES));
        line.join(" | ")
    }
}

/// Eight times the memory of a plain bench: layers keep some each, and a clause may make three stacks at once.
fn bench() -> Bench {
    const BYTES: usize = 512 << 20;
    Bench::sim_with(Bench::config().memory_bytes(BYTES).pinned_bytes(BYTES))
}

/// Every clause for as many stacks; each test has stacks of its own.
fn hold(seed: u64) {
    // In a night, which take 10 s of one core in a debug build. A few begin with the same ones.
    const STACKS: u32 = 8;
    let mut numbers = Numbers(seed);
    for _ in 0..trials(STACKS) {
        let line = numbers.stack();
        // Shown when a clause fails, and only then.
        println!("{line}");
        let recipe: Recipe = line.parse().expect("the line is a recipe");
        for (name, clause) in CLAUSES {
            println!("  {name}");
            clause(&bench(), &|device| recipe.build(device).expect("the stack can be made"));
        }
    }
}

#[test]
fn stacks_keep_the_contract() {
    hold(1);
}

#[test]
fn other_stacks_keep_it_too() {
    hold(2);
}
