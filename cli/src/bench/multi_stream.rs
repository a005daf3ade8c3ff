//! `multi-stream`: RMM's benchmark of small vectors on several streams.

use std::slice;
use std::time::Instant;

use alluvion::{Error, Resource, Stream};

use super::figure::{Figure, Report};
use super::stack::{Source, Stack, Subject};
use crate::failure::Failure;
use crate::timing::{ns_since, per_operation};
use crate::workload::Block;

/// Each piece of work has a vector of one integer.
const BYTES: usize = 4;

/// How many pieces of work on how many streams. Those of RMM's program where it is told nothing: 4 and 8 on 1 to 4.
pub(crate) struct Shape {
    pub(crate) kernels: Option<usize>,
    pub(crate) streams: Option<usize>,
}

/// The kernel of RMM's program is left out: it takes as long over every resource, and hides what is measured.
pub(super) fn run<S: Stack<U>, U: Source>(
    shape: &Shape,
    subject: &Subject<'_, S, U>,
    report: &mut Report,
) -> Result<(), Failure> {
    for &kernels in shape.kernels.as_ref().map_or(&[4, 8][..], slice::from_ref) {
        for &streams in shape.streams.as_ref().map_or(&[1, 2, 4][..], slice::from_ref) {
            let figure = subject.with_resource(0, |resource, _| {
                let all = (0..streams).map(|_| subject.rig.stream()).collect::<Result<Vec<Stream>, _>>()?;
                let start = Instant::now();
                round(resource, kernels, &all)?;
                let first_ns = ns_since(start) / kernels as f64;
                let ns = per_operation(subject.either(1000, 10), || round(resource, kernels, &all))?;
                all.iter().try_for_each(Stream::synchronize)?;
                Ok(Figure::MultiStream { streams, kernels, first_ns, ns: ns / kernels as f64 })
            })?;
            report.print(&figure)?;
        }
    }
    Ok(())
}

fn round<R: Resource>(resource: &R, kernels: usize, streams: &[Stream]) -> Result<(), Error> {
    let turns = streams.iter().cycle().take(kernels);
    turns.map(Stream::as_ref).try_for_each(|stream| Block::pair(resource, BYTES, stream))
}
