//! `CudarcMemory<T>`: the one block of a vector that was cudarc's.
//!
//! cudarc frees by a flag of its context, so that only cudarc can free its memory: the `CudaSlice` is kept and
//! dropped. What orders its uses is out of reach: two events in private fields, waited for only while cudarc counts
//! more than one stream, and skipped when an error of another call is parked in the context. So both hand-overs wait
//! on the host, and nothing in between rests on those events.

#![expect(unsafe_code, reason = "makes a vector of memory that cudarc owns, and gives it back")]

use core::fmt;
use core::mem::ManuallyDrop;

use cudarc::driver::{CudaSlice, DevicePtr as _};

use crate::container::DeviceVec;
use crate::container::{DeviceCopy, RawParts};
use crate::device::Device;
use crate::driver::cuda::CudaDriver;
use crate::driver::{Call, Code, DriverError};
use crate::error::{Error, Returned};
use crate::resource::DevicePtr;
use crate::resource::{DeviceAccessible, Layout, Resource, ResourceId};
use crate::stream::{Stream, StreamRef};
use crate::sync::Mutex;

/// The memory of a `CudaSlice`, as the resource of one vector: [`DeviceVec::from_cudarc`].
///
/// It allocates nothing: a vector that would have to move gets an error and stays as it is. The block goes back to
/// cudarc when the vector is dropped, behind all of its uses, on the stream that cudarc would free it on. While that
/// stream captures, and after the end of `main`, it is leaked instead.
///
/// # Stream ordering
///
/// The vector's home is the stream of the `CudaSlice`.
///
/// # Thread safety
///
/// Any thread may drop the vector, whatever context is current there.
///
/// # Examples
///
/// ```no_run
/// // Needs a GPU.
/// use alluvion::DeviceVec;
///
/// let theirs = cudarc::driver::CudaContext::new(0)?.new_stream()?;
/// let mut vector = DeviceVec::from_cudarc(theirs.clone_htod(&[1_u32, 2, 3])?)?;
/// let stream = vector.stream().to_stream();
/// vector.set(0, 7, &stream)?;
/// assert_eq!(theirs.clone_dtoh(&vector.into_cudarc()?)?, [7, 2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CudarcMemory<T> {
    id: ResourceId,
    /// The stream that cudarc frees on.
    home: Stream,
    /// Not dropped with the resource: parts of a vector may be dropped while the device is at work on the block.
    slice: Mutex<Option<ManuallyDrop<CudaSlice<T>>>>,
}

static_assertions::assert_impl_all!(CudarcMemory<u8>: Send, Sync, DeviceAccessible);
static_assertions::assert_not_impl_any!(CudarcMemory<u8>: Clone);

impl<T: DeviceCopy> DeviceVec<T, CudarcMemory<T>> {
    /// Takes over memory of cudarc, without a copy. Waits until all work of the device is done: nobody but the device knows who
    /// reads it. So it breaks every capture of the device that is under way, as [`Device::synchronize`] does.
    ///
    /// To copy from a `CudaSlice` or into one, take a view instead,
    /// [`ReadGuard::for_cudarc`](crate::ReadGuard::for_cudarc), and cudarc's own `memcpy_dtod`, which wait for
    /// nothing.
    ///
    /// # Errors
    ///
    /// With the `CudaSlice`: `InvalidArgument` if it is empty or not aligned to 256 bytes; as [`Stream::from_cudarc`]
    /// for its stream; as [`Device::synchronize`].
    pub fn from_cudarc(slice: CudaSlice<T>) -> Result<Self, Returned<CudaSlice<T>>> {
        match Self::examine(&slice) {
            Err(error) => Err(Returned::new(slice, error)),
            Ok((block, layout, home)) => {
                let slice = Mutex::new(Some(ManuallyDrop::new(slice)));
                let resource = CudarcMemory { id: ResourceId::unique(), home: home.clone(), slice };
                let parts = RawParts {
                    block,
                    layout,
                    len_bytes: layout.bytes(),
                    home,
                    frontier: crate::stream::Frontier::quiescent(),
                    resource,
                };
                // SAFETY:
                // - the block is live, and the resource has what keeps it, which nobody else has; it is aligned as the
                //   layout wants and has room for all elements: `examine`, and cudarc's own invariant.
                // - length and capacity are those of whole elements.
                // - the home is of the context's device, and every use of the block is over: `examine` waited.
                Ok(unsafe { Self::from_raw_parts(parts) })
            }
        }
    }

    /// Finds address, layout and stream of memory that cudarc has, and waits until nobody uses it.
    fn examine(slice: &CudaSlice<T>) -> Result<(DevicePtr, Layout, Stream), Error> {
        let layout = Layout::array::<T>(slice.len())?;
        let home = Stream::from_cudarc(slice.stream())?;
        require_no_capture(home.as_ref())?;
        let (address, _recorded) = slice.device_ptr(slice.stream());
        let block = DevicePtr::new(address)
            .filter(|block| !layout.is_empty() && block.is_aligned_to(layout.block_align()))
            .ok_or_else(|| {
                Error::invalid_argument(
                    "a `CudaSlice` to take over",
                    "it is empty, or not aligned as allocations are",
                    "copy it with cudarc's `memcpy_dtod`",
                )
            })?;
        home.device().synchronize()?;
        Ok((block, layout, home))
    }

    /// Gives the memory back to cudarc, without a copy. Waits until all uses of the vector are over.
    ///
    /// The `CudaSlice` has as many elements as it came with, whatever the vector's length is by now.
    ///
    /// # Errors
    ///
    /// With the vector: `InvalidArgument` if it has no block any more, as an empty one that was shrunk; `Capture`
    /// while its home captures; as the driver says.
    pub fn into_cudarc(self) -> Result<CudaSlice<T>, Returned<Self>> {
        let parts = self.into_raw_parts();
        let home = parts.home.as_ref();
        let settled = require_no_capture(home)
            .and_then(|()| home.wait_for(&parts.frontier))
            .and_then(|()| home.synchronize());
        // A block that is there is the one of the resource. An empty vector may have got the resource of one that was
        // taken apart, whose uses nobody has waited for.
        let whole = !parts.layout.is_empty();
        let taken = settled.and_then(|()| {
            let slice = if whole { parts.resource.slice.lock().take() } else { None };
            slice.ok_or_else(|| {
                Error::invalid_argument(
                    "a vector without its block",
                    "the memory is given back, or belonged to a vector that was taken apart",
                    "drop the vector",
                )
            })
        });
        match taken {
            Ok(slice) => Ok(ManuallyDrop::into_inner(slice)),
            // SAFETY: the parts are those of one vector, unchanged.
            Err(error) => Err(Returned::new(unsafe { Self::from_raw_parts(parts) }, error)),
        }
    }
}

/// A stream that captures would record what is submitted, or break.
fn require_no_capture(stream: StreamRef<'_>) -> Result<(), Error> {
    if stream.is_capturing()? {
        return Err(DriverError::new(Call::StreamCaptureStatus, Code::CAPTURE_UNSUPPORTED).into());
    }
    Ok(())
}

impl<T> CudarcMemory<T> {
    /// Has cudarc free the block, behind the work on `stream`.
    fn free(&self, slice: CudaSlice<T>, stream: StreamRef<'_>) -> Result<(), Error> {
        // Leaked, unless everything below goes well.
        let mut slice = ManuallyDrop::new(slice);
        let home = self.home.as_ref();
        require_no_capture(home)?;
        home.wait_for_stream(stream)?;
        if !slice.context().has_async_alloc() {
            // cudarc waits then, too, but not if an error of another call is parked in its context.
            home.synchronize()?;
        }
        let driver = CudaDriver::load()?;
        let ordinal = home.device().ordinal();
        // cudarc frees on a default stream in whatever context is current.
        let _current = driver.make_current(ordinal)?;
        // SAFETY: it is dropped once: it was taken out of the resource, and is forgotten here.
        unsafe { ManuallyDrop::drop(&mut slice) };
        Ok(())
    }
}

// SAFETY: the one block is the memory of a `CudaSlice`, which nobody else has, and which stays valid until that is
// dropped: in `deallocate`, or by who takes it back from a vector that ends with it. Nothing else is handed out, and
// nobody else has the id. No method unwinds.
unsafe impl<T> Resource for CudarcMemory<T> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device().require(stream.device())?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        Err(Error::unsupported(
            "another block of memory that was cudarc's",
            "there is one, as long as it came",
            "copy into a vector of another resource",
        ))
    }

    unsafe fn deallocate(&self, _: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if layout.is_empty() {
            return;
        }
        let slice = self.slice.lock().take();
        if let Some(slice) = slice {
            // What cannot be freed in order is leaked.
            let _ = self.free(ManuallyDrop::into_inner(slice), stream);
        }
    }

    fn device(&self) -> &Device {
        self.home.device()
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudarcMemory({})", self.device())
    }
}

// SAFETY: a `CudaSlice` is memory of the device, in its primary context: `Stream::from_cudarc` has refused other
// ones.
unsafe impl<T> DeviceAccessible for CudarcMemory<T> {}

impl<T> fmt::Debug for CudarcMemory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}
