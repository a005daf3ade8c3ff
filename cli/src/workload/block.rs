//! `Block`: a block that is given back to where it came from.

#![expect(unsafe_code, reason = "gives back what it allocates")]

use core::fmt;
use core::hint::black_box;

use alluvion::{DevicePtr, Error, Layout, Resource, StreamRef};

/// A block that nobody uses. What is not given back stays out, as a program's does that forgets to.
pub(crate) struct Block<'r, R> {
    resource: &'r R,
    address: DevicePtr,
    bytes: usize,
    /// The number of its device.
    device: u32,
}

impl<'r, R: Resource> Block<'r, R> {
    /// The size is hidden from the compiler, which must not work it out before the loop that is timed.
    #[inline]
    pub(crate) fn take(resource: &'r R, bytes: usize, stream: StreamRef<'_>) -> Result<Self, Error> {
        let bytes = black_box(bytes);
        let address = resource.allocate(Layout::from_bytes(bytes)?, stream)?;
        Ok(Self { resource, address: black_box(address), bytes, device: stream.device().ordinal() })
    }

    /// Takes one and gives it back.
    #[inline]
    pub(crate) fn pair(resource: &'r R, bytes: usize, stream: StreamRef<'_>) -> Result<(), Error> {
        Self::take(resource, bytes, stream)?.give_back(stream);
        Ok(())
    }

    /// What it was asked for with.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it came from.
    pub(crate) fn resource(&self) -> &'r R {
        self.resource
    }

    /// Where it is: a number, with which nobody touches the memory.
    pub(crate) fn address(&self) -> u64 {
        self.address.address()
    }

    /// On a stream of its device; on another it stays out.
    #[inline]
    pub(crate) fn give_back(self, stream: StreamRef<'_>) {
        if stream.device().ordinal() != self.device {
            return;
        }
        let Ok(layout) = Layout::from_bytes(self.bytes) else { return };
        // SAFETY:
        // - the block came from this resource, and `self` is the only one of its kind and gone after this;
        // - the layout is the one that `take` made of the same size;
        // - its address has left `self` as a number at most, so nothing uses it;
        // - the stream is of the same device, compared just now, and of the same machine: the process has blocks of one at a time.
        unsafe { self.resource.deallocate(self.address, layout, stream) };
    }
}

impl<R> fmt::Debug for Block<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.bytes)
    }
}
