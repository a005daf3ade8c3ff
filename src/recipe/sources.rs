//! The sources that a recipe may have. A new one is a function here and a line in `ALL`; the rest is on
//! its card.

use std::sync::Arc;

use super::Call;
use super::ingredient::{Ingredient, Make};
use super::under::Under;
use crate::device::Device;
use crate::driver::HandleType;
use crate::error::Error;
use crate::resource::{AnyResource, DeviceAccessible};
use crate::source::{
    Cuda, CudaAsync, CudaAsyncConfig, CudaAsyncManaged, CudaConfig, Managed, Mapped, MappedConfig, Null,
    NumaPolicy, Pinned, PinnedConfig,
};
#[cfg(target_os = "linux")]
use crate::source::{System, SystemConfig};

pub(super) static ALL: &[Ingredient] = &[
    Ingredient { card: Cuda::CARD, make: Make::Source(cuda) },
    Ingredient { card: CudaAsync::CARD, make: Make::Source(cuda_async) },
    Ingredient { card: CudaAsyncManaged::CARD, make: Make::Source(cuda_async_managed) },
    Ingredient { card: Mapped::CARD, make: Make::Source(mapped) },
    Ingredient { card: Managed::CARD, make: Make::Source(managed) },
    Ingredient { card: Pinned::CARD, make: Make::Source(pinned) },
    #[cfg(target_os = "linux")]
    Ingredient { card: System::CARD, make: Make::Source(system) },
    Ingredient { card: Null::CARD, make: Make::Inaccessible(null) },
];

/// The source of a recipe that names none: a pool of the driver's where the device has any.
pub(crate) fn default_source(device: &Device) -> Result<AnyResource, Error> {
    if device.capabilities()?.memory_pools {
        Ok(AnyResource::new(CudaAsync::new(device)?))
    } else {
        Ok(AnyResource::new(Cuda::new(device)))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "what every maker returns")]
fn source<R: DeviceAccessible + Send + Sync + 'static>(source: R) -> Result<Under, Error> {
    Ok(Under::Device(AnyResource::new(source)))
}

fn cuda(device: &Device, call: &Call<'_>) -> Result<Under, Error> {
    let config = CudaConfig::default().peers(call.devices("peers", device)?);
    source(Cuda::with_config(device, config)?)
}

fn cuda_async(device: &Device, call: &Call<'_>) -> Result<Under, Error> {
    // The free memory is that of the device: the pool is not there yet.
    let memory = Cuda::new(device);
    let mut config = CudaAsyncConfig::default().peers(call.devices("peers", device)?);
    if let Some(bytes) = call.bytes("initial", &memory)? {
        config = config.initial_bytes(bytes);
    }
    if let Some(bytes) = call.bytes("maximum", &memory)? {
        config = config.maximum_bytes(bytes);
    }
    if let Some(bytes) = call.bytes("threshold", &memory)? {
        config = config.release_threshold_bytes(bytes as u64);
    }
    if let Some(allow) = call.flag("events") {
        config = config.reuse_follow_event_dependencies(allow);
    }
    if let Some(allow) = call.flag("opportunistic") {
        config = config.reuse_allow_opportunistic(allow);
    }
    if let Some(allow) = call.flag("internal") {
        config = config.reuse_allow_internal_dependencies(allow);
    }
    source(CudaAsync::with_config(device, config.handle_types(handle_types(call)))?)
}

fn cuda_async_managed(device: &Device, _: &Call<'_>) -> Result<Under, Error> {
    source(CudaAsyncManaged::new(device)?)
}

fn mapped(device: &Device, call: &Call<'_>) -> Result<Under, Error> {
    let config = MappedConfig::default().peers(call.devices("peers", device)?);
    source(Mapped::with_config(device, config.handle_types(handle_types(call)))?)
}

/// How other processes can open the memory of a source.
fn handle_types(call: &Call<'_>) -> HandleType {
    match call.word("handles") {
        Some("fd") => HandleType::POSIX_FILE_DESCRIPTOR,
        Some("fabric") => HandleType::FABRIC,
        Some(_) => HandleType::POSIX_FILE_DESCRIPTOR.with(HandleType::FABRIC),
        None => HandleType::NONE,
    }
}

fn managed(device: &Device, _: &Call<'_>) -> Result<Under, Error> {
    source(Managed::new(device)?)
}

fn pinned(device: &Device, call: &Call<'_>) -> Result<Under, Error> {
    let mut config = PinnedConfig::default();
    if let Some(portable) = call.flag("portable") {
        config = config.portable(portable);
    }
    match (call.word("numa"), call.number("numa")?) {
        (Some("near"), _) => config = config.numa(NumaPolicy::NearDevice),
        (Some("anywhere"), _) => config = config.numa(NumaPolicy::Anywhere),
        (_, Some(node)) => config = config.numa(NumaPolicy::Node(node)),
        _ => {}
    }
    if let Some(bytes) = call.bytes("huge", &Cuda::new(device))? {
        config = config.huge_bytes(bytes);
    }
    if let Some(threads) = call.number("threads")? {
        config = config.threads(threads);
    }
    source(Pinned::with_config(device, config)?)
}

#[cfg(target_os = "linux")]
fn system(device: &Device, call: &Call<'_>) -> Result<Under, Error> {
    let mut config = SystemConfig::default();
    if let Some(bytes) = call.bytes("headroom", &Cuda::new(device))? {
        config = config.headroom_bytes(bytes);
    }
    source(System::with_config(device, config)?)
}

#[expect(clippy::unnecessary_wraps, reason = "what every maker returns")]
fn null(device: &Device, _: &Call<'_>) -> Result<Under, Error> {
    Ok(Under::Any(Arc::new(Null::new(device))))
}
