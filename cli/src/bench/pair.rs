//! `pair`: one block comes and goes, beside live ones and holes.

use super::figure::{Figure, Report};
use super::stack::{Source, Stack, Subject};
use crate::failure::Failure;
use crate::timing::per_operation;
use crate::workload::{Block, Holes};

const SIZES: [usize; 4] = [256, 64 << 10, 1 << 20, 64 << 20];
const INITIAL_BYTES: usize = 40 << 30;

pub(super) fn run<S: Stack<U>, U: Source>(
    subject: &Subject<'_, S, U>,
    report: &mut Report,
) -> Result<(), Failure> {
    // Without memory a hundred thousand cost nothing but time.
    let full: &[usize] =
        if subject.rig.name == "null" { &[0, 1000, 10_000, 100_000] } else { &[0, 1000, 10_000] };
    for &live in subject.either(full, &[0, 100]) {
        let count = subject.either(if live > 1000 { 1000 } else { 3000 }, 100);
        subject.with_resource(INITIAL_BYTES, |resource, _| {
            let stream = subject.rig.stream()?;
            let holes = Holes::make(resource, live, stream.as_ref())?;
            for size in SIZES.into_iter().filter(|size| *size <= S::LARGEST_BYTES) {
                let ns = per_operation(count, || Block::pair(resource, size, stream.as_ref()))?;
                report.print(&Figure::Pair { live, size, ns })?;
            }
            holes.give_back(stream.as_ref());
            Ok(stream.synchronize()?)
        })?;
    }
    Ok(())
}
