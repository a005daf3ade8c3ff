//! `Outcome`: what came of playing a trace on a stack.

use std::sync::Arc;

use alluvion::recipe::Recipe;
use alluvion::{Error, Resource};

use super::free_running::Programs;
use super::{Lanes, Log, Standing, Threads, log_order};
use crate::failure::Failure;
use crate::rig::Rig;
use crate::timing::median;

/// How a trace is played.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) threads: Threads,
    pub(crate) rounds: u32,
}

/// What came of playing a trace on a stack, or on one for each device of the trace.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Of the first round, in which the stack grows.
    pub(crate) first_ns_per_event: f64,
    /// The median of the rounds after it, or that of the first if there are none.
    pub(crate) ns_per_event: f64,
    /// The first allocation that failed: its place in the log, and why.
    pub(crate) first_failure: Option<(usize, Error)>,
    /// What the driver's calls would have cost in the first round and in making the stack, if they are simulated.
    pub(crate) charged_ns: Option<u64>,
    /// Of all devices together: the sum of each figure.
    pub(crate) total: Share,
    /// Of each device, in the order of the numbers.
    pub(crate) devices: Vec<(u32, Share)>,
}

/// What came of it on one device, in the first round; or in sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) events: usize,
    /// The most bytes that were live at once, in the order of the log, without those that failed.
    pub(crate) peak_live_bytes: u64,
    /// The most that the stack ever took.
    pub(crate) peak_reserved_bytes: u64,
    /// Allocations that failed.
    pub(crate) failures: usize,
    /// Allocations and frees of the source, those of making the stack too.
    pub(crate) upstream_calls: usize,
}

impl Share {
    /// What is reserved over what is live, at the peaks.
    pub(crate) fn ratio(&self) -> f64 {
        self.peak_reserved_bytes as f64 / self.peak_live_bytes.max(1) as f64
    }

    fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.peak_live_bytes = self.peak_live_bytes.saturating_add(other.peak_live_bytes);
        self.peak_reserved_bytes = self.peak_reserved_bytes.saturating_add(other.peak_reserved_bytes);
        self.failures += other.failures;
        self.upstream_calls += other.upstream_calls;
    }
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
        let devices = log.devices(rig)?;
        let charged_before = rig.charged_ns();
        let stacks = devices
            .iter()
            .map(|device| Standing::new(recipe, rig, device))
            .collect::<Result<Vec<_>, Failure>>()?;
        let lanes = Lanes::of(trace, |at| (&devices[at], &stacks[at].resource))?;
        let wait = || devices.iter().try_for_each(alluvion::Device::synchronize);
        let mut play = player(log, &lanes, plan.threads)?;

        let (first_ns, refused) = play()?;
        wait()?;
        let charged_ns = rig.charged_ns().zip(charged_before).map(|(after, before)| after - before);
        let mut shares = vec![Share::default(); devices.len()];
        for (share, stack) in shares.iter_mut().zip(&stacks) {
            share.upstream_calls = stack.upstream_calls();
            share.peak_reserved_bytes = stack.peak_reserved_bytes()? as u64;
        }
        round_done();

        let mut later = Vec::new();
        for _ in 1..plan.rounds {
            later.push(play()?.0);
            wait()?;
            round_done();
        }
        drop(play);

        let mut is_refused = vec![false; trace.blocks as usize];
        for (event, _) in &refused {
            let event = &trace.events[*event];
            is_refused[event.block as usize] = true;
            shares[trace.device_of(event) as usize].failures += 1;
        }
        for event in &trace.events {
            shares[trace.device_of(event) as usize].events += 1;
        }
        let peaks = log.peaks_live_bytes(|block| is_refused[block as usize]);
        let mut total = Share::default();
        for (share, peak) in shares.iter_mut().zip(peaks) {
            share.peak_live_bytes = peak;
            total.add(share);
        }
        let mut devices: Vec<_> = trace.device_ordinals.iter().copied().zip(shares).collect();
        devices.sort_by_key(|(ordinal, _)| *ordinal);
        let events = trace.events.len() as f64;
        Ok(Self {
            first_ns_per_event: first_ns / events,
            ns_per_event: if later.is_empty() { first_ns } else { median(later) } / events,
            first_failure: refused.into_iter().next(),
            charged_ns,
            total,
            devices,
        })
    }
}

/// What came of a round: nanoseconds, and which allocations failed.
type Round = (f64, Vec<(usize, Error)>);

/// Plays a round of the log.
fn player<'p>(
    log: &'p Log,
    lanes: &'p Lanes<'p, Arc<dyn Resource + Send + Sync>>,
    threads: Threads,
) -> Result<Box<dyn FnMut() -> Result<Round, Failure> + 'p>, Failure> {
    let events = &log.trace.events;
    Ok(match threads {
        Threads::LogOrder => {
            let mut live = Vec::new();
            live.resize_with(log.trace.blocks as usize, || None);
            Box::new(move || {
                let mut refused = Vec::new();
                let ns = log_order(events, lanes, &mut live, |at, error| {
                    refused.push((at, error));
                    Ok::<(), Failure>(())
                })?;
                Ok((ns, refused))
            })
        }
        Threads::Free => {
            let programs = Programs::of(&log.trace)?;
            Box::new(move || programs.run(lanes))
        }
    })
}
