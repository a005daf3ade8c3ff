//! `DeviceScalar`: one element on a device.

use core::fmt;

use super::device_copy::DeviceCopy;
use super::device_slice::DeviceSlice;
use super::device_slice_mut::DeviceSliceMut;
use super::device_vec::DeviceVec;
use super::guard::{ReadGuard, WriteGuard};
use crate::device::Device;
use crate::error::Error;
use crate::resource::{AnyResource, DeviceAccessible, DevicePtr};
use crate::stream::{OnStream, StreamRef};

/// One element on a device: the result of a reduction, a counter, a flag.
///
/// A block of its own takes at least 256 bytes; for many of them, take one [`DeviceVec`].
///
/// # Stream ordering
///
/// As [`DeviceVec`].
///
/// # Thread safety
///
/// As [`DeviceVec`].
///
/// # Examples
///
/// ```
/// use alluvion::{DeviceScalar, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let mut counter = DeviceScalar::new(41_u64, &stream)?;
/// assert_eq!(counter.value(&stream)?, 41);
/// counter.set(42, &stream)?;
/// assert_eq!(counter.value(&stream)?, 42);
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct DeviceScalar<T, R: DeviceAccessible = AnyResource> {
    /// Of length 1, always.
    vector: DeviceVec<T, R>,
}

static_assertions::assert_impl_all!(DeviceScalar<f32>: Send, Sync);
static_assertions::assert_not_impl_any!(DeviceScalar<f32>: Clone);

impl<T: DeviceCopy> DeviceScalar<T> {
    /// An element of `value`, from the current resource of the stream's device.
    ///
    /// # Errors
    ///
    /// As [`new_in`](Self::new_in).
    pub fn new<'s>(value: T, stream: impl OnStream<'s>) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        Self::new_in(value, stream, stream.device().current_resource()?)
    }

    /// An element with an arbitrary value, from the current resource of the stream's device.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn uninit<'s>(stream: impl OnStream<'s>) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        Self::uninit_in(stream, stream.device().current_resource()?)
    }

    /// An element whose bytes are zero, from the current resource of the stream's device.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn zeroed<'s>(stream: impl OnStream<'s>) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        Self::zeroed_in(stream, stream.device().current_resource()?)
    }
}

impl<T: DeviceCopy, R: DeviceAccessible> DeviceScalar<T, R> {
    /// An element of `value`.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in) and [`set`](Self::set).
    pub fn new_in<'s>(value: T, stream: impl OnStream<'s>, resource: R) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        let mut made = Self::uninit_in(stream, resource)?;
        made.set(value, stream)?;
        Ok(made)
    }

    /// An element with an arbitrary value.
    ///
    /// # Errors
    ///
    /// As [`DeviceVec::uninit_in`].
    pub fn uninit_in<'s>(stream: impl OnStream<'s>, resource: R) -> Result<Self, Error> {
        Ok(Self { vector: DeviceVec::uninit_in(1, stream, resource)? })
    }

    /// An element whose bytes are zero.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn zeroed_in<'s>(stream: impl OnStream<'s>, resource: R) -> Result<Self, Error> {
        Ok(Self { vector: DeviceVec::zeroed_in(1, stream, resource)? })
    }

    /// A copy, from the same resource, with `stream` as its home.
    ///
    /// # Errors
    ///
    /// As [`uninit_in`](Self::uninit_in).
    pub fn try_clone<'s>(&self, stream: impl OnStream<'s>) -> Result<Self, Error>
    where
        R: Clone,
    {
        Ok(Self { vector: self.vector.try_clone(stream)? })
    }

    /// The value, on the host. Waits for it.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::get`].
    pub fn value<'s>(&self, stream: impl OnStream<'s>) -> Result<T, Error> {
        self.vector.get(0, stream)
    }

    /// Sets the value. Waits only for an element that does not travel inside of the call: see [`DeviceSliceMut::set`].
    ///
    /// # Errors
    ///
    /// As [`DeviceSliceMut::set`].
    pub fn set<'s>(&mut self, value: T, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.vector.set(0, value, stream)
    }

    /// Sets all bytes to zero. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`DeviceSliceMut::set_zero`].
    pub fn set_zero<'s>(&mut self, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.vector.set_zero(0, stream)
    }

    /// The address. For kernels, take it from a guard: [`read_on`](Self::read_on), [`write_on`](Self::write_on).
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePtr {
        self.vector.as_device_ptr()
    }

    /// As a slice of one element, to be read.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        self.vector.as_slice()
    }

    /// As a slice of one element, to be written.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        self.vector.as_mut_slice()
    }

    /// The address, for work on `stream` that reads.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::read_on`].
    pub fn read_on<'a>(&'a self, stream: impl OnStream<'a>) -> Result<ReadGuard<'a, T>, Error> {
        self.vector.read_on(stream)
    }

    /// The address, for work on `stream` that reads and writes.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::read_on`].
    pub fn write_on<'a>(&'a mut self, stream: impl OnStream<'a>) -> Result<WriteGuard<'a, T>, Error> {
        self.vector.write_on(stream)
    }

    /// As [`DeviceVec::record_use`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn record_use<'s>(&self, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.vector.record_use(stream)
    }

    /// The home stream.
    #[must_use]
    pub fn stream(&self) -> StreamRef<'_> {
        self.vector.stream()
    }

    /// As [`DeviceVec::set_stream`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn set_stream<'s>(&mut self, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.vector.set_stream(stream)
    }

    /// The device that it is on.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.vector.device()
    }

    /// Where its memory comes from.
    #[must_use]
    pub fn resource(&self) -> &R {
        self.vector.resource()
    }

    /// The vector of one element that it is.
    #[must_use]
    pub fn into_vec(self) -> DeviceVec<T, R> {
        self.vector
    }
}

impl<T: DeviceCopy, R: DeviceAccessible> fmt::Debug for DeviceScalar<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceScalar({:?})", self.vector)
    }
}
