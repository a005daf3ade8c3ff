//! Copies, and what a wait for one proves.
//!
//! A copy that the host waits for is never recorded into a graph. On a stream whose handle others have, any thread may begin a
//! capture between a question and the copy; so the host waits for that stream first, and the copy is then on the calling
//! thread's own default stream, which no other thread can capture.

#![expect(unsafe_code, reason = "submits copies by address")]

use alluvion::driver::{Call, Code, DriverError, MemoryKind, RawStream};
use alluvion::{Device, Error, StreamRef};

use crate::machine;

/// A copy by address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) bytes: usize,
}

/// What is known of a copy when a wait has ended.
#[derive(Debug)]
pub(super) enum Settled {
    /// Nothing touches the memory any more.
    Over(Result<(), Error>),
    /// Nobody can say: memory of the host must be there for ever.
    Open(Error),
}

impl Settled {
    /// What is known of a copy that the driver did not take.
    pub(super) fn of_refusal(error: Error) -> Self {
        if has_begun_nothing(&error) { Self::Over(Err(error)) } else { Self::Open(error) }
    }

    /// The outcome, where no memory is lent.
    pub(super) fn outcome(self) -> Result<(), Error> {
        match self {
            Self::Over(outcome) => outcome,
            Self::Open(error) => Err(error),
        }
    }
}

impl Copy {
    /// Submits the copy.
    pub(super) fn submit(self, stream: StreamRef<'_>) -> Result<(), Error> {
        let device = stream.device();
        machine::ensure_context(device.machine());
        // SAFETY:
        // - both ranges live until the copy has run: a block of a buffer notes the copy before it is freed, and memory of the host
        //   is kept by the caller until the copy is settled; an address that was made up is the fault of who passed it, as the
        //   documentation says of each call that takes one.
        // - no unordered work conflicts, by what the documentation asks of the callers.
        let submitted = unsafe {
            device.driver().copy_async(device.ordinal(), self.to, self.from, self.bytes, stream.raw())
        };
        Ok(submitted?)
    }

    /// Copies in the order of `named`, and waits until the copy is done.
    pub(super) fn run(self, named: StreamRef<'_>) -> Settled {
        match named.raw() {
            RawStream::LEGACY | RawStream::PER_THREAD => self.run_on(named),
            _ => {
                let ready = refuse_capture(named).and_then(|()| named.synchronize());
                match ready.and_then(|()| named.device().per_thread_stream()) {
                    Ok(own) => self.run_on(own.as_ref()),
                    Err(error) => Settled::Over(Err(error)),
                }
            }
        }
    }

    fn run_on(self, stream: StreamRef<'_>) -> Settled {
        if let Err(error) = refuse_capture(stream) {
            return Settled::Over(Err(error));
        }
        let submitted = self.submit(stream);
        if submitted.as_ref().is_err_and(has_begun_nothing) {
            return Settled::Over(submitted);
        }
        let device = stream.device();
        match stream.synchronize() {
            Ok(()) => Settled::Over(submitted),
            Err(error) if proves_stopped(device, &error) => Settled::Over(submitted.and(Err(error))),
            Err(error) => match device.synchronize() {
                Ok(()) => Settled::Over(submitted.and(Err(error))),
                Err(last) if proves_stopped(device, &last) => Settled::Over(submitted.and(Err(error))),
                Err(_) => Settled::Open(submitted.err().unwrap_or(error)),
            },
        }
    }
}

/// Whether the host must wait for a copy with memory at `address`: it is ordinary memory, which the driver knows nothing of.
pub(super) fn is_pageable(device: &Device, address: u64) -> Result<bool, Error> {
    Ok(device.driver().pointer_attributes(address)?.is_none())
}

/// Whether memory at `address` is managed.
pub(super) fn is_managed(device: &Device, address: u64) -> Result<bool, Error> {
    let info = device.driver().pointer_attributes(address)?;
    Ok(info.is_some_and(|info| info.kind == MemoryKind::Managed))
}

fn refuse_capture(stream: StreamRef<'_>) -> Result<(), Error> {
    if stream.is_capturing()? {
        return Err(DriverError::new(Call::CopyAsync, Code::CAPTURE_UNSUPPORTED).into());
    }
    Ok(())
}

/// A call that fails has changed nothing, by the contract of the driver, unless its code says that the context is lost or is unknown.
fn has_begun_nothing(error: &Error) -> bool {
    error.code().is_some_and(|code| !code.is_sticky() && code != Code::UNKNOWN)
}

fn proves_stopped(device: &Device, error: &Error) -> bool {
    let (Some(call), Some(code)) = (error.call(), error.code()) else { return false };
    device.driver().proves_stopped(device.ordinal(), DriverError::new(call, code))
}
