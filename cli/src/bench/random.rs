//! `random`: RMM's random allocations.

use std::time::Instant;

use alluvion::{Error, Resource, StreamRef};

use super::block::Block;
use super::figure::{Figure, Report};
use super::stack::{Source, Stack, Subject};
use super::timing::{median, ns_since};
use crate::failure::Failure;
use crate::random::{MinstdRand0, Uniform};

const INITIAL_BYTES: usize = 64 << 30;
const MAX_LIVE_BYTES: usize = 16_000 << 20;

pub(super) fn run<S: Stack<U>, U: Source>(
    subject: &Subject<'_, S, U>,
    report: &mut Report,
) -> Result<(), Failure> {
    for num in subject.either([1000, 10_000, 100_000].as_slice(), &[1000]) {
        for max_mib in subject.either([1, 4, 64, 256, 1024, 4096].as_slice(), &[1, 4096]) {
            let rounds = if *num >= 100_000 || subject.quick { 1 } else { 3 };
            let figure = subject.with_resource(INITIAL_BYTES, |resource, _| {
                let stream = subject.rig.stream()?;
                let (mut times, mut fails) = (Vec::with_capacity(rounds), 0);
                for _ in 0..rounds {
                    let start = Instant::now();
                    fails = round(resource, *num, *max_mib, stream.as_ref())?;
                    stream.synchronize()?;
                    times.push(ns_since(start) / 1e6);
                }
                Ok(Figure::Random { num: *num, max_mib: *max_mib, fails, ms: median(times) })
            })?;
            report.print(&figure)?;
        }
    }
    Ok(())
}

/// Twice `num` steps: 73 of 100 allocate up to `max_mib`, as long as there is room, and the others free any block.
/// Returns how many allocations failed.
fn round<R: Resource>(
    resource: &R,
    num: usize,
    max_mib: usize,
    stream: StreamRef<'_>,
) -> Result<usize, Error> {
    let mut random = MinstdRand0::default();
    let sizes = Uniform::new(1, (max_mib << 20) as u64);
    let places = Uniform::new(0, num as u64 - 1);
    let operations = Uniform::new(0, 99);
    let mut live: Vec<Block<'_, R>> = Vec::new();
    let (mut count, mut used, mut fails) = (0, 0, 0);
    for _ in 0..2 * num {
        let bytes = sizes.draw(&mut random) as usize;
        let allocates = live.is_empty()
            || (operations.draw(&mut random) < 73 && count < num && used + bytes < MAX_LIVE_BYTES);
        if allocates {
            match Block::take(resource, bytes, stream) {
                Ok(block) => {
                    live.push(block);
                    count += 1;
                    used += bytes;
                    continue;
                }
                Err(error) if error.is_out_of_memory() => fails += 1,
                Err(error) => return Err(error),
            }
        }
        if !live.is_empty() {
            let block = live.swap_remove(places.draw(&mut random) as usize % live.len());
            used -= block.bytes();
            block.give_back(stream);
        }
    }
    live.into_iter().for_each(|block| block.give_back(stream));
    Ok(fails)
}
