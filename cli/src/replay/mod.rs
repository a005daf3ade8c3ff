//! `alluvion replay`: what a program allocated and freed, on any stack.

mod free_running;
mod lanes;
mod log;
mod log_order;
mod outcome;
mod progress;
mod smallest;
mod standing;
mod table;

use std::io::{self, Write};
use std::path::PathBuf;

use alluvion::recipe::{self, Recipe};
use alluvion::sim::CostModel;
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::note::note;
use crate::rig::{Driver, Rig, Simulated};
pub(crate) use lanes::Lanes;
pub(crate) use log::Log;
pub(crate) use log_order::log_order;
#[cfg(test)]
pub(crate) use outcome::Share;
pub(crate) use outcome::{Outcome, Plan};
pub(crate) use progress::Progress;
use smallest::Smallest;
pub(crate) use standing::Standing;
use table::{Entry, print_table};
pub(crate) use table::{align, mib};

/// Plays back what programs allocated and freed, on one stack or on several side by side.
///
/// Each stack is made anew for each trace. The first round tells what it fails, reserves and asks of its source; the rounds
/// after it tell how fast it is. An allocation that fails is counted, and the replay goes on without that block. A log that
/// was cut is played to where it ends.
///
/// Of a log with a column `Device` each row is played on the device that it names, and each of them has a stack of its own: the
/// figures are of all, and then of each.
#[derive(Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES, after_long_help = help())]
pub(crate) struct Replay {
    /// Logs in RMM's format, .csv or .csv.gz
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The stack to play on, outermost layer first; several are played one after the other
    #[arg(long = "resource", short, value_name = "RECIPE", default_value = "pool")]
    resources: Vec<String>,
    /// Where blocks come from
    #[arg(long, value_enum, default_value_t = Driver::Auto)]
    driver: Driver,
    /// Which thread makes which call
    #[arg(long, value_enum, default_value_t = Threads::LogOrder)]
    threads: Threads,
    /// Memory of each simulated GPU, such as 24GiB
    #[arg(long, value_name = "SIZE", default_value = "141GiB", value_parser = size)]
    sim_memory: usize,
    /// How many simulated GPUs there are; as many as the traces name if left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    sim_devices: Option<u32>,
    /// How often each trace is played on each stack
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Finds the smallest device on which each trace, or the part of it that each device has, runs twice without a failure, in the order of the log: from 1 to 8 times its
    /// live peak, to 0.01
    #[arg(long, conflicts_with_all = ["rounds", "threads", "sim_memory", "sim_devices"])]
    smallest: bool,
    /// Prints one JSON object for each stack and trace
    #[arg(long)]
    json: bool,
}

/// Which thread does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Threads {
    /// One thread makes all calls, in the order of the log
    LogOrder,
    /// Each thread of the log is a thread, and runs free of the others; only a free waits until its block is there
    Free,
}

impl Threads {
    fn name(self) -> &'static str {
        match self {
            Self::LogOrder => "log-order",
            Self::Free => "free",
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  alluvion replay trace.csv.gz --resource 'pool(initial=1GiB)'
  alluvion replay *.csv.gz -r pool -r 'arena(8GiB) | cuda' -r cuda-async --driver sim --sim-memory 24GiB
  alluvion replay trace.csv --threads free --json
  alluvion replay trace.csv --smallest -r 'pool | cuda' -r cuda-async --driver sim

With --help: what the columns mean, and what a recipe may have in it.";

const COLUMNS: &str = "\
Columns:
  ns/event        time of the library for each event of the log, the median of all rounds after the first
  charged/event   ns for each event that an H200 charged for the calls to the driver which the simulator counted,
                  those of making the stack too; `-` on a real GPU, where ns/event has them
  peak reserved   the most bytes that the stack took from its source, in the first round
  ratio           peak reserved over the most bytes that were live at once, on each device
  failures        allocations that failed in the first round
  upstream calls  allocations and frees that reached the source in the first round

With --smallest a line for each stack and trace, `smallest,STACK,TRACE,RATIO,BYTES`: the device has so many bytes, and the ratio
is that over the live peak, whose blocks are rounded up to 256 bytes. A simulated device has no more memory than that, for all
that the stack takes from it. On a GPU the source under the stack is limited, of `cuda-async` what its pool holds.";

fn help() -> String {
    let examples = EXAMPLES.rsplit_once("\n\n").map_or(EXAMPLES, |(examples, _)| examples);
    format!(
        "{examples}\n\n{COLUMNS}\n\nA RECIPE is layers with `|` between them, outermost first, and a source at the end, which may be left out.\n\n{}",
        recipe::help()
    )
}

/// A size, as recipes have them.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    recipe::parse_size(text).map_err(|error| error.to_string())
}

impl Replay {
    pub(crate) fn run(self) -> Result<(), Failure> {
        // All are understood before the first is played: the last may be malformed.
        let recipes = self.resources.iter().map(|text| read_recipe(text)).collect::<Result<Vec<_>, _>>()?;
        let logs = self.traces.iter().map(|path| Log::open(path)).collect::<Result<Vec<_>, _>>()?;
        // The search makes smaller devices itself; this one only shows that each stack can be made.
        let memory_bytes =
            if self.smallest { smallest::MOST_SIMULATED_BYTES as usize } else { self.sim_memory };
        let logs = if self.smallest { logs.into_iter().flat_map(Log::by_device).collect() } else { logs };
        let named = logs.iter().map(Log::machine_devices).max().unwrap_or(1);
        let devices = self.sim_devices.unwrap_or(named);
        let simulated = Simulated { devices, memory_bytes, cost: CostModel::h200() };
        let rig = Rig::open_with(self.driver, simulated)?;
        // A log is played alone, so that each stack is made on each of its devices.
        for log in &logs {
            for device in log.devices(&rig)? {
                for recipe in &recipes {
                    drop(Standing::new(recipe, &rig, &device)?);
                }
            }
        }
        if self.smallest {
            return self.find_smallest(&recipes, &logs, &rig);
        }
        let rounds = logs.len() as u64 * recipes.len() as u64 * u64::from(self.rounds);
        let progress = Progress::new(rounds);
        let plan = Plan { threads: self.threads, rounds: self.rounds };
        for log in &logs {
            let mut entries = Vec::with_capacity(recipes.len());
            for recipe in &recipes {
                progress.on(&log.name, recipe);
                let outcome = Outcome::of(recipe, log, &rig, plan, || progress.round())?;
                let entry = Entry { log, recipe, outcome, driver: rig.name, threads: self.threads };
                if self.json {
                    progress.suspend(|| print(&entry.json()?))?;
                }
                entries.push(entry);
            }
            if !self.json {
                progress.suspend(|| print(&print_table(&entries)))?;
            }
            for entry in &entries {
                if let Some((event, error)) = &entry.outcome.first_failure {
                    progress.suspend(|| {
                        note(&format!(
                            "{}, {}: event {event} failed first: {error}",
                            log.name,
                            recipe_name(entry.recipe)
                        ));
                    });
                }
            }
        }
        progress.done();
        Ok(())
    }
}

impl Replay {
    fn find_smallest(&self, recipes: &[Recipe], logs: &[Log], rig: &Rig) -> Result<(), Failure> {
        let progress = Progress::new(logs.len() as u64 * recipes.len() as u64 * smallest::TRIES);
        for log in logs {
            for recipe in recipes {
                progress.on(&log.name, recipe);
                let smallest = Smallest::of(recipe, log, rig, || progress.round())?;
                let line =
                    if self.json { smallest.json(recipe, log, rig.name) } else { smallest.line(recipe, log) };
                progress.suspend(|| print(&line))?;
                if let Some(words) = smallest.note(recipe, log) {
                    progress.suspend(|| note(&words));
                }
            }
        }
        progress.done();
        Ok(())
    }
}

/// Understands what stands behind `--resource`.
pub(crate) fn read_recipe(text: &str) -> Result<Recipe, Failure> {
    text.parse().map_err(|error: alluvion::Error| Failure::usage(error.to_string()))
}

/// The empty recipe is the source that the device has.
pub(crate) fn recipe_name(recipe: &Recipe) -> String {
    if recipe.ingredients().next().is_none() { "(default source)".into() } else { recipe.to_string() }
}

/// Writes on the standard output stream, at once: runs are long, and somebody is watching.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::Unread
        } else {
            Failure::while_doing("writing the figures", error)
        }
    })
}
