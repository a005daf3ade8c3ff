//! `Memory`: the bytes of a buffer, and whose they are.

#![expect(unsafe_code, reason = "asks a resource for the form in which other processes open its blocks")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::resource::Export;
use alluvion::{Device, DevicePtr, Error, Frontier, Layout, Resource, StreamRef};
use pyo3::prelude::*;

use super::{Imported, Opened};
use crate::block::Block;
use crate::stream::StreamHandle;

/// The bytes of a buffer: a block of ours, or memory that another library or another process lent.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: Bytes,
    /// Tensors of ours that are out, and loans to other processes. While there is one, the bytes stay where they are.
    exports: AtomicUsize,
}

#[derive(Debug)]
enum Bytes {
    Block(Block),
    /// Boxed: it is several times as large as a block, of which there are many more.
    Imported(Box<Imported>),
}

impl Memory {
    /// A block of ours.
    pub(crate) fn of(block: Block) -> Self {
        Self { bytes: Bytes::Block(block), exports: AtomicUsize::new(0) }
    }

    /// A tensor that another library lent.
    pub(crate) fn lent(tensor: Imported) -> Self {
        Self { bytes: Bytes::Imported(Box::new(tensor)), exports: AtomicUsize::new(0) }
    }

    /// Memory that another process shares, whose own stream is `stream`.
    pub(crate) fn opened(opened: Opened, device: Device, stream: Arc<StreamHandle>) -> Self {
        Self::lent(Imported::opened(opened, device, stream))
    }

    /// The block of ours that it is, and what that was allocated with.
    pub(crate) fn block(&self) -> Option<(DevicePtr, Layout)> {
        match &self.bytes {
            Bytes::Block(block) => Some(block.place()),
            Bytes::Imported(_) => None,
        }
    }

    /// The block of ours that it is, and all work on it so far.
    pub(super) fn block_and_uses(&self) -> Result<Option<(&Block, Frontier)>, Error> {
        match &self.bytes {
            Bytes::Block(block) => Ok(Some((block, block.uses()?))),
            Bytes::Imported(_) => Ok(None),
        }
    }

    /// The form in which other processes open the block of ours that it is: as [`Resource::export`].
    ///
    /// # Safety
    ///
    /// `block` and `layout` are those of [`Self::block`].
    pub(crate) unsafe fn shared_form(&self, block: DevicePtr, layout: Layout) -> Result<Export, Error> {
        match &self.bytes {
            // SAFETY: the block is live as long as this, came from its owner, and has this layout: the caller's promise.
            Bytes::Block(of) => unsafe { of.owner().export(block, layout) },
            Bytes::Imported(_) => Ok(Export::of_nothing()),
        }
    }

    /// Where the bytes are.
    pub(crate) fn address(&self) -> u64 {
        match &self.bytes {
            Bytes::Block(block) => block.address(),
            Bytes::Imported(tensor) => tensor.address(),
        }
    }

    /// How many there are.
    pub(crate) fn bytes(&self) -> usize {
        match &self.bytes {
            Bytes::Block(block) => block.bytes(),
            Bytes::Imported(tensor) => tensor.bytes(),
        }
    }

    /// The device that reaches them.
    pub(crate) fn device(&self) -> &Device {
        match &self.bytes {
            Bytes::Block(block) => block.owner().device(),
            Bytes::Imported(tensor) => tensor.device(),
        }
    }

    /// Whether nobody may write to them.
    pub(crate) fn is_read_only(&self) -> bool {
        match &self.bytes {
            Bytes::Block(_) => false,
            Bytes::Imported(tensor) => tensor.is_read_only(),
        }
    }

    /// As [`Block::order`].
    pub(crate) fn order(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        match &self.bytes {
            Bytes::Block(block) => block.order(stream),
            Bytes::Imported(tensor) => tensor.order(stream),
        }
    }

    /// As [`Block::wait`].
    pub(crate) fn wait(&self) -> Result<(), Error> {
        match &self.bytes {
            Bytes::Block(block) => block.wait(),
            Bytes::Imported(tensor) => tensor.wait(),
        }
    }

    /// As [`Block::used_on`].
    pub(crate) fn used_on(&self, stream: StreamRef<'_>) {
        match &self.bytes {
            Bytes::Block(block) => block.used_on(stream),
            Bytes::Imported(tensor) => tensor.used_on(stream),
        }
    }

    /// Notes a tensor or a loan that is out.
    pub(crate) fn export(&self) {
        // Relaxed: a count. A resize at the same time may come first, and then the tensor has the bytes before.
        self.exports.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends one [`export`](Self::export).
    pub(crate) fn end_export(&self) {
        self.exports.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a tensor or a loan is out.
    pub(crate) fn is_exported(&self) -> bool {
        self.exports.load(Ordering::Relaxed) > 0
    }

    /// Lets go of a handle whose buffer is on `stream`. The last one gives the bytes back, behind the work on that stream. The
    /// calling thread is attached, and is detached where that may wait.
    pub(crate) fn release(self: Arc<Self>, py: Python<'_>, stream: Arc<StreamHandle>) {
        match Arc::try_unwrap(self) {
            Ok(Self { bytes: Bytes::Block(mut block), .. }) => {
                let before = block.move_to(stream);
                block.release(py);
                before.release(py);
            }
            Ok(Self { bytes: Bytes::Imported(tensor), .. }) => tensor.release(py),
            Err(shared) => py.detach(move || {
                let _ = stream.with(shared.device(), |stream| {
                    shared.used_on(stream);
                    Ok(())
                });
                drop(shared);
            }),
        }
    }
}
