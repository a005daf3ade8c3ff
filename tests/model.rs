//! Any sequence of operations agrees with the oracle, for every source and under every schedule.

use alluvion::source::{Cuda, CudaAsync, Null};
use alluvion::testing::{Bench, Op, Shadow, run_ops, run_ops_untouched};
use alluvion::{Device, DeviceAccessible, Resource};
use proptest::collection::vec;
use proptest::prelude::*;

/// Cases for each source. A case takes about a millisecond.
const CASES: u32 = 1000;

/// Six bytes an operation: see [`Op::decode`].
fn programs() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 6..6 * 60)
}

fn ops(bytes: &[u8], resource: &impl Resource) -> Vec<Op> {
    // Four pages of 16 KiB: what a simulated copy moves at a time, and more.
    Op::decode(bytes).into_iter().map(|op| op.limited(1 << 16, resource.max_align())).collect()
}

fn agrees<R: DeviceAccessible>(
    bench: &Bench,
    bytes: &[u8],
    make: impl Fn(&Device) -> R,
) -> Result<(), TestCaseError> {
    let resource = Shadow::new(make(&bench.device()));
    let outcome = run_ops(&resource, &ops(bytes, &resource));
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
    ProptestConfig { cases: CASES, max_shrink_iters: 4000, ..ProptestConfig::default() }
}

/// Stamps a property for a source.
macro_rules! model {
    ($name:ident $(on $config:expr)?, |$device:ident| $make:expr) => {
        proptest! {
            #![proptest_config(config())]
            #[test]
            fn $name(bytes in programs(), seed in any::<u64>()) {
                let config = [Bench::config() $(, $config)?].into_iter().last().unwrap();
                agrees(&Bench::sim_with(config.seed(seed)), &bytes, |$device: &Device| $make)?;
            }
        }
    };
}

model!(cuda, |device| Cuda::new(device));
model!(cuda_async, |device| CudaAsync::new(device).unwrap());

proptest! {
    #![proptest_config(config())]
    #[test]
    fn null(bytes in programs()) {
        let bench = Bench::sim();
        let resource = Shadow::new(Null::new(&bench.device()));
        let outcome = run_ops_untouched(&resource, &ops(&bytes, &resource));
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
        prop_assert!(resource.violations().is_empty() && resource.live().is_empty());
    }

    /// Little memory: most programs run out of it, and must go on.
    #[test]
    fn a_full_device(bytes in programs(), seed in any::<u64>()) {
        let config = Bench::config().memory_bytes(4 << 20).seed(seed);
        agrees(&Bench::sim_with(config.clone()), &bytes, |device| Cuda::new(device))?;
        agrees(&Bench::sim_with(config), &bytes, |device| CudaAsync::new(device).unwrap())?;
    }
}
