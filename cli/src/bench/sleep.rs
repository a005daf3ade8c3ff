//! `sleep`: a pool gives its memory back and gets it again, beside the copies alone.

#![expect(unsafe_code, reason = "puts a pool to sleep, and copies beside it")]

use std::time::Instant;

use alluvion::source::{Mapped, Pinned};
use alluvion::{
    Device, DevicePtr, DeviceVec, Error, Layout, Pool, PoolConfig, ResourceExt, SleepConfig, Stream,
};

use super::figure::{Figure, Report};
use crate::failure::Failure;
use crate::rig::{Driver, Rig};

/// How often everything is measured. The median is printed.
const ROUNDS: usize = 5;
/// The bytes of one copy, as a pool makes them.
const PIECE: usize = 64 << 20;
/// The bytes of each block that sleeps, and of each block of the host that the copies alone use.
const BLOCK: usize = 512 << 20;

pub(super) fn run(driver: Driver, mib: usize, quick: bool, json: bool) -> Result<(), Failure> {
    let rig = Rig::open(driver)?;
    let mut report = Report::new(json, rig.name);
    // A simulated device really copies: a quick run shows that it works.
    let mib = if quick || !rig.is_hardware() { mib.min(64) } else { mib };
    let rounds = if quick { 1 } else { ROUNDS };
    let bytes = mib << 20;
    let stream = rig.stream()?;
    let pool = Mapped::new(&rig.device)?.pool(PoolConfig::default())?;
    // Pinned before: to pin takes as long as to copy, and a program pins once.
    let host = Pinned::new(&rig.device)?.pool(PoolConfig::default().initial(bytes))?;
    let vectors = (0..bytes.div_ceil(BLOCK))
        .map(|at| {
            let len = (bytes - at * BLOCK).min(BLOCK);
            DeviceVec::filled_in(len, at as u8 + 1, &stream, &pool)
        })
        .collect::<Result<Vec<_>, Error>>()?;
    stream.synchronize()?;
    let (mut slept, mut copied) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        copied.push(copies(&rig.device, &vectors, &host)?);
        let begin = Instant::now();
        // SAFETY: this thread alone uses the pool, and does nothing with the vectors until they are awake.
        let mut sleeper = unsafe { pool.sleep(SleepConfig::default().keep_in(&host)) }?;
        sleeper.wake()?;
        slept.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    for (at, vector) in vectors.iter().enumerate() {
        let (first, last) = (vector.front(&stream)?, vector.back(&stream)?);
        if (first, last) != (at as u8 + 1, at as u8 + 1) {
            return Err(Failure::while_doing(
                "waking a pool",
                format!("block {at} holds {first} and {last} after it, and {} was written", at + 1),
            ));
        }
    }
    report.print(&Figure::Sleep { what: "alluvion", mib, ms: median(slept) })?;
    report.print(&Figure::Sleep { what: "copies", mib, ms: median(copied) })
}

/// The time of copying everything to the host and back, on two streams, in ms.
fn copies(
    device: &Device,
    vectors: &[DeviceVec<u8, &Pool<Mapped>>],
    host: &Pool<Pinned>,
) -> Result<f64, Error> {
    let layouts = vectors.iter().map(|vector| Layout::from_bytes(vector.len()));
    let layouts = layouts.collect::<Result<Vec<_>, Error>>()?;
    let streams = [device.stream()?, device.stream()?];
    let blocks = host.allocate_many(&layouts, &streams[0])?;
    let begin = Instant::now();
    let copied = [true, false].into_iter().try_for_each(|is_to_host| {
        let submitted = submit(device, vectors, &blocks, &streams, is_to_host);
        let waited = streams.iter().map(Stream::synchronize).fold(Ok(()), Result::and);
        submitted.and(waited)
    });
    let ms = begin.elapsed().as_secs_f64() * 1e3;
    let blocks: Vec<_> = blocks.into_iter().zip(layouts).collect();
    // SAFETY: the blocks came from there with these layouts, and the copies were waited for.
    unsafe { host.deallocate_many(&blocks, &streams[0]) };
    copied.map(|()| ms)
}

fn submit(
    device: &Device,
    vectors: &[DeviceVec<u8, &Pool<Mapped>>],
    blocks: &[DevicePtr],
    streams: &[Stream; 2],
    is_to_host: bool,
) -> Result<(), Error> {
    let mut turns = streams.iter().cycle();
    for (vector, block) in vectors.iter().zip(blocks) {
        for at in (0..vector.len()).step_by(PIECE) {
            let bytes = (vector.len() - at).min(PIECE);
            let (vector, block) = (vector.as_device_ptr().address() + at as u64, block.address() + at as u64);
            let (to, from) = if is_to_host { (block, vector) } else { (vector, block) };
            let Some(stream) = turns.next() else { break };
            // SAFETY: both sides are live until the streams are waited for, and nothing else touches them.
            unsafe { device.driver().copy_async(device.ordinal(), to, from, bytes, stream.raw()) }?;
        }
    }
    Ok(())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
