//! `DeviceVec`: elements on a device.

#![expect(unsafe_code, reason = "takes the promises that a block needs")]

use core::fmt;
use core::marker::PhantomData;

use super::device_buffer::DeviceBuffer;
use super::device_copy::DeviceCopy;
use super::device_slice::DeviceSlice;
use super::device_slice_mut::DeviceSliceMut;
use super::owned::Owned;
use super::raw_parts::RawParts;
use crate::error::Error;
use crate::resource::{AnyResource, DeviceAccessible, Layout};
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
    owned: Owned<R>,
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
        Self::allocate(Layout::array::<T>(len)?, stream.stream_ref(), resource)
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
        let stream = stream.stream_ref();
        let layout = Layout::new(self.owned.block().len(), self.align())?;
        let mut made = Self::allocate(layout, stream, self.resource().clone())?;
        made.copy_from(self.as_slice(), stream)?;
        Ok(made)
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owned.block().len() / size_of::<T>()
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.owned.block().len() == 0
    }

    /// How many elements it may have before it has to move.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.owned.block().layout.bytes() / size_of::<T>()
    }

    /// The alignment that was asked for: that of an element, or of the layout of a [`DeviceBuffer`].
    #[must_use]
    pub fn align(&self) -> usize {
        self.owned.block().layout.align()
    }

    /// Where its memory comes from.
    #[must_use]
    pub fn resource(&self) -> &R {
        self.owned.resource()
    }

    /// All elements, to be read.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.owned.block(), 0, self.len())
    }

    /// All elements, to be written.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(self.owned.block(), 0, self.len())
    }

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
        write(&mut DeviceSliceMut::new(self.owned.block(), at, len - before))?;
        self.owned.block_mut().len = len * size_of::<T>();
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
        self.owned.make_room(self.bytes_for(additional)?, stream.stream_ref(), |capacity, wanted, align| {
            let doubled = capacity.saturating_mul(2).max(wanted);
            // Twice may be more than an allocation can be, where what is wanted is not.
            Layout::new(doubled, align).or_else(|_| Layout::new(wanted, align))
        })
    }

    /// Makes room for `additional` more elements, and no more.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve).
    pub fn reserve_exact<'s>(&mut self, additional: usize, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.owned.make_room(self.bytes_for(additional)?, stream.stream_ref(), |_, wanted, align| {
            Layout::new(wanted, align)
        })
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
        self.owned.shrink_to_fit(stream.stream_ref())
    }

    /// Drops the elements from `len` on; the capacity stays. Has no effect if there are no more.
    pub fn truncate(&mut self, len: usize) {
        self.owned.block_mut().len = self.len().min(len) * size_of::<T>();
    }

    /// Drops all elements; the capacity stays.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// The bytes, with the same home and the same block.
    #[must_use]
    pub fn into_buffer(self) -> DeviceBuffer<R> {
        self.of()
    }

    /// Takes the vector apart without giving its block back.
    pub fn into_raw_parts(self) -> RawParts<R> {
        self.owned.into_raw_parts()
    }

    /// Makes a vector of its parts.
    ///
    /// ```
    /// use alluvion::{DeviceBuffer, Sim};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let parts = DeviceBuffer::zeroed(16, &stream)?.into_raw_parts();
    /// // SAFETY: the parts are those of one buffer, unchanged.
    /// let buffer = unsafe { DeviceBuffer::from_raw_parts(parts) };
    /// assert_eq!(buffer.len(), 16);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// - The block is live and came from the resource, or from one with its id, with this layout; nobody else gives
    ///   it back. For an empty layout, any address.
    /// - `len_bytes` is at most the layout's bytes; both are multiples of the size of `T`, and the block is aligned for it.
    /// - The home is a stream of the resource's device, and every use of the block, its allocation included, comes before its next
    ///   work, or is in the frontier.
    #[must_use]
    pub unsafe fn from_raw_parts(parts: RawParts<R>) -> Self {
        // SAFETY: the caller's promise.
        Self::over(unsafe { Owned::from_raw_parts(parts) })
    }

    /// Elements with arbitrary values in a block of that layout, whose bytes are whole elements, and which is aligned for them.
    pub(super) fn allocate(layout: Layout, stream: StreamRef<'_>, resource: R) -> Result<Self, Error> {
        Owned::allocate(layout, stream, resource).map(Self::over)
    }

    /// The same block, of other elements. The caller has checked that length, capacity and alignment are theirs.
    pub(super) fn of<E: DeviceCopy>(self) -> DeviceVec<E, R> {
        DeviceVec::over(self.owned)
    }

    fn over(owned: Owned<R>) -> Self {
        const { assert!(size_of::<T>() > 0, "an element of a container has a size") };
        debug_assert!(owned.block().len().is_multiple_of(size_of::<T>()));
        Self { owned, elements: PhantomData }
    }

    pub(super) fn owned_mut(&mut self) -> &mut Owned<R> {
        &mut self.owned
    }
}

impl<T, R: DeviceAccessible> DeviceVec<T, R> {
    pub(crate) fn owned(&self) -> &Owned<R> {
        &self.owned
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
        write!(f, "DeviceVec({len} of {capacity} {} {:?})", core::any::type_name::<T>(), self.owned)
    }
}
