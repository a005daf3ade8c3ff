//! The command line: which commands there are, and how they end.

use std::ffi::OsString;
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

/// Does what the command line of the process asks for.
#[must_use]
pub fn run() -> ExitCode {
    ExitCode::from(run_with(std::env::args_os()))
}

/// Does what a command line asks for, whose first argument is the name of the program. Returns the exit code: 0 done, 1 failed, 2
/// the command line was not understood.
///
/// ```
/// assert_eq!(alluvion_cli::run_with(["alluvion", "--version"].map(Into::into)), 0);
/// assert_eq!(alluvion_cli::run_with(["alluvion", "dance"].map(Into::into)), 2);
/// ```
#[must_use]
pub fn run_with(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let command = match Program::try_parse_from(arguments) {
        Ok(Program { command }) => command,
        Err(error) => {
            // Where nobody can hear it, the exit code has to do.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    let done = match command {
        Command::Bench(bench) => bench.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Replay(replay) => replay.run(),
        Command::Export(export) => export.run(),
        Command::Tune(tune) => tune.run(),
        Command::Viz(viz) => viz.run(),
    };
    match done {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    }
}
