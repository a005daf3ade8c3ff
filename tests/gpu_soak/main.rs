//! Sixteen threads on one pool of the GPU of this computer, for twenty seconds a test, or as many as `ALLUVION_SOAK_SECONDS` says.

#[path = "../support/gpu_kernels.rs"]
mod gpu_kernels;
#[path = "../support/gpu_module.rs"]
mod gpu_module;
#[cfg(target_os = "linux")]
#[path = "../support/left_over.rs"]
mod left_over;
#[path = "../support/raw_block.rs"]
mod raw_block;
#[path = "../support/soak.rs"]
mod soak;
#[cfg(target_os = "linux")]
#[path = "../support/sharing_contract/wire.rs"]
#[expect(unsafe_code, reason = "sends a descriptor")]
mod wire;

#[cfg(target_os = "linux")]
mod killed;
mod sleepers;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use alluvion::source::{Cuda, Mapped};
use alluvion::testing::Bench;
use alluvion::{DeviceAccessible, DevicePtr, Pool, PoolConfig, ResourceExt, Stream};
use gpu_kernels::Kernels;
use raw_block::Held;
use soak::{Beside, Hand, Plan, soak};

struct OnGpu<'c> {
    kernels: Kernels,
    stream: Stream,
    /// A word that counts what was another's.
    others: Held<'c, Cuda>,
}

impl Hand for OnGpu<'_> {
    fn write(&self, stream: &Stream, block: DevicePtr, bytes: usize, word: u32) {
        self.kernels.write_late(stream.as_ref(), block, bytes / 4, word, Duration::ZERO);
    }

    fn check(&self, stream: &Stream, block: DevicePtr, bytes: usize, word: u32) {
        self.kernels.count_others(stream.as_ref(), block, bytes / 4, word, self.others.pointer);
    }

    fn wrong(&self) -> u64 {
        u64::from(self.others.words(self.stream.as_ref())[0])
    }
}

fn seconds() -> u64 {
    let said = std::env::var("ALLUVION_SOAK_SECONDS");
    said.map_or(20, |seconds| seconds.parse().expect("ALLUVION_SOAK_SECONDS is a number of seconds"))
}

/// Soaks a pool with the work of kernels, which must lose nothing.
fn soak_on_gpu<U: DeviceAccessible + Sync>(pool: &Pool<U>, bench: &Bench, beside: &[&Beside<'_>]) {
    let device = bench.device();
    let cuda = Cuda::new(&device);
    let stream = bench.stream();
    let others = Held::of(&cuda, 4, stream.as_ref());
    others.fill(0, stream.as_ref());
    others.check(0, stream.as_ref());
    let hand = OnGpu { kernels: Kernels::load(), stream, others };
    let plan = Plan { threads: 16, duration: Duration::from_secs(seconds()), largest: 64 << 20 };
    soak(pool, &hand, plan, beside);
    // That a kernel finds what is another's.
    let block = Held::of(pool, 4000, hand.stream.as_ref());
    hand.write(&hand.stream, block.pointer, 4000, 7);
    hand.check(&hand.stream, block.pointer, 4000, 8);
    assert_eq!(hand.wrong(), 1000, "all words were another's");
    block.free(hand.stream.as_ref());
    let OnGpu { stream, others, .. } = hand;
    others.free(stream.as_ref());
}

#[test]
fn sixteen_threads() {
    let bench = Bench::gpu();
    let device = bench.device();
    let pool = Cuda::new(&device).pool(PoolConfig::default().checked(true)).expect("a pool can be made");
    let free = || device.memory_info().expect("a device knows its memory").free_bytes;
    let before = free();
    soak_on_gpu(&pool, &bench, &[]);
    // The driver keeps some for streams and events that there were.
    let lost = before.saturating_sub(free());
    assert!(lost <= 64 << 20, "{lost} bytes are lost");
}

/// Over pages, with so little memory that they move all the time.
#[test]
fn sixteen_threads_over_pages_that_move() {
    let bench = Bench::gpu();
    let mapped = Mapped::new(&bench.device()).expect("a GPU maps pages");
    // Sixteen threads have 180 MiB out at a time on average, and twice as much at most.
    let config = PoolConfig::default().checked(true).maximum(256 << 20);
    let pool = mapped.pool(config).expect("a pool can be made");
    // How often pages have to move in twenty seconds is chance: 95 to 454 times in eight runs on an H200.
    let mut soaks = 0;
    while pool.status().moves <= 100 {
        assert!(soaks < 10, "pages move: {:?}", pool.status());
        soak_on_gpu(&pool, &bench, &[]);
        soaks += 1;
    }
    let status = pool.status();
    assert!(status.peak_reserved_bytes <= 256 << 20, "{status:?}");
}

/// Over pages that move past a budget, while containers sleep and wake, and processes that write to others are killed.
#[cfg(target_os = "linux")]
#[test]
fn sixteen_threads_beside_sleepers_and_killed_importers() {
    use alluvion::driver::HandleType;
    use alluvion::source::MappedConfig;
    use alluvion::suballoc::PageBudget;

    let bench = Bench::gpu();
    let device = bench.device();
    let config = MappedConfig::default().handle_types(HandleType::POSIX_FILE_DESCRIPTOR);
    let mapped = Mapped::with_config(&device, config).expect("a GPU maps pages that are shared");
    // As above, and as much again for what sleeps and is shared.
    let config = PoolConfig::default().checked(true).budget(PageBudget::TimesPeak(1.05)).maximum(512 << 20);
    let pool = Arc::new(mapped.pool(config).expect("a pool can be made"));
    killed::warm_up(&pool);
    let before = killed::Left::look();
    let (slept, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    soak_on_gpu(
        &pool,
        &bench,
        &[
            &|goes_on| sleepers::sleep_and_wake(&pool, goes_on, &slept),
            &|goes_on| sleepers::sleep_and_wake(&pool, goes_on, &slept),
            &|goes_on| killed::lend_to_the_dying(&pool, goes_on, &ended),
        ],
    );
    let (slept, ended) = (slept.into_inner(), ended.into_inner());
    println!("{slept} containers slept, {ended} importers were killed: {:?}", pool.status());
    assert!(slept > 0 && ended > 0, "{slept} slept, {ended} were killed");
    assert_eq!(killed::Left::look(), before, "what is left of those that were killed");
}
