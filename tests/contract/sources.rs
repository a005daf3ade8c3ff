//! Every source keeps every clause of the contract, on the simulated machine.

use std::time::Duration;

use alluvion::Device;
use alluvion::driver::DeviceAttribute;
use alluvion::source::{
    Cuda, CudaAsync, CudaAsyncConfig, CudaAsyncManaged, CudaConfig, Managed, Mapped, MappedConfig, Null,
    Pinned,
};
use alluvion::testing::{Bench, Delayed, Faulty, Shadow};

every_source!(sim(Bench::sim()), []);

/// Each block of `Mapped` is a page of 2 MiB at least: the clauses hold more blocks at once than 64 MiB have pages.
fn with_many_pages() -> Bench {
    Bench::sim_with(Bench::config().memory_bytes(1 << 30))
}

alluvion::resource_suite!(mapped on sim(with_many_pages()), |device| Mapped::new(device).unwrap());
alluvion::pages_suite!(mapped_pages, |device| Mapped::new(device).unwrap());
alluvion::pages_suite!(mapped_pages_for_two, |device| {
    Mapped::with_config(device, MappedConfig::default().peers([device.machine().device(1).unwrap()])).unwrap()
});

/// A machine whose devices read ordinary memory of the host.
#[cfg(target_os = "linux")]
fn with_pageable_access() -> Bench {
    Bench::sim_with(Bench::config().attribute(DeviceAttribute::PageableMemoryAccess, 1))
}

#[cfg(target_os = "linux")]
alluvion::resource_suite!(system on sim(with_pageable_access()), no_limit, |device| {
    alluvion::source::System::new(device).unwrap()
});

/// The other device of a bench.
fn peers(device: &Device) -> Vec<Device> {
    device.machine().devices().filter(|other| other != device).collect()
}

// Memory that another device may access keeps every clause, too.
alluvion::resource_suite!(cuda_for_two, |device| {
    Cuda::with_config(device, CudaConfig::default().peers(peers(device))).unwrap()
});
alluvion::resource_suite!(cuda_async_for_two, |device| {
    CudaAsync::with_config(device, CudaAsyncConfig::default().peers(peers(device))).unwrap()
});
alluvion::resource_suite!(mapped_for_two on sim(with_many_pages()), |device| {
    Mapped::with_config(device, MappedConfig::default().peers(peers(device))).unwrap()
});

// Old drivers and small devices.
alluvion::resource_suite!(cuda_11 on sim(Bench::sim_with(Bench::config().version(11_020))), |device| {
    Cuda::new(device)
});
alluvion::resource_suite!(
    cuda_without_pools on sim(Bench::sim_with(Bench::config().attribute(DeviceAttribute::MemoryPools, 0))),
    |device| Cuda::new(device)
);
