//! `DeviceSliceMut<'a, T>`: elements of a container, borrowed alone.

#![expect(unsafe_code, reason = "copies and fills, from memory of the host too")]

use core::fmt;
use core::marker::PhantomData;
use core::ops::RangeBounds;

use super::access::Access;
use super::block::{self, Block, outside_of_graphs};
use super::courier::Courier;
use super::device_copy::{DeviceCopy, bytes_of};
use super::device_slice::DeviceSlice;
use super::host_buffer::HostBuffer;
use super::settle::settle_copy;
use super::transfer::Transfer;
use crate::device::Device;
use crate::driver::FillValue;
use crate::error::{Error, Returned};
use crate::resource::DevicePtr;
use crate::stream::{OnStream, StreamRef};

/// Bytes of a value's repetitions that are made on the host, to be doubled on the device from there: one page, below
/// what a copy from pageable memory takes without staging (64 KiB), and few enough to cost nothing.
const SEED_BYTES: usize = 4096;

/// The largest element that is set by fills, of which one sets 4 bytes: more cost more than one copy that waits.
const SET_BY_FILLS_BYTES: usize = 16;

/// Elements of a container, borrowed to be written. Nothing else borrows them.
///
/// # Stream ordering
///
/// Every operation may name any stream of the device, and follows the uses of all others. See
/// [`container`](crate::container).
///
/// # Examples
///
/// ```
/// use alluvion::{DeviceVec, Sim};
///
/// let sim = Sim::new();
/// let (first, second) = (sim.device(0).stream()?, sim.device(0).stream()?);
/// let mut vector = DeviceVec::<u32>::zeroed(6, &first)?;
/// let (mut low, mut high) = vector.as_mut_slice().split_at_mut(3)?;
/// low.fill(7, &first)?;
/// high.copy_from(low.as_slice(), &second)?;
/// assert_eq!(vector.to_vec(&first)?, [7; 6]);
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct DeviceSliceMut<'a, T: DeviceCopy> {
    slice: DeviceSlice<'a, T>,
    alone: PhantomData<&'a mut [T]>,
}

static_assertions::assert_impl_all!(DeviceSliceMut<'static, u8>: Send, Sync);
static_assertions::assert_not_impl_any!(DeviceSliceMut<'static, u8>: Clone);

impl<'a, T: DeviceCopy> DeviceSliceMut<'a, T> {
    /// `len` elements, `at` bytes into the block: the caller has checked that they are there, and borrows them alone.
    pub(super) fn new(block: &'a Block, at: usize, len: usize) -> Self {
        Self { slice: DeviceSlice::new(block, at, len), alone: PhantomData }
    }

    pub(super) fn block(&self) -> &'a Block {
        self.slice.block()
    }

    /// Bytes from the start of the block.
    pub(super) fn at(&self) -> usize {
        self.slice.at()
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slice.len()
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slice.is_empty()
    }

    /// The address of the first element. For kernels, take it from a guard: [`write_on`](Self::write_on).
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePtr {
        self.slice.as_device_ptr()
    }

    /// The device that the elements are on.
    #[must_use]
    pub fn device(&self) -> &'a Device {
        self.slice.device()
    }

    /// The elements, to be read.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        self.slice
    }

    /// The elements, for a shorter time.
    #[must_use]
    pub fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut { slice: self.slice, alone: PhantomData }
    }

    /// Some of the elements.
    ///
    /// # Errors
    ///
    /// `OutOfRange` unless the range lies inside.
    pub fn slice_mut(self, range: impl RangeBounds<usize>) -> Result<Self, Error> {
        Ok(Self { slice: self.slice.slice(range)?, alone: PhantomData })
    }

    /// The elements before `mid`, and the others.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if there are fewer than `mid`.
    pub fn split_at_mut(self, mid: usize) -> Result<(Self, Self), Error> {
        let (low, high) = self.slice.split_at(mid)?;
        Ok((Self { slice: low, alone: PhantomData }, Self { slice: high, alone: PhantomData }))
    }

    /// The same bytes as elements of another type, to be written.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::cast`].
    pub fn cast_mut<U: DeviceCopy>(self) -> Result<DeviceSliceMut<'a, U>, Error> {
        Ok(DeviceSliceMut { slice: self.slice.cast()?, alone: PhantomData })
    }

    /// Sets the element at `index`.
    ///
    /// Elements of up to 16 bytes, in whole words or as one of 1 or 2 bytes, travel inside of the call, and nothing
    /// waits. Others are copied from the host, which waits.
    ///
    /// # Errors
    ///
    /// `OutOfRange`; as [`fill`](Self::fill).
    pub fn set<'s>(&mut self, index: usize, value: T, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.submit_set(index, value, stream.stream_ref())
    }

    fn submit_set(&mut self, index: usize, value: T, stream: StreamRef<'_>) -> Result<(), Error> {
        let mut element = Self { slice: self.slice.element(index)?, alone: PhantomData };
        let bytes = bytes_of(&value);
        if bytes.len() > SET_BY_FILLS_BYTES || !bytes.len().is_multiple_of(4) {
            return element.fill(value, stream);
        }
        element.device().require(stream.device())?;
        let at = element.as_device_ptr();
        element.submit(stream, || {
            for (word, value) in bytes.as_chunks::<4>().0.iter().enumerate() {
                let to = at.offset(4 * word).address();
                // SAFETY: the word lies in the element, at a multiple of 4 because the element does: a block is
                // aligned to 256 and the size of an element is a multiple of 4. For the rest, as in `submit_fill`.
                unsafe { block::fill(stream, to, FillValue::U32(u32::from_ne_bytes(*value)), 1) }?;
            }
            Ok(())
        })
    }

    /// Sets all bytes of the element at `index` to zero. Does not wait.
    ///
    /// # Errors
    ///
    /// `OutOfRange`; as [`fill_zero`](Self::fill_zero).
    pub fn set_zero<'s>(&mut self, index: usize, stream: impl OnStream<'s>) -> Result<(), Error> {
        Self { slice: self.slice.element(index)?, alone: PhantomData }.fill_zero(stream)
    }

    /// Sets all bytes to zero. Does not wait.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a stream of another device; as the driver says.
    pub fn fill_zero<'s>(&mut self, stream: impl OnStream<'s>) -> Result<(), Error> {
        let stream = stream.stream_ref();
        self.device().require(stream.device())?;
        self.submit_fill(FillValue::U8(0), stream)
    }

    /// Sets all elements to `value`, bit by bit: `-0.0` stays what it is.
    ///
    /// A value that repeats 1, 2 or 4 bytes is one fill by the device, and nothing waits. Any other is copied from
    /// the host once, which waits, and then doubled on the device.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a stream of another device; `Capture` for a value that has to be copied, if the stream
    /// captures; as the driver says.
    pub fn fill<'s>(&mut self, value: T, stream: impl OnStream<'s>) -> Result<(), Error> {
        let stream = stream.stream_ref();
        self.device().require(stream.device())?;
        match repeated(bytes_of(&value)) {
            Some(pattern) => self.submit_fill(pattern, stream),
            None => self.fill_by_doubling(value, stream),
        }
    }

    /// The size of an element is a multiple of that of `pattern`.
    fn submit_fill(&mut self, pattern: FillValue, stream: StreamRef<'_>) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        let (to, count) = (self.as_device_ptr().address(), self.slice.bytes() / pattern.bytes());
        self.submit(stream, || {
            // SAFETY: the elements are live until the fill has run: the block is borrowed, and given back behind the
            // use that is entered around it. What conflicts comes before, or follows that use.
            unsafe { block::fill(stream, to, pattern, count) }
        })
    }

    /// Runs `submit`, which submits writes of the elements by the device alone.
    fn submit(
        &mut self,
        stream: StreamRef<'_>,
        submit: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let block = self.block();
        outside_of_graphs(stream, &[block], || block.access(stream, Access::Write, submit))
    }

    fn fill_by_doubling(&mut self, value: T, stream: StreamRef<'_>) -> Result<(), Error> {
        let seed = vec![value; self.len().min((SEED_BYTES / size_of::<T>()).max(1))];
        self.reborrow().slice_mut(..seed.len())?.copy_from_slice(&seed, stream)?;
        let mut filled = seed.len();
        while filled < self.len() {
            let (low, high) = self.reborrow().split_at_mut(filled)?;
            let more = filled.min(high.len());
            high.slice_mut(..more)?.copy_from(low.as_slice().slice(..more)?, stream)?;
            filled += more;
        }
        Ok(())
    }

    /// Copies elements from the host, and waits until they have been read.
    ///
    /// # Errors
    ///
    /// `LengthMismatch` unless there are just as many; `DeviceMismatch` for a stream of another device; `Capture` if
    /// the stream captures, because the graph would keep the address; as the driver says.
    pub fn copy_from_slice<'s>(&mut self, from: &[T], stream: impl OnStream<'s>) -> Result<(), Error> {
        self.write_from(from, stream.stream_ref())
    }

    fn write_from(&mut self, from: &[T], stream: StreamRef<'_>) -> Result<(), Error> {
        self.slice.require_len(from.len())?;
        self.device().require(stream.device())?;
        if from.is_empty() {
            return Ok(());
        }
        let courier = Courier::of(stream)?.behind_all();
        // SAFETY: the elements are borrowed until `settle_copy` has returned, and then nothing reads them any more.
        let submitted = unsafe { self.submit_upload(from.as_ptr(), courier) };
        settle_copy(submitted, courier.stream())
    }

    /// Submits the copy of all elements from the host, and does not wait.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a stream of another device; as the driver says. Nothing was submitted then.
    ///
    /// # Safety
    ///
    /// `from` is valid for reads of all elements, by anyone's measure: it is neither let go nor written until the
    /// copy has run. If the stream captures, that holds for every launch of the graph.
    pub unsafe fn upload_unchecked<'s>(
        &mut self,
        from: *const T,
        stream: impl OnStream<'s>,
    ) -> Result<(), Error> {
        let stream = stream.stream_ref();
        self.device().require(stream.device())?;
        if self.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.submit_upload(from, Courier::on(stream)) }
    }

    /// # Safety
    ///
    /// As [`upload_unchecked`](Self::upload_unchecked); there are elements, and the stream is of this device.
    pub(super) unsafe fn submit_upload(&mut self, from: *const T, courier: Courier<'_>) -> Result<(), Error> {
        let (to, from) = (self.as_device_ptr().address(), from.expose_provenance() as u64);
        courier.carry(self.block(), Access::Write, |stream| {
            // SAFETY:
            // - the elements are live until the copy has run: the block is borrowed, and given back behind the use
            //   that is entered around this copy. What conflicts comes before, or follows that use.
            // - the host's memory is valid until then: the caller's promise.
            unsafe { block::copy(stream, to, from, self.slice.bytes()) }
        })
    }

    /// Copies elements from a buffer that the transfer owns until it is done. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`copy_from_slice`](Self::copy_from_slice), with the buffer, as [`DeviceSlice::download`].
    pub fn upload<'s, B: HostBuffer<Item = T>>(
        &mut self,
        from: B,
        stream: impl OnStream<'s>,
    ) -> Result<Transfer<B>, Returned<Option<B>>> {
        let (slice, stream) = (self.slice, stream.stream_ref());
        Transfer::begin(
            from,
            |len| slice.admit_transfer(len, stream),
            |from, courier| {
                // SAFETY: the transfer owns the elements and keeps them until the copy has run.
                unsafe { self.submit_upload(from, courier) }
            },
        )
    }

    /// Copies elements of a container, of this one or of another, on the device. Does not wait.
    ///
    /// The two may be on two devices of one machine; the stream is of either.
    ///
    /// # Errors
    ///
    /// `LengthMismatch` unless there are just as many; `DeviceMismatch` for a stream of neither device, or of another
    /// machine; as the driver says.
    pub fn copy_from<'s>(
        &mut self,
        from: DeviceSlice<'_, T>,
        stream: impl OnStream<'s>,
    ) -> Result<(), Error> {
        self.submit_copy(from, stream.stream_ref())
    }

    fn submit_copy(&mut self, from: DeviceSlice<'_, T>, stream: StreamRef<'_>) -> Result<(), Error> {
        self.slice.require_len(from.len())?;
        from.device().require_machine(self.device())?;
        if from.device() != stream.device() {
            self.device().require(stream.device())?;
        }
        if from.is_empty() {
            return Ok(());
        }
        let (to, address) = (self.as_device_ptr().address(), from.as_device_ptr().address());
        let (into, source) = (self.block(), from.block());
        outside_of_graphs(stream, &[into, source], || {
            into.access(stream, Access::Write, || {
                source.access(stream, Access::Read, || {
                    // SAFETY: both ranges are live until the copy has run, and do not overlap: the target is borrowed
                    // alone. What conflicts comes before, or follows the uses that are entered around this copy.
                    unsafe { block::copy(stream, to, address, from.bytes()) }
                })
            })
        })
    }
}

/// The bytes as repetitions of 1, 2 or 4 of them, if they are that.
fn repeated(bytes: &[u8]) -> Option<FillValue> {
    fn all_the_same<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        match bytes.as_chunks::<N>() {
            ([first, others @ ..], []) if others.iter().all(|other| other == first) => Some(*first),
            _ => None,
        }
    }
    let one = || all_the_same::<1>(bytes).map(|[byte]| FillValue::U8(byte));
    let two = || all_the_same::<2>(bytes).map(|pair| FillValue::U16(u16::from_ne_bytes(pair)));
    let four = || all_the_same::<4>(bytes).map(|word| FillValue::U32(u32::from_ne_bytes(word)));
    one().or_else(two).or_else(four)
}

impl<T: DeviceCopy> fmt::Debug for DeviceSliceMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceSliceMut({} elements at {})", self.len(), self.as_device_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_repeats_the_fewest_bytes_that_do() {
        assert_eq!(repeated(&[7; 12]), Some(FillValue::U8(7)));
        assert_eq!(repeated(&[1, 2, 1, 2]), Some(FillValue::U16(u16::from_ne_bytes([1, 2]))));
        assert_eq!(repeated(bytes_of(&-0.0_f32)), Some(FillValue::U32(0x8000_0000)));
        assert_eq!(repeated(bytes_of(&-0.0_f64)), None);
        assert_eq!(repeated(&[1, 1, 2]), None);
        assert_eq!(repeated(&[1, 2, 3, 4, 1, 2]), None);
    }
}
