//! `Outcome`: what came of playing a trace on a stack.

use alluvion::recipe::Recipe;
use alluvion::{Error, Stream};

use super::free_running::Programs;
use super::{Log, Standing, Threads, log_order};
use crate::failure::Failure;
use crate::rig::Rig;
use crate::timing::median;

/// How a trace is played.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) threads: Threads,
    pub(crate) rounds: u32,
}

/// What came of playing a trace on a stack.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Of the first round, in which the stack grows.
    pub(crate) first_ns_per_event: f64,
    /// The median of the rounds after it, or that of the first if there are none.
    pub(crate) ns_per_event: f64,
    /// The most bytes that were live at once, in the order of the log, without those that failed.
    pub(crate) peak_live_bytes: u64,
    /// The most that the stack ever took, in the first round.
    pub(crate) peak_reserved_bytes: u64,
    /// Allocations that failed in the first round.
    pub(crate) failures: usize,
    /// The first of them: its place in the log, and why.
    pub(crate) first_failure: Option<(usize, Error)>,
    /// Allocations and frees of the source in the first round, those of making the stack too.
    pub(crate) upstream_calls: usize,
    /// What the driver's calls would have cost in the first round and in making the stack, if they are simulated.
    pub(crate) charged_ns: Option<u64>,
}

impl Outcome {
    pub(crate) fn of(
        recipe: &Recipe,
        log: &Log,
        rig: &Rig,
        plan: Plan,
        round_done: impl Fn(),
    ) -> Result<Self, Failure> {
        let trace = &log.trace;
        let streams =
            (0..trace.streams).map(|_| rig.device.stream()).collect::<Result<Vec<Stream>, Error>>()?;
        let charged_before = rig.charged_ns();
        let stack = Standing::new(recipe, rig)?;
        let mut play = player(log, &stack, &streams, plan.threads)?;

        let (first_ns, refused) = play()?;
        rig.device.synchronize()?;
        let charged_ns = rig.charged_ns().zip(charged_before).map(|(after, before)| after - before);
        let (upstream_calls, peak_reserved) = (stack.upstream_calls(), stack.peak_reserved_bytes()?);
        round_done();

        let mut later = Vec::new();
        for _ in 1..plan.rounds {
            later.push(play()?.0);
            rig.device.synchronize()?;
            round_done();
        }
        drop(play);

        let mut is_refused = vec![false; trace.blocks as usize];
        for (event, _) in &refused {
            is_refused[trace.events[*event].block as usize] = true;
        }
        let events = trace.events.len() as f64;
        Ok(Self {
            first_ns_per_event: first_ns / events,
            ns_per_event: if later.is_empty() { first_ns } else { median(later) } / events,
            peak_live_bytes: log.peak_live_bytes(|block| is_refused[block as usize]),
            peak_reserved_bytes: peak_reserved as u64,
            failures: refused.len(),
            first_failure: refused.into_iter().next(),
            upstream_calls,
            charged_ns,
        })
    }

    /// What is reserved over what is live, at the peaks.
    pub(crate) fn ratio(&self) -> f64 {
        self.peak_reserved_bytes as f64 / self.peak_live_bytes.max(1) as f64
    }
}

/// What came of a round: nanoseconds, and which allocations failed.
type Round = (f64, Vec<(usize, Error)>);

/// Plays a round of the log.
fn player<'p>(
    log: &'p Log,
    stack: &'p Standing,
    streams: &'p [Stream],
    threads: Threads,
) -> Result<Box<dyn FnMut() -> Result<Round, Failure> + 'p>, Failure> {
    let (events, resource) = (&log.trace.events, &stack.resource);
    Ok(match threads {
        Threads::LogOrder => {
            let mut live = Vec::new();
            live.resize_with(log.trace.blocks as usize, || None);
            Box::new(move || {
                let mut refused = Vec::new();
                let ns = log_order(events, resource, streams, &mut live, |at, error| {
                    refused.push((at, error));
                    Ok::<(), Failure>(())
                })?;
                Ok((ns, refused))
            })
        }
        Threads::Free => {
            let programs = Programs::of(&log.trace)?;
            Box::new(move || programs.run(resource, streams))
        }
    })
}
