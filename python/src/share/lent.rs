//! `Lent`: the memory of a buffer, as a resource of one block.

#![expect(unsafe_code, reason = "lends a block of another resource on, and keeps the contract of resources")]

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use alluvion::resource::Export;
use alluvion::share::{ShareConfig, Shared};
use alluvion::{
    Device, DeviceAccessible, DeviceBuffer, DevicePtr, Error, Frontier, Layout, RawParts, Resource,
    ResourceId, Shareable, StreamRef,
};

use crate::buffer::Memory;

/// The memory of a buffer, as a resource of one block: a handle of it, which is let go when the block is given back.
pub(super) struct Lent {
    device: Device,
    id: ResourceId,
    /// Taken by the one free. `None` for zero bytes. Held for a look, and never while anything is dropped.
    memory: Mutex<Option<Arc<Memory>>>,
}

/// What other processes can open: its memory is that of a buffer.
pub(super) type Loan = Shared<DeviceBuffer<Lent>>;

/// Shares the first `bytes` bytes of a memory. All that was done with it so far comes before what importers do. May wait: the calling
/// thread is detached.
pub(super) fn lend(
    memory: Option<Arc<Memory>>,
    bytes: usize,
    config: ShareConfig,
    stream: StreamRef<'_>,
) -> Result<Loan, Error> {
    let device = stream.device();
    let (block, layout) = match memory.as_ref().and_then(|memory| memory.block()) {
        Some(block) => block,
        None => {
            let nothing = Layout::from_bytes(0)?;
            (nothing.dangling(), nothing)
        }
    };
    if let Some(memory) = &memory {
        device.require(memory.device())?;
        memory.order(stream)?;
        memory.export();
    }
    let parts = RawParts {
        block,
        layout,
        len_bytes: bytes.min(layout.bytes()),
        home: stream.to_stream(),
        frontier: Frontier::quiescent(),
        resource: Lent { device: device.clone(), id: ResourceId::unique(), memory: Mutex::new(memory) },
    };
    // SAFETY:
    // - the block is live as long as the resource's handle of its memory; nobody gives it back to that resource but this container.
    // - the length is at most the layout's.
    // - every use that was noted comes before the home's next work: `order` did it above. Later uses by the buffer's owner are his to
    //   order with the importers, as the documentation of `share` says; the memory itself outlives them.
    let buffer = unsafe { DeviceBuffer::from_raw_parts(parts) };
    Shared::with_config(buffer, config, stream).map_err(Error::from)
}

impl Lent {
    fn take(&self) -> Option<Arc<Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

// SAFETY: it hands out no block: the one that it has is a block of another resource, which stays live as long as its memory, of which
// this has a handle until the block is given back. Only the value itself has its id. Nothing unwinds.
unsafe impl Resource for Lent {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device.require(stream.device())?;
        self.allocate_sync(layout)
    }

    unsafe fn deallocate(&self, _: DevicePtr, _: Layout, stream: StreamRef<'_>) {
        let Some(memory) = self.take() else { return };
        memory.used_on(stream);
        memory.end_export();
        // The last handle gives the block back behind all its uses.
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        if layout.is_empty() { Ok(layout.dangling()) } else { Err(Error::out_of_memory(layout.bytes())) }
    }

    unsafe fn deallocate_sync(&self, _: DevicePtr, _: Layout) {
        if let Some(memory) = self.take() {
            memory.end_export();
        }
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({})", self.device)
    }

    unsafe fn export(&self, block: DevicePtr, layout: Layout) -> Result<Export, Error> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // SAFETY: the block is the memory's, with its layout: the caller's promise.
        memory.map_or_else(|| Ok(Export::of_nothing()), |memory| unsafe { memory.shared_form(block, layout) })
    }
}

// SAFETY: the block is one of a resource of which the device reads and writes blocks.
unsafe impl DeviceAccessible for Lent {}

impl Shareable for Lent {}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}
