//! A resource that looks at the order of its frees.

use std::fmt;

use alluvion::{Device, DeviceAccessible, DevicePtr, Error, Layout, Resource, ResourceId, StreamRef};

use crate::{Rig, Work};

/// Hands out one address. Where the block is given back it submits work, which must come after the uses that it was told of.
#[derive(Debug)]
pub struct Behind {
    rig: Rig,
    id: ResourceId,
    uses: Vec<Work>,
    next: Work,
}

impl Behind {
    /// Submits `next`, behind `uses`.
    #[must_use]
    pub fn new(rig: &Rig, next: Work, uses: &[Work]) -> Self {
        Self { rig: rig.clone(), id: ResourceId::unique(), uses: uses.to_vec(), next }
    }
}

// SAFETY: the models have one block at a time, whose memory nobody touches.
unsafe impl Resource for Behind {
    fn allocate(&self, layout: Layout, _: StreamRef<'_>) -> Result<DevicePtr, Error> {
        DevicePtr::new(1 << 40).ok_or_else(|| Error::out_of_memory(layout.bytes()))
    }

    unsafe fn deallocate(&self, _: DevicePtr, _: Layout, stream: StreamRef<'_>) {
        for earlier in &self.uses {
            self.rig.submit_after(stream, self.next, *earlier);
        }
    }

    fn device(&self) -> &Device {
        &self.rig.device
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Behind")
    }
}

// SAFETY: as above.
unsafe impl DeviceAccessible for Behind {}
