//! `Bin`: a resource, and the requests that it serves.

use std::sync::Arc;

use crate::device::Device;
use crate::error::Error;
use crate::resource::{Layout, Resource};
use crate::suballoc::{FixedSize, FixedSizeConfig};

/// A resource for requests up to some size.
pub(super) struct Bin<U: Resource, B> {
    /// In whole units.
    pub(super) bytes: usize,
    /// The largest alignment that it honours, when it was made.
    pub(super) max_align: usize,
    pub(super) resource: BinResource<U, B>,
}

pub(super) enum BinResource<U: Resource, B> {
    /// Boxed, because a search steps over the bins, and a suballocator has a few KiB.
    Own(Box<FixedSize<Arc<U>>>),
    Given(B),
}

impl<U: Resource, B: Resource> Bin<U, B> {
    /// Blocks of `bytes` of the upstream.
    pub(super) fn own(bytes: usize, upstream: &Arc<U>, config: &FixedSizeConfig) -> Result<Self, Error> {
        let bin = FixedSize::new(Arc::clone(upstream), config.clone().block(bytes))?;
        Ok(Self { bytes, max_align: bin.max_align(), resource: BinResource::Own(Box::new(bin)) })
    }

    /// A resource of the user, on this device.
    pub(super) fn given(bytes: usize, resource: B, device: &Device) -> Result<Self, Error> {
        device.require(resource.device())?;
        Ok(Self { bytes, max_align: resource.max_align(), resource: BinResource::Given(resource) })
    }

    /// Returns `true` if it serves a request: by its layout alone, which is the same at the free.
    #[inline]
    pub(super) fn serves(&self, layout: Layout) -> bool {
        layout.bytes() <= self.bytes && layout.align() <= self.max_align
    }
}

/// The size of a bin, in whole units.
pub(super) fn whole_bytes(bytes: usize) -> Result<usize, Error> {
    if bytes == 0 {
        return Err(Error::invalid_argument(
            "a bin of zero bytes",
            "there is nothing to hand out",
            "give it a size of at least one byte",
        ));
    }
    Ok(Layout::from_bytes(bytes)?.rounded_bytes())
}
