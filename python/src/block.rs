//! Who frees a block, and when is the interpreter let go meanwhile?

#![expect(unsafe_code, reason = "frees blocks")]

use std::sync::{Arc, Mutex, PoisonError};

use alluvion::{DevicePtr, Error, Frontier, Layout, Resource, StreamRef};
use pyo3::prelude::*;

use crate::machine;
use crate::resource::Owner;
use crate::stream::StreamHandle;

/// With more streams than this, the uses that are over are forgotten at each further use.
const MANY_USES: usize = 8;

/// A block of memory, with the resource that it goes back to and the stream that it is freed on.
///
/// The block goes back when this is dropped, on any thread. A thread that is attached to the interpreter calls [`Block::release`], which
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
    /// Allocates a block on a stream, which the block is freed on too. The calling thread is attached, and is detached where
    /// the request may wait.
    pub(crate) fn new(
        py: Python<'_>,
        owner: Owner,
        layout: Layout,
        stream: Arc<StreamHandle>,
    ) -> Result<Self, Error> {
        let stream = stream.pinned_to_thread(owner.device())?;
        let address = owner.allocate_attached(py, layout, &stream)?;
        Ok(Self { owner, stream, address, layout, uses: Mutex::new(Frontier::quiescent()), freed: false })
    }

    /// Where the block is: 0 if it is empty.
    pub(crate) fn address(&self) -> u64 {
        if self.layout.is_empty() { 0 } else { self.address.address() }
    }

    /// Where it is, and what it was allocated with.
    pub(crate) fn place(&self) -> (DevicePtr, Layout) {
        (self.address, self.layout)
    }

    /// How many bytes were asked for.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.bytes()
    }

    /// The resource that it goes back to.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Makes the work that is submitted to `stream` next come after the work on the block so far: that of its own stream, and the
    /// uses that were noted. Within a capture nothing is ordered: the graph runs at a time of its own.
    pub(crate) fn order(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        let mut due = self.uses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.stream.with(self.owner.device(), |own| {
            if own.id() != stream.id() {
                due.extend(own.release());
            }
            Ok(())
        })?;
        if due.is_empty() {
            return Ok(());
        }
        match stream.wait_for(&due) {
            Err(error) if error.is_capture() => Ok(()),
            waited => waited,
        }
    }

    /// Waits on the host for the work on the block so far.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        let uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let device = self.owner.device();
        self.stream.with(device, |own| own.synchronize())?;
        device.machine().wait_quiescent(&uses)
    }

    /// All work on the block so far: that of its own stream, and the uses that were noted.
    pub(crate) fn uses(&self) -> Result<Frontier, Error> {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.stream.with(self.owner.device(), |own| {
            uses.extend(own.release());
            Ok(())
        })?;
        Ok(uses)
    }

    /// Notes that work which was submitted to another stream uses the block.
    pub(crate) fn used_on(&self, stream: StreamRef<'_>) {
        let is_own = self.stream.with(self.owner.device(), |own| Ok(own.id() == stream.id()));
        if is_own.unwrap_or(false) {
            return;
        }
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        uses.extend(stream.release());
        if uses.len() > MANY_USES {
            self.owner.device().machine().forget_done(&mut uses);
        }
    }

    /// Makes the block one of another stream, which frees it behind the work of the stream before. Returns the handle that the block
    /// does not need any more, for its [release](StreamHandle::release).
    pub(crate) fn move_to(&mut self, stream: Arc<StreamHandle>) -> Arc<StreamHandle> {
        if stream.is_same(&self.stream) {
            return stream;
        }
        let device = self.owner.device();
        let Ok(pinned) = Arc::clone(&stream).pinned_to_thread(device) else { return stream };
        if pinned.is_same(&self.stream) {
            return stream;
        }
        let uses = self.uses.get_mut().unwrap_or_else(PoisonError::into_inner);
        let noted = self.stream.with(device, |own| {
            uses.extend(own.release());
            Ok(())
        });
        if noted.is_ok() { core::mem::replace(&mut self.stream, pinned) } else { stream }
    }

    /// Gives the block back. The calling thread is attached, and is detached where the free may wait.
    pub(crate) fn release(mut self, py: Python<'_>) {
        machine::ensure_context(self.owner.device().machine());
        if self.freed_at_once() {
            // What is left may be the last handle of the resource or of the stream, whose drop waits.
            if self.owner.is_shared() && (self.stream.is_default() || Arc::strong_count(&self.stream) > 1) {
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
        let at_once = |stream: StreamRef<'_>| {
            // SAFETY:
            // - the block came from this resource with this layout, in `new`, and `freed` says that it did not go back yet;
            // - it is gone with `self` if the call says so, so nobody uses it afterwards.
            unsafe { self.owner.deallocate_at_once(self.address, self.layout, stream) }
        };
        // SAFETY: the closure does nothing else with the stream.
        self.freed = unsafe { self.stream.visit(device, at_once) };
        self.freed
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.freed {
            return;
        }
        let uses = self.uses.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Where the stream cannot wait because streams capture, the block is the graph's. Where no graph has memory of the pool, or the stream
        // cannot be had, it leaks: nobody says when the graph is gone, the device is lost, or the process is another one.
        let _ = self.stream.with(self.owner.device(), |stream| {
            if !uses.is_empty()
                && let Err(error) = stream.wait_for(uses)
                && !self.owner.leave_to_graph(self.address, stream, uses)
            {
                return Err(error);
            }
            // SAFETY: as in `freed_at_once`, and `self` is going. The stream has waited for the uses, or the pool keeps the block until it has.
            unsafe { self.owner.deallocate(self.address, self.layout, stream) };
            Ok(())
        });
    }
}
