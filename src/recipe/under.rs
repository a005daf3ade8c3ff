//! `Under`: what stands already while a stack is built.

use std::sync::Arc;

use crate::error::Error;
use crate::resource::{AnyResource, Resource};

/// What stands already while a stack is built, from the source up. Whether the device may touch its blocks is in its type, so
/// no layer can lose or gain that.
pub(crate) enum Under {
    Device(AnyResource),
    Any(Arc<dyn Resource + Send + Sync>),
}

impl Under {
    pub(super) fn resource(&self) -> &dyn Resource {
        match self {
            Self::Device(resource) => resource,
            Self::Any(resource) => resource,
        }
    }

    /// What stands, for a layer that has the device touch the blocks.
    pub(super) fn for_the_device(
        self,
        refused: &'static str,
        because: &'static str,
    ) -> Result<AnyResource, Error> {
        match self {
            Self::Device(resource) => Ok(resource),
            Self::Any(_) => {
                Err(Error::invalid_argument(refused, because, "leave it out, or name a source with memory"))
            }
        }
    }
}

/// Puts a layer over what stands, whatever that is: `over!(under, |upstream| Pool::new(upstream, config)?)`.
macro_rules! over {
    ($under:expr, |$upstream:ident| $layer:expr) => {
        Ok(match $under {
            $crate::recipe::under::Under::Device($upstream) => {
                $crate::recipe::under::Under::Device($crate::resource::AnyResource::new($layer))
            }
            $crate::recipe::under::Under::Any($upstream) => {
                $crate::recipe::under::Under::Any(std::sync::Arc::new($layer))
            }
        })
    };
}
pub(crate) use over;
