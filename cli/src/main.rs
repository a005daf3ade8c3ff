//! The program `alluvion`: measures memory resources for GPUs on the workloads that their peers are measured on.

mod bench;
mod counted;
mod doctor;
mod export;
mod failure;
mod input;
mod playback;
mod replay;
mod rig;
mod snapshot_file;
mod timing;
mod trace_file;
mod viz;
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
  alluvion doctor                              what this machine can do
  alluvion bench pair                          a pool on the GPU, or on a simulated one
  alluvion bench replay trace.csv.gz --json    the allocations of a real program
  alluvion export trace.csv --format perfetto -o trace.json   what memory did, for another viewer
  alluvion viz trace.csv -o page.html          the same, as a page for a browser
  alluvion bench --help                        every workload
  alluvion replay trace.csv.gz -r 'pool | cuda'   any stack that you write down

Exit codes: 0 done, 1 failed, 2 not understood.";

#[derive(Subcommand)]
enum Command {
    Bench(bench::Bench),
    Doctor(doctor::Doctor),
    Replay(replay::Replay),
    Export(export::Export),
    Viz(viz::Viz),
}

fn main() -> ExitCode {
    let Program { command } = Program::parse();
    let done = match command {
        Command::Bench(bench) => bench.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Replay(replay) => replay.run(),
        Command::Export(export) => export.run(),
        Command::Viz(viz) => viz.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
