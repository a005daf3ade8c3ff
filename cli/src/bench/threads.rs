//! `threads`: several threads at once, each with a stream of its own.

use std::thread;
use std::time::Instant;

use alluvion::{Device, Error, Resource};

use super::figure::{Figure, Report};
use super::stack::{Source, Stack, Subject};
use crate::failure::Failure;
use crate::workload::{StartLine, Walk};

const INITIAL_BYTES: usize = 40 << 30;
/// Steps before the clock starts.
const WARM_UP: usize = 500;

pub(super) fn run<S: Stack<U>, U: Source>(
    subject: &Subject<'_, S, U>,
    report: &mut Report,
) -> Result<(), Failure> {
    let steps = subject.either(20_000, 1000);
    for &threads in subject.either([1, 2, 4, 8, 16].as_slice(), &[1, 2]) {
        let ns = subject.with_resource(INITIAL_BYTES, |resource, _| {
            together(resource, &subject.rig.device, threads, steps)
        })?;
        report.print(&Figure::Threads { threads, mops: (steps * threads) as f64 / ns * 1e3 })?;
    }
    Ok(())
}

/// Nanoseconds from the first of `threads` threads that begins to the last one that has done `steps` steps.
pub(super) fn together<R: Resource + Sync>(
    resource: &R,
    device: &Device,
    threads: usize,
    steps: usize,
) -> Result<f64, Failure> {
    let line = StartLine::new(threads);
    let spans = thread::scope(|scope| {
        let line = &line;
        let workers: Vec<_> = (0..threads as u64)
            .map(|seed| scope.spawn(move || one(resource, device, seed, steps, line)))
            .collect();
        let spans = workers.into_iter().map(|worker| match worker.join() {
            Ok(span) => Ok(span?),
            Err(_) => Err(Failure::Failed("a thread of the workload panicked".into())),
        });
        spans.collect::<Result<Vec<_>, Failure>>()
    })?;
    let begun = spans.iter().map(|(begun, _)| *begun).min();
    let ended = spans.iter().map(|(_, ended)| *ended).max();
    Ok(begun.zip(ended).map_or(f64::NAN, |(begun, ended)| (ended - begun).as_secs_f64() * 1e9))
}

/// Says when it began and ended. Comes to the line twice, whatever fails: the others wait for it there.
fn one<R: Resource>(
    resource: &R,
    device: &Device,
    seed: u64,
    steps: usize,
    line: &StartLine,
) -> Result<(Instant, Instant), Error> {
    let stream = device.stream();
    let mut walk = Walk::new(resource, seed);
    let mut go = |steps: usize| match &stream {
        Ok(stream) => walk.steps(steps, stream.as_ref()),
        Err(error) => Err(error.clone()),
    };
    let warmed = go(WARM_UP);
    line.wait();
    let begun = Instant::now();
    let done = warmed.and_then(|()| go(steps));
    let ended = Instant::now();
    line.wait();
    done?;
    let stream = stream?;
    walk.give_back(stream.as_ref());
    stream.synchronize()?;
    Ok((begun, ended))
}
