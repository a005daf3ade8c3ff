//! Every adaptor keeps every clause of the contract, on the simulated machine: over a source, and over a pool.

use alluvion::adaptor::{Allowance, Budget};
use alluvion::source::Cuda;
use alluvion::suballoc::Relief;
use alluvion::testing::Shadow;
use alluvion::{Device, DeviceAccessible, Pool, PoolConfig, Resource};

/// A pool over the plainest source.
fn pool(device: &Device) -> Pool<Cuda> {
    Cuda::new(device).pool(PoolConfig::default().checked(true)).expect("a sound configuration makes a pool")
}

alluvion::resource_suite!(limiting_over_cuda, |device| Cuda::new(device).limiting(48 << 20));
alluvion::resource_suite!(limiting_over_pool, |device| Shadow::new(pool(device).limiting(48 << 20)));
alluvion::resource_suite!(pool_over_limiting, |device| {
    Cuda::new(device).limiting(48 << 20).pool(PoolConfig::default()).expect("a pool over a limit")
});
alluvion::resource_suite!(limiting_over_null, no_memory, |device| {
    alluvion::source::Null::new(device).limiting(usize::MAX)
});

/// Within a limit of its own, one that it shares with nobody, and one that is the tightest.
fn budgeted<U: DeviceAccessible>(upstream: U) -> Budget<U> {
    let all = Allowance::new("all", 48 << 20)
        .soft(1 << 20)
        .on_soft(|crossing| assert!(crossing.used_bytes > 1 << 20));
    upstream.budget(all.child("half", 56 << 20).child("tenth", 64 << 20))
}

alluvion::resource_suite!(budget_over_cuda, |device| budgeted(Cuda::new(device)));
alluvion::resource_suite!(budget_over_pool, |device| Shadow::new(budgeted(pool(device))));
alluvion::resource_suite!(pool_over_budget, |device| {
    budgeted(Cuda::new(device)).pool(PoolConfig::default()).expect("a pool within a budget")
});

alluvion::resource_suite!(failure_callback_over_cuda, |device| {
    Cuda::new(device).failure_callback(|_| Relief::Freed)
});
alluvion::resource_suite!(failure_callback_over_pool, |device| {
    Shadow::new(pool(device).failure_callback(|_| Relief::None))
});
alluvion::resource_suite!(pool_over_failure_callback, |device| {
    let asking = Cuda::new(device).failure_callback(|_| Relief::None);
    asking.pool(PoolConfig::default()).expect("a pool over a handler")
});
