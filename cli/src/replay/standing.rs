//! `Standing`: a stack that has been made, and what it takes from its source.

use std::sync::Arc;

use alluvion::recipe::{Ingredient, Recipe};
use alluvion::source::{CudaAsync, Null};
use alluvion::suballoc::SuballocBook;
use alluvion::{AnyResource, Device, Error, ErrorKind, Resource, ResourceExt};

use super::recipe_name;
use crate::counted::Counted;
use crate::failure::Failure;
use crate::rig::Rig;

/// A stack that has been made of a recipe, and what it takes from its source.
pub(crate) struct Standing {
    pub(crate) resource: Arc<dyn Resource + Send + Sync>,
    source: Source,
}

enum Source {
    Memory(Arc<Counted<AnyResource>>),
    None(Arc<Counted<Null>>),
}

impl Standing {
    pub(crate) fn new(recipe: &Recipe, rig: &Rig, device: &Device) -> Result<Self, Failure> {
        Self::make(recipe, rig, device, usize::MAX)?.map_err(|error| refused(recipe, &error))
    }

    /// Over a source that has `limit_bytes` at most. `None` if that is too little to make it.
    pub(super) fn within(recipe: &Recipe, rig: &Rig, limit_bytes: usize) -> Result<Option<Self>, Failure> {
        match Self::make(recipe, rig, &rig.device, limit_bytes)? {
            Ok(stack) => Ok(Some(stack)),
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(refused(recipe, &error)),
        }
    }

    fn make(
        recipe: &Recipe,
        rig: &Rig,
        device: &Device,
        limit_bytes: usize,
    ) -> Result<Result<Self, Error>, Failure> {
        let named = source_name(recipe);
        let is_null = rig.name == "null";
        if let Some(source) = named.filter(|source| is_null && *source != "null") {
            return Err(Failure::usage(format!(
                "the stack `{recipe}`: the driver null has no `{source}`; leave the source out"
            )));
        }
        let layers = recipe.layers();
        Ok(if is_null || named == Some("null") {
            let source = Arc::new(Counted::limited(Null::new(device), limit_bytes));
            layers.over(Arc::clone(&source)).map(|resource| Self { resource, source: Source::None(source) })
        } else {
            Self::over_memory(recipe, &layers, device, limit_bytes)
        })
    }

    fn over_memory(
        recipe: &Recipe,
        layers: &Recipe,
        device: &Device,
        limit_bytes: usize,
    ) -> Result<Self, Error> {
        let source = match recipe.source() {
            Some(source) => source,
            // The empty recipe.
            None => "".parse()?,
        };
        let source = Arc::new(Counted::limited(source.build(device)?, limit_bytes));
        let resource = layers.over_device(Arc::clone(&source))?;
        Ok(Self { resource: Arc::new(resource), source: Source::Memory(source) })
    }

    /// The most that it ever took from its source. A pool of the driver's with no suballocator over it is asked what it took
    /// from the device itself: it is the one that keeps memory then.
    pub(crate) fn peak_reserved_bytes(&self) -> Result<usize, Error> {
        let has_suballocator = self.resource.find::<SuballocBook>().is_some();
        match (self.resource.find::<CudaAsync>(), &self.source) {
            (Some(pool), _) if !has_suballocator => pool.reserved_high_bytes(),
            (_, Source::Memory(counted)) => Ok(counted.peak_bytes()),
            (_, Source::None(counted)) => Ok(counted.peak_bytes()),
        }
    }

    /// How often the source was called.
    pub(crate) fn upstream_calls(&self) -> usize {
        match &self.source {
            Source::Memory(counted) => counted.calls(),
            Source::None(counted) => counted.calls(),
        }
    }
}

/// The source that the recipe names.
pub(super) fn source_name(recipe: &Recipe) -> Option<&'static str> {
    recipe.ingredients().find(|ingredient| ingredient.is_source()).map(Ingredient::name)
}

#[cold]
fn refused(recipe: &Recipe, error: &Error) -> Failure {
    let words = format!("the stack `{}`: {error}", recipe_name(recipe));
    match error.kind() {
        ErrorKind::InvalidArgument | ErrorKind::InvalidAlignment => Failure::usage(words),
        _ => Failure::Failed(words),
    }
}
