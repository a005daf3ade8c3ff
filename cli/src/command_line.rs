//! The command line: which commands there are, and how they end.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{bench, doctor, export, replay, tune, viz};

/// Shows what memory resources for GPUs do, and measures what they cost.
#[derive(Parser)]
#[command(name = "alluvion", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  alluvion doctor                              says what this machine can do
  alluvion bench pair                          measures a pool on the GPU, or on a simulated one
  alluvion bench --help                        lists the workloads
  alluvion bench replay trace.csv.gz --json    measures the allocations of a real program
  alluvion replay trace.csv.gz -r 'pool | cuda'   plays a log on the stack that you name
  alluvion tune trace.csv.gz                   searches the best stack for a program
  alluvion viz trace.csv -o page.html          draws a log as a page for a browser
  alluvion export trace.csv -f perfetto -o trace.json   writes a log for another viewer

Exit codes: 0 done, 1 failed, 2 the command line was not understood.";

#[derive(Subcommand)]
enum Command {
    Bench(bench::Bench),
    Doctor(doctor::Doctor),
    Replay(replay::Replay),
    Export(export::Export),
    Tune(tune::Tune),
    Viz(viz::Viz),
}

/// Does what the command line asks for.
#[must_use]
pub fn run() -> ExitCode {
    let Program { command } = Program::parse();
    let done = match command {
        Command::Bench(bench) => bench.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Replay(replay) => replay.run(),
        Command::Export(export) => export.run(),
        Command::Tune(tune) => tune.run(),
        Command::Viz(viz) => viz.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
