//! `DeviceSlice<'a, T>`: elements of a container, borrowed.

#![expect(unsafe_code, reason = "copies from the device into memory of the host")]

use core::alloc;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Bound, RangeBounds};
use core::ptr::NonNull;
use std::alloc::alloc_zeroed;

use super::access::Access;
use super::block::{self, Block};
use super::courier::Courier;
use super::device_copy::DeviceCopy;
use super::host_buffer::HostBuffer;
use super::settle::{Settled, settle_copy, try_settle_copy};
use super::transfer::Transfer;
use crate::device::Device;
use crate::error::{Error, Returned};
use crate::resource::DevicePtr;
use crate::stream::{OnStream, StreamRef};

/// Elements of a container, borrowed to be read.
///
/// # Stream ordering
///
/// Every operation may name any stream of the device, and follows the writes of all others. See
/// [`container`](crate::container).
///
/// # Examples
///
/// ```
/// use alluvion::{DeviceVec, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let vector = DeviceVec::from_slice(&[1, 2, 3, 4], &stream)?;
/// let middle = vector.slice(1..3)?;
/// assert_eq!(middle.to_vec(&stream)?, [2, 3]);
/// assert!(vector.slice(3..5).unwrap_err().is_out_of_range());
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct DeviceSlice<'a, T> {
    block: &'a Block,
    /// Bytes from the start of the block.
    at: usize,
    /// Elements.
    len: usize,
    elements: PhantomData<&'a [T]>,
}

static_assertions::assert_impl_all!(DeviceSlice<'static, u8>: Send, Sync, Copy);

impl<'a, T: DeviceCopy> DeviceSlice<'a, T> {
    /// `len` elements, `at` bytes into the block: the caller has checked that they are there.
    pub(super) fn new(block: &'a Block, at: usize, len: usize) -> Self {
        const { assert!(size_of::<T>() > 0, "an element of a container has a size") };
        debug_assert!(at + len * size_of::<T>() <= block.layout.bytes());
        Self { block, at, len, elements: PhantomData }
    }

    pub(crate) fn block(&self) -> &'a Block {
        self.block
    }

    /// Bytes from the start of the block.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Bytes that the elements take.
    pub(super) fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element. For kernels, take it from a guard: [`read_on`](Self::read_on).
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePtr {
        self.block.address.offset(self.at)
    }

    /// The device that the elements are on.
    #[must_use]
    pub fn device(&self) -> &'a Device {
        self.block.device()
    }

    /// Some of the elements.
    ///
    /// # Errors
    ///
    /// `OutOfRange` unless the range lies inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self, Error> {
        let (start, end) = resolve(&range, self.len)?;
        Ok(self.part(start, end))
    }

    /// The caller has checked that the elements are there.
    pub(super) fn part(&self, start: usize, end: usize) -> Self {
        Self::new(self.block, self.at + start * size_of::<T>(), end - start)
    }

    /// The same bytes as elements of another type. Any bits are values of either.
    ///
    /// ```
    /// use alluvion::{DeviceVec, Sim};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let vector = DeviceVec::from_slice(&[1.0_f32, -1.0, 0.5], &stream)?;
    /// assert_eq!(vector.as_slice().cast::<u32>()?.to_vec(&stream)?, [0x3f80_0000, 0xbf80_0000, 0x3f00_0000]);
    /// assert_eq!(
    ///     vector.as_slice().cast::<u64>().unwrap_err().to_string(),
    ///     "invalid argument: 12 bytes are no whole number of elements of 8 bytes: cut the slice to a multiple of them",
    /// );
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless the bytes are a whole number of elements, and the slice begins where its block is sure to be
    /// aligned for them: wherever the block lies, the answer is the same.
    pub fn cast<U: DeviceCopy>(self) -> Result<DeviceSlice<'a, U>, Error> {
        const { assert!(size_of::<U>() > 0, "an element of a container has a size") };
        let (bytes, size, align) = (self.bytes(), size_of::<U>(), align_of::<U>());
        if !bytes.is_multiple_of(size) {
            return Err(Error::invalid_argument_that(format!(
                "{bytes} bytes are no whole number of elements of {size} bytes: cut the slice to a multiple of them"
            )));
        }
        let block_align = self.block.layout.block_align();
        if block_align < align || !self.at.is_multiple_of(align) {
            return Err(Error::invalid_argument_that(format!(
                "a slice {} bytes into a block aligned to {block_align} is not aligned to {align}: begin at a multiple, in a block made \
                 with that alignment",
                self.at
            )));
        }
        Ok(DeviceSlice::new(self.block, self.at, bytes / size))
    }

    /// The elements before `mid`, and the others.
    ///
    /// A slice of the host panics where this is an error. Here every call gives a `Result` anyway, and a length that came out
    /// of data should not end a program that has the device at work.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if there are fewer than `mid`.
    pub fn split_at(&self, mid: usize) -> Result<(Self, Self), Error> {
        Ok((self.slice(..mid)?, self.slice(mid..)?))
    }

    /// The element at `index`. Waits for it.
    ///
    /// # Errors
    ///
    /// `OutOfRange`; as [`copy_to_slice`](Self::copy_to_slice).
    pub fn get<'s>(&self, index: usize, stream: impl OnStream<'s>) -> Result<T, Error> {
        // On the heap, where it can be leaked: see `to_vec`.
        Ok(self.element(index)?.to_vec(stream)?[0])
    }

    pub(super) fn element(&self, index: usize) -> Result<Self, Error> {
        if index >= self.len {
            return Err(Error::out_of_range(index, self.len));
        }
        Ok(Self::new(self.block, self.at + index * size_of::<T>(), 1))
    }

    /// All elements, on the host. Waits for them.
    ///
    /// # Errors
    ///
    /// As [`copy_to_slice`](Self::copy_to_slice); `OutOfMemory` if the host has not enough. Where nobody can say whether the copy
    /// is over, as while the process exits, its memory is leaked.
    pub fn to_vec<'s>(&self, stream: impl OnStream<'s>) -> Result<Vec<T>, Error> {
        self.read_back(stream.stream_ref())
    }

    fn read_back(&self, stream: StreamRef<'_>) -> Result<Vec<T>, Error> {
        let Some(courier) = self.admit_read_back(stream)? else { return Ok(Vec::new()) };
        // Not dropped while the copy may write there.
        let mut elements = ManuallyDrop::new(self.zeroed_on_host()?);
        // SAFETY: the room is kept until `try_settle_copy` says that nothing writes there any more, and for ever if it does not.
        let submitted = unsafe { self.submit_download(elements.as_mut_ptr(), courier) };
        match try_settle_copy(submitted, courier.stream()) {
            Settled::Over(outcome) => {
                let elements = ManuallyDrop::into_inner(elements);
                outcome.map(|()| elements)
            }
            Settled::Open(error) => Err(error),
        }
    }

    /// As many elements of the host, whose bytes are zero, because nobody can say for certain that a copy runs: see
    /// `settle`. For many of them the kernel has zeroed pages, so that nothing is written twice.
    fn zeroed_on_host(&self) -> Result<Vec<T>, Error> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let out_of_memory = || Error::out_of_memory(self.bytes());
        let layout = alloc::Layout::array::<T>(self.len).map_err(|_| out_of_memory())?;
        // SAFETY: the layout is not empty: there are elements, and an element has a size.
        let elements = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(out_of_memory)?;
        // SAFETY:
        // - the global allocator gave the memory, with the layout of `len` elements: the capacity.
        // - `len` elements are initialised: zeros, and any bytes are values of `T`.
        Ok(unsafe { Vec::from_raw_parts(elements.cast().as_ptr(), self.len, self.len) })
    }

    /// Copies all elements to the host, and waits.
    ///
    /// # Errors
    ///
    /// `LengthMismatch` unless there is room for just as many; `DeviceMismatch` for a stream of another device;
    /// `Capture` if the stream captures, because the graph would keep the address; as the driver says.
    pub fn copy_to_slice<'s>(&self, into: &mut [T], stream: impl OnStream<'s>) -> Result<(), Error> {
        self.read_back_into(into, stream.stream_ref())
    }

    fn read_back_into(&self, into: &mut [T], stream: StreamRef<'_>) -> Result<(), Error> {
        self.require_len(into.len())?;
        let Some(courier) = self.admit_read_back(stream)? else { return Ok(()) };
        // SAFETY: the room is borrowed until `settle_copy` has returned, and then nothing writes there any more.
        let submitted = unsafe { self.submit_download(into.as_mut_ptr(), courier) };
        settle_copy(submitted, courier.stream())
    }

    /// How to copy what there is. `None` for nothing, for which a stream that captures is as good as any.
    fn admit_read_back<'s>(&self, stream: StreamRef<'s>) -> Result<Option<Courier<'s>>, Error> {
        self.device().require(stream.device())?;
        if self.is_empty() { Ok(None) } else { Ok(Some(Courier::of(stream)?.behind_all())) }
    }

    /// Submits the copy of all elements to the host, and does not wait.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a stream of another device; as the driver says. Nothing was submitted then.
    ///
    /// # Safety
    ///
    /// `into` is valid for writes of all elements, by anyone's measure: it is neither let go nor read nor written
    /// until the copy has run. If the stream captures, that holds for every launch of the graph.
    pub unsafe fn download_unchecked<'s>(
        &self,
        into: *mut T,
        stream: impl OnStream<'s>,
    ) -> Result<(), Error> {
        let stream = stream.stream_ref();
        self.device().require(stream.device())?;
        if self.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.submit_download(into, Courier::on(stream)) }
    }

    /// # Safety
    ///
    /// As [`download_unchecked`](Self::download_unchecked); there are elements, and the stream is of this device.
    pub(super) unsafe fn submit_download(&self, into: *mut T, courier: Courier<'_>) -> Result<(), Error> {
        let (to, from) = (into.expose_provenance() as u64, self.as_device_ptr().address());
        courier.carry(self.block, Access::Read, |stream| {
            // SAFETY:
            // - the elements are live until the copy has run: the block is borrowed, and given back behind the use
            //   that is entered around this copy. What conflicts comes before, or follows that use.
            // - the room is valid until then: the caller's promise.
            unsafe { block::copy(stream, to, from, self.bytes()) }
        })
    }

    /// Copies all elements to a buffer that the transfer owns until it is done. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`copy_to_slice`](Self::copy_to_slice), with the buffer: `None` only where the copy was submitted and nobody can say
    /// whether it is over, so that the buffer is leaked.
    ///
    /// ```
    /// use alluvion::{DeviceVec, Sim};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let vector = DeviceVec::<u8>::zeroed(3, &stream)?;
    /// let returned = vector.download(vec![1, 2], &stream).unwrap_err();
    /// assert_eq!(returned.to_string(), "length mismatch: 3 elements wanted, 2 given");
    /// assert_eq!(returned.into_value(), Some(vec![1, 2]));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn download<'s, B: HostBuffer<Item = T>>(
        &self,
        into: B,
        stream: impl OnStream<'s>,
    ) -> Result<Transfer<B>, Returned<Option<B>>> {
        let stream = stream.stream_ref();
        Transfer::begin(
            into,
            |len| self.admit_transfer(len, stream),
            |into, courier| {
                // SAFETY: the transfer owns the room and keeps it until the copy has run.
                unsafe { self.submit_download(into, courier) }
            },
        )
    }

    /// How to copy `len` elements of the host, or room for them.
    pub(super) fn admit_transfer<'s>(&self, len: usize, stream: StreamRef<'s>) -> Result<Courier<'s>, Error> {
        self.require_len(len)?;
        self.device().require(stream.device())?;
        Courier::of(stream)
    }

    pub(super) fn require_len(&self, given: usize) -> Result<(), Error> {
        if given == self.len { Ok(()) } else { Err(Error::length_mismatch(self.len, given)) }
    }
}

/// Start and end of a range in `len` elements.
pub(super) fn resolve(range: &impl RangeBounds<usize>, len: usize) -> Result<(usize, usize), Error> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.checked_add(1).ok_or(Error::out_of_range(before, len))?,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.checked_add(1).ok_or(Error::out_of_range(last, len))?,
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    if end > len || start > end {
        return Err(Error::out_of_range(start.max(end), len));
    }
    Ok((start, end))
}

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

impl<T: DeviceCopy> fmt::Debug for DeviceSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceSlice({} elements at {})", self.len, self.as_device_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_lies_inside_or_is_an_error() {
        assert_eq!(resolve(&(..), 4).unwrap(), (0, 4));
        assert_eq!(resolve(&(1..=2), 4).unwrap(), (1, 3));
        assert_eq!(resolve(&(4..), 4).unwrap(), (4, 4));
        #[expect(clippy::reversed_empty_ranges, reason = "the point of the test")]
        let reversed = 3..2;
        assert!(resolve(&reversed, 4).unwrap_err().is_out_of_range());
        assert!(resolve(&(..5), 4).unwrap_err().is_out_of_range());
        assert!(resolve(&(0..=usize::MAX), 4).unwrap_err().is_out_of_range());
        assert!(resolve(&(Bound::Excluded(usize::MAX), Bound::Unbounded), 4).is_err());
    }
}
