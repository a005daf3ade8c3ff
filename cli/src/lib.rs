//! The program `alluvion`: looks at what memory resources for GPUs do, and what they cost.
//!
//! It is a library for the sake of programs that want a page of their own log at once: [`write_page`].

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
mod tune;
mod viz;
mod workload;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use failure::Failure;

/// Shows what memory resources for GPUs do, and measures what they cost.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = EXAMPLES)]
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

/// Draws a log or a snapshot as a page for a browser, as `alluvion viz FILE -o PAGE` does. Returns what the program would print.
/// Where a log ends that was cut is said on the standard error stream, and on the page.
///
/// # Errors
///
/// What cannot be read or written, in words.
pub fn write_page(file: &Path, page: &Path) -> Result<String, String> {
    viz::Viz::of(file, page).draw().map_err(Failure::into_words)
}
