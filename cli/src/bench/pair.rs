//! `pair`: one block comes and goes, beside live ones and holes.

use alluvion::{Error, Resource, StreamRef};

use super::block::Block;
use super::figure::{Figure, Report};
use super::stack::{Source, Stack, Subject};
use super::timing::per_operation;
use crate::failure::Failure;
use crate::random::Mt19937_64;

const SIZES: [usize; 4] = [256, 64 << 10, 1 << 20, 64 << 20];
const INITIAL_BYTES: usize = 40 << 30;

pub(super) fn run<S: Stack<U>, U: Source>(
    subject: &Subject<'_, S, U>,
    report: &mut Report,
) -> Result<(), Failure> {
    for live in subject.either([0, 1000, 10_000].as_slice(), &[0, 100]) {
        let count = if subject.quick {
            100
        } else if *live > 1000 {
            1000
        } else {
            3000
        };
        subject.with_resource(INITIAL_BYTES, |resource, _| {
            let stream = subject.rig.stream()?;
            let held = fill(resource, *live, stream.as_ref())?;
            for size in SIZES {
                let ns = per_operation(count, || {
                    Block::take(resource, size, stream.as_ref())?.give_back(stream.as_ref());
                    Ok(())
                })?;
                report.print(&Figure::Pair { live: *live, size, ns })?;
            }
            held.into_iter().for_each(|block| block.give_back(stream.as_ref()));
            Ok(stream.synchronize()?)
        })?;
    }
    Ok(())
}

/// Allocates `live` blocks of up to 512 KiB, with a hole as large between every two.
fn fill<'r, R: Resource>(
    resource: &'r R,
    live: usize,
    stream: StreamRef<'_>,
) -> Result<Vec<Block<'r, R>>, Error> {
    let mut random = Mt19937_64::new(1);
    let mut block = || Block::take(resource, 256 + (random.draw() % (512 << 10)) as usize, stream);
    let (mut held, mut gaps) = (Vec::with_capacity(live), Vec::with_capacity(live));
    for _ in 0..live {
        held.push(block()?);
        gaps.push(block()?);
    }
    gaps.into_iter().for_each(|block| block.give_back(stream));
    Ok(held)
}
