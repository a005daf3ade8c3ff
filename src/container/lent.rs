//! `Lent`: memory of a device that a caller names by its address, for as long as a call.

#![expect(unsafe_code, reason = "reads and writes memory that is known by its address alone")]

use super::block::Block;
use super::device_slice::DeviceSlice;
use super::device_slice_mut::DeviceSliceMut;
use crate::error::Error;
use crate::resource::{DevicePtr, Layout};
use crate::stream::{Frontier, StreamRef};

/// Bytes of a device that are somebody else's. It gives nothing back.
pub(crate) struct Lent(Block);

impl Lent {
    /// `bytes` bytes from an address on. What is done with them comes behind all that `home` has now.
    ///
    /// # Safety
    ///
    /// They are memory of the device of `home`, until this is gone and all is over that was submitted by it. What else uses them comes before,
    /// on `home`, or behind that.
    pub(crate) unsafe fn new(address: u64, bytes: usize, home: StreamRef<'_>) -> Result<Self, Error> {
        let layout = Layout::new(bytes, 1)?;
        let address = match DevicePtr::new(address) {
            Some(address) => address,
            None if layout.is_empty() => layout.dangling(),
            None => return Err(Error::invalid_argument("a block", "its address is 0", "pass where it lies")),
        };
        Ok(Self(Block::adopt(address, layout, bytes, home.to_stream(), &Frontier::quiescent())))
    }

    pub(crate) fn as_slice(&self) -> DeviceSlice<'_, u8> {
        DeviceSlice::new(&self.0, 0, self.0.len())
    }

    pub(crate) fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, u8> {
        DeviceSliceMut::new(&self.0, 0, self.0.len())
    }
}
