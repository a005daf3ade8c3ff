//! The ends of a program: statics, locals of threads, threads that still run, and children of a fork.

#![cfg(unix)]

use alluvion::Sim;
use alluvion::testing::Bench;

use crate::child::in_child;
use crate::{process_ends, transfer_ends};

/// As many as the reports had to run to see it once. A run takes 10 ms.
const RUNS: usize = 200;

fn leaked_machine() -> &'static Sim {
    Box::leak(Box::new(Sim::with_config(Bench::config())))
}

#[test]
fn scenario_15_a_static_outlives_main() {
    in_child("lifecycle::scenario_15_a_static_outlives_main", RUNS, || {
        process_ends::keep_in_a_static(leaked_machine().machine());
    });
}

#[test]
fn scenario_15_the_locals_of_a_thread_go_last() {
    in_child("lifecycle::scenario_15_the_locals_of_a_thread_go_last", RUNS, || {
        process_ends::keep_in_locals(leaked_machine().machine());
    });
}

#[test]
fn scenario_15_the_process_exits_under_a_running_thread() {
    in_child("lifecycle::scenario_15_the_process_exits_under_a_running_thread", RUNS, || {
        process_ends::exit_under_a_running_thread(leaked_machine().machine());
    });
}

/// The machine itself in a static that is never dropped, and one that goes while a thread still holds a stream of it.
#[test]
fn scenario_15_the_machine_goes_before_its_users() {
    in_child("lifecycle::scenario_15_the_machine_goes_before_its_users", RUNS, || {
        let sim = Sim::with_config(Bench::config());
        process_ends::keep_in_locals(sim.machine());
        process_ends::keep_in_a_static(sim.machine());
        drop(sim);
    });
}

#[test]
fn scenario_16_a_forked_child_drops_everything() {
    in_child("lifecycle::scenario_16_a_forked_child_drops_everything", 20, || {
        process_ends::fork_and_drop(leaked_machine().machine());
    });
}

#[test]
fn scenario_15_main_returns_under_transfers() {
    in_child("lifecycle::scenario_15_main_returns_under_transfers", RUNS / 10, || {
        transfer_ends::end_under_transfers(leaked_machine().machine(), 64 << 10, false);
    });
}

#[test]
fn scenario_15_the_process_exits_under_transfers() {
    in_child("lifecycle::scenario_15_the_process_exits_under_transfers", RUNS / 10, || {
        transfer_ends::end_under_transfers(leaked_machine().machine(), 64 << 10, true);
    });
}

#[test]
fn scenario_16_a_child_forked_within_transfers_waits_for_nobody() {
    in_child("lifecycle::scenario_16_a_child_forked_within_transfers_waits_for_nobody", 20, || {
        transfer_ends::fork_within_transfers(leaked_machine().machine());
    });
}
