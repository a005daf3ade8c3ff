//! Threads on one pool of a simulated machine, for three seconds in all.

#![expect(unsafe_code, reason = "launches kernels")]

mod held;
mod soak;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alluvion::driver::sim::{Kernel, SimConfig};
use alluvion::source::Cuda;
use alluvion::suballoc::{Growth, Reuse};
use alluvion::{Pool, PoolConfig, Resource, Sim, Stream};
use held::Held;
use soak::{Hand, Plan, soak};

/// Words that are written and looked at, at either end of a block. Its whole length is watched by the machine.
const WORDS: usize = 16;

struct Kernels<'s> {
    sim: &'s Sim,
    wrong: Arc<AtomicU64>,
}

impl Kernels<'_> {
    fn launch(&self, stream: &Stream, block: &Held<'_, Pool<Cuda>>, word: u32, writes: bool) {
        let (address, bytes) = (block.pointer.address(), block.layout.bytes());
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
    fn write(&self, stream: &Stream, block: &Held<'_, Pool<Cuda>>, word: u32) {
        self.launch(stream, block, word, true);
    }

    fn check(&self, stream: &Stream, block: &Held<'_, Pool<Cuda>>, word: u32) {
        self.launch(stream, block, word, false);
    }

    fn wrong(&self) -> u64 {
        if let Some(hazard) = self.sim.hazards().first() {
            panic!("{hazard}");
        }
        self.wrong.load(Ordering::Relaxed)
    }
}

/// Half a second for each, unless `ALLUVION_SOAK_SECONDS` says otherwise.
fn duration() -> Duration {
    let said = std::env::var("ALLUVION_SOAK_SECONDS");
    let seconds = said.map(|seconds| seconds.parse().expect("ALLUVION_SOAK_SECONDS is a number of seconds"));
    seconds.map_or(Duration::from_millis(500), Duration::from_secs)
}

/// Four threads on a pool with memory to spare, and eight on one that runs out all the time.
#[test]
fn threads_with_each_policy() {
    for reuse in [Reuse::Wait, Reuse::Completed, Reuse::Own] {
        for (threads, maximum, checked) in [(4, 96 << 20, true), (8, 12 << 20, false)] {
            let sim = Sim::with_config(SimConfig::default().memory_bytes(128 << 20));
            let config = PoolConfig::default().checked(checked).maximum(maximum).reuse(reuse);
            let pool = Cuda::new(&sim.device(0)).pool(config.growth(Growth::Step(5 << 20))).unwrap();
            let kernels = Kernels { sim: &sim, wrong: Arc::default() };
            soak(&pool, &kernels, Plan { threads, duration: duration(), largest: maximum / 12 });
            drop(pool);
            assert_eq!(sim.live().allocations(), 0);
        }
    }
}
