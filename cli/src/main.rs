//! The program `alluvion`: measures memory resources for GPUs on the workloads that their peers are measured on.

mod bench;
mod failure;
#[allow(dead_code, reason = "what is exported and what is drawn comes from it")]
mod input;
#[allow(dead_code, reason = "what is exported and what is drawn comes from it")]
mod playback;
mod rig;
#[allow(dead_code, reason = "what is exported and what is drawn comes from it")]
mod snapshot_file;
mod trace_file;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Looks at what memory resources for GPUs do, and what they cost.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  alluvion bench pair                          a pool on the GPU, or on a simulated one
  alluvion bench replay trace.csv.gz --json    the allocations of a real program
  alluvion bench --help                        every workload

Exit codes: 0 done, 1 failed, 2 not understood.";

#[derive(Subcommand)]
enum Command {
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    let Program { command } = Program::parse();
    let done = match command {
        Command::Bench(bench) => bench.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
