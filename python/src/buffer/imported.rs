//! `Imported`: memory that another library or another process lent.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use alluvion::{Device, Error, Frontier, StreamRef};
use pyo3::prelude::*;

use super::Opened;
use crate::attached::attach;
use crate::stream::StreamHandle;

/// A call to a lender's deleter.
type Call = Box<dyn FnOnce() + Send + Sync>;

/// What says to the lender that its tensor is no longer used: called once.
pub(crate) struct Deleter(Option<Call>);

impl Deleter {
    /// The deleter that `call` calls.
    pub(crate) fn new(call: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(call)))
    }
}

impl Drop for Deleter {
    fn drop(&mut self) {
        let Some(call) = self.0.take() else { return };
        delete(call);
    }
}

thread_local! {
    /// The calls that came up while this thread was in one; `None` while it is in none.
    static QUEUE: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

/// Calls a deleter. A tensor may be lent by a buffer that was lent itself, and so on: one call is over before the next begins, so that
/// no number of them fills the stack.
fn delete(call: Call) {
    let mut call = Some(call);
    let is_queued = QUEUE.try_with(|queue| match &mut *queue.borrow_mut() {
        Some(waiting) => {
            waiting.extend(call.take());
            true
        }
        none => {
            *none = Some(Vec::new());
            false
        }
    });
    if is_queued == Ok(true) {
        return;
    }
    while let Some(next) = call.take() {
        // Attached, because many libraries expect that of the callers of their deleters. Where the interpreter is gone, so is the
        // library: then nothing is called.
        let _ = attach(|_| next());
        // Without a queue the thread is ending: then the calls nest.
        call = QUEUE.try_with(|queue| queue.borrow_mut().as_mut().and_then(Vec::pop)).ok().flatten();
    }
    let _ = QUEUE.try_with(|queue| queue.take());
}

impl fmt::Debug for Deleter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deleter")
    }
}

/// Who lent the bytes, and takes them back.
#[derive(Debug)]
enum Lender {
    /// Another library, by a call that is made when this is dropped.
    Library(#[expect(dead_code, reason = "its drop calls the lender")] Deleter),
    /// Another process. Taken when it is closed.
    Process(Option<Opened>),
}

/// Memory that another library or another process lent, as bytes.
#[derive(Debug)]
pub(crate) struct Imported {
    address: u64,
    bytes: usize,
    device: Device,
    stream: Arc<StreamHandle>,
    is_read_only: bool,
    /// Work of ours that uses the bytes. The lender does not know of it, so the host waits for it before the tensor goes back.
    uses: Mutex<Frontier>,
    /// Takes the bytes back behind the drop of this struct, which waits.
    lender: Lender,
}

impl Imported {
    /// A tensor that is safe to use on `stream`.
    pub(crate) fn new(
        address: u64,
        bytes: usize,
        device: Device,
        stream: Arc<StreamHandle>,
        is_read_only: bool,
        deleter: Deleter,
    ) -> Self {
        let uses = Mutex::new(Frontier::quiescent());
        Self { address, bytes, device, stream, is_read_only, uses, lender: Lender::Library(deleter) }
    }

    /// Memory of another process, whose own stream is `stream`.
    pub(super) fn opened(opened: Opened, device: Device, stream: Arc<StreamHandle>) -> Self {
        Self {
            address: opened.address(),
            bytes: opened.bytes(),
            device,
            stream,
            is_read_only: opened.is_read_only(),
            uses: Mutex::new(Frontier::quiescent()),
            lender: Lender::Process(Some(opened)),
        }
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    pub(super) fn order(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        let mut due = self.uses();
        self.stream.with(&self.device, |own| {
            if own.id() != stream.id() {
                due.extend(own.release());
            }
            Ok(())
        })?;
        match stream.wait_for(&due) {
            Err(error) if error.is_capture() => Ok(()),
            waited => waited,
        }
    }

    pub(super) fn wait(&self) -> Result<(), Error> {
        self.stream.with(&self.device, |own| own.synchronize())?;
        self.device.machine().wait_quiescent(&self.uses())
    }

    pub(super) fn used_on(&self, stream: StreamRef<'_>) {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        uses.extend(stream.release());
    }

    /// Gives the memory back. The calling thread is attached, and is detached where that waits.
    pub(super) fn release(mut self, py: Python<'_>) {
        py.detach(|| self.wait_and_close());
        drop(self);
    }

    fn uses(&self) -> Frontier {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the uses, and closes what another process lent.
    fn wait_and_close(&mut self) {
        // Where the device is lost, nothing that the lender has is of use any more.
        let waited = self.device.machine().wait_quiescent(&self.uses());
        if let Lender::Process(opened) = &mut self.lender
            && let Some(opened) = opened.take()
        {
            opened.close(waited);
        }
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        // Over already after `release`, and then this costs a look.
        self.wait_and_close();
    }
}
