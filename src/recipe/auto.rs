//! `Auto`: the stack that a device gets if nobody chooses one.

use core::fmt;

use super::Call;
use super::ingredient::{Ingredient, Make};
use super::under::{Under, over};
use crate::device::Device;
use crate::error::Error;
use crate::resource::card::{Card, Parameter};
use crate::resource::{AnyResource, DeviceAccessible};
use crate::source::{Cuda, CudaAsync, CudaAsyncConfig, CudaConfig, Mapped, MappedConfig, peers};
use crate::suballoc::{Pool, PoolConfig};

pub(super) static ALL: &[Ingredient] = &[Ingredient {
    card: Card {
        name: "auto",
        about: "The best pool that the device can have: over mapped, else cuda-async, else cuda.",
        parameters: &[Parameter::GPU, Parameter::PEERS],
    },
    make: Make::Source(auto),
}];

/// The stack that the word `auto` of a recipe stands for on a device, and the reason.
///
/// A pool over pages needs the least memory, because it grows in place and moves what is free. So it is taken where a page can be
/// had, which is tried; else a pool over the driver's own, whose calls do not wait for the device; else one over plain memory.
///
/// ```
/// use alluvion::driver::DeviceAttribute;
/// use alluvion::recipe::Auto;
/// use alluvion::sim::SimConfig;
/// use alluvion::{Recipe, Sim};
///
/// let sim = Sim::new();
/// let auto = Auto::of(&sim.device(0))?;
/// assert_eq!(auto.recipe(), "pool | mapped");
/// assert_eq!(auto.to_string(), "pool | mapped: a page of it can be mapped");
///
/// let stack = "stats | auto".parse::<Recipe>()?.build(&sim.device(0))?;
/// assert_eq!(format!("{stack:?}"), "Stats(0 B) > Pool(0 B) > Mapped(gpu 0)");
///
/// let old = Sim::with_config(SimConfig::default().attribute(DeviceAttribute::VirtualMemory, 0));
/// assert_eq!(Auto::of(&old.device(0))?.recipe(), "pool | cuda-async");
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Auto {
    recipe: &'static str,
    why: String,
}

impl Auto {
    /// What `auto` stands for on `device`.
    ///
    /// # Errors
    ///
    /// As the driver says.
    pub fn of(device: &Device) -> Result<Self, Error> {
        Ok(choose(device, &[])?.0)
    }

    /// The stack, as a line of a recipe.
    #[must_use]
    pub fn recipe(&self) -> &'static str {
        self.recipe
    }

    /// Why it is this one: what the better ones lack.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }
}

impl fmt::Display for Auto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.recipe, self.why)
    }
}

fn auto(device: &Device, call: &Call<'_>) -> Result<Under, Error> {
    let (_, stack) = choose(device, &call.devices("peers", device)?)?;
    Ok(Under::Device(stack))
}

/// The best stack, and what it is called.
fn choose(device: &Device, peers: &[Device]) -> Result<(Auto, AnyResource), Error> {
    let no_pages = match Mapped::tried(device, MappedConfig::default().peers(peers.iter().cloned())) {
        Ok(mapped) => {
            let auto = Auto { recipe: "pool | mapped", why: "a page of it can be mapped".to_owned() };
            return Ok((auto, pooled(mapped)?));
        }
        Err(error) => why(error)?,
    };
    let no_pools =
        match CudaAsync::with_config(device, CudaAsyncConfig::default().peers(peers.iter().cloned())) {
            Ok(source) => {
                let auto = Auto { recipe: "pool | cuda-async", why: format!("no pages: {no_pages}") };
                return Ok((auto, pooled(source)?));
            }
            Err(error) => why(error)?,
        };
    let source = Cuda::with_config(device, CudaConfig::default().peers(peers.iter().cloned()))?;
    let why = format!("no pages: {no_pages}; no pools of the driver: {no_pools}");
    Ok((Auto { recipe: "pool | cuda", why }, pooled(source)?))
}

/// A pool over a source: that of a recipe, so that a program has one of both.
fn pooled<R: DeviceAccessible + Send + Sync + 'static>(source: R) -> Result<AnyResource, Error> {
    pool_over(Under::Device(AnyResource::new(source)))?.for_the_device("a source", "it is for the device")
}

fn pool_over(under: Under) -> Result<Under, Error> {
    over!(under, |upstream| Pool::new(upstream, PoolConfig::default())?)
}

/// Why a source cannot be had, in a few words if the error has them. A device that says so lacks it; one whose call fails for another reason,
/// because it is full or lost, may have it all the same, so there the error is the answer.
fn why(error: Error) -> Result<String, Error> {
    let is_lacking = error.is_unsupported()
        || error.refused_peer().is_some()
        || error.code().is_some_and(peers::is_refusal);
    if !is_lacking {
        return Err(error);
    }
    Ok(error.unsupported_detail().map_or_else(|| error.to_string(), |detail| detail.why.to_string()))
}
