//! The workloads of `alluvion bench`, operation by operation: sizes and order are drawn from the same numbers.

use std::time::Instant;

use alluvion::trace::EventKind;

use crate::numbers::{MinstdRand0, Mt19937_64, Uniform};
use crate::peer::{Peer, Refusal};
use crate::trace_file::TraceFile;

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// A small part, to show that it runs.
    pub(crate) quick: bool,
}

impl Scale {
    fn either<T>(self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

fn ns_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn words(refusal: &Refusal) -> String {
    refusal.to_string()
}

/// One block comes and goes, beside live ones with a hole between every two.
pub(crate) fn pair<P: Peer>(make: &impl Fn(usize) -> Result<P, String>, scale: Scale) -> Result<(), String> {
    for &live in scale.either([0, 1000, 10_000].as_slice(), &[0, 100]) {
        let count = scale.either(if live > 1000 { 1000 } else { 3000 }, 100);
        let mut peer = make(1)?;
        let mut numbers = Mt19937_64::new(1);
        let (mut held, mut gaps) = (Vec::with_capacity(live), Vec::with_capacity(live));
        for at in 0..2 * live {
            let bytes = 256 + (numbers.draw() % (512 << 10)) as usize;
            let block = peer.allocate(bytes, 0).map_err(|refusal| words(&refusal))?;
            if at % 2 == 0 { &mut held } else { &mut gaps }.push(block);
        }
        drop(gaps);
        for size in [256, 64 << 10, 1 << 20, 64 << 20] {
            let mut rounds = Vec::with_capacity(7);
            for _ in 0..7 {
                let start = Instant::now();
                for _ in 0..count {
                    drop(peer.allocate(size, 0).map_err(|refusal| words(&refusal))?);
                }
                rounds.push(ns_since(start) / f64::from(count));
            }
            println!("pair,{},live={live} size={size},{:.1}", P::NAME, median(rounds));
        }
        drop(held);
        peer.synchronize()?;
    }
    Ok(())
}

/// RMM's random allocations.
pub(crate) fn random<P: Peer>(
    make: &impl Fn(usize) -> Result<P, String>,
    scale: Scale,
) -> Result<(), String> {
    for &num in scale.either([1000, 10_000, 100_000].as_slice(), &[1000]) {
        for &max_mib in scale.either([1, 4, 64, 256, 1024, 4096].as_slice(), &[1, 4096]) {
            let rounds = if num >= 100_000 || scale.quick { 1 } else { 3 };
            let mut peer = make(1)?;
            let (mut times, mut fails) = (Vec::with_capacity(rounds), 0);
            for _ in 0..rounds {
                let start = Instant::now();
                fails = random_round(&mut peer, num, max_mib)?;
                peer.synchronize()?;
                times.push(ns_since(start) / 1e6);
            }
            println!("random,{},num={num} max={max_mib}MiB fails={fails},{:.3}", P::NAME, median(times));
        }
    }
    Ok(())
}

/// The live bytes stay below this.
const MAX_LIVE_BYTES: usize = 16_000 << 20;

/// Twice `num` steps: 73 of 100 allocate, as long as there is room, and the others free any block. Returns how many failed.
fn random_round<P: Peer>(peer: &mut P, num: usize, max_mib: usize) -> Result<usize, String> {
    let mut numbers = MinstdRand0::default();
    let sizes = Uniform::new(1, (max_mib << 20) as u64);
    let places = Uniform::new(0, num as u64 - 1);
    let operations = Uniform::new(0, 99);
    let mut live: Vec<(P::Block, usize)> = Vec::new();
    let (mut count, mut used, mut fails) = (0, 0, 0);
    for _ in 0..2 * num {
        let bytes = sizes.draw(&mut numbers) as usize;
        let allocates = live.is_empty()
            || (operations.draw(&mut numbers) < 73 && count < num && used + bytes < MAX_LIVE_BYTES);
        if allocates {
            match peer.allocate(bytes, 0) {
                Ok(block) => {
                    live.push((block, bytes));
                    count += 1;
                    used += bytes;
                    continue;
                }
                Err(Refusal::OutOfMemory) => fails += 1,
                Err(refusal) => return Err(words(&refusal)),
            }
        }
        if !live.is_empty() {
            let (block, bytes) = live.swap_remove(places.draw(&mut numbers) as usize % live.len());
            used -= bytes;
            drop(block);
        }
    }
    Ok(fails)
}

/// Plays what a program allocated and freed. A block is freed on the stream that it was allocated on, as dropping it does.
pub(crate) fn replay<P: Peer>(
    make: &impl Fn(usize) -> Result<P, String>,
    log: &TraceFile,
    scale: Scale,
) -> Result<(), String> {
    let (name, trace) = (&log.name, &log.trace);
    let mut peer = make(trace.streams as usize)?;
    let mut live: Vec<Option<P::Block>> = Vec::new();
    live.resize_with(trace.blocks as usize, || None);
    let mut round = |peer: &mut P| {
        let start = Instant::now();
        for (at, event) in trace.events.iter().enumerate() {
            let block = &mut live[event.block as usize];
            *block = match event.kind {
                EventKind::Allocate => {
                    let taken = peer.allocate(event.bytes as usize, event.stream as usize);
                    Some(taken.map_err(|refusal| {
                        format!("{name}: event {at} of {}: {refusal}", trace.events.len())
                    })?)
                }
                EventKind::Free => None,
            };
        }
        let ns = ns_since(start) / trace.events.len() as f64;
        live.iter_mut().for_each(|block| *block = None);
        peer.synchronize()?;
        Ok::<f64, String>(ns)
    };
    let first = round(&mut peer)?;
    let footprint = peer.peak_bytes()?;
    let steady = (0..scale.either(5, 1)).map(|_| round(&mut peer)).collect::<Result<Vec<_>, _>>()?;
    println!(
        "replay,{},{name} first={first:.1} ns/ev steady={:.1} ns/ev footprint={:.1} MiB,{:.3}",
        P::NAME,
        median(steady),
        footprint as f64 / f64::from(1 << 20),
        footprint as f64 / trace.peak_live_bytes() as f64
    );
    Ok(())
}
