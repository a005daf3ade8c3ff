//! `cross`: what one stream has freed, another allocates.

use std::time::Instant;

use alluvion::Stream;

use super::figure::{Figure, Report};
use super::stack::{Source, Stack, Subject};
use crate::failure::Failure;
use crate::timing::{median, ns_since};
use crate::workload::Block;

const BYTES: usize = 1 << 20;

pub(super) fn run<S: Stack<U>, U: Source>(
    subject: &Subject<'_, S, U>,
    report: &mut Report,
) -> Result<(), Failure> {
    let count = subject.either(2000, 100);
    let ns = subject.with_resource(0, |resource, _| {
        let streams = [subject.rig.stream()?, subject.rig.stream()?];
        let mut times = Vec::with_capacity(5);
        for _ in 0..5 {
            let start = Instant::now();
            for _ in 0..count {
                Block::pair(resource, BYTES, streams[0].as_ref())?;
                Block::pair(resource, BYTES, streams[1].as_ref())?;
            }
            times.push(ns_since(start) / count as f64);
            streams.iter().try_for_each(Stream::synchronize)?;
        }
        Ok(median(times))
    })?;
    report.print(&Figure::Cross { ns })
}
