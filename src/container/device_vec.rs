//! `DeviceVec`: elements on a device.

#![expect(unsafe_code, reason = "takes the promises that a buffer needs")]

use core::fmt;
use core::marker::PhantomData;
use core::ops::RangeBounds;

use super::block::Block;
use super::chunks::{Chunks, ChunksMut};
use super::device_buffer::DeviceBuffer;
use super::device_copy::DeviceCopy;
use super::device_slice::DeviceSlice;
use super::device_slice_mut::DeviceSliceMut;
use super::forward::forward_to_slices;
use super::guard::{ReadGuard, WriteGuard};
use super::host_buffer::HostBuffer;
use super::raw_parts::RawParts;
use super::transfer::Transfer;
use crate::device::Device;
use crate::error::{Error, Returned};
use crate::resource::{AnyResource, DeviceAccessible, DevicePtr, Layout};
use crate::stream::{OnStream, StreamRef};

/// Elements on a device: what `Vec` is on the host.
///
/// An element is plain data, [`DeviceCopy`], any bits of which are a value. So elements that nobody has written may
/// be read; they have arbitrary values.
///
/// # Stream ordering
///
/// The stream that it is made on is its home: the block is allocated there and given back there. Every operation may
/// name any stream of the device; what has to come first comes first. See [`container`](crate::container).
///
/// # Thread safety
///
/// It may be sent, shared and dropped on any thread, whatever device is current there, if its resource may.
///
/// # Examples
///
/// ```
/// use alluvion::{DeviceVec, Sim};
///
/// let sim = Sim::new();
/// let (first, second) = (sim.device(0).stream()?, sim.device(0).stream()?);
/// let mut vector = DeviceVec::from_slice(&[1.0, 2.0, 3.0], &first)?;
/// vector.set(1, -0.0, &second)?; // Another stream: it waits for the first one, on the device.
/// assert_eq!(vector.to_vec(&first)?, [1.0, -0.0, 3.0]);
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// A vector cannot outlive its resource:
///
/// ```compile_fail,E0597
/// use alluvion::{DeviceVec, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream().unwrap();
/// let vector = {
///     let resource = Cuda::new(&sim.device(0));
///     DeviceVec::filled_in(8, 0_u8, &stream, &resource).unwrap()
/// };
/// drop(vector);
/// ```
pub struct DeviceVec<T, R: DeviceAccessible = AnyResource> {
    buffer: DeviceBuffer<R>,
    elements: PhantomData<T>,
}

static_assertions::assert_impl_all!(DeviceVec<f32>: Send, Sync);
static_assertions::assert_not_impl_any!(DeviceVec<f32>: Clone);

impl<T: DeviceCopy> DeviceVec<T> {
    /// `len` elements with arbitrary values, from the current resource of the stream's device.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn uninit<'s>(len: usize, stream: impl OnStream<'s>) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        Self::uninit_in(len, stream, stream.device().current_resource()?)
    }

    /// `len` elements whose bytes are zero, from the current resource of the stream's device.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn zeroed<'s>(len: usize, stream: impl OnStream<'s>) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        Self::zeroed_in(len, stream, stream.device().current_resource()?)
    }

    /// `len` elements of `value`, from the current resource of the stream's device.
    ///
    /// # Errors
    ///
    /// As [`filled_in`](Self::filled_in).
    pub fn filled<'s>(len: usize, value: T, stream: impl OnStream<'s>) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        Self::filled_in(len, value, stream, stream.device().current_resource()?)
    }

    /// No elements, and room for `capacity`, from the current resource of the stream's device.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn with_capacity<'s>(capacity: usize, stream: impl OnStream<'s>) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        Self::with_capacity_in(capacity, stream, stream.device().current_resource()?)
    }

    /// A copy of elements of the host, from the current resource of the stream's device. Waits for the copy.
    ///
    /// # Errors
    ///
    /// As [`from_slice_in`](Self::from_slice_in).
    pub fn from_slice<'s>(elements: &[T], stream: impl OnStream<'s>) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        Self::from_slice_in(elements, stream, stream.device().current_resource()?)
    }

    /// A copy of elements of a device, from the current resource of the stream's device.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn from_device<'s>(elements: DeviceSlice<'_, T>, stream: impl OnStream<'s>) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        Self::from_device_in(elements, stream, stream.device().current_resource()?)
    }
}

impl<T: DeviceCopy, R: DeviceAccessible> DeviceVec<T, R> {
    /// `len` elements with arbitrary values.
    ///
    /// # Errors
    ///
    /// `SizeOverflow`; `UnsupportedAlignment` if the resource cannot align for `T`; `DeviceMismatch` for a stream of
    /// another device than the resource's; as the resource says.
    pub fn uninit_in<'s>(len: usize, stream: impl OnStream<'s>, resource: R) -> Result<Self, Error> {
        const { assert!(size_of::<T>() > 0, "an element of a container has a size") };
        let buffer = DeviceBuffer::with_layout_in(Layout::array::<T>(len)?, stream, resource)?;
        Ok(Self { buffer, elements: PhantomData })
    }

    /// `len` elements whose bytes are zero.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn zeroed_in<'s>(len: usize, stream: impl OnStream<'s>, resource: R) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        let mut made = Self::uninit_in(len, stream, resource)?;
        made.as_mut_slice().fill_zero(stream)?;
        Ok(made)
    }

    /// `len` elements of `value`.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in) and [`DeviceSliceMut::fill`].
    pub fn filled_in<'s>(
        len: usize,
        value: T,
        stream: impl OnStream<'s>,
        resource: R,
    ) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        let mut made = Self::uninit_in(len, stream, resource)?;
        made.fill(value, stream)?;
        Ok(made)
    }

    /// No elements, and room for `capacity`.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn with_capacity_in<'s>(
        capacity: usize,
        stream: impl OnStream<'s>,
        resource: R,
    ) -> Result<Self, Error> {
        let mut made = Self::uninit_in(capacity, stream, resource)?;
        made.clear();
        Ok(made)
    }

    /// A copy of elements of the host. Waits for the copy.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in); `Capture` if the stream captures.
    pub fn from_slice_in<'s>(elements: &[T], stream: impl OnStream<'s>, resource: R) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        let mut made = Self::uninit_in(elements.len(), stream, resource)?;
        made.copy_from_slice(elements, stream)?;
        Ok(made)
    }

    /// A copy of elements of a device.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn from_device_in<'s>(
        elements: DeviceSlice<'_, T>,
        stream: impl OnStream<'s>,
        resource: R,
    ) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        let mut made = Self::uninit_in(elements.len(), stream, resource)?;
        made.copy_from(elements, stream)?;
        Ok(made)
    }

    /// A copy, from the same resource, with `stream` as its home. The capacity is the length.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn try_clone<'s>(&self, stream: impl OnStream<'s>) -> Result<Self, Error>
    where
        R: Clone,
    {
        Self::from_device_in(self.as_slice(), stream, self.resource().clone())
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len() / size_of::<T>()
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// How many elements it may have before it has to move.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffer.capacity() / size_of::<T>()
    }

    /// Where its memory comes from.
    #[must_use]
    pub fn resource(&self) -> &R {
        self.buffer.resource()
    }

    /// All elements, to be read.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.block(), 0, self.len())
    }

    /// All elements, to be written.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        let len = self.len();
        DeviceSliceMut::new(self.block_mut(), 0, len)
    }

    forward_to_slices!(T, "elements");

    /// The first element. Waits for it.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if there is none; as [`DeviceSlice::get`].
    pub fn front<'s>(&self, stream: impl OnStream<'s>) -> Result<T, Error> {
        self.get(0, stream)
    }

    /// The last element. Waits for it.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if there is none; as [`DeviceSlice::get`].
    pub fn back<'s>(&self, stream: impl OnStream<'s>) -> Result<T, Error> {
        self.get(self.len().saturating_sub(1), stream)
    }

    /// Changes the length. Elements that are new are `value`.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve) and [`DeviceSliceMut::fill`]. The elements are then as they were.
    pub fn resize<'s>(&mut self, len: usize, value: T, stream: impl OnStream<'s>) -> Result<(), Error> {
        let stream = stream.stream_ref();
        self.grow(len, stream, |new| new.fill(value, stream))
    }

    /// Changes the length. Elements that are new have arbitrary values.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve). The elements are then as they were.
    pub fn resize_uninit<'s>(&mut self, len: usize, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.grow(len, stream.stream_ref(), |_| Ok(()))
    }

    /// Appends elements of the host. Waits for the copy.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve) and [`DeviceSliceMut::copy_from_slice`]. The elements are then as they were.
    pub fn extend_from_slice<'s>(&mut self, elements: &[T], stream: impl OnStream<'s>) -> Result<(), Error> {
        let stream = stream.stream_ref();
        let len = self.bytes_for(elements.len())? / size_of::<T>();
        self.grow(len, stream, |new| new.copy_from_slice(elements, stream))
    }

    /// Changes the length, and has `write` fill what is new.
    fn grow(
        &mut self,
        len: usize,
        stream: StreamRef<'_>,
        write: impl FnOnce(&mut DeviceSliceMut<'_, T>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let before = self.len();
        if len <= before {
            self.truncate(len);
            return Ok(());
        }
        self.reserve(len - before, stream)?;
        let at = before * size_of::<T>();
        write(&mut DeviceSliceMut::new(self.block_mut(), at, len - before))?;
        self.block_mut().len = len * size_of::<T>();
        Ok(())
    }

    /// Makes room for `additional` more elements, and at least twice the room there was, so that growing step by step
    /// costs no more than a constant for each element.
    ///
    /// A vector that has to move is copied on `stream`, and its old block is given back behind the copy.
    ///
    /// # Errors
    ///
    /// `SizeOverflow`; `DeviceMismatch` for a stream of another device; as the resource says. The vector is then as
    /// it was.
    pub fn reserve<'s>(&mut self, additional: usize, stream: impl OnStream<'s>) -> Result<(), Error> {
        let bytes = self.bytes_for(additional)?;
        self.buffer.reserve(bytes - self.buffer.len(), stream)
    }

    /// Makes room for `additional` more elements, and no more.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve).
    pub fn reserve_exact<'s>(&mut self, additional: usize, stream: impl OnStream<'s>) -> Result<(), Error> {
        let bytes = self.bytes_for(additional)?;
        self.buffer.reserve_exact(bytes - self.buffer.len(), stream)
    }

    /// Bytes of all elements and `additional` more.
    fn bytes_for(&self, additional: usize) -> Result<usize, Error> {
        let overflow = || Error::size_overflow(additional, size_of::<T>());
        let len = self.len().checked_add(additional).ok_or_else(overflow)?;
        Ok(Layout::array::<T>(len)?.bytes())
    }

    /// Moves to a block that has no more room than is in use. An empty vector gives its block back.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve).
    pub fn shrink_to_fit<'s>(&mut self, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.buffer.shrink_to_fit(stream)
    }

    /// Drops the elements from `len` on; the capacity stays. Has no effect if there are no more.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.buffer.truncate(len * size_of::<T>());
        }
    }

    /// Drops all elements; the capacity stays.
    pub fn clear(&mut self) {
        self.buffer.clear();
    }

    /// The bytes, with the same home and the same block.
    #[must_use]
    pub fn into_buffer(self) -> DeviceBuffer<R> {
        self.buffer
    }

    /// Takes the vector apart without giving its block back.
    pub fn into_raw_parts(self) -> RawParts<R> {
        self.buffer.into_raw_parts()
    }

    /// Makes a vector of its parts.
    ///
    /// # Safety
    ///
    /// - As [`DeviceBuffer::from_raw_parts`].
    /// - The layout's bytes and `len_bytes` are multiples of the size of `T`, and the block is aligned for it.
    #[must_use]
    pub unsafe fn from_raw_parts(parts: RawParts<R>) -> Self {
        // SAFETY: the caller's promise.
        Self::from_whole_buffer(unsafe { DeviceBuffer::from_raw_parts(parts) })
    }

    /// The caller has checked that length, capacity and alignment are those of elements.
    fn from_whole_buffer(buffer: DeviceBuffer<R>) -> Self {
        const { assert!(size_of::<T>() > 0, "an element of a container has a size") };
        debug_assert!(buffer.len().is_multiple_of(size_of::<T>()));
        Self { buffer, elements: PhantomData }
    }

    fn block(&self) -> &Block {
        self.buffer.block()
    }

    fn block_mut(&mut self) -> &mut Block {
        self.buffer.block_mut()
    }
}

impl<T, R: DeviceAccessible> DeviceVec<T, R> {
    pub(crate) fn buffer(&self) -> &DeviceBuffer<R> {
        &self.buffer
    }
}

impl<R: DeviceAccessible> DeviceBuffer<R> {
    /// Reads the bytes as elements.
    ///
    /// # Errors
    ///
    /// The buffer itself, unless its length and its capacity are whole numbers of elements and the block is aligned
    /// for them.
    pub fn into_vec<T: DeviceCopy>(self) -> Result<DeviceVec<T, R>, Self> {
        let whole = |bytes: usize| bytes.is_multiple_of(size_of::<T>());
        let aligned = self.block().layout.block_align() >= align_of::<T>();
        if whole(self.len()) && whole(self.capacity()) && aligned {
            Ok(DeviceVec::from_whole_buffer(self))
        } else {
            Err(self)
        }
    }
}

impl<'a, T: DeviceCopy, R: DeviceAccessible> From<&'a DeviceVec<T, R>> for DeviceSlice<'a, T> {
    fn from(vector: &'a DeviceVec<T, R>) -> Self {
        vector.as_slice()
    }
}

impl<'a, T: DeviceCopy, R: DeviceAccessible> From<&'a mut DeviceVec<T, R>> for DeviceSliceMut<'a, T> {
    fn from(vector: &'a mut DeviceVec<T, R>) -> Self {
        vector.as_mut_slice()
    }
}

impl<T: DeviceCopy, R: DeviceAccessible> fmt::Debug for DeviceVec<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, capacity) = (self.len(), self.capacity());
        write!(f, "DeviceVec({len} of {capacity} {} in {:?})", core::any::type_name::<T>(), self.buffer)
    }
}
