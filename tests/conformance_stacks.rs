//! Stacks made up at random, up to five layers over a source, keep every clause of the contract.
//!
//! A stack is the line that a user would write, so a failure names what to type to see it again.

use alluvion::testing::{Bench, suite};
use alluvion::{AnyResource, Device};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Layers that may stand anywhere. Those that limit leave room for what a clause needs.
const LAYERS: &[&str] = &[
    "stats",
    "tracking",
    "limiting(62MiB)",
    "budget(63MiB)",
    "aligned(512)",
    "aligned(4096, threshold=64KiB)",
    "guard",
    "prefetch",
    "pool",
    "pool(growth=exact)",
    "binning(from=4KiB, to=256KiB)",
];

const SOURCES: &[&str] = &["cuda", "cuda-async", "managed", "pinned"];

type Make<'a> = &'a dyn Fn(&Device) -> AnyResource;

const CLAUSES: &[(&str, fn(&Bench, Make<'_>))] = &[
    ("zero_bytes_reach_nobody", |bench, make| suite::zero_bytes_reach_nobody(bench, make)),
    ("alignments_are_honoured_or_refused", |bench, make| suite::alignments_are_honoured_or_refused(bench, make)),
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
        suite::a_lost_context_fails_fast_and_silently(bench, make)
    }),
    ("blocks_hold_what_is_written", |bench, make| suite::blocks_hold_what_is_written(bench, make)),
    ("absurd_sizes_are_out_of_memory", |bench, make| suite::absurd_sizes_are_out_of_memory(bench, make)),
    ("freed_memory_is_reusable_on_its_stream", |bench, make| {
        suite::freed_memory_is_reusable_on_its_stream(bench, make)
    }),
    ("freed_memory_is_ordered", |bench, make| suite::freed_memory_is_ordered(bench, make)),
    ("allocating_synchronously_is_synchronous", |bench, make| {
        suite::allocating_synchronously_is_synchronous(bench, make)
    }),
    ("random_operations_agree_with_the_oracle", |bench, make| {
        suite::random_operations_agree_with_the_oracle(bench, make)
    }),
    ("four_threads_keep_their_bytes", |bench, make| suite::four_threads_keep_their_bytes(bench, make)),
    ("erased_handles_free_every_block", |bench, make| suite::erased_handles_free_every_block(bench, make)),
    ("exhaustion_is_not_the_end", |bench, make| suite::exhaustion_is_not_the_end(bench, make)),
    ("freeing_synchronously_really_frees", |bench, make| suite::freeing_synchronously_really_frees(bench, make)),
    ("every_schedule_keeps_the_order", |bench, make| suite::every_schedule_keeps_the_order(bench, make)),
];
