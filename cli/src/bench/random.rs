//! `random`: RMM's random allocations.

use std::slice;
use std::time::Instant;

use super::figure::{Figure, Report};
use super::stack::{Source, Stack, Subject};
use crate::failure::Failure;
use crate::timing::{median, ns_since};
use crate::workload::random_run;

const INITIAL_BYTES: usize = 64 << 30;

/// How many allocations, and of how many MiB at most. Those of RMM's program where it is told nothing.
pub(crate) struct Shape {
    pub(crate) allocations: Option<usize>,
    pub(crate) max_mib: Option<usize>,
}

pub(super) fn run<S: Stack<U>, U: Source>(
    shape: &Shape,
    subject: &Subject<'_, S, U>,
    report: &mut Report,
) -> Result<(), Failure> {
    let numbers = subject.either([1000, 10_000, 100_000].as_slice(), &[1000]);
    let sizes = subject.either([1, 4, 64, 256, 1024, 4096].as_slice(), &[1, 4096]);
    for &num in shape.allocations.as_ref().map_or(numbers, slice::from_ref) {
        for &max_mib in shape.max_mib.as_ref().map_or(sizes, slice::from_ref) {
            if max_mib << 20 > S::LARGEST_BYTES {
                continue;
            }
            let rounds = if num >= 100_000 || subject.quick { 1 } else { 3 };
            let figure = subject.with_resource(INITIAL_BYTES, |resource, _| {
                let stream = subject.rig.stream()?;
                let (mut times, mut fails) = (Vec::with_capacity(rounds), 0);
                for _ in 0..rounds {
                    let start = Instant::now();
                    fails = random_run(resource, num, max_mib, stream.as_ref())?;
                    stream.synchronize()?;
                    times.push(ns_since(start) / 1e6);
                }
                Ok(Figure::Random { num, max_mib, fails, ms: median(times) })
            })?;
            report.print(&figure)?;
        }
    }
    Ok(())
}
