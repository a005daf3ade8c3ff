//! `Under`: what stands already while a stack is built.

#![expect(unsafe_code, reason = "says of a layer, whose type is forgotten, what its type has said")]

use std::sync::Arc;

use crate::error::Error;
use crate::resource::{AnyResource, Resource};

/// A resource that any number of layers may stand on, with its type forgotten.
type Erased = Arc<dyn Resource + Send + Sync>;

/// What stands already while a stack is built, from the source up. Whether the device may touch its blocks is in its type, so
/// no layer can lose or gain that.
pub(crate) enum Under {
    Device(AnyResource),
    Any(Erased),
}

impl Under {
    pub(super) fn resource(&self) -> &dyn Resource {
        match self {
            Self::Device(resource) => resource,
            Self::Any(resource) => resource,
        }
    }

    /// What stands, with a layer over it.
    ///
    /// # Safety
    ///
    /// Over a resource that is `DeviceAccessible` the layer is so, too.
    pub(crate) unsafe fn laid(
        self,
        layer: impl FnOnce(Erased) -> Result<Erased, Error>,
    ) -> Result<Self, Error> {
        Ok(match self {
            Self::Device(resource) => {
                let layer = layer(resource.into_erased())?;
                // SAFETY: the resource under it was an `AnyResource`, so the layer is `DeviceAccessible`: the caller's promise.
                Self::Device(unsafe { AnyResource::from_erased(layer) })
            }
            Self::Any(resource) => Self::Any(layer(resource)?),
        })
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
///
/// A layer is compiled once, over a resource whose type is forgotten, and not once more for what the device may touch: a layer with its
/// suballocator is 70 KB of a library.
macro_rules! over {
    ($under:expr, |$upstream:ident| $layer:expr) => {{
        let under: $crate::recipe::under::Under = $under;
        // Never runs, and no machine code is made of it: it is what the compiler says of the layer's type.
        if false {
            let $upstream = $crate::recipe::under::never();
            return Ok($crate::recipe::under::Under::Device($crate::resource::AnyResource::new($layer)));
        }
        #[expect(unsafe_code, reason = "the type of the layer has said what it is asked to promise")]
        // SAFETY: over an `AnyResource` the same layer is `DeviceAccessible`: the compiler has seen it in the lines above.
        let laid = unsafe { under.laid(|$upstream| Ok(std::sync::Arc::new($layer))) };
        laid
    }};
}
pub(crate) use over;

/// What no program has: for the types of what never runs.
pub(crate) fn never() -> AnyResource {
    unreachable!("it stands where nothing runs")
}
