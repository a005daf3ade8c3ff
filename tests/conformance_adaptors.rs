//! Every adaptor keeps every clause of the contract, on the simulated machine: over a source, and over a pool.

mod one_at_a_time;

use alluvion::adaptor::{Allowance, Budget};
use alluvion::source::{Cuda, CudaAsync, Managed};
use alluvion::suballoc::Relief;
use alluvion::testing::Shadow;
use alluvion::{Device, DeviceAccessible, Pool, PoolConfig, Resource};
use one_at_a_time::OneAtATime;

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

alluvion::resource_suite!(fallback_over_cuda, |device| {
    Cuda::new(device).limiting(16 << 20).fallback(Managed::new(device).unwrap().limiting(40 << 20)).unwrap()
});
alluvion::resource_suite!(fallback_over_pool, |device| {
    let first = Shadow::new(pool(device).limiting(20 << 20));
    Shadow::new(first.fallback(Shadow::new(pool(device).limiting(20 << 20))).unwrap())
});
// Nothing is served by the first.
alluvion::resource_suite!(fallback_alone, |device| {
    Cuda::new(device).limiting(0).fallback(Shadow::new(pool(device))).unwrap()
});
alluvion::resource_suite!(pool_over_fallback, |device| {
    let first = Cuda::new(device).limiting(20 << 20);
    first
        .fallback(Managed::new(device).unwrap())
        .unwrap()
        .pool(PoolConfig::default())
        .expect("a pool over two")
});

alluvion::resource_suite!(thread_safe_over_cuda, |device| OneAtATime::new(Cuda::new(device)).thread_safe());
alluvion::resource_suite!(thread_safe_over_pool, |device| {
    Shadow::new(OneAtATime::new(pool(device)).thread_safe())
});
alluvion::resource_suite!(pool_over_thread_safe, |device| {
    let shared = OneAtATime::new(CudaAsync::new(device).unwrap()).thread_safe();
    shared.pool(PoolConfig::default()).expect("a pool over one that is shared")
});
