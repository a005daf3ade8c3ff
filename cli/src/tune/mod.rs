//! `alluvion tune`: which stack is right for a program.

mod candidate;
mod front;
mod search;

use core::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use alluvion::recipe::Recipe;
use clap::Args;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::replay::{Log, Progress, align, mib, print, read_recipe, size};
use candidate::Candidate;
use front::{Front, Point};
use search::{End, Search, Sources};

/// Searches the best stack for a program, from a log of what it allocated and freed.
///
/// Stacks are tried on a simulated GPU that charges each call to the driver what an H200 charged: pools with every policy of
/// growth and reuse, arenas, bins, pools over pages with every budget, and the source alone. The stacks that no other beats in both time and footprint are
/// printed, each with the line to paste.
#[derive(Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Tune {
    /// A log in RMM's format, .csv or .csv.gz
    trace: PathBuf,
    /// The source under each stack; left out, it is cuda, and pools over mapped are tried too
    #[arg(long, value_name = "RECIPE")]
    source: Option<String>,
    /// How many stacks are tried
    #[arg(long, value_name = "N", default_value_t = 96, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    candidates: u32,
    /// Ends the search early, after a time such as 30s or 5m; what was found then depends on the machine
    #[arg(long, value_name = "TIME", value_parser = time)]
    budget_time: Option<Duration>,
    /// The seed that decides which stacks are tried after the first forty
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Memory of the simulated GPU, such as 24GiB
    #[arg(long, value_name = "SIZE", default_value = "141GiB", value_parser = size)]
    sim_memory: usize,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  alluvion tune trace.csv.gz
  alluvion tune trace.csv.gz --sim-memory 24GiB --candidates 300 --seed 7
  alluvion tune trace.csv.gz --budget-time 30s --json

What is charged, per event, is what the calls to the driver cost on an H200, those of making the stack too. It is the same in
each run, and decides. What is measured is the library's own time, in one round, on this machine and this simulator; it is
shown, and decides nothing. Bytes are those that a stack takes from its source. The balanced stack has the least product of
time and bytes, with 15 ns an event for the library itself; it is the line to paste.

A simulated GPU has no work on its streams, and what one stream has freed counts as over for another as late as it may.";

/// `30s`, `5m`, or seconds.
fn time(text: &str) -> Result<Duration, String> {
    let (number, scale) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let seconds = number.parse::<u32>().ok().and_then(|number| number.checked_mul(scale));
    seconds
        .map(|seconds| Duration::from_secs(seconds.into()))
        .ok_or_else(|| "it is not a time, such as 30s or 5m".into())
}

impl Tune {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let sources = match &self.source {
            Some(text) => Sources::named(source(text)?),
            None => Sources { plain: source("cuda")?, pages: Some(source("mapped")?) },
        };
        let log = Log::open(&self.trace)?;
        let progress = Progress::new(self.candidates.into());
        let mut search = Search::new(&log, sources, self.sim_memory, self.seed);
        let end = search.run(self.candidates as usize, self.budget_time, |recipe| {
            progress.on(&log.name, recipe);
            progress.round();
        })?;
        progress.done();
        let report = Report { log: &log, search: &search, end, seed: self.seed };
        if search.front.points().is_empty() {
            return Err(Failure::Failed(format!(
                "{}: each of the {} stacks that were tried fails an allocation, or needs more memory than {}",
                log.name,
                search.tried,
                mib(self.sim_memory as u64),
            )));
        }
        print(&if self.json { report.json()? } else { report.text() })
    }
}

/// A source, and nothing but a source that a simulated device has.
fn source(text: &str) -> Result<Recipe, Failure> {
    let recipe = read_recipe(text)?;
    let names: Vec<_> = recipe.ingredients().map(|ingredient| ingredient.name()).collect();
    if recipe.source().is_none() || names.len() != 1 || names == ["null"] {
        return Err(Failure::usage(format!(
            "--source: `{text}` is no source with memory, such as cuda or cuda-async"
        )));
    }
    Ok(recipe)
}

/// What came of a search.
struct Report<'s> {
    log: &'s Log,
    search: &'s Search<'s>,
    end: End,
    seed: u64,
}

impl Report<'_> {
    fn front(&self) -> &Front<Candidate> {
        &self.search.front
    }

    /// What each point of the front is the best in.
    fn picks(&self, at: usize) -> Vec<&'static str> {
        let last = self.front().points().len() - 1;
        let balanced = self.front().balanced(self.log.trace.events.len());
        [(at == 0, "fastest"), (balanced == Some(at), "balanced"), (at == last, "smallest")]
            .into_iter()
            .filter_map(|(is_it, name)| is_it.then_some(name))
            .collect()
    }

    fn balanced(&self) -> Option<&Point<Candidate>> {
        self.front().points().get(self.front().balanced(self.log.trace.events.len())?)
    }

    fn per_event(&self, ns: u64) -> f64 {
        ns as f64 / self.log.trace.events.len() as f64
    }

    fn json(&self) -> Result<String, Failure> {
        let point = |(at, point): (usize, &Point<Candidate>)| {
            let outcome = &point.outcome;
            json!({
                "resource": point.recipe.to_string(),
                "charged_ns": point.charged_ns(),
                "charged_ns_per_event": self.per_event(point.charged_ns()),
                "measured_ns_per_event": outcome.ns_per_event,
                "peak_reserved": outcome.total.peak_reserved_bytes,
                "ratio": outcome.total.ratio(),
                "upstream_calls": outcome.total.upstream_calls,
                "best": self.picks(at),
            })
        };
        let report = json!({
            "trace": self.log.name,
            "events": self.log.trace.events.len(),
            "peak_live": self.log.peak_live_bytes(|_| false),
            "seed": self.seed,
            "tried": self.search.tried,
            "failed": self.search.failed,
            "ended_by": self.end.name(),
            "front": self.front().points().iter().enumerate().map(point).collect::<Vec<Value>>(),
            "resource": self.balanced().map(|point| point.recipe.to_string()),
        });
        let line = serde_json::to_string(&report);
        line.map(|line| line + "\n").map_err(|error| Failure::while_doing("writing the figures", error))
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "{}: {} events, {} live at the peak; {} stacks tried, {} failed{}",
            self.log.name,
            self.log.trace.events.len(),
            mib(self.log.peak_live_bytes(|_| false)),
            self.search.tried,
            self.search.failed,
            match self.end {
                End::Candidates => "",
                End::Time => "; the time was over",
                End::Exhausted => "; there was nothing else to try",
            },
        );
        let heading = ["resource", "charged/event", "measured/event", "peak reserved", "ratio", "best"];
        let mut rows = vec![heading.map(str::to_owned)];
        for (at, point) in self.front().points().iter().enumerate() {
            rows.push([
                point.recipe.to_string(),
                format!("{:.1} ns", self.per_event(point.charged_ns())),
                format!("{:.1} ns", point.outcome.ns_per_event),
                mib(point.outcome.total.peak_reserved_bytes),
                format!("{:.3}", point.outcome.total.ratio()),
                self.picks(at).join(", "),
            ]);
        }
        align(&rows, &mut text);
        if let Some(point) = self.balanced() {
            let _ = writeln!(text, "\nTo paste:\n  ALLUVION_RESOURCE='{}'", point.recipe);
        }
        text
    }
}
