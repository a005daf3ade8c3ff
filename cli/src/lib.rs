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
  alluvion tune trace.csv.gz                   the stack that is right for a program
  alluvion bench --help                        every workload
  alluvion replay trace.csv.gz -r 'pool | cuda'   any stack that you write down

Exit codes: 0 done, 1 failed, 2 not understood.";

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
///
/// # Errors
///
/// What cannot be read or written, in words.
pub fn write_page(file: &Path, page: &Path) -> Result<String, String> {
    viz::Viz::of(file, page).draw().map_err(Failure::into_words)
}
