//! `alluvion bench`: what a resource costs, on the workloads that RMM and PyTorch are measured on.

mod cross;
mod expandable_segments;
mod figure;
mod footprint;
mod free_list;
mod host;
mod layers;
#[cfg(test)]
mod likeness;
mod made_up;
#[cfg(feature = "mimalloc")]
mod mimalloc;
mod multi_stream;
mod options;
mod pair;
mod priming;
mod random;
mod replay;
mod rmm_pool;
mod sleep;
mod stack;
mod stream_pool;
mod threads;
mod turns;
mod vectors;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::rig::{Driver, Rig};
use figure::Report;
use options::Options;
use replay::Replayed;
use stack::{over_cuda, over_null};

/// Measures what a resource costs, on the workloads that RMM and PyTorch are measured on.
///
/// Prints one line for each figure: workload, allocator, case, value. Notes go to the standard error stream.
#[derive(Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Bench {
    #[command(subcommand)]
    workload: Workload,
}

const EXAMPLES: &str = "\
Examples:
  alluvion bench pair --driver null --quick
  alluvion bench threads --stack pool --stack cuda-async
  alluvion bench replay traces/*.csv.gz --json
  alluvion bench random --numallocs 1000 --maxsize 4 --resource arena     RMM's own flags
  alluvion bench layers --threads 8
  alluvion bench footprint --workloads 100
  alluvion bench sleep --mib 8192

Stacks, outermost first, over the source of the driver:
  pool                Pool over Cuda, or over Null
  pool-mapped         Pool over Mapped, or over pages without memory
  pool-mapped-budget  such a pool, with a budget of 1.1 times the live peak
  arena               Arena over Cuda or Null, of half of the device where the workload gives no size
  binning             Binning of 256 KiB to 4 MiB over a pool of segments
  fixed-size          FixedSize of 1 MiB; larger requests are left out, and fail a replay
  cuda                the driver's own allocations; not over the driver null
  mapped              pages of the driver for each block; not over the driver null
  cuda-async          a pool of the driver; not over the driver null
  null                no memory at all; over the driver null alone";

#[derive(Subcommand)]
enum Workload {
    /// Allocates and frees one block beside 0, 1000 and 10000 live ones with a hole between every two, and over the driver
    /// null beside 100000: ns for each pair
    Pair(Options),
    /// Runs RMM's random allocations and frees on one stream: ms for the whole run
    Random {
        /// How many allocations; 1000, 10000 and 100000 without
        #[arg(long, short = 'n', alias = "numallocs", value_parser = clap::value_parser!(u32).range(1..))]
        allocations: Option<u32>,
        /// The largest one in MiB; 1 to 4096 without
        #[arg(long, short = 'm', alias = "maxsize", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
        max_mib: Option<u32>,
        #[command(flatten)]
        options: Options,
    },
    /// Takes an integer for each of 4 and 8 pieces of work, on 1 to 4 streams in turn, and gives it back: ns for each, the first
    /// time and on average
    MultiStream {
        /// How many pieces of work
        #[arg(long, short = 'k', alias = "numkernels", value_parser = clap::value_parser!(u16).range(1..))]
        kernels: Option<u16>,
        /// On how many streams
        #[arg(long, short = 's', alias = "numstreams", value_parser = clap::value_parser!(u16).range(1..))]
        streams: Option<u16>,
        #[command(flatten)]
        options: Options,
    },
    /// Makes vectors of 10000 to 1000000000 integers, and copies them: ns for each, over a pool and over a pool of the driver
    Vectors(WithoutStack),
    /// Takes streams of a pool, and makes and destroys them: ns for each
    StreamPool(WithoutStack),
    /// Takes 100 MiB of a pool of the driver, which had it before or has to get it: ns for each MiB, the first time and again
    Priming(WithoutStack),
    /// Runs 1 to 16 threads with a stream each and 32 to 64 live blocks of 256 B to 1 MiB: million operations per second
    Threads(Options),
    /// Allocates and frees 1 MiB on one stream, then on another: ns for each round of four calls
    Cross(Options),
    /// Allocates and frees 4 KiB on each of 10 to 10000 streams in turn: ns for each pair
    Turns(Options),
    /// Plays a log in RMM's format: ns for each event, and peak reserved over peak live bytes
    Replay {
        /// Logs in RMM's format, .csv or .csv.gz
        #[arg(required_unless_present = "files")]
        traces: Vec<PathBuf>,
        /// The same, as RMM's program takes one
        #[arg(long = "file", short = 'f', value_name = "TRACE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        options: Options,
    },
    /// Compares what pools and models of peers take, for generated programs and for logs: a pool of segments and RMM's pool, a
    /// pool over pages and PyTorch's expandable segments; each over the live peak, and ours over the peer's
    Footprint {
        /// Logs in RMM's format, .csv or .csv.gz
        traces: Vec<PathBuf>,
        /// How many programs are generated
        #[arg(long, default_value_t = 100)]
        workloads: u64,
        /// The seed of the first program; the others have the seeds after it
        #[arg(long, default_value_t = 0)]
        first_seed: u64,
        /// How many calls each program makes
        #[arg(long, default_value_t = 8000)]
        events: usize,
        /// Prints one JSON object for each figure
        #[arg(long)]
        json: bool,
        /// Generates ten programs of 1000 calls, to show that it runs
        #[arg(long)]
        quick: bool,
    },
    /// Measures what layers add to a pair of calls: through 0 to 5 of them, and through each alone, in ns; and on several threads
    /// the part that is left of what `threads` measures without them
    Layers {
        /// How many threads the second measurement has
        #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
        threads: u16,
        /// Prints one JSON object for each figure
        #[arg(long)]
        json: bool,
        /// Does a small part of the work, to show that it runs; the figures mean little
        #[arg(long)]
        quick: bool,
    },
    /// Puts a pool over pages to sleep, with its contents in pinned memory of the host, and wakes it: ms for both, beside the copies
    /// alone over the same memory
    Sleep {
        /// How many MiB sleep; on a simulated GPU, and with `--quick`, at most 64
        #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
        mib: u32,
        #[command(flatten)]
        given: WithoutStack,
    },
    /// Measures the host's own locks, tables and allocator, to compare with: ns for each operation
    Host {
        /// Prints one JSON object for each figure
        #[arg(long)]
        json: bool,
        /// Does a tenth of the work
        #[arg(long)]
        quick: bool,
    },
}

/// What a workload can be told that is about no stack.
#[derive(Args)]
struct WithoutStack {
    /// Where blocks come from: cuda, or a simulated GPU
    #[arg(long, value_enum, default_value_t = Driver::Auto)]
    driver: Driver,
    /// Prints one JSON object for each figure
    #[arg(long)]
    json: bool,
    /// Does a small part of the work, to show that it runs; the figures mean little
    #[arg(long)]
    quick: bool,
}

/// What is measured on a resource.
pub(crate) enum Job {
    Pair,
    Random(random::Shape),
    MultiStream(multi_stream::Shape),
    Threads,
    Cross,
    Turns,
    Replay(Box<Replayed>),
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.workload {
            Workload::Pair(options) => measure(&[Job::Pair], &options),
            Workload::Random { allocations, max_mib, options } => {
                let [allocations, max_mib] = [allocations, max_mib].map(|number| number.map(|n| n as usize));
                measure(&[Job::Random(random::Shape { allocations, max_mib })], &options)
            }
            Workload::MultiStream { kernels, streams, options } => {
                let [kernels, streams] = [kernels, streams].map(|number| number.map(usize::from));
                measure(&[Job::MultiStream(multi_stream::Shape { kernels, streams })], &options)
            }
            Workload::Vectors(given) => vectors::run(given.driver, given.quick, given.json),
            Workload::StreamPool(given) => stream_pool::run(given.driver, given.quick, given.json),
            Workload::Priming(given) => priming::run(given.driver, given.quick, given.json),
            Workload::Threads(options) => measure(&[Job::Threads], &options),
            Workload::Cross(options) => measure(&[Job::Cross], &options),
            Workload::Turns(options) => measure(&[Job::Turns], &options),
            Workload::Replay { traces, files, options } => {
                // All are read before the first is measured: the last may be malformed.
                let jobs = traces
                    .iter()
                    .chain(&files)
                    .map(|path| Ok(Job::Replay(Box::new(Replayed::open(path)?))))
                    .collect::<Result<Vec<_>, Failure>>()?;
                measure(&jobs, &options)
            }
            Workload::Footprint { traces, workloads, first_seed, events, json, quick } => {
                let (workloads, events) =
                    if quick { (workloads.min(10), events.min(1000)) } else { (workloads, events) };
                footprint::run(first_seed, workloads, events, &traces, &mut Report::new(json, "null"))
            }
            Workload::Layers { threads, json, quick } => {
                layers::run(usize::from(threads), quick, &mut Report::new(json, "null"))
            }
            Workload::Sleep { mib, given } => sleep::run(given.driver, mib as usize, given.quick, given.json),
            Workload::Host { json, quick } => host::run(quick, &mut Report::new(json, "host")),
        }
    }
}

fn measure(jobs: &[Job], options: &Options) -> Result<(), Failure> {
    let rig = Rig::open(options.driver)?;
    let known = if options.driver == Driver::Null { &over_null()[..] } else { &over_cuda() };
    // All names are looked up before the first is measured.
    let stacks = options
        .stacks
        .iter()
        .map(|name| {
            known.iter().find(|entry| entry.name == name).ok_or_else(|| {
                let names: Vec<_> = known.iter().map(|entry| entry.name).collect();
                Failure::usage(format!(
                    "no stack `{name}` over the driver {}; there are: {}",
                    rig.name,
                    names.join(", ")
                ))
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    for job in jobs {
        let mut report = Report::new(options.json, rig.name);
        if let Job::Replay(replayed) = job {
            replayed.announce(&mut report)?;
        }
        for entry in &stacks {
            report.begin(entry.name);
            (entry.measure)(job, &rig, options.quick, &mut report)?;
        }
    }
    Ok(())
}
