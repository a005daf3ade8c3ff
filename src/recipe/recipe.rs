//! `Recipe`: a stack of resources, written down on one line.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use super::ingredient::Make;
use super::parser::parse;
use super::sources::default_source;
use super::step::Step;
use super::under::Under;
use super::{Call, Ingredient};
use crate::compose::{PerDevice, PerDeviceError};
use crate::device::{Device, Machine};
use crate::error::Error;
use crate::resource::card::Parameter;
use crate::resource::{AnyResource, DeviceAccessible, Resource};

const GPU: Parameter = Parameter::GPU;

/// A stack of resources, written down on one line, outermost first; the [room](crate::recipe) tells how.
///
/// It is text that has been understood: nothing is made, and no device asked, until it is built. It prints as a line that is
/// understood as the same recipe.
///
/// # Examples
///
/// ```
/// use alluvion::recipe::Recipe;
/// use alluvion::Sim;
///
/// let sim = Sim::new();
/// let recipe: Recipe = "pool( 16 MiB, reuse=completed ) | cuda_async".parse()?;
/// assert_eq!(recipe.to_string(), "pool(initial=16MiB, reuse=completed) | cuda-async");
/// let resource = recipe.build(&sim.device(0))?;
/// assert_eq!(resource.describe().to_string(), "Pool(16 MiB) > CudaAsync(gpu 0)");
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct Recipe {
    /// The text, for errors to point into.
    pub(super) text: Arc<str>,
    pub(super) layers: Vec<Step>,
    pub(super) source: Option<Step>,
}

static_assertions::assert_impl_all!(Recipe: Send, Sync, Clone);

impl Recipe {
    /// Makes the stack on a device.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` where a value breaks a rule, where the source is one that the device may not touch, and where it
    /// names another device: these point at the place. As the source and the layers say; what was made goes back.
    pub fn build(&self, device: &Device) -> Result<AnyResource, Error> {
        if let Some(step) = self.inaccessible() {
            return Err(self.refused(
                step,
                "a source that the device may not touch",
                "a handle without a type is for the device",
                "name another source, or measure over it with `Recipe::over`",
            ));
        }
        match self.raise(device)? {
            Under::Device(resource) => Ok(resource),
            // `inaccessible` has looked for it.
            Under::Any(_) => Err(Error::invalid_argument(
                "a source that the device may not touch",
                "a handle without a type is for the device",
                "name another source",
            )),
        }
    }

    /// Makes the stack on every device of a machine. Stacks that log into one file have one log: `logging(devices=true)` adds a
    /// column that tells their rows apart.
    ///
    /// ```
    /// use alluvion::sim::SimConfig;
    /// use alluvion::{Recipe, Sim};
    ///
    /// let sim = Sim::with_config(SimConfig::default().devices(2));
    /// let recipe: Recipe = "pool(initial=16MiB) | cuda-async".parse()?;
    /// let stacks = recipe.per_device(sim.machine())?;
    /// assert_eq!(stacks[1].describe().to_string(), "Pool(16 MiB) > CudaAsync(gpu 1)");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), with the device, and with the stacks that were made.
    pub fn per_device(
        &self,
        machine: &Machine,
    ) -> Result<PerDevice<AnyResource>, PerDeviceError<AnyResource>> {
        machine.per_device(|device| self.build(device))
    }

    /// Makes the layers over a source of your own.
    ///
    /// ```
    /// use alluvion::recipe::Recipe;
    /// use alluvion::source::Null;
    /// use alluvion::{Layout, Resource, ResourceExt, Sim};
    ///
    /// let sim = Sim::new();
    /// let recipe: Recipe = "pool(growth=exact)".parse()?;
    /// let pool = recipe.over(Null::new(&sim.device(0)))?;
    /// let layout = Layout::from_bytes(1 << 20)?;
    /// let block = pool.allocate_sync(layout)?;
    /// assert_eq!(pool.describe().to_string(), "Pool(1 MiB) > Null(gpu 0)");
    /// // SAFETY: the block came from `pool` with this layout, and nothing uses it.
    /// unsafe { pool.deallocate_sync(block, layout) };
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the recipe names a source itself; as [`build`](Self::build).
    pub fn over<R: Resource + Send + Sync + 'static>(
        &self,
        source: R,
    ) -> Result<Arc<dyn Resource + Send + Sync>, Error> {
        self.require_no_source()?;
        Ok(match self.lay(Under::Any(Arc::new(source)))? {
            Under::Any(resource) => resource,
            Under::Device(resource) => Arc::new(resource),
        })
    }

    /// Makes the layers over a source of your own that the device may touch: what [`build`](Self::build) makes over its own.
    ///
    /// # Errors
    ///
    /// As [`over`](Self::over).
    pub fn over_device<R: DeviceAccessible + Send + Sync + 'static>(
        &self,
        source: R,
    ) -> Result<AnyResource, Error> {
        self.require_no_source()?;
        match self.lay(Under::Device(AnyResource::new(source)))? {
            Under::Device(resource) => Ok(resource),
            // No layer takes access away: `Under` is what it was.
            Under::Any(resource) => Err(Error::invalid_argument(
                "a stack that the device may not touch",
                if resource.upstream().is_some() { "a layer took the access" } else { "it has none" },
                "name other layers",
            )),
        }
    }

    /// The layers without the source.
    #[must_use]
    pub fn layers(&self) -> Self {
        Self { source: None, ..self.clone() }
    }

    /// The source alone, if the recipe names one.
    #[must_use]
    pub fn source(&self) -> Option<Self> {
        let source = self.source.clone()?;
        Some(Self { text: Arc::clone(&self.text), layers: Vec::new(), source: Some(source) })
    }

    /// The recipe with `checked=true` for each suballocator that says nothing of it: for programs whose frees are not held to their
    /// blocks by types, as those in other languages.
    ///
    /// ```
    /// let recipe: alluvion::recipe::Recipe = "stats | pool | binning(checked=false) | cuda".parse()?;
    /// assert_eq!(recipe.checked().to_string(), "stats | pool(checked=true) | binning(checked=false) | cuda");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub fn checked(&self) -> Self {
        let mut recipe = self.clone();
        recipe.layers.iter_mut().chain(&mut recipe.source).for_each(Step::check);
        recipe
    }

    /// Its layers, outermost first, then the source if it is named.
    pub fn ingredients(&self) -> impl Iterator<Item = &'static Ingredient> + '_ {
        self.layers.iter().chain(&self.source).map(|step| step.ingredient)
    }

    /// The device that the source names with `gpu=`.
    #[must_use]
    pub fn gpu(&self) -> Option<u32> {
        let source = self.source.as_ref()?;
        u32::try_from(self.call(source).count(GPU.name())?).ok()
    }

    /// The stack, from the source up.
    pub(super) fn raise(&self, device: &Device) -> Result<Under, Error> {
        let under = match &self.source {
            None => Under::Device(default_source(device)?),
            Some(step) => {
                let call = self.call(step);
                if call.count(GPU.name()).is_some_and(|gpu| gpu != u64::from(device.ordinal())) {
                    return Err(call.wrong(GPU.name(), "the stack is built on another device"));
                }
                match step.ingredient.make {
                    Make::Source(make) | Make::Inaccessible(make) => {
                        make(device, &call).map_err(|error| call.refused(error))?
                    }
                    Make::Layer(_) => return Err(call.wrong(GPU.name(), "it is no source")),
                }
            }
        };
        self.lay(under)
    }

    fn lay(&self, mut under: Under) -> Result<Under, Error> {
        for step in self.layers.iter().rev() {
            let call = self.call(step);
            if let Make::Layer(make) = step.ingredient.make {
                under = make(under, &call).map_err(|error| call.refused(error))?;
            }
        }
        Ok(under)
    }

    fn inaccessible(&self) -> Option<&Step> {
        self.source.as_ref().filter(|step| matches!(step.ingredient.make, Make::Inaccessible(_)))
    }

    fn require_no_source(&self) -> Result<(), Error> {
        self.source.as_ref().map_or(Ok(()), |step| {
            Err(self.refused(
                step,
                "a source",
                "the layers are put over another one",
                "leave the source out of the recipe: `Recipe::layers`",
            ))
        })
    }

    fn call<'r>(&'r self, step: &'r Step) -> Call<'r> {
        Call { text: &self.text, step }
    }

    #[cold]
    fn refused(&self, step: &Step, what: &'static str, why: &'static str, instead: &'static str) -> Error {
        self.call(step).refused(Error::invalid_argument(what, why, instead))
    }
}

impl FromStr for Recipe {
    type Err = Error;

    /// Understands a line.
    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text)
    }
}

impl PartialEq for Recipe {
    /// Equal if they make the same stack; the spelling does not count.
    fn eq(&self, other: &Self) -> bool {
        self.layers == other.layers && self.source == other.source
    }
}

impl fmt::Display for Recipe {
    /// The line in its plain form: kebab case, every argument with its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for step in self.layers.iter().chain(&self.source) {
            write!(f, "{before}{step}")?;
            before = " | ";
        }
        Ok(())
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipe({self})")
    }
}

#[cfg(feature = "cuda")]
impl FromStr for AnyResource {
    type Err = Error;

    /// Understands a recipe and builds it on CUDA device 0, or the one that its source names: `pool | cuda-async(gpu=1)`.
    ///
    /// ```no_run
    /// // Needs a GPU.
    /// let resource: alluvion::AnyResource = "pool(initial=50%) | cuda-async".parse()?;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, Error> {
        let recipe: Recipe = text.parse()?;
        recipe.build(&Device::cuda(recipe.gpu().unwrap_or(0))?)
    }
}
