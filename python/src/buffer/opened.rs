//! `Opened`: memory that another process shares.

use alluvion::Error;
use alluvion::share::{Imported, ImportedMut};

/// Memory that another process shares, open in this one. Its drop waits for the device.
#[derive(Debug)]
pub(crate) enum Opened {
    ReadOnly(Imported<u8>),
    Writable(ImportedMut<u8>),
}

impl Opened {
    /// Where the bytes are: 0 without bytes.
    pub(super) fn address(&self) -> u64 {
        match self {
            _ if self.bytes() == 0 => 0,
            Self::ReadOnly(bytes) => bytes.as_slice().as_device_ptr().address(),
            Self::Writable(bytes) => bytes.as_slice().as_device_ptr().address(),
        }
    }

    /// How many there are.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::ReadOnly(bytes) => bytes.len(),
            Self::Writable(bytes) => bytes.len(),
        }
    }

    /// Whether nobody here may write to them.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self, Self::ReadOnly(_))
    }

    /// Closes the memory, if all of its uses but those on its own stream are over by this wait. If nobody knows, it stays open for as
    /// long as the process lives.
    pub(super) fn close(self, waited: Result<(), Error>) {
        match waited {
            Err(error) if !error.is_context_lost() => core::mem::forget(self),
            // It waits for its own stream, and sees for itself that a device is lost.
            _ => drop(self),
        }
    }
}
