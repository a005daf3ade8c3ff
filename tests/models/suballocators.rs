//! Any sequence of operations agrees with the oracle, for every suballocator and under every schedule, with so little memory
//! that streams take from each other and programs run out.

use alluvion::source::{Cuda, CudaAsync, Managed, Mapped, Pinned};
use alluvion::suballoc::{
    Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig, Growth, PageBudget, Reuse,
};
use alluvion::testing::{Bench, Op, Shadow, run_ops};
use alluvion::{Device, DeviceAccessible, PoolConfig, Resource, ResourceExt};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::trials::trials;

/// Cases of a night for each suballocator. A case takes about three milliseconds.
const CASES: u32 = 200;

/// Six bytes an operation: see [`Op::decode`].
fn programs() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 6..6 * 60)
}

fn agrees<R: DeviceAccessible>(
    bytes: &[u8],
    seed: u64,
    largest: usize,
    make: impl Fn(&Device) -> R,
) -> Result<(), TestCaseError> {
    let bench = Bench::sim_with(Bench::config().seed(seed));
    let resource = Shadow::new(make(&bench.device()));
    let ops: Vec<Op> =
        Op::decode(bytes).into_iter().map(|op| op.limited(largest, resource.max_align())).collect();
    let outcome = run_ops(&resource, &ops);
    prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    prop_assert!(resource.violations().is_empty(), "{:?}", resource.violations());
    prop_assert!(resource.live().is_empty(), "{:?}", resource.live());
    let hazards = bench.simulated().map(|sim| sim.hazards()).unwrap_or_default();
    prop_assert!(hazards.is_empty(), "{}", hazards[0]);
    // All work is over: what nobody uses can go back, whatever is over what.
    resource.trim(0).expect("nothing fails");
    let kept = bench.simulated().map(|sim| sim.live().allocations() + sim.live().mappings);
    prop_assert_eq!(kept, Some(0), "allocations are kept after a trim to nothing");
    Ok(())
}

/// Stamps a property for a suballocator, with sizes up to the one that is named.
macro_rules! model {
    ($name:ident up to $largest:expr, |$device:ident| $make:expr) => {
        proptest! {
            #![proptest_config(ProptestConfig {
                cases: trials(CASES),
                max_shrink_iters: 4000,
                // What has failed once is kept beside this file, and tried first.
                failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
                ..ProptestConfig::default()
            })]
            #[test]
            fn $name(bytes in programs(), seed in any::<u64>()) {
                agrees(&bytes, seed, $largest, |$device: &Device| $make.unwrap())?;
            }
        }
    };
}

/// As much as a dozen blocks of some size.
fn little() -> PoolConfig {
    PoolConfig::default().maximum(128 << 10).growth(Growth::Exact).checked(true)
}

model!(pool_over_cuda up to 20_000, |device| Cuda::new(device).pool(little()));
model!(pool_over_cuda_async up to 20_000, |device| CudaAsync::new(device).unwrap().pool(little()));
model!(pool_over_managed up to 20_000, |device| Managed::new(device).unwrap().pool(little()));
model!(pool_over_pinned up to 20_000, |device| Pinned::new(device).unwrap().pool(little()));
model!(pool_without_a_ledger up to 20_000, |device| Cuda::new(device).pool(little().checked(false)));
model!(pool_of_own_blocks up to 20_000, |device| Cuda::new(device).pool(little().reuse(Reuse::Own)));
model!(pool_of_completed_blocks up to 20_000, |device| Cuda::new(device).pool(little().reuse(Reuse::Completed)));
model!(pool_of_one_segment up to 20_000, |device| Cuda::new(device).pool(little().initial(128 << 10)));
model!(pool_with_memory_to_spare up to 2_000_000, |device| Cuda::new(device).pool(PoolConfig::default()));
model!(pool_over_pool up to 20_000, |device| Cuda::new(device).pool(little()).unwrap().pool(little()));

/// Six pages, of which blocks take a part, or up to two.
fn few_pages() -> PoolConfig {
    PoolConfig::default().maximum(12 << 20).growth(Growth::Exact).checked(true)
}

model!(pool_over_mapped up to 4_000_000, |device| Mapped::new(device).unwrap().pool(few_pages()));
model!(pool_over_mapped_without_a_ledger up to 4_000_000, |device| {
    Mapped::new(device).unwrap().pool(PoolConfig::default().checked(false))
});
model!(pool_over_mapped_within_its_peak up to 4_000_000, |device| {
    Mapped::new(device).unwrap().pool(PoolConfig::default().budget(PageBudget::TimesPeak(1.0)))
});

model!(arena_over_cuda up to 200_000, |device| {
    Arena::new(Cuda::new(device), ArenaConfig::default().bytes(3 << 19))
});
model!(arena_over_pool up to 200_000, |device| {
    let pool = Cuda::new(device).pool(PoolConfig::default().growth(Growth::Exact)).unwrap();
    Arena::new(pool, ArenaConfig::default().bytes(1 << 20).checked(false))
});

/// Eight blocks at most, two at a time.
fn fixed() -> FixedSizeConfig {
    FixedSizeConfig::default().block(20_000).blocks(2).maximum(8 * 20_224)
}

model!(fixed_over_cuda up to 24_000, |device| FixedSize::new(Cuda::new(device), fixed()));
model!(fixed_over_pool up to 24_000, |device| FixedSize::new(Cuda::new(device).pool(little()).unwrap(), fixed()));

model!(bins_over_cuda up to 20_000, |device| {
    Binning::over(Cuda::new(device)).blocks(2).range(9..=13).build()
});
model!(bins_over_pool up to 20_000, |device| {
    Binning::over(Cuda::new(device).pool(little()).unwrap()).blocks(1).bin(600).bin(5_000).build()
});
model!(bins_of_pools up to 20_000, |device| {
    let pool = || Cuda::new(device).pool(little()).unwrap();
    Binning::with_given_bins(Cuda::new(device)).bin_over(1_000, pool()).bin_over(10_000, pool()).bin(3_000).build()
});
