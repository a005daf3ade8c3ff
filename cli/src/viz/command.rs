//! `Viz`: the command, and its options.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::Drawing;
use crate::failure::Failure;

/// Draws a log of allocations, or a snapshot of a pool, as a page for a browser: one file that needs no network.
///
/// The page shows live, cached and reserved bytes over time, the address map at any moment, a lane for each stream and each
/// thread, sizes, the largest holders, and fragmentation.
///
/// A log in RMM's format says where blocks were, but not what had been reserved for them, unless it has a column `Reserved`.
/// Without one the log is replayed through a pool on a simulated GPU, and the page shows where the blocks lie then.
///
/// A log of several devices is a page of all of them: a list compares them, and one at a time is shown whole.
#[derive(Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Viz {
    /// A log in RMM's format, .csv or .csv.gz, or a snapshot, .json
    #[arg(value_name = "TRACE|SNAPSHOT")]
    file: PathBuf,
    /// Where the page goes; what is there is overwritten
    #[arg(short, long, value_name = "PAGE")]
    output: PathBuf,
    /// Shows the log's own addresses, and only what it says
    #[arg(long, conflicts_with = "resource")]
    recorded: bool,
    /// Shows only the part of a log that this device has, by its number
    #[arg(long, value_name = "N")]
    gpu: Option<u32>,
    /// Replays the log through this stack, outermost layer first, over the memory of a simulated GPU
    #[arg(long, value_name = "STACK")]
    resource: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  alluvion viz trace.csv.gz -o out.html              replayed, if the log does not say what was reserved
  alluvion viz trace.csv.gz -o out.html --recorded   the addresses of the log
  alluvion viz trace.csv.gz -o out.html --resource 'pool(initial=1GiB)'
  alluvion viz snapshot.json -o out.html             the moment that a pool wrote down";

impl Viz {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Self { file, output, recorded, gpu, resource } = self;
        let drawn = Drawing { file, output, recorded, gpu, resource }.draw()?;
        writeln!(std::io::stdout(), "{drawn}").map_err(|_| Failure::Unread)
    }
}
