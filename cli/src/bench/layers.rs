//! `layers`: what each layer adds to a pair of calls, and what it leaves of the speed of many threads.

use std::time::Instant;

use alluvion::adaptor::{Log, Logging};
use alluvion::source::Null;
use alluvion::{Device, Error, Pool, PoolConfig, Resource, ResourceExt, Stream};

use super::figure::{Figure, Report};
use super::threads::together;
use crate::failure::Failure;
use crate::rig::{Driver, Rig};
use crate::timing::ns_since;
use crate::workload::Block;
use crate::workload::layered::each_layered;

const BYTES: usize = 1024;

/// Pairs of a round: half of what a log has room for, so that its writer is never waited for.
const PAIRS: usize = 4096;

/// A pool that has what sixteen threads use from the start.
const POOL_BYTES: usize = 4 << 30;

/// A stack that is measured: its name, and a round of pairs through it, which says how long one took.
struct Measured<'r> {
    name: &'static str,
    round: Box<dyn FnMut() -> Result<f64, Error> + 'r>,
    fastest_ns: f64,
}

impl<'r> Measured<'r> {
    fn new<R: Resource + 'r>(name: &'static str, stack: R, stream: &'r Stream) -> Self {
        let round = move || {
            let start = Instant::now();
            for _ in 0..PAIRS {
                Block::pair(&stack, BYTES, stream.as_ref())?;
            }
            let ns = ns_since(start) / PAIRS as f64;
            // Off the clock: a log's writer catches up.
            stack.find::<Logging>().map_or(Ok(()), Log::flush)?;
            Ok(ns)
        };
        Self { name, round: Box::new(round), fastest_ns: f64::INFINITY }
    }
}

pub(super) fn run(threads: usize, quick: bool, report: &mut Report) -> Result<(), Failure> {
    let rig = Rig::open(Driver::Null)?;
    let device = &rig.device;
    let rounds = if quick { 3 } else { 400 };
    one_thread("null", &rig, rounds, report, || Ok(Null::new(device)))?;
    one_thread("pool", &rig, rounds, report, || pool(device))?;
    let (steps, times) = if quick { (500, 1) } else { (20_000, 5) };
    let mut bare = f64::NAN;
    each_layered!(pool(device)?, |name, stack| {
        let mut mops = 0.0_f64;
        for _ in 0..times {
            let ns = together(&stack, device, threads, steps)?;
            mops = mops.max((steps * threads) as f64 / ns * 1e3);
        }
        if name == "none" {
            bare = mops;
        }
        report.print(&Figure::LayersThreads {
            over: "pool",
            stack: name,
            threads,
            mops,
            ratio: mops / bare,
        })?;
    });
    Ok(())
}

fn pool(device: &Device) -> Result<Pool<Null>, Error> {
    Pool::new(Null::new(device), PoolConfig::default().initial(POOL_BYTES))
}

/// A round of each stack in turn, again and again. What else the machine does slows some rounds down and speeds none up, so
/// the fastest one of each says what its code takes.
fn one_thread<U: Resource>(
    over: &'static str,
    rig: &Rig,
    rounds: usize,
    report: &mut Report,
    source: impl Fn() -> Result<U, Error>,
) -> Result<(), Failure> {
    let stream = rig.stream()?;
    let mut stacks = Vec::new();
    each_layered!(source()?, |name, stack| stacks.push(Measured::new(name, stack, &stream)));
    for _ in 0..rounds {
        for stack in &mut stacks {
            stack.fastest_ns = stack.fastest_ns.min((stack.round)()?);
        }
    }
    let bare = stacks.first().map_or(f64::NAN, |none| none.fastest_ns);
    for stack in &stacks {
        let ns = stack.fastest_ns;
        report.print(&Figure::Layers { over, stack: stack.name, ns, added_ns: ns - bare })?;
    }
    Ok(())
}
