//! `DeviceBuffer`: a vector of bytes, and what only bytes can do.

use super::device_copy::DeviceCopy;
use super::device_slice::DeviceSlice;
use super::device_slice_mut::DeviceSliceMut;
use super::device_vec::DeviceVec;
use crate::error::Error;
use crate::resource::{AnyResource, DeviceAccessible, Layout};
use crate::stream::OnStream;

/// Bytes on a device: a [`DeviceVec`] of them, with a [layout](DeviceVec::with_layout_in) if need be, which
/// [reads as elements](DeviceVec::view).
///
/// ```
/// use alluvion::{DeviceBuffer, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let mut buffer = DeviceBuffer::from_slice(b"alluvion", &stream)?;
/// buffer.resize(10, b'!', &stream)?;
/// assert_eq!(buffer.to_vec(&stream)?, b"alluvion!!");
/// # Ok::<(), alluvion::Error>(())
/// ```
pub type DeviceBuffer<R = AnyResource> = DeviceVec<u8, R>;

/// Of bytes alone.
impl<R: DeviceAccessible> DeviceVec<u8, R> {
    /// Bytes with arbitrary contents, aligned as the layout asks, or to 256. The alignment stays when the buffer grows.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in); `UnsupportedAlignment` if the resource cannot.
    pub fn with_layout_in<'s>(layout: Layout, stream: impl OnStream<'s>, resource: R) -> Result<Self, Error> {
        Self::allocate(layout, stream.stream_ref(), resource)
    }

    /// All bytes as elements, to be read: a part of them by [`slice`](Self::slice) and [`DeviceSlice::cast`].
    ///
    /// ```
    /// use alluvion::{DeviceBuffer, Sim};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let mut buffer = DeviceBuffer::zeroed(1024, &stream)?;
    /// buffer.view_mut::<f32>()?.fill(0.5, &stream)?;
    /// assert_eq!(buffer.view::<f32>()?.get(255, &stream)?, 0.5);
    /// assert_eq!(buffer.slice(1000..1004)?.cast::<f32>()?.to_vec(&stream)?, [0.5]);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::cast`].
    pub fn view<T: DeviceCopy>(&self) -> Result<DeviceSlice<'_, T>, Error> {
        self.as_slice().cast()
    }

    /// All bytes as elements, to be written.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::cast`].
    pub fn view_mut<T: DeviceCopy>(&mut self) -> Result<DeviceSliceMut<'_, T>, Error> {
        self.as_mut_slice().cast_mut()
    }

    /// Reads the bytes as elements.
    ///
    /// # Errors
    ///
    /// The buffer itself, unless its length and its capacity are whole numbers of elements and the block is aligned
    /// for them.
    pub fn into_vec<T: DeviceCopy>(self) -> Result<DeviceVec<T, R>, Self> {
        let whole = |bytes: usize| bytes.is_multiple_of(size_of::<T>());
        let aligned = self.owned().block().layout.block_align() >= align_of::<T>();
        if whole(self.len()) && whole(self.capacity()) && aligned { Ok(self.of()) } else { Err(self) }
    }
}
