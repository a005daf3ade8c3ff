//! The sources that a recipe may have. A new one is a function here and a line in `ALL`.

use std::sync::Arc;

use super::Call;
use super::ingredient::{Ingredient, Make, Parameter};
use super::under::Under;
use super::value::Kind;
use crate::device::Device;
use crate::error::Error;
use crate::resource::{AnyResource, DeviceAccessible};
use crate::source::{
    Cuda, CudaAsync, CudaAsyncConfig, CudaAsyncManaged, Managed, Null, NumaPolicy, Pinned, PinnedConfig,
};
#[cfg(target_os = "linux")]
use crate::source::{System, SystemConfig};

/// The name of the argument that every source has.
pub(super) const GPU: &str = "gpu";

const ON_GPU: Parameter = Parameter::new(
    GPU,
    Kind::Count,
    "the number of the device; the one that the stack is built on if left out",
);

pub(super) static ALL: &[Ingredient] = &[
    Ingredient {
        name: "cuda",
        about: "cuMemAlloc: a call to the driver for each block, and a free waits for the device.",
        parameters: &[ON_GPU],
        make: Make::Source(cuda),
    },
    Ingredient {
        name: "cuda-async",
        about: "A pool of the driver's own, stream-ordered.",
        parameters: &[
            Parameter::new("initial", Kind::Size, "bytes taken when it is made; none if left out"),
            Parameter::new(
                "threshold",
                Kind::Size,
                "bytes that it keeps at a synchronisation; all if left out",
            ),
            Parameter::new(
                "events",
                Kind::Flag,
                "follows dependencies of events for reuse; true if left out",
            ),
            Parameter::new(
                "opportunistic",
                Kind::Flag,
                "reuses memory whose last use has ended; true if left out",
            ),
            Parameter::new("internal", Kind::Flag, "may make streams wait for each other; true if left out"),
            ON_GPU,
        ],
        make: Make::Source(cuda_async),
    },
    Ingredient {
        name: "cuda-async-managed",
        about: "The driver's pool of managed memory, stream-ordered; needs CUDA 13.0.",
        parameters: &[ON_GPU],
        make: Make::Source(cuda_async_managed),
    },
    Ingredient {
        name: "managed",
        about: "cuMemAllocManaged: memory that moves between host and device.",
        parameters: &[ON_GPU],
        make: Make::Source(managed),
    },
    Ingredient {
        name: "pinned",
        about: "Page-locked memory of the host that the device reaches.",
        parameters: &[
            Parameter::new("portable", Kind::Flag, "page-locked for every device; true if left out"),
            Parameter::new(
                "numa",
                Kind::WordOrCount(&["near", "anywhere"]),
                "near the device, anywhere, or the number of a node; near if left out",
            ),
            Parameter::new(
                "huge",
                Kind::Size,
                "blocks from this size on are in huge pages; 2MiB if left out",
            ),
            Parameter::new(
                "threads",
                Kind::Count,
                "how many threads at most touch the pages of a new block; 8 if left out",
            ),
            ON_GPU,
        ],
        make: Make::Source(pinned),
    },
    #[cfg(target_os = "linux")]
    Ingredient {
        name: "system",
        about: "Ordinary memory of the host, with HMM or ATS.",
        parameters: &[
            Parameter::new(
                "headroom",
                Kind::Size,
                "bytes to leave free on the device; not checked if left out",
            ),
            ON_GPU,
        ],
        make: Make::Source(system),
    },
    Ingredient {
        name: "null",
        about: "Addresses without memory, to measure the layers over it; no container takes it.",
        parameters: &[ON_GPU],
        make: Make::Inaccessible(null),
    },
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

fn cuda(device: &Device, _: &Call<'_>) -> Result<Under, Error> {
    source(Cuda::new(device))
}

fn cuda_async(device: &Device, call: &Call<'_>) -> Result<Under, Error> {
    // What is free is asked of the device: the pool is not there yet.
    let memory = Cuda::new(device);
    let mut config = CudaAsyncConfig::default();
    if let Some(bytes) = call.bytes("initial", &memory)? {
        config = config.initial_bytes(bytes);
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
    source(CudaAsync::with_config(device, config)?)
}

fn cuda_async_managed(device: &Device, _: &Call<'_>) -> Result<Under, Error> {
    source(CudaAsyncManaged::new(device)?)
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
