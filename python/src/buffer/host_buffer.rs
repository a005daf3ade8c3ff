//! `HostBuffer`: memory of an object with Python's buffer protocol.

use alluvion::stream::Event;
use alluvion::{Device, Error};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::Memory;
use super::transfer::{Copy, Settled, is_pageable};
use crate::argument::HeldBuffer;
use crate::error::{During, raise};
use crate::stream::{StreamHandle, pending};

/// One-dimensional, contiguous memory of elements of one byte, held while this lives.
pub(super) struct HostBuffer {
    held: HeldBuffer,
}

/// Where a copy goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Direction {
    ToDevice,
    ToHost,
}

/// The state of a copy that was submitted.
enum Submitted {
    Settled(Settled),
    /// The host does not wait for it: pinned or managed memory, on another than the default stream.
    Until(Event),
    /// It may be part of a graph, which runs at any time.
    Recorded,
}

impl HostBuffer {
    /// The memory of `object`, to be read.
    pub(super) fn new(object: &Bound<'_, PyAny>, argument: &str) -> PyResult<Self> {
        if object.is_none() {
            return Err(PyTypeError::new_err(format!(
                "Argument '{argument}' must not be None: pass an object with the buffer protocol, such as bytes"
            )));
        }
        let held = HeldBuffer::new(object)?;
        let format = held.format().to_bytes();
        let format = format.strip_prefix(b"@").or(format.strip_prefix(b"=")).unwrap_or(format);
        let format = format.strip_prefix(b"<").or(format.strip_prefix(b"|")).unwrap_or(format);
        if !matches!(format, b"B" | b"b" | b"c" | b"?") || held.item_bytes() != 1 {
            return Err(PyValueError::new_err(format!(
                "Buffer dtype mismatch: argument '{argument}' must have elements of one byte (format 'B'), and has '{}'",
                held.format().to_string_lossy()
            )));
        }
        if held.dimensions() != 1 {
            return Err(PyValueError::new_err(format!(
                "Buffer has wrong number of dimensions (expected 1, got {}): argument '{argument}'",
                held.dimensions()
            )));
        }
        if !held.is_contiguous() {
            return Err(PyValueError::new_err(format!(
                "ndarray is not C-contiguous: argument '{argument}' has strides"
            )));
        }
        Ok(Self { held })
    }

    /// The memory of `object`, to be written.
    pub(super) fn writable(object: &Bound<'_, PyAny>, argument: &str) -> PyResult<Self> {
        let buffer = Self::new(object, argument)?;
        if buffer.held.is_read_only() {
            return Err(PyBufferError::new_err(format!("Object is not writable: argument '{argument}'")));
        }
        Ok(buffer)
    }

    /// How many bytes it has.
    pub(super) fn bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Copies `bytes` bytes between this and `address`, in the order of `stream`. The host waits for the copy, except with pinned
    /// and managed memory on another than a default stream: then the object is kept until the copy is done.
    #[expect(clippy::too_many_arguments, reason = "each is one fact of one copy, named at the call")]
    pub(super) fn copy(
        self,
        py: Python<'_>,
        direction: Direction,
        address: u64,
        bytes: usize,
        memory: Option<&Memory>,
        stream: &StreamHandle,
        device: &Device,
    ) -> PyResult<()> {
        if bytes == 0 {
            return Ok(());
        }
        pending::sweep(py);
        let host = self.held.start().expose_provenance() as u64;
        let copy = match direction {
            Direction::ToDevice => Copy { to: address, from: host, bytes },
            Direction::ToHost => Copy { to: host, from: address, bytes },
        };
        let submitted = py.detach(|| submit(copy, host, memory, stream, device));
        let outcome = match submitted {
            Err(error) => Err(error),
            Ok(Submitted::Settled(Settled::Over(outcome))) => outcome,
            Ok(Submitted::Settled(Settled::Open(error))) => {
                core::mem::forget(self.held);
                Err(error)
            }
            Ok(Submitted::Until(event)) => {
                pending::keep(self.held, event);
                Ok(())
            }
            Ok(Submitted::Recorded) => {
                core::mem::forget(self.held);
                Ok(())
            }
        };
        raise(py, outcome, During::Copy)
    }
}

fn submit(
    copy: Copy,
    host: u64,
    memory: Option<&Memory>,
    stream: &StreamHandle,
    device: &Device,
) -> Result<Submitted, Error> {
    stream.with(device, |named| {
        if let Some(memory) = memory {
            memory.order(named)?;
        }
        if stream.is_default() || is_pageable(device, host)? {
            return Ok(Submitted::Settled(copy.run(named)));
        }
        let is_capturing = named.is_capturing()?;
        if let Err(error) = copy.submit(named) {
            return Ok(Submitted::Settled(Settled::of_refusal(error)));
        }
        if is_capturing {
            return Ok(Submitted::Recorded);
        }
        if let Some(memory) = memory {
            memory.used_on(named);
        }
        Ok(match named.record() {
            Ok(event) => Submitted::Until(event),
            Err(_) => match named.synchronize() {
                Ok(()) => Submitted::Settled(Settled::Over(Ok(()))),
                Err(error) => Submitted::Settled(Settled::Open(error)),
            },
        })
    })
}
