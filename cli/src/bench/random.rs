//! `random`: RMM's random allocations.

use std::time::Instant;

use super::figure::{Figure, Report};
use super::stack::{Source, Stack, Subject};
use crate::failure::Failure;
use crate::timing::{median, ns_since};
use crate::workload::random_run;

const INITIAL_BYTES: usize = 64 << 30;

pub(super) fn run<S: Stack<U>, U: Source>(
    subject: &Subject<'_, S, U>,
    report: &mut Report,
) -> Result<(), Failure> {
    for &num in subject.either([1000, 10_000, 100_000].as_slice(), &[1000]) {
        for &max_mib in subject.either([1, 4, 64, 256, 1024, 4096].as_slice(), &[1, 4096]) {
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
