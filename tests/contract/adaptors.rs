//! Every adaptor keeps every clause of the contract, on the simulated machine: over a source, and over a pool.

use alluvion::adaptor::{AlignedConfig, Allowance, Budget, Guard, GuardConfig, Log, LogConfig, Stats};
use alluvion::relief::Relief;
use alluvion::source::{Cuda, CudaAsync, CudaAsyncManaged, Managed, Null, Pinned};
use alluvion::testing::Shadow;
use alluvion::{Device, DeviceAccessible, Pool, PoolConfig, ResourceExt};

use crate::not_sync::OneAtATime;

/// A pool over the plainest source.
fn pool(device: &Device) -> Pool<Cuda> {
    Cuda::new(device).pool(PoolConfig::default().checked(true)).expect("a sound configuration makes a pool")
}

alluvion::resource_suite!(limiting_over_cuda, |device| Cuda::new(device).limiting(48 << 20));
alluvion::resource_suite!(limiting_over_pool, |device| Shadow::new(pool(device).limiting(48 << 20)));
alluvion::resource_suite!(pool_over_limiting, |device| {
    Cuda::new(device).limiting(48 << 20).pool(PoolConfig::default()).expect("a pool over a limit")
});
alluvion::resource_suite!(limiting_over_null, no_memory, |device| { Null::new(device).limiting(usize::MAX) });

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
alluvion::resource_suite!(aligned_over_cuda, |device| Cuda::new(device).aligned(4096).unwrap());
alluvion::resource_suite!(aligned_over_pool, |device| {
    Shadow::new(pool(device).aligned(64 << 10).unwrap())
});
alluvion::resource_suite!(pool_over_aligned, |device| {
    Cuda::new(device).aligned(2 << 20).unwrap().pool(PoolConfig::default()).unwrap()
});
alluvion::resource_suite!(aligned_over_null, no_memory, |device| Null::new(device).aligned(512).unwrap());

alluvion::resource_suite!(aligned_over_cuda_async, |device| {
    let config = AlignedConfig::new(64 << 10).threshold(2000);
    Shadow::new(CudaAsync::new(device).unwrap()).aligned(config).unwrap()
});

alluvion::resource_suite!(prefetch_over_managed, |device| Managed::new(device).unwrap().prefetch());
alluvion::resource_suite!(prefetch_over_managed_pool, |device| {
    Shadow::new(Managed::new(device).unwrap().pool(PoolConfig::default()).unwrap().prefetch())
});
alluvion::resource_suite!(prefetch_over_cuda_async, |device| CudaAsync::new(device).unwrap().prefetch());
alluvion::resource_suite!(prefetch_over_cuda_async_managed, |device| {
    CudaAsyncManaged::new(device).unwrap().prefetch()
});

fn log() -> Log {
    LogConfig::default()
        .tags(true)
        .reserved(true)
        .room(64)
        .write_to(std::io::sink())
        .expect("there is a thread for it")
}

alluvion::resource_suite!(logging_over_cuda, |device| Cuda::new(device).logging(log()));
alluvion::resource_suite!(logging_over_pool, |device| Shadow::new(pool(device).logging(log())));
alluvion::resource_suite!(pool_over_logging, |device| {
    Cuda::new(device).logging(log()).pool(PoolConfig::default()).expect("a pool over a log")
});
alluvion::resource_suite!(logging_over_null, no_memory, |device| Null::new(device).logging(log()));

alluvion::resource_suite!(stats_over_cuda, |device| Cuda::new(device).stats());
alluvion::resource_suite!(stats_over_pool, |device| Shadow::new(pool(device).stats()));
alluvion::resource_suite!(stats_with_exact_peaks_over_pool, |device| Shadow::new(Stats::with_slack(
    pool(device),
    0
)));
alluvion::resource_suite!(pool_over_stats, |device| {
    Cuda::new(device).stats().pool(PoolConfig::default()).expect("a pool over counters")
});
alluvion::resource_suite!(stats_over_null, no_memory, |device| Null::new(device).stats());

alluvion::resource_suite!(tracking_over_cuda, |device| Cuda::new(device).tracking());
alluvion::resource_suite!(tracking_over_pool, |device| Shadow::new(pool(device).tracking()));
alluvion::resource_suite!(pool_over_tracking, |device| {
    Cuda::new(device).tracking().pool(PoolConfig::default()).expect("a pool over a register")
});
alluvion::resource_suite!(tracking_over_null, no_memory, |device| Null::new(device).tracking());

/// Whatever it finds ends the tests: a panic of a handler would be caught.
fn guarded<U: DeviceAccessible>(upstream: U) -> Guard<U> {
    let config = GuardConfig::default().on_violation(|trespass| {
        eprintln!("{trespass}");
        std::process::abort()
    });
    upstream.guard(config).expect("there is a stream and pinned memory")
}

alluvion::resource_suite!(guard_over_cuda, |device| guarded(Cuda::new(device)));
alluvion::resource_suite!(guard_over_pool, |device| Shadow::new(guarded(pool(device))));
alluvion::resource_suite!(layers_over_guard, |device| {
    Shadow::new(guarded(pool(device)).aligned(4096).unwrap().limiting(usize::MAX).stats())
});
alluvion::resource_suite!(guard_over_cuda_async, |device| guarded(CudaAsync::new(device).unwrap()));
alluvion::resource_suite!(guard_over_pinned, |device| guarded(Pinned::new(device).unwrap()));
alluvion::resource_suite!(pool_over_guard, |device| {
    guarded(Cuda::new(device)).pool(PoolConfig::default()).unwrap()
});
