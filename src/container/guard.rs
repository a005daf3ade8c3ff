//! `ReadGuard` and `WriteGuard`: an address, for as long as a stream uses it.

use core::fmt;

use super::access::Access;
use super::device_copy::DeviceCopy;
use super::device_slice::DeviceSlice;
use super::device_slice_mut::DeviceSliceMut;
use super::guarded_ptr::GuardedPtr;
use crate::error::Error;
use crate::stream::{OnStream, StreamId, StreamRef};

/// The address of elements that work on one stream reads.
///
/// Pass it to the kernels that you launch on that stream, and drop it when they are launched: they need not be done.
/// What comes before them comes before them, on the device, and what must come after waits for them: later writes on
/// any stream, and the end of the container.
///
/// A guard that is leaked is safe: what must come after then waits for all that the stream has been given by that time.
///
/// ```
/// use alluvion::{DeviceVec, Sim};
///
/// let sim = Sim::new();
/// let (copies, computes) = (sim.device(0).stream()?, sim.device(0).stream()?);
/// let vector = DeviceVec::from_slice(&[1, 2, 3], &copies)?;
/// let read = vector.read_on(&computes)?;
/// // Here kernels are launched on `computes`, with this address.
/// assert_eq!(read.as_device_ptr(), vector.as_device_ptr());
/// drop(read);
/// drop(vector); // At once: the block is given back behind the kernels.
/// # Ok::<(), alluvion::Error>(())
/// ```
#[must_use = "the use ends when the guard is dropped, and kernels are launched before"]
pub struct ReadGuard<'a, T: DeviceCopy> {
    slice: DeviceSlice<'a, T>,
    stream: StreamRef<'a>,
    /// What the use is entered under: the stream can have another number when a thread ends.
    opened: StreamId,
}

/// The address of elements that work on one stream writes, and may read.
///
/// As [`ReadGuard`], and alone: nothing else borrows the elements while it is there, and its work follows the reads
/// of all other streams.
///
/// ```
/// use alluvion::{DeviceVec, Sim};
///
/// let sim = Sim::new();
/// let (first, second) = (sim.device(0).stream()?, sim.device(0).stream()?);
/// let mut vector = DeviceVec::<f32>::zeroed(1000, &first)?;
/// let write = vector.write_on(&second)?;
/// // Here kernels are launched on `second`, with this address.
/// let address = write.as_device_ptr();
/// # let _ = address;
/// drop(write);
/// assert_eq!(vector.get(999, &first)?, 0.0); // Follows the kernels.
/// # Ok::<(), alluvion::Error>(())
/// ```
#[must_use = "the use ends when the guard is dropped, and kernels are launched before"]
pub struct WriteGuard<'a, T: DeviceCopy> {
    slice: DeviceSliceMut<'a, T>,
    stream: StreamRef<'a>,
    /// As for a [`ReadGuard`].
    opened: StreamId,
}

impl<'a, T: DeviceCopy> DeviceSlice<'a, T> {
    /// The address, for work on `stream` that reads: what comes before, comes before.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a stream of another machine; a capture error if only one of the streams concerned
    /// captures; as the driver says.
    pub fn read_on(self, stream: impl OnStream<'a>) -> Result<ReadGuard<'a, T>, Error> {
        let stream = stream.stream_ref();
        self.device().require_machine(stream.device())?;
        let opened = self.block().open(stream, Access::Read)?;
        Ok(ReadGuard { slice: self, stream, opened })
    }
}

impl<'a, T: DeviceCopy> DeviceSliceMut<'a, T> {
    /// The address, for work on `stream` that reads and writes: what comes before, comes before.
    ///
    /// # Errors
    ///
    /// As [`DeviceSlice::read_on`].
    pub fn write_on(self, stream: impl OnStream<'a>) -> Result<WriteGuard<'a, T>, Error> {
        let stream = stream.stream_ref();
        self.device().require_machine(stream.device())?;
        let opened = self.block().open(stream, Access::Write)?;
        Ok(WriteGuard { slice: self, stream, opened })
    }
}

macro_rules! guard {
    ($guard:ident, $access:expr) => {
        impl<T: DeviceCopy> $guard<'_, T> {
            /// The address of the first element, as an argument of kernels: see [`GuardedPtr`].
            #[must_use]
            pub fn as_device_ptr(&self) -> GuardedPtr<'_> {
                GuardedPtr::new(self.slice.as_device_ptr())
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

            /// The stream that the address is for.
            #[must_use]
            pub fn stream(&self) -> StreamRef<'_> {
                self.stream
            }
        }

        impl<T: DeviceCopy> Drop for $guard<'_, T> {
            fn drop(&mut self) {
                self.slice.block().close(self.stream, self.opened, $access);
            }
        }

        impl<T: DeviceCopy> fmt::Debug for $guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    concat!(stringify!($guard), "({} elements at {}, on {:?})"),
                    self.len(),
                    self.as_device_ptr(),
                    self.stream
                )
            }
        }
    };
}

guard!(ReadGuard, Access::Read);
guard!(WriteGuard, Access::Write);
