//! `alluvion export`: what memory did, for the viewers of others.

mod folded;
mod memory_viz;
mod output;
mod perfetto;
mod pickle;
mod prometheus;

use std::borrow::Cow;
use std::path::PathBuf;

use alluvion::recipe::Recipe;
use alluvion::trace::Trace;
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::input::{self, Input, refuse_overwriting};
use crate::playback::Playback;
use folded::Moment;
use output::Output;

/// Writes what memory did in the format of another viewer.
///
/// Where a log does not say what was reserved, its blocks are allocated from a pool on a simulated GPU, and the segments and
/// addresses are those of that pool.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Export {
    /// A log in RMM's format, .csv or .csv.gz, or a snapshot in JSON
    #[arg(value_name = "TRACE|SNAPSHOT")]
    file: PathBuf,
    /// What to write
    #[arg(long, short, value_enum)]
    format: Format,
    /// Where to write it; the standard output stream if not given
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Plays the log through this stack, on a simulated GPU, whatever it says was reserved
    #[arg(long, value_name = "LAYERS")]
    resource: Option<String>,
    /// Writes only the part of a log that this device has, by its number
    #[arg(long, value_name = "N")]
    gpu: Option<u32>,
    /// folded: what is live after the last event, in place of what was live at the peak
    #[arg(long, conflicts_with = "total")]
    at_end: bool,
    /// folded: all that was ever allocated, in place of what was live at the peak
    #[arg(long)]
    total: bool,
}

const EXAMPLES: &str = "\
Examples:
  alluvion export trace.csv.gz --format memory-viz -o trace.pickle   then drop it on pytorch.org/memory_viz
  alluvion export trace.csv.gz --format perfetto -o trace.json       then open it in ui.perfetto.dev
  alluvion export trace.csv --format folded | flamegraph.pl --countname bytes > peak.svg
  alluvion export trace.csv.gz --format perfetto --resource 'pool(growth=exact)' -o trace.json
  alluvion export snapshot.json --format prometheus

Exit codes: 0 done, 1 failed, 2 the command line was not understood.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The pickle that torch.cuda.memory._snapshot() makes, for PyTorch's viewer; tags are its stack frames
    MemoryViz,
    /// Chrome's trace events in JSON: what is live and reserved, each block, each failure; logs only
    Perfetto,
    /// Folded stacks for flame graphs: the bytes of each path of tags
    Folded,
    /// The figures at the end, as Prometheus reads them
    Prometheus,
}

impl Export {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let moment = match (self.at_end, self.total) {
            (true, _) => Moment::End,
            (_, true) => Moment::Ever,
            _ => Moment::Peak,
        };
        if moment != Moment::Peak && self.format != Format::Folded {
            return Err(Failure::usage("--at-end and --total are for --format folded"));
        }
        let stack = self.resource.as_deref().map(parse_stack).transpose()?;
        if stack.is_some() && self.format == Format::Folded {
            return Err(Failure::usage("--resource makes no difference to --format folded"));
        }
        if let Some(output) = &self.output {
            refuse_overwriting(&self.file, output, "export")?;
        }
        // The formats keep devices apart, or sum over them.
        let input = match (Input::read(&self.file)?, self.gpu) {
            (Input::Trace(trace), Some(gpu)) => {
                let part = input::of_device(trace, gpu);
                Input::Trace(part.map_err(|why| Failure::of_file(&self.file, why))?)
            }
            (input, _) => input,
        };
        if let Input::Snapshot(_) = input {
            if self.format == Format::Perfetto {
                return Err(Failure::usage(
                    "a snapshot is one moment, and a timeline has many: give it a log",
                ));
            }
            if self.gpu.is_some() {
                return Err(Failure::usage("a snapshot is of one device: leave out --gpu"));
            }
            if stack.is_some() {
                return Err(Failure::usage("a snapshot cannot be played: --resource is for logs"));
            }
            if moment != Moment::Peak {
                return Err(Failure::usage("a snapshot is one moment: leave out --at-end and --total"));
            }
        }
        let stack = stack.as_ref();
        let mut output = Output::open(self.output.as_deref(), self.format == Format::MemoryViz)?;
        match (&input, self.format) {
            (Input::Trace(trace), Format::MemoryViz) => {
                let parts = of_each_device(trace);
                let playbacks: Vec<_> = parts.iter().map(|part| playback(part, stack)).collect();
                memory_viz::write_traces(&playbacks, &mut output)
            }
            (Input::Snapshot(file), Format::MemoryViz) => memory_viz::write_snapshot(file, &mut output),
            (Input::Trace(trace), Format::Perfetto) => {
                let parts = of_each_device(trace);
                let playbacks: Vec<_> = parts.iter().map(|part| playback(part, stack)).collect();
                perfetto::write_traces(&playbacks, &mut output)
            }
            (Input::Snapshot(_), Format::Perfetto) => Ok(()),
            (Input::Trace(trace), Format::Folded) => folded::write_trace(trace, moment, &mut output),
            (Input::Snapshot(file), Format::Folded) => folded::write_snapshot(file, &mut output),
            (Input::Trace(trace), Format::Prometheus) => prometheus::write_trace(trace, stack, &mut output),
            (Input::Snapshot(file), Format::Prometheus) => prometheus::write_snapshot(file, &mut output),
        }?;
        output.finish()
    }
}

/// The parts of a trace that its devices have, in the order of their numbers; of one device, the trace itself.
fn of_each_device(trace: &Trace) -> Vec<Cow<'_, Trace>> {
    if trace.devices <= 1 {
        return vec![Cow::Borrowed(trace)];
    }
    let mut parts = trace.by_device();
    parts.sort_by_key(|part| part.device_ordinals[0]);
    parts.into_iter().map(Cow::Owned).collect()
}

fn playback<'t>(trace: &'t Trace, stack: Option<&'t Recipe>) -> Playback<'t> {
    match stack {
        Some(stack) => Playback::through(trace, stack),
        None => Playback::new(trace),
    }
}

/// A stack without its source, which is the memory of a simulated GPU.
fn parse_stack(text: &str) -> Result<Recipe, Failure> {
    let recipe: Recipe = text.parse().map_err(|error: alluvion::Error| Failure::usage(error.to_string()))?;
    if recipe.source().is_some() {
        return Err(Failure::usage("--resource names a source: here the memory is that of a simulated GPU"));
    }
    Ok(recipe)
}
