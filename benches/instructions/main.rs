//! The instructions of a call: `instructions CASE ROUNDS` does a case so often, and `ci/instructions` counts twice and takes the
//! difference, so that what comes before the rounds counts for nothing.
//!
//! Times change with the machine and from second to second; instructions do not. They say nothing about waiting for memory or for a lock.

#[path = "../../cli/src/null_pages.rs"]
mod null_pages;
#[expect(dead_code, reason = "a count needs a part of what the program measures")]
mod workload;

use std::process::ExitCode;

use alluvion::driver::{Driver, RawStream, StreamFlags};
use alluvion::sim::SimConfig;
use alluvion::source::Null;
use alluvion::suballoc::PageBudget;
use alluvion::{Device, DevicePtr, Error, Layout, Pool, PoolConfig, Resource, Sim, Stream, StreamRef};
use null_pages::NullPages;
use workload::{Block, Walk, random_run};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A case: its name, and what does so many rounds of it.
type Case = (&'static str, fn(&Sim, usize) -> Result<(), Error>);

const CASES: [Case; 10] = [
    ("pair", pair),
    ("pair-on-the-bare-default-stream", pair_on_the_bare_default_stream),
    ("pair-on-a-bare-stream", pair_on_a_bare_stream),
    ("pair-of-64-mib-over-pages", pair_of_pages),
    ("pair-on-each-of-two-streams", pair_on_each_of_two_streams),
    ("step-among-64-blocks", step_among_blocks),
    ("growth", growth),
    ("run-of-random-sizes", run_of_random_sizes),
    ("run-of-long-blocks-over-pages", run_of_long_blocks_over_pages),
    ("round-of-two-phases-with-a-budget", phases_with_a_budget),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        CASES.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    let [name, rounds] = &arguments[..] else {
        eprintln!("usage: instructions [CASE ROUNDS]; without, the names of the cases");
        return ExitCode::FAILURE;
    };
    let (Some((_, case)), Ok(rounds)) = (CASES.iter().find(|(known, _)| known == name), rounds.parse())
    else {
        eprintln!("instructions: no case `{name}`, or `{rounds}` is no number");
        return ExitCode::FAILURE;
    };
    let config = SimConfig::default().watch_blocks(false).streams_keep_up(true).memory_bytes(141 << 30);
    match case(&Sim::with_config(config), rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn pool(device: &Device) -> Result<Pool<Null>, Error> {
    Pool::new(Null::new(device), PoolConfig::default())
}

fn paged(device: &Device, config: PoolConfig) -> Result<Pool<NullPages>, Error> {
    Pool::new(NullPages::new(device), config)
}

fn pairs<R: Resource>(resource: &R, bytes: usize, stream: &Stream, rounds: usize) -> Result<(), Error> {
    (0..rounds).try_for_each(|_| Block::pair(resource, bytes, stream.as_ref()))
}

/// 4 KiB on one stream: the cache of the stream.
fn pair(sim: &Sim, rounds: usize) -> Result<(), Error> {
    let device = sim.device(0);
    pairs(&pool(&device)?, 4 * KIB, &device.stream()?, rounds)
}

/// As C, C++ and Python call: 4 KiB on the default stream by its raw handle.
fn pair_on_the_bare_default_stream(sim: &Sim, rounds: usize) -> Result<(), Error> {
    pairs_on_a_bare_stream(&sim.device(0), RawStream(0), rounds)
}

/// The same on a stream that was created.
fn pair_on_a_bare_stream(sim: &Sim, rounds: usize) -> Result<(), Error> {
    pairs_on_a_bare_stream(&sim.device(0), sim.stream_create(0, StreamFlags::default())?, rounds)
}

fn pairs_on_a_bare_stream(device: &Device, raw: RawStream, rounds: usize) -> Result<(), Error> {
    #![expect(unsafe_code, reason = "gives back what it allocates, by raw handles")]
    let (pool, layout) = (pool(device)?, Layout::from_bytes(4 * KIB)?);
    for _ in 0..rounds {
        // Each call finds the streams of its device anew.
        let streams = core::hint::black_box(device).raw_streams();
        let at_once = |stream: StreamRef<'_>| pool.allocate_at_once(layout, stream).map(Ok);
        let body = |stream: StreamRef<'_>| pool.allocate(layout, stream);
        // SAFETY: the stream is never destroyed, and no capture begins on it.
        let block: DevicePtr = unsafe { streams.with_or_at_once(raw, at_once, body) }??;
        // SAFETY: the block came from `pool` with this layout on this stream, and nothing uses it.
        let at_once = |stream: StreamRef<'_>| unsafe { pool.deallocate_at_once(block, layout, stream) };
        // SAFETY: as above.
        if !unsafe { streams.visit(raw, at_once) } {
            // SAFETY: the block was not given back.
            let body = |stream: StreamRef<'_>| unsafe { pool.deallocate(block, layout, stream) };
            // SAFETY: as above.
            unsafe { streams.with(raw, body) }?;
        }
    }
    Ok(())
}

/// 64 MiB of a pool over pages.
fn pair_of_pages(sim: &Sim, rounds: usize) -> Result<(), Error> {
    let device = sim.device(0);
    pairs(&paged(&device, PoolConfig::default())?, 64 * MIB, &device.stream()?, rounds)
}

/// 1 MiB on one stream and on another, which takes what the first has freed.
fn pair_on_each_of_two_streams(sim: &Sim, rounds: usize) -> Result<(), Error> {
    let device = sim.device(0);
    let (pool, streams) = (pool(&device)?, [device.stream()?, device.stream()?]);
    for _ in 0..rounds {
        streams.iter().try_for_each(|stream| Block::pair(&pool, MIB, stream.as_ref()))?;
    }
    Ok(())
}

/// An allocation or a free of 256 B to 1 MiB, where 32 to 64 blocks are live.
fn step_among_blocks(sim: &Sim, rounds: usize) -> Result<(), Error> {
    let device = sim.device(0);
    let (pool, stream) = (pool(&device)?, device.stream()?);
    let mut walk = Walk::new(&pool, 1);
    walk.steps(rounds, stream.as_ref())?;
    walk.give_back(stream.as_ref());
    Ok(())
}

/// 3 MiB that stay: the first pass of a program.
fn growth(sim: &Sim, rounds: usize) -> Result<(), Error> {
    let device = sim.device(0);
    let (pool, stream) = (pool(&device)?, device.stream()?);
    let blocks: Result<Vec<_>, _> =
        (0..rounds).map(|_| Block::take(&pool, 3 * MIB, stream.as_ref())).collect();
    blocks?.into_iter().for_each(|block| block.give_back(stream.as_ref()));
    Ok(())
}

/// RMM's random allocations of up to 4 MiB, 2,000 of them: splits, merges and growth.
fn run_of_random_sizes(sim: &Sim, rounds: usize) -> Result<(), Error> {
    let device = sim.device(0);
    let (pool, stream) = (pool(&device)?, device.stream()?);
    random(&pool, &stream, 4, rounds)
}

/// The same of up to 64 MiB over pages, where no cache keeps most of the blocks.
fn run_of_long_blocks_over_pages(sim: &Sim, rounds: usize) -> Result<(), Error> {
    let device = sim.device(0);
    let (pool, stream) = (paged(&device, PoolConfig::default())?, device.stream()?);
    random(&pool, &stream, 64, rounds)
}

/// Two phases over pages: what the first leaves free is as much as the second needs, and lies in pieces that are too short. So pages move.
fn phases_with_a_budget(sim: &Sim, rounds: usize) -> Result<(), Error> {
    let device = sim.device(0);
    let config = PoolConfig::default().budget(PageBudget::TimesPeak(1.05));
    let (pool, stream) = (paged(&device, config)?, device.stream()?);
    let take = |mib: usize| Block::take(&pool, mib * MIB, stream.as_ref());
    for _ in 0..rounds {
        let short = (0..128).map(|_| take(6)).collect::<Result<Vec<_>, _>>()?;
        let (kept, freed): (Vec<_>, Vec<_>) = short.into_iter().enumerate().partition(|(at, _)| at % 2 == 0);
        freed.into_iter().for_each(|(_, block)| block.give_back(stream.as_ref()));
        let long = (0..24).map(|_| take(16)).collect::<Result<Vec<_>, _>>()?;
        kept.into_iter().for_each(|(_, block)| block.give_back(stream.as_ref()));
        long.into_iter().for_each(|block| block.give_back(stream.as_ref()));
    }
    Ok(())
}

fn random<R: Resource>(resource: &R, stream: &Stream, most_mib: usize, rounds: usize) -> Result<(), Error> {
    for _ in 0..rounds {
        random_run(resource, 2000, most_mib, stream.as_ref())?;
    }
    Ok(())
}
