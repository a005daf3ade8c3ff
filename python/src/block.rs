//! Who frees a block, and when is the interpreter let go meanwhile?

#![expect(unsafe_code, reason = "frees blocks")]

use std::sync::{Arc, Mutex, PoisonError};

use alluvion::{DevicePtr, Error, Frontier, Layout, Resource, Stream};
use pyo3::prelude::*;

use crate::resource::Owner;
use crate::stream::StreamHandle;
use crate::tag;

/// A block of memory, with the resource that it goes back to and the stream that it is freed on.
///
/// It goes back when this is dropped, on any thread. A thread that is attached to the interpreter calls [`Block::release`], which
/// detaches where the free may wait.
#[derive(Debug)]
pub(crate) struct Block {
    owner: Owner,
    stream: Arc<StreamHandle>,
    address: DevicePtr,
    layout: Layout,
    /// The work of other streams that uses the block. The free waits for it, on the device.
    uses: Mutex<Frontier>,
    /// Whether the block went back already.
    freed: bool,
}

impl Block {
    /// Allocates `bytes` bytes on a stream, which the block is freed on too. The calling thread is attached, and is detached where
    /// the request may wait.
    pub(crate) fn new(
        py: Python<'_>,
        owner: Owner,
        bytes: usize,
        stream: Arc<StreamHandle>,
    ) -> Result<Self, Error> {
        tag::follow(py);
        let layout = Layout::from_bytes(bytes)?;
        let stream = stream.pinned_to_thread(owner.device())?;
        let at_once = stream.with(owner.device(), |stream| Ok(owner.allocate_at_once(layout, stream)))?;
        let address = match at_once {
            Some(address) => address,
            None => py.detach(|| stream.with(owner.device(), |stream| owner.allocate(layout, stream)))?,
        };
        Ok(Self { owner, stream, address, layout, uses: Mutex::new(Frontier::quiescent()), freed: false })
    }

    /// Where the block is: 0 if it is empty.
    pub(crate) fn address(&self) -> u64 {
        if self.layout.is_empty() { 0 } else { self.address.address() }
    }

    /// How many bytes were asked for.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.bytes()
    }

    /// The resource that it goes back to.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The stream that it is freed on.
    pub(crate) fn stream(&self) -> &Arc<StreamHandle> {
        &self.stream
    }

    /// Notes that work which was submitted to another stream uses the block.
    pub(crate) fn used_on(&self, stream: &Stream) {
        let own = self.stream.to_stream(self.owner.device());
        if own.is_ok_and(|own| own == *stream) {
            return;
        }
        self.uses.lock().unwrap_or_else(PoisonError::into_inner).extend(stream.release());
    }

    /// Gives the block back. The calling thread is attached, and is detached where the free may wait.
    pub(crate) fn release(mut self, py: Python<'_>) {
        if self.freed_at_once() {
            // What is left may be the last handle of the resource or of the stream, whose drop waits.
            if self.owner.is_shared() && Arc::strong_count(&self.stream) > 1 {
                return;
            }
        }
        py.detach(move || drop(self));
    }

    /// Tries to give the block back without a wait.
    fn freed_at_once(&mut self) -> bool {
        let uses = self.uses.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.freed || !uses.is_empty() {
            return self.freed;
        }
        let device = self.owner.device();
        let freed = self.stream.with(device, |stream| {
            // SAFETY:
            // - the block came from this resource with this layout, in `new`, and `freed` says that it did not go back yet;
            // - it is gone with `self` if the call says so, so nobody uses it afterwards.
            Ok(unsafe { self.owner.deallocate_at_once(self.address, self.layout, stream) })
        });
        self.freed = freed.unwrap_or(false);
        self.freed
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.freed {
            return;
        }
        let uses = self.uses.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Where the stream cannot be had or cannot wait, the block leaks: the device is lost, or the process is another one.
        let _ = self.stream.with(self.owner.device(), |stream| {
            if !uses.is_empty() {
                stream.wait_for(uses)?;
            }
            // SAFETY: as in `freed_at_once`, and `self` is going.
            unsafe { self.owner.deallocate(self.address, self.layout, stream) };
            Ok(())
        });
    }
}
