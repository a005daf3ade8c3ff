//! Threads on one suballocator of a simulated machine, for three seconds in all.

#![expect(unsafe_code, reason = "launches kernels")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alluvion::sim::{Kernel, SimConfig};
use alluvion::source::Cuda;
use alluvion::suballoc::{Arena, ArenaConfig, FixedSize, FixedSizeConfig, Growth, Reuse};
use alluvion::{Device, DevicePtr, PoolConfig, ResourceExt, Sim, Stream};

use crate::soak::{Hand, Plan, Subject, soak};

/// Words that are written and looked at, at either end of a block. Its whole length is watched by the machine.
const WORDS: usize = 16;

struct Kernels<'s> {
    sim: &'s Sim,
    wrong: Arc<AtomicU64>,
}

impl Kernels<'_> {
    fn launch(&self, stream: &Stream, block: DevicePtr, bytes: usize, word: u32, writes: bool) {
        let address = block.address();
        let count = (bytes / 4).min(WORDS);
        let pattern = word.to_ne_bytes().repeat(count);
        let starts = [address, address + (bytes / 4 - count) as u64 * 4];
        let wrong = Arc::clone(&self.wrong);
        let kernel = Kernel::new(if writes { "write" } else { "check" });
        let kernel = if writes { kernel.writes(address, bytes) } else { kernel.reads(address, bytes) };
        let kernel = kernel.run(move |memory| {
            for start in starts {
                if writes {
                    memory.write(start, &pattern);
                } else {
                    let mut found = vec![0; pattern.len()];
                    memory.read(start, &mut found);
                    wrong.fetch_add(u64::from(found != pattern), Ordering::Relaxed);
                }
            }
        });
        // SAFETY: the stream is borrowed, and the block live until a free behind the kernel.
        unsafe { self.sim.launch(0, stream.as_ref().raw(), kernel) }.expect("a kernel can be launched");
    }
}

impl Hand for Kernels<'_> {
    fn write(&self, stream: &Stream, block: DevicePtr, bytes: usize, word: u32) {
        self.launch(stream, block, bytes, word, true);
    }

    fn check(&self, stream: &Stream, block: DevicePtr, bytes: usize, word: u32) {
        self.launch(stream, block, bytes, word, false);
    }

    fn wrong(&self) -> u64 {
        if let Some(hazard) = self.sim.hazards().first() {
            panic!("{hazard}");
        }
        self.wrong.load(Ordering::Relaxed)
    }
}

/// A third of a second for each, unless `ALLUVION_SOAK_SECONDS` says otherwise.
fn duration() -> Duration {
    let said = std::env::var("ALLUVION_SOAK_SECONDS");
    let seconds = said.map(|seconds| seconds.parse().expect("ALLUVION_SOAK_SECONDS is a number of seconds"));
    seconds.map_or(Duration::from_millis(333), Duration::from_secs)
}

fn soak_one<S: Subject>(threads: usize, largest: usize, make: impl Fn(&Device) -> S) {
    let sim = Sim::with_config(SimConfig::default().memory_bytes(128 << 20));
    let subject = make(&sim.device(0));
    let kernels = Kernels { sim: &sim, wrong: Arc::default() };
    soak(&subject, &kernels, Plan { threads, duration: duration(), largest }, &[]);
    drop(subject);
    assert_eq!(sim.live().allocations(), 0);
}

/// Four threads on a pool with memory to spare, and eight on one that runs out all the time.
#[test]
fn pools_with_each_policy() {
    for reuse in [Reuse::Wait, Reuse::Completed, Reuse::Own] {
        for (threads, maximum, checked) in [(4, 96 << 20, true), (8, 12 << 20, false)] {
            let config = || PoolConfig::default().checked(checked).maximum(maximum).reuse(reuse);
            soak_one(threads, maximum / 12, |device| {
                Cuda::new(device).pool(config().growth(Growth::Step(5 << 20))).expect("a pool can be made")
            });
        }
    }
}

#[test]
fn arenas() {
    for (threads, bytes) in [(4, 96 << 20), (8, 12 << 20)] {
        let config = || ArenaConfig::default().bytes(bytes).checked(false);
        soak_one(threads, bytes / 12, |device| {
            Arena::new(Cuda::new(device), config()).expect("there is as much")
        });
    }
}

#[test]
fn fixed_sizes() {
    for (threads, blocks) in [(4, 1024), (8, 80)] {
        let config =
            FixedSizeConfig::default().block(50_000).blocks(8).maximum(blocks * 50_176).checked(false);
        soak_one(threads, 50_000, |device| {
            FixedSize::new(Cuda::new(device), config.clone()).expect("there is as much")
        });
    }
}
