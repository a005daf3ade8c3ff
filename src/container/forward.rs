//! What a vector does with all of its elements, as its slices do.

use core::ops::RangeBounds;

use super::chunks::{Chunks, ChunksMut};
use super::device_copy::DeviceCopy;
use super::device_slice::DeviceSlice;
use super::device_slice_mut::DeviceSliceMut;
use super::device_vec::DeviceVec;
use super::guard::{ReadGuard, WriteGuard};
use super::host_buffer::HostBuffer;
use super::transfer::Transfer;
use crate::device::Device;
use crate::error::{Error, Returned};
use crate::resource::{DeviceAccessible, DevicePtr};
use crate::stream::{OnStream, StreamRef};

/// On all elements, as its slices.
impl<T: DeviceCopy, R: DeviceAccessible> DeviceVec<T, R> {
    /// The address of the first. For kernels, take it from a guard: [`read_on`](Self::read_on),
    /// [`write_on`](Self::write_on).
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePtr {
        self.as_slice().as_device_ptr()
    }

    /// The device that it is on.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.owned().block().device()
    }

    /// The home stream: where the block was allocated, or handed on to, and will be given back.
    #[must_use]
    pub fn stream(&self) -> StreamRef<'_> {
        self.owned().block().home.as_ref()
    }

    /// Makes another stream the home. It follows the old one.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a stream of another device; a capture error if one of the two captures; as the driver
    /// says. The home stays then.
    pub fn set_stream<'s>(&mut self, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.owned_mut().block_mut().set_home(stream.stream_ref())
    }

    /// Enters an unrecorded use: all work that `stream` has been given so far. Later accesses follow it.
    ///
    /// For work that was launched with an address that did not come from a guard. A guard is better: it also
    /// makes the work follow what comes before.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a stream of another machine, whose work cannot be waited for.
    pub fn record_use<'s>(&self, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.owned().block().record_use(stream.stream_ref())
    }

    /// Some of the elements, to be read.
    ///
    /// # Errors
    ///
    /// `OutOfRange` unless the range lies inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<DeviceSlice<'_, T>, Error> {
        self.as_slice().slice(range)
    }

    /// Some of the elements, to be written.
    ///
    /// # Errors
    ///
    /// `OutOfRange` unless the range lies inside.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<DeviceSliceMut<'_, T>, Error> {
        self.as_mut_slice().slice_mut(range)
    }

    /// The elements before `mid`, and the others, to be read.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::split_at`].
    pub fn split_at(&self, mid: usize) -> Result<(DeviceSlice<'_, T>, DeviceSlice<'_, T>), Error> {
        self.as_slice().split_at(mid)
    }

    /// The elements before `mid`, and the others, to be written, each on a stream of its own if need be.
    ///
    /// # Errors
    ///
    /// As [`DeviceSliceMut::split_at_mut`].
    pub fn split_at_mut(
        &mut self,
        mid: usize,
    ) -> Result<(DeviceSliceMut<'_, T>, DeviceSliceMut<'_, T>), Error> {
        self.as_mut_slice().split_at_mut(mid)
    }

    /// Parts of `size` elements, to be read, the last one of fewer if they do not come out even.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::chunks`].
    pub fn chunks(&self, size: usize) -> Result<Chunks<'_, T>, Error> {
        self.as_slice().chunks(size)
    }

    /// Parts of `size` elements, to be written, the last one of fewer if they do not come out even.
    ///
    /// # Errors
    ///
    /// As [`DeviceSliceMut::chunks_mut`].
    pub fn chunks_mut(&mut self, size: usize) -> Result<ChunksMut<'_, T>, Error> {
        self.as_mut_slice().chunks_mut(size)
    }

    /// The one at `index`. Waits for it.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::get`].
    pub fn get<'s>(&self, index: usize, stream: impl OnStream<'s>) -> Result<T, Error> {
        self.as_slice().get(index, stream)
    }

    /// Sets the one at `index`.
    ///
    /// # Errors
    ///
    /// As [`DeviceSliceMut::set`].
    pub fn set<'s>(&mut self, index: usize, value: T, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.as_mut_slice().set(index, value, stream)
    }

    /// Sets all bytes of the one at `index` to zero. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`DeviceSliceMut::set_zero`].
    pub fn set_zero<'s>(&mut self, index: usize, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.as_mut_slice().set_zero(index, stream)
    }

    /// Sets all elements to `value`.
    ///
    /// # Errors
    ///
    /// As [`DeviceSliceMut::fill`].
    pub fn fill<'s>(&mut self, value: T, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.as_mut_slice().fill(value, stream)
    }

    /// All elements, on the host. Waits for them.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::to_vec`].
    pub fn to_vec<'s>(&self, stream: impl OnStream<'s>) -> Result<Vec<T>, Error> {
        self.as_slice().to_vec(stream)
    }

    /// Copies all elements to the host, and waits.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::copy_to_slice`].
    pub fn copy_to_slice<'s>(&self, into: &mut [T], stream: impl OnStream<'s>) -> Result<(), Error> {
        self.as_slice().copy_to_slice(into, stream)
    }

    /// Copies all elements from the host, and waits.
    ///
    /// # Errors
    ///
    /// As [`DeviceSliceMut::copy_from_slice`].
    pub fn copy_from_slice<'s>(&mut self, from: &[T], stream: impl OnStream<'s>) -> Result<(), Error> {
        self.as_mut_slice().copy_from_slice(from, stream)
    }

    /// Copies all elements from another container, on the device. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`DeviceSliceMut::copy_from`].
    pub fn copy_from<'s>(
        &mut self,
        from: DeviceSlice<'_, T>,
        stream: impl OnStream<'s>,
    ) -> Result<(), Error> {
        self.as_mut_slice().copy_from(from, stream)
    }

    /// Copies all elements to a buffer that the transfer owns until it is done. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::download`].
    pub fn download<'s, B: HostBuffer<Item = T>>(
        &self,
        into: B,
        stream: impl OnStream<'s>,
    ) -> Result<Transfer<B>, Returned<Option<B>>> {
        self.as_slice().download(into, stream)
    }

    /// Copies all elements from a buffer that the transfer owns until it is done. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`DeviceSliceMut::upload`].
    pub fn upload<'s, B: HostBuffer<Item = T>>(
        &mut self,
        from: B,
        stream: impl OnStream<'s>,
    ) -> Result<Transfer<B>, Returned<Option<B>>> {
        self.as_mut_slice().upload(from, stream)
    }

    /// The address, for work on `stream` that reads: what comes before, comes before.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::read_on`].
    pub fn read_on<'a>(&'a self, stream: impl OnStream<'a>) -> Result<ReadGuard<'a, T>, Error> {
        self.as_slice().read_on(stream)
    }

    /// The address, for work on `stream` that reads and writes: what comes before, comes before.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::read_on`].
    pub fn write_on<'a>(&'a mut self, stream: impl OnStream<'a>) -> Result<WriteGuard<'a, T>, Error> {
        self.as_mut_slice().write_on(stream)
    }
}
