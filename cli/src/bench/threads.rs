//! `threads`: several threads at once, each with a stream of its own.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use alluvion::{Device, Error, Resource, StreamRef};

use super::block::Block;
use super::figure::{Figure, Report};
use super::stack::{Source, Stack, Subject};
use super::timing::ns_since;
use crate::failure::Failure;
use crate::random::Mt19937_64;

const INITIAL_BYTES: usize = 40 << 30;
/// Steps before the clock starts.
const WARM_UP: usize = 500;

pub(super) fn run<S: Stack<U>, U: Source>(
    subject: &Subject<'_, S, U>,
    report: &mut Report,
) -> Result<(), Failure> {
    let steps = subject.either(20_000, 1000);
    for threads in subject.either([1, 2, 4, 8, 16].as_slice(), &[1, 2]) {
        let ns = subject.with_resource(INITIAL_BYTES, |resource, _| {
            together(resource, &subject.rig.device, *threads, steps)
        })?;
        report.print(&Figure::Threads { threads: *threads, mops: (steps * threads) as f64 / ns * 1e3 })?;
    }
    Ok(())
}

/// Nanoseconds until each of `threads` threads has done `steps` steps.
fn together<R: Resource + Sync>(
    resource: &R,
    device: &Device,
    threads: usize,
    steps: usize,
) -> Result<f64, Failure> {
    let barrier = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let barrier = &barrier;
        let workers: Vec<_> = (0..threads as u64)
            .map(|seed| scope.spawn(move || one(resource, device, seed, steps, barrier)))
            .collect();
        barrier.wait();
        let start = Instant::now();
        barrier.wait();
        let ns = ns_since(start);
        for worker in workers {
            worker.join().map_err(|_| Failure::Failed("a thread of the workload panicked".into()))??;
        }
        Ok(ns)
    })
}

/// Comes to the barrier twice, whatever fails: the others wait for it there.
fn one<R: Resource>(
    resource: &R,
    device: &Device,
    seed: u64,
    steps: usize,
    barrier: &Barrier,
) -> Result<(), Error> {
    let stream = device.stream();
    let mut random = Mt19937_64::new(seed);
    let mut live = Vec::with_capacity(64);
    let mut go = |steps: usize| -> Result<(), Error> {
        let stream = stream.as_ref().map_err(Error::clone)?.as_ref();
        (0..steps).try_for_each(|_| step(resource, &mut live, &mut random, stream))
    };
    let warmed = go(WARM_UP);
    barrier.wait();
    let done = warmed.and_then(|()| go(steps));
    barrier.wait();
    done?;
    let stream = stream?;
    live.into_iter().for_each(|block| block.give_back(stream.as_ref()));
    stream.synchronize()
}

/// Allocates 256 B to 1 MiB, or frees any block, such that there are 32 to 64.
#[inline]
fn step<'r, R: Resource>(
    resource: &'r R,
    live: &mut Vec<Block<'r, R>>,
    random: &mut Mt19937_64,
    stream: StreamRef<'_>,
) -> Result<(), Error> {
    if live.len() < 32 || (live.len() < 64 && random.draw() % 2 == 1) {
        live.push(Block::take(resource, 256 << (random.draw() % 13), stream)?);
    } else {
        let place = (random.draw() % live.len() as u64) as usize;
        live.swap_remove(place).give_back(stream);
    }
    Ok(())
}
