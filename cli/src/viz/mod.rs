//! `alluvion viz`: a page that shows what memory did.

mod address_space;
mod columns;
mod holes;
mod page;
mod picture;
mod recorded;
mod replayed;
mod segments;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use alluvion::trace::Trace;
use clap::Args;

use crate::failure::Failure;
use crate::trace_file;

/// Draws a log of allocations as a page for a browser: one file that needs no network.
///
/// The page shows live, cached and reserved bytes over time, the address map at any moment, a lane for each stream and each
/// thread, sizes, the largest holders, and fragmentation.
///
/// A log in RMM's format says where blocks were, but not what had been reserved for them, unless it has a column `Reserved`.
/// Without one the log is replayed through a pool on a simulated GPU, and the page shows where the blocks lie then.
#[derive(Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Viz {
    /// A log in RMM's format, .csv or .csv.gz
    #[arg(value_name = "TRACE")]
    file: PathBuf,
    /// Where the page goes; what is there is overwritten
    #[arg(short, long, value_name = "PAGE")]
    output: PathBuf,
    /// Shows the log's own addresses, and only what it says
    #[arg(long)]
    recorded: bool,
}

const EXAMPLES: &str = "\
Examples:
  alluvion viz trace.csv.gz -o out.html              replayed, if the log does not say what was reserved
  alluvion viz trace.csv.gz -o out.html --recorded   the addresses of the log";

impl Viz {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if let (Ok(file), Ok(output)) = (self.file.canonicalize(), self.output.canonicalize())
            && file == output
        {
            return Err(Failure::usage(format!("{} would be overwritten by its own page", file.display())));
        }
        let trace = trace_file::read(&self.file)?;
        if u32::try_from(trace.events.len()).is_err() {
            return Err(Failure::of_file(&self.file, "it has more than 4294967295 events"));
        }
        let says_reserved = trace.moments.iter().any(|moment| moment.reserved_bytes.is_some());
        let picture = if self.recorded || says_reserved || trace.events.is_empty() {
            recorded::draw(&self.file, trace)
        } else {
            replayed::draw(&self.file, trace)?
        };
        let failed = |error: &dyn core::fmt::Display| Failure::of_file(&self.output, error);
        let page = page::of_picture(&picture).map_err(|error| failed(&error))?;
        fs::write(&self.output, &page).map_err(|error| failed(&error))?;
        let (output, events, kib) =
            (self.output.display(), picture.trace.events.len(), page.len().div_ceil(1 << 10));
        writeln!(std::io::stdout(), "{output}: {events} events, {kib} KiB").map_err(|_| Failure::Unread)
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What a log leaves out.
fn notes_about(trace: &Trace) -> Vec<String> {
    let mut notes = Vec::new();
    if trace.failures > 0 {
        notes.push(format!("{} allocations failed when the log was written; they are not shown.", trace.failures));
    }
    if trace.strays > 0 {
        notes.push(format!(
            "{} frees are of blocks that were allocated before the log began; they are not shown.",
            trace.strays
        ));
    }
    notes
}
