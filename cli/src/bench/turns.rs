//! `turns`: many streams, of which each in turn takes a small block and gives it back.

use alluvion::Stream;

use super::figure::{Figure, Report};
use super::stack::{Source, Stack, Subject};
use crate::failure::Failure;
use crate::timing::per_operation;
use crate::workload::Block;

const BYTES: usize = 4096;
/// Turns of each stream before the clock starts: until the resource has what all of them keep.
const WARM_UP: usize = 6;

/// With caches of the processor that hold what the streams touch, the figure is the same for any number of them.
pub(super) fn run<S: Stack<U>, U: Source>(
    subject: &Subject<'_, S, U>,
    report: &mut Report,
) -> Result<(), Failure> {
    for &streams in subject.either([10, 100, 1000, 10_000].as_slice(), &[10, 100]) {
        let ns = subject.with_resource(0, |resource, _| {
            let all = (0..streams).map(|_| subject.rig.stream()).collect::<Result<Vec<Stream>, _>>()?;
            let mut turns = all.iter().cycle();
            let mut turn = || match turns.next() {
                Some(stream) => Block::pair(resource, BYTES, stream.as_ref()),
                None => Ok(()),
            };
            (0..WARM_UP * streams).try_for_each(|_| turn())?;
            let ns = per_operation(subject.either(2 * streams.max(1000), streams), turn)?;
            all.iter().try_for_each(Stream::synchronize)?;
            Ok(ns)
        })?;
        report.print(&Figure::Turns { streams, ns })?;
    }
    Ok(())
}
