//! `DeviceBuffer`: bytes, and the owner of every container's block.

#![expect(unsafe_code, reason = "owns a block, and gives it back")]

use core::fmt;
use core::mem::{self, ManuallyDrop};
use core::ops::RangeBounds;

use super::access::Access;
use super::block::{Block, outside_of_graphs};
use super::capture::refuse_capture;
use super::chunks::{Chunks, ChunksMut};
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
use crate::resource::Describe;
use crate::resource::{AnyResource, DeviceAccessible, DevicePtr, Export, Layout};
use crate::stream::{OnStream, StreamRef};

/// Bytes on a device.
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
/// use alluvion::{DeviceBuffer, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let mut buffer = DeviceBuffer::from_slice(b"alluvion", &stream)?;
/// buffer.resize(10, b'!', &stream)?;
/// assert_eq!(buffer.to_vec(&stream)?, b"alluvion!!");
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct DeviceBuffer<R: DeviceAccessible = AnyResource> {
    block: Block,
    resource: ManuallyDrop<R>,
}

static_assertions::assert_impl_all!(DeviceBuffer: Send, Sync);
static_assertions::assert_not_impl_any!(DeviceBuffer: Clone);

impl DeviceBuffer {
    /// `len` bytes with arbitrary contents, from the current resource of the stream's device.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn uninit<'s>(len: usize, stream: impl OnStream<'s>) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        Self::uninit_in(len, stream, stream.device().current_resource()?)
    }

    /// `len` bytes of zero, from the current resource of the stream's device.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn zeroed<'s>(len: usize, stream: impl OnStream<'s>) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        Self::zeroed_in(len, stream, stream.device().current_resource()?)
    }

    /// A copy of bytes of the host, from the current resource of the stream's device. Waits for the copy.
    ///
    /// # Errors
    ///
    /// As [`from_slice_in`](Self::from_slice_in).
    pub fn from_slice<'s>(bytes: &[u8], stream: impl OnStream<'s>) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        Self::from_slice_in(bytes, stream, stream.device().current_resource()?)
    }

    /// A copy of bytes of a device, from the current resource of the stream's device.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn from_device<'s>(bytes: DeviceSlice<'_, u8>, stream: impl OnStream<'s>) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        Self::from_device_in(bytes, stream, stream.device().current_resource()?)
    }
}

impl<R: DeviceAccessible> DeviceBuffer<R> {
    /// `len` bytes with arbitrary contents. They may be read: any byte is a byte.
    ///
    /// # Errors
    ///
    /// `SizeOverflow`; `DeviceMismatch` for a stream of another device than the resource's; as the resource says.
    pub fn uninit_in<'s>(len: usize, stream: impl OnStream<'s>, resource: R) -> Result<Self, Error> {
        Self::with_layout_in(Layout::from_bytes(len)?, stream, resource)
    }

    /// Bytes with arbitrary contents, aligned as the layout asks, or to 256. The alignment stays when the buffer grows.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in); `UnsupportedAlignment` if the resource cannot.
    pub fn with_layout_in<'s>(layout: Layout, stream: impl OnStream<'s>, resource: R) -> Result<Self, Error> {
        let mut block = Block::allocate(&resource, layout, stream.stream_ref())?;
        block.len = layout.bytes();
        Ok(Self { block, resource: ManuallyDrop::new(resource) })
    }

    /// `len` bytes of zero.
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

    /// A copy of bytes of the host. Waits for the copy.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in); `Capture` if the stream captures.
    pub fn from_slice_in<'s>(bytes: &[u8], stream: impl OnStream<'s>, resource: R) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        let mut made = Self::uninit_in(bytes.len(), stream, resource)?;
        made.copy_from_slice(bytes, stream)?;
        Ok(made)
    }

    /// A copy of bytes of a device.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn from_device_in<'s>(
        bytes: DeviceSlice<'_, u8>,
        stream: impl OnStream<'s>,
        resource: R,
    ) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        let mut made = Self::uninit_in(bytes.len(), stream, resource)?;
        made.copy_from(bytes, stream)?;
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
        let layout = Layout::new(self.len(), self.block.layout.align())?;
        let mut made = Self::with_layout_in(layout, stream, (*self.resource).clone())?;
        made.copy_from(self.as_slice(), stream)?;
        Ok(made)
    }

    /// How many bytes are in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.block.len
    }

    /// Returns `true` if none are in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.block.len == 0
    }

    /// How many bytes it may have before it has to move.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.block.layout.bytes()
    }

    /// The alignment that was asked for.
    #[must_use]
    pub fn align(&self) -> usize {
        self.block.layout.align()
    }

    /// Where its memory comes from.
    #[must_use]
    pub fn resource(&self) -> &R {
        &self.resource
    }

    /// All bytes, to be read.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, u8> {
        DeviceSlice::new(&self.block, 0, self.block.len)
    }

    /// All bytes, to be written.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, u8> {
        DeviceSliceMut::new(&self.block, 0, self.block.len)
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

    forward_to_slices!(u8, "bytes");

    /// Changes the length. Bytes that are new are `value`.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve) and [`DeviceSliceMut::fill`]. The bytes are then as they were.
    pub fn resize<'s>(&mut self, len: usize, value: u8, stream: impl OnStream<'s>) -> Result<(), Error> {
        let stream = stream.stream_ref();
        self.grow(len, stream, |new| new.fill(value, stream))
    }

    /// Changes the length. Bytes that are new have arbitrary contents.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve). The bytes are then as they were.
    pub fn resize_uninit<'s>(&mut self, len: usize, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.grow(len, stream.stream_ref(), |_| Ok(()))
    }

    /// Appends bytes of the host. Waits for the copy.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve) and [`DeviceSliceMut::copy_from_slice`]. The bytes are then as they were.
    pub fn extend_from_slice<'s>(&mut self, bytes: &[u8], stream: impl OnStream<'s>) -> Result<(), Error> {
        let stream = stream.stream_ref();
        let len = self.room_for(bytes.len())?;
        self.grow(len, stream, |new| new.copy_from_slice(bytes, stream))
    }

    /// Changes the length, and has `write` fill what is new.
    fn grow(
        &mut self,
        len: usize,
        stream: StreamRef<'_>,
        write: impl FnOnce(&mut DeviceSliceMut<'_, u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let before = self.len();
        if len <= before {
            self.truncate(len);
            return Ok(());
        }
        self.reserve(len - before, stream)?;
        write(&mut DeviceSliceMut::new(&self.block, before, len - before))?;
        self.block.len = len;
        Ok(())
    }

    /// Makes room for `additional` more bytes, and at least twice the room there was, so that growing step by step
    /// costs no more than a constant for each byte.
    ///
    /// A buffer that has to move is copied on `stream`, and its old block is given back behind the copy.
    ///
    /// # Errors
    ///
    /// `SizeOverflow`; `DeviceMismatch` for a stream of another device; as the resource says. The buffer is then as
    /// it was.
    pub fn reserve<'s>(&mut self, additional: usize, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.make_room(additional, stream.stream_ref(), |capacity, wanted, align| {
            let doubled = capacity.saturating_mul(2).max(wanted);
            // Twice may be more than an allocation can be, where what is wanted is not.
            Layout::new(doubled, align).or_else(|_| Layout::new(wanted, align))
        })
    }

    /// Makes room for `additional` more bytes, and no more.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve).
    pub fn reserve_exact<'s>(&mut self, additional: usize, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.make_room(additional, stream.stream_ref(), |_, wanted, align| Layout::new(wanted, align))
    }

    /// Moves to the block that `layout` says, of the capacity, the bytes wanted and the alignment, if there is no room yet.
    fn make_room(
        &mut self,
        additional: usize,
        stream: StreamRef<'_>,
        layout: fn(usize, usize, usize) -> Result<Layout, Error>,
    ) -> Result<(), Error> {
        let wanted = self.room_for(additional)?;
        self.device().require(stream.device())?;
        let capacity = self.capacity();
        if wanted <= capacity {
            return Ok(());
        }
        self.reallocate(layout(capacity, wanted, self.align())?, stream)
    }

    fn room_for(&self, additional: usize) -> Result<usize, Error> {
        self.len().checked_add(additional).ok_or(Error::size_overflow(additional, 1))
    }

    /// Moves to a block that has no more room than is in use. An empty buffer gives its block back.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve).
    pub fn shrink_to_fit<'s>(&mut self, stream: impl OnStream<'s>) -> Result<(), Error> {
        let stream = stream.stream_ref();
        self.device().require(stream.device())?;
        if self.len() == self.capacity() {
            return Ok(());
        }
        self.reallocate(Layout::new(self.len(), self.align())?, stream)
    }

    /// Drops the bytes from `len` on; the capacity stays. Has no effect if there are no more.
    pub fn truncate(&mut self, len: usize) {
        self.block.len = self.block.len.min(len);
    }

    /// Drops all bytes; the capacity stays.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Moves what is in use to a new block, which is at least as long. The home stays.
    fn reallocate(&mut self, layout: Layout, stream: StreamRef<'_>) -> Result<(), Error> {
        let mut fresh = Block::allocate(&*self.resource, layout, self.block.home.as_ref())?;
        fresh.len = self.block.len;
        let moved = self.block.copy_into(&fresh, self.block.len, stream);
        let mut unused = if moved.is_ok() { mem::replace(&mut self.block, fresh) } else { fresh };
        // SAFETY: both blocks came from this resource; the one that the buffer does not keep is not used again.
        unsafe { unused.deallocate_to(&*self.resource) };
        moved
    }

    /// Takes the buffer apart without giving its block back.
    pub fn into_raw_parts(self) -> RawParts<R> {
        let (block, resource) = self.dismantle();
        let frontier = block.frontier();
        RawParts {
            block: block.address,
            layout: block.layout,
            len_bytes: block.len,
            home: block.home,
            frontier,
            resource,
        }
    }

    /// Makes a buffer of its parts.
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
    /// - `len_bytes` is at most the layout's bytes.
    /// - The home is a stream of the resource's device, and every use of the block, its allocation included, comes before its next
    ///   work, or is in the frontier.
    #[must_use]
    pub unsafe fn from_raw_parts(parts: RawParts<R>) -> Self {
        let RawParts { block, layout, len_bytes, home, frontier, resource } = parts;
        debug_assert!(len_bytes <= layout.bytes());
        let block = Block::adopt(block, layout, len_bytes, home, &frontier);
        Self { block, resource: ManuallyDrop::new(resource) }
    }

    pub(super) fn block(&self) -> &Block {
        &self.block
    }

    /// Runs `submit`, which submits to `stream` what comes behind all uses of the buffer.
    pub(crate) fn behind_all_uses<X>(
        &self,
        stream: StreamRef<'_>,
        submit: impl FnOnce() -> Result<X, Error>,
    ) -> Result<X, Error> {
        self.device().require(stream.device())?;
        refuse_capture(stream)?;
        outside_of_graphs(stream, &[&self.block], || self.block.access(stream, Access::Write, submit))
    }

    /// The memory that the buffer lies in, for other processes.
    pub(crate) fn export(&self) -> Result<Export, Error> {
        // SAFETY: the block is live, because the buffer has it, and came from this resource, or from one with its id, with this layout.
        unsafe { self.resource.export(self.block.address, self.block.layout) }
    }

    pub(super) fn block_mut(&mut self) -> &mut Block {
        &mut self.block
    }

    /// Block and resource, without giving the block back.
    fn dismantle(self) -> (Block, R) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped and not used again but for the resource, so the block has one owner.
        let block = unsafe { core::ptr::read(&raw const this.block) };
        // SAFETY: `this` is not dropped and not used again.
        let resource = unsafe { ManuallyDrop::take(&mut this.resource) };
        (block, resource)
    }
}

impl<'a, R: DeviceAccessible> From<&'a DeviceBuffer<R>> for DeviceSlice<'a, u8> {
    fn from(buffer: &'a DeviceBuffer<R>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, R: DeviceAccessible> From<&'a mut DeviceBuffer<R>> for DeviceSliceMut<'a, u8> {
    fn from(buffer: &'a mut DeviceBuffer<R>) -> Self {
        buffer.as_mut_slice()
    }
}

impl<R: DeviceAccessible> Drop for DeviceBuffer<R> {
    fn drop(&mut self) {
        // SAFETY: the block came from this resource, or one with its id, and its owner is gone.
        unsafe { self.block.deallocate_to(&*self.resource) };
        // SAFETY: nobody uses it after the drop, and the drop runs once.
        unsafe { ManuallyDrop::drop(&mut self.resource) };
    }
}

impl<R: DeviceAccessible> fmt::Debug for DeviceBuffer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = &self.block;
        write!(f, "DeviceBuffer({} of {} bytes at {}", block.len, block.layout.bytes(), block.address)?;
        write!(f, ", home {:?}, {})", block.home, Describe::new(&*self.resource))
    }
}
