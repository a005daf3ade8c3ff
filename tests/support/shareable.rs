//! Resources whose memory can be shared, in every way that there is.

#![allow(dead_code, reason = "some tests need a part of it")]

use alluvion::driver::HandleType;
use alluvion::source::{Cuda, CudaAsync, CudaAsyncConfig, Mapped, MappedConfig};
use alluvion::suballoc::ArenaConfig;
use alluvion::{AnyResource, Device, PoolConfig, ResourceExt};

pub(crate) fn pooled(device: &Device) -> CudaAsync {
    CudaAsync::with_config(device, CudaAsyncConfig::default().handle_types(HandleType::POSIX_FILE_DESCRIPTOR))
        .expect("it has pools")
}

pub(crate) fn mapped(device: &Device) -> Mapped {
    Mapped::with_config(device, MappedConfig::default().handle_types(HandleType::POSIX_FILE_DESCRIPTOR))
        .expect("it has pages")
}

/// A way of making memory that can be shared, and its name.
pub(crate) type Shareable = (&'static str, fn(&Device) -> AnyResource);

/// Every way that a machine with descriptors has.
pub(crate) const BY_DESCRIPTORS: [Shareable; 7] = [
    ("cuda", |device| AnyResource::new(Cuda::new(device))),
    ("pool of cuda", |device| {
        AnyResource::new(Cuda::new(device).pool(PoolConfig::default()).expect("there is memory"))
    }),
    ("cuda-async", |device| AnyResource::new(pooled(device))),
    ("pool of cuda-async", |device| {
        AnyResource::new(pooled(device).pool(PoolConfig::default()).expect("there is memory"))
    }),
    ("mapped", |device| AnyResource::new(mapped(device))),
    ("pool of mapped", |device| {
        AnyResource::new(mapped(device).pool(PoolConfig::default()).expect("there is memory"))
    }),
    ("arena of mapped", |device| {
        AnyResource::new(
            mapped(device).arena(ArenaConfig::default().bytes(8 << 20)).expect("there is memory"),
        )
    }),
];

/// Those of them that a device has: not every library lends pools.
pub(crate) fn ways_of(device: &Device) -> Vec<Shareable> {
    let capabilities = device.capabilities().expect("it can be asked");
    let has = |types: HandleType| types.contains(HandleType::POSIX_FILE_DESCRIPTOR);
    BY_DESCRIPTORS
        .into_iter()
        .filter(|(name, _)| match *name {
            name if name.ends_with("cuda-async") => has(capabilities.pool_handle_types),
            name if name.ends_with("mapped") => has(capabilities.page_handle_types),
            _ => true,
        })
        .collect()
}
