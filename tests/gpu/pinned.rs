//! Pinned memory and the allocators over it on a real GPU, and how long it takes there.

#![expect(unsafe_code, reason = "gives blocks back")]

use std::time::{Duration, Instant};

use alluvion::source::{Pinned, PinnedConfig};
use alluvion::{Device, Layout, Resource};

use crate::host_contract;

/// The first GPU of this machine. That there is none is a failure.
fn gpu() -> Device {
    Device::named("0").expect("these tests need a GPU")
}

fn on_gpu(clause: fn(&Device)) {
    clause(&gpu());
}

host_contract::clauses!(on_gpu);

const MIB: usize = 1 << 20;

/// How long it takes to allocate and to give back, on the fastest of `runs`.
fn time(resource: &Pinned, bytes: usize, runs: usize) -> (Duration, Duration) {
    let layout = Layout::from_bytes(bytes).expect("it is valid");
    let mut fastest = (Duration::MAX, Duration::MAX);
    for _ in 0..runs {
        let start = Instant::now();
        let block = resource.allocate_sync(layout).expect("the host has as much");
        let allocated = start.elapsed();
        let start = Instant::now();
        // SAFETY: the block came from this resource with this layout, and nothing uses it.
        unsafe { resource.deallocate_sync(block, layout) };
        fastest = (fastest.0.min(allocated), fastest.1.min(start.elapsed()));
    }
    fastest
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The way of `Pinned` and that of the driver, in turn on one machine.
#[test]
fn large_blocks_are_five_times_faster_than_the_driver_s() {
    let device = gpu();
    // Everything the smallest of the sizes up is mapped, to see from where on it pays.
    let mapped =
        Pinned::with_config(&device, PinnedConfig::default().huge_bytes(MIB)).expect("it can be pinned");
    let by_driver = Pinned::with_config(&device, PinnedConfig::default().huge_bytes(usize::MAX))
        .expect("it can be pinned");
    let row = |mib: usize, runs| {
        let ((ours, ours_free), (driver, driver_free)) =
            (time(&mapped, mib * MIB, runs), time(&by_driver, mib * MIB, runs));
        println!(
            "pinned {mib} MiB: allocate {:.3} ms, driver {:.3} ms; free {:.3} ms, driver {:.3} ms",
            milliseconds(ours),
            milliseconds(driver),
            milliseconds(ours_free),
            milliseconds(driver_free),
        );
        (milliseconds(ours), milliseconds(driver))
    };
    for mib in [1, 2, 4, 8, 16, 32, 64, 256, 1024] {
        row(mib, 5);
    }
    let (ours, driver) = row(4096, 3);
    let ratio = driver / ours;
    println!("pinned 4 GiB: {ours:.0} ms, driver {driver:.0} ms, ratio {ratio:.1}");
    assert!(ratio >= 5.0, "{ours:.0} ms against {driver:.0} ms of the driver");
}
