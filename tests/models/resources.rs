//! Any sequence of operations agrees with the oracle, for every source and under every schedule.

#[cfg(target_os = "linux")]
use alluvion::driver::DeviceAttribute;
use alluvion::source::{Cuda, CudaAsync, CudaAsyncManaged, Managed, Mapped, Null, Pinned};
use alluvion::testing::{Bench, Op, Shadow, run_ops, run_ops_untouched};
use alluvion::{Device, DeviceAccessible, Resource};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::every_source;
use crate::trials::trials;

/// Cases of a night for each source. A case takes about two milliseconds.
const CASES: u32 = 500;

/// Six bytes an operation: see [`Op::decode`].
fn programs() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 6..6 * 60)
}

/// More than the 16 KiB that a simulated copy moves at a time.
const LARGEST: usize = 20_000;

fn ops(bytes: &[u8], largest: usize, resource: &impl Resource) -> Vec<Op> {
    Op::decode(bytes).into_iter().map(|op| op.limited(largest, resource.max_align())).collect()
}

fn agrees<R: DeviceAccessible>(
    bench: &Bench,
    bytes: &[u8],
    largest: usize,
    make: impl Fn(&Device) -> R,
) -> Result<(), TestCaseError> {
    let resource = Shadow::new(make(&bench.device()));
    let outcome = run_ops(&resource, &ops(bytes, largest, &resource));
    prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    prop_assert!(resource.violations().is_empty(), "{:?}", resource.violations());
    prop_assert!(resource.live().is_empty(), "{:?}", resource.live());
    let hazards = bench.simulated().map(|sim| sim.hazards()).unwrap_or_default();
    prop_assert!(hazards.is_empty(), "{}", hazards[0]);
    drop(resource);
    let left = bench.simulated().map(|sim| sim.live().allocations());
    prop_assert_eq!(left, Some(0), "allocations are left");
    Ok(())
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: trials(CASES),
        max_shrink_iters: 4000,
        // What has failed once is kept beside this file, and tried first.
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

/// Stamps a property for a source.
macro_rules! model {
    ($name:ident $(on $config:expr)?, |$device:ident| $make:expr) => {
        proptest! {
            #![proptest_config(config())]
            #[test]
            fn $name(bytes in programs(), seed in any::<u64>()) {
                let config = [Bench::config() $(, $config)?].into_iter().last().unwrap();
                agrees(&Bench::sim_with(config.seed(seed)), &bytes, LARGEST, |$device: &Device| $make)?;
            }
        }
    };
}

model!(cuda, |device| Cuda::new(device));
model!(cuda_async, |device| CudaAsync::new(device).unwrap());
model!(cuda_async_view, |device| every_source::view_of_default_pool(device));
model!(cuda_async_managed, |device| CudaAsyncManaged::new(device).unwrap());
model!(mapped on Bench::config().memory_bytes(1 << 30), |device| Mapped::new(device).unwrap());
model!(managed, |device| Managed::new(device).unwrap());
model!(pinned, |device| Pinned::new(device).unwrap());
model!(callback, |device| every_source::callback_over(device, CudaAsync::new(device).unwrap()));
#[cfg(target_os = "linux")]
model!(system on Bench::config().attribute(DeviceAttribute::PageableMemoryAccess, 1), |device| {
    alluvion::source::System::new(device).unwrap()
});

proptest! {
    #![proptest_config(config())]
    #[test]
    fn null(bytes in programs()) {
        let bench = Bench::sim();
        let resource = Shadow::new(Null::new(&bench.device()));
        let outcome = run_ops_untouched(&resource, &ops(&bytes, LARGEST, &resource));
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
        prop_assert!(resource.violations().is_empty() && resource.live().is_empty());
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: trials(CASES / 3), ..config() })]
    /// Little memory: most programs run out of it, and must go on.
    #[test]
    fn a_full_device(bytes in programs(), seed in any::<u64>()) {
        let config = Bench::config().pinned_bytes(64 << 10).seed(seed);
        let small = config.clone().memory_bytes(64 << 10);
        agrees(&Bench::sim_with(small.clone()), &bytes, LARGEST, Cuda::new)?;
        agrees(&Bench::sim_with(small), &bytes, LARGEST, |device| Pinned::new(device).unwrap())?;
        // A pool takes 2 MiB at a time.
        let larger = config.memory_bytes(2 << 20);
        agrees(&Bench::sim_with(larger), &bytes, 10 * LARGEST, |device| CudaAsync::new(device).unwrap())?;
    }
}
