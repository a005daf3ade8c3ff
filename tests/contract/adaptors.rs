//! Every adaptor keeps every clause of the contract, and forwards what it does not change, on the simulated machine. What stands over
//! and under it else, `stacks.rs` draws.

use alluvion::adaptor::{Allowance, Guard, GuardConfig, LogConfig, Stats};
use alluvion::relief::Relief;
use alluvion::source::{Cuda, Managed};
use alluvion::testing::{Shadow, Upstream};
use alluvion::{DeviceAccessible, PoolConfig, Resource, ResourceExt};

use crate::not_sync::OneAtATime;

alluvion::resource_suite!(limiting, unchanged adaptor | upstream | upstream.limiting(48 << 20));

// Within a limit of its own, one that it shares with nobody, and one that is the tightest.
alluvion::resource_suite!(
    budget,
    unchanged adaptor | upstream | {
        let all = Allowance::new("all", 48 << 20)
            .soft(1 << 20)
            .on_soft(|crossing| assert!(crossing.used_bytes > 1 << 20));
        upstream.budget(all.child("half", 56 << 20).child("tenth", 64 << 20))
    }
);

alluvion::resource_suite!(failure_callback, unchanged adaptor | upstream | upstream.failure_callback(|_| Relief::None));
// What is asked for is asked for again.
alluvion::resource_suite!(failure_callback_that_says_freed, |device| {
    Cuda::new(device).failure_callback(|_| Relief::Freed)
});

alluvion::resource_suite!(
    fallback,
    adaptor | upstream | {
        let second = Managed::new(upstream.device()).unwrap().limiting(40 << 20);
        upstream.limiting(16 << 20).fallback(second).unwrap()
    }
);
// Nothing is served by the first.
alluvion::resource_suite!(fallback_alone, |device| {
    Cuda::new(device).limiting(0).fallback(Shadow::new(Cuda::new(device))).unwrap()
});

// It has no upstream to show: nobody may be let in beside it.
alluvion::resource_suite!(thread_safe, |device| OneAtATime::new(Upstream::new(device)).thread_safe());

alluvion::resource_suite!(aligned, adaptor | upstream | upstream.aligned(4096).unwrap());

alluvion::resource_suite!(prefetch, unchanged adaptor | upstream | upstream.prefetch());
// What it is for.
alluvion::resource_suite!(prefetch_over_managed, |device| Managed::new(device).unwrap().prefetch());

alluvion::resource_suite!(
    logging,
    unchanged adaptor | upstream | {
        let log = LogConfig::default().tags(true).reserved(true).room(64);
        upstream.logging(log.write_to(std::io::sink()).expect("there is a thread for it"))
    }
);

alluvion::resource_suite!(stats, unchanged adaptor | upstream | upstream.stats());
alluvion::resource_suite!(stats_with_exact_peaks, unchanged adaptor | upstream | Stats::with_slack(upstream, 0));

alluvion::resource_suite!(tracking, unchanged adaptor | upstream | upstream.tracking());

/// Whatever it finds ends the tests: a panic of a handler would be caught.
fn guarded<U: DeviceAccessible>(upstream: U) -> Guard<U> {
    let config = GuardConfig::default().on_violation(|trespass| {
        eprintln!("{trespass}");
        std::process::abort()
    });
    upstream.guard(config).expect("there is a stream and pinned memory")
}

alluvion::resource_suite!(guard, adaptor | upstream | guarded(upstream));
// Layers of which each changes what the next one is asked for, over one that moves blocks.
alluvion::resource_suite!(layers_over_guard, |device| {
    let pool = Cuda::new(device).pool(PoolConfig::default().checked(true)).unwrap();
    Shadow::new(guarded(pool).aligned(4096).unwrap().limiting(usize::MAX).stats())
});
