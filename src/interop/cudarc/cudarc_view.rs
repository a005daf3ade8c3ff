//! `CudarcView` and `CudarcViewMut`: elements of this crate as arguments of cudarc.
//!
//! cudarc orders its own memory by events that a guard of its own, `SyncOnDrop`, records when it is dropped. A guard
//! that is leaked records nothing, and cudarc records only while it counts more than one stream. So nothing here
//! rests on it: the use is entered with the block before the address is given out, by the guard inside of the view,
//! and lasts until the view is dropped. A view that is leaked lasts up to whatever its stream has come to, as any
//! guard does.
//!
//! That proof holds for one stream, and cudarc's traits may ask for any. They cannot fail, either. Whoever asks for
//! another stream gets address 0, which libcuda refuses with `CUDA_ERROR_INVALID_VALUE` before it submits anything.
//! The other answers are worse: a panic; or to order that stream, too, by an event before and a wait of the host
//! after, which a leaked `SyncOnDrop` leaves out.

#![expect(unsafe_code, reason = "gives cudarc addresses for the arguments of kernels")]

use core::cell::OnceCell;
use core::fmt;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop,
};

use super::bridge::raw_of;
use crate::container::{DeviceCopy, GuardedPtr, ReadGuard, WriteGuard};
use crate::device::Device;
use crate::error::Error;
use crate::stream::StreamKind;
use crate::stream::StreamRef;
use crate::sync::Arc;

/// Elements that work of cudarc on one stream reads: an argument of its copies and launches.
///
/// Made by [`ReadGuard::for_cudarc`]. Drop it when the work is submitted, which need not be done by then.
///
/// # Stream ordering
///
/// It is for one stream, that of its guard. [`device_ptr`](DevicePtr::device_ptr) gives address 0 for another one,
/// and while the stream captures: cudarc's copies then return `CUDA_ERROR_INVALID_VALUE` and do nothing. For another
/// stream, make another view.
///
/// [`stream`](DeviceSlice::stream) is a stream of the same context that no view is for. cudarc's `memcpy_dtod`
/// between two contexts reads its source on another stream than it asks the address for, which is also the one that
/// it got from there; nobody could tell what comes after the copy. It fails instead. To copy to another device, make
/// the view for a stream of that device: guards are for any stream of the machine.
///
/// # Thread safety
///
/// It names a place in the order of work that this thread submits, and does not leave the thread.
///
/// # Examples
///
/// ```no_run
/// // Needs a GPU.
/// use alluvion::{DeviceVec, Stream};
///
/// let theirs = cudarc::driver::CudaContext::new(0)?.new_stream()?;
/// let ours = Stream::from_cudarc(&theirs)?;
/// let vector = DeviceVec::from_slice(&[1.0_f32, 2.0], &ours)?;
/// let view = vector.read_on(&ours)?.for_cudarc(&theirs)?;
/// assert_eq!(theirs.clone_dtoh(&view)?, [1.0, 2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A view cannot outlive what it shows:
///
/// ```compile_fail,E0505
/// use alluvion::{DeviceVec, Stream};
///
/// let theirs = cudarc::driver::CudaContext::new(0).unwrap().new_stream().unwrap();
/// let ours = Stream::from_cudarc(&theirs).unwrap();
/// let vector = DeviceVec::from_slice(&[1.0_f32, 2.0], &ours).unwrap();
/// let view = vector.read_on(&ours).unwrap().for_cudarc(&theirs).unwrap();
/// drop(vector);
/// theirs.clone_dtoh(&view).unwrap();
/// ```
#[must_use = "the use ends when the view is dropped, and work is submitted before"]
pub struct CudarcView<'a, T: DeviceCopy> {
    guard: ReadGuard<'a, T>,
    given: Given,
}

/// Elements that work of cudarc on one stream writes, and may read: an argument of its copies and launches.
///
/// Made by [`WriteGuard::for_cudarc`]. As [`CudarcView`], and alone.
///
/// # Examples
///
/// ```no_run
/// // Needs a GPU.
/// use alluvion::{DeviceVec, Stream};
///
/// let theirs = cudarc::driver::CudaContext::new(0)?.new_stream()?;
/// let ours = Stream::from_cudarc(&theirs)?;
/// let mut vector = DeviceVec::<u32>::uninit(3, &ours)?;
/// let mut view = vector.write_on(&ours)?.for_cudarc(&theirs)?;
/// theirs.memcpy_htod(&[1, 2, 3], &mut view)?;
/// drop(view);
/// assert_eq!(vector.to_vec(&ours)?, [1, 2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the use ends when the view is dropped, and work is submitted before"]
pub struct CudarcViewMut<'a, T: DeviceCopy> {
    guard: WriteGuard<'a, T>,
    given: Given,
}

/// What cudarc is given.
struct Given {
    /// A kernel's argument: a launch keeps a pointer to it.
    address: CUdeviceptr,
    /// The stream of the guard, as cudarc knows it.
    stream: Arc<CudaStream>,
    /// A stream that no view is for, made when somebody asks.
    no_stream: OnceCell<Arc<CudaStream>>,
}

impl Given {
    /// Succeeds if cudarc's stream is that of a guard, and will be.
    fn new(address: u64, guarded: StreamRef<'_>, stream: &Arc<CudaStream>) -> Result<Self, Error> {
        let device = Device::from_cudarc(stream.context())?;
        // The default stream of a thread has a stand-in on other threads, and once its own ends: a guard that was
        // opened for the one would answer with the handle of the other.
        let named_once = guarded.to_stream().kind() != StreamKind::PerThread;
        if !named_once || device != *guarded.device() || raw_of(stream)? != guarded.raw() {
            return Err(Error::invalid_argument(
                "a guard for another stream",
                "work of cudarc would not follow what the guard's stream follows",
                "take the guard on `Stream::from_cudarc` of cudarc's stream",
            ));
        }
        Ok(Self { address, stream: Arc::clone(stream), no_stream: OnceCell::new() })
    }

    /// The address for work on `stream`; 0 unless it is the guard's, and runs what it is given.
    ///
    /// A graph is refused because it can be launched, by a safe function, when the memory is gone. Kernels, whose
    /// launches are unsafe, get the address all the same.
    fn address_for(&self, stream: &CudaStream, guarded: StreamRef<'_>) -> CUdeviceptr {
        let admitted = *stream == *self.stream && guarded.is_capturing().is_ok_and(|capturing| !capturing);
        if admitted { self.address } else { 0 }
    }

    fn no_stream(&self) -> &Arc<CudaStream> {
        // The per-thread stream: `raw_of` refuses it, so that it is the stream of no guard.
        self.no_stream.get_or_init(|| self.stream.context().per_thread_stream())
    }
}

macro_rules! view {
    ($view:ident, $guard:ident, $access:literal) => {
        impl<'a, T: DeviceCopy> $guard<'a, T> {
            #[doc = concat!("The elements as an argument of cudarc, for work that ", $access, " on `stream`:")]
            /// the stream that the guard is for, as cudarc knows it.
            ///
            /// # Errors
            ///
            /// `InvalidArgument` if the guard is for another stream, or either is a thread's default stream; as
            /// [`Device::from_cudarc`].
            pub fn for_cudarc(self, stream: &Arc<CudaStream>) -> Result<$view<'a, T>, Error> {
                let given = Given::new(self.as_device_ptr().unguarded().address(), self.stream(), stream)?;
                Ok($view { guard: self, given })
            }
        }

        impl<T: DeviceCopy> DeviceSlice<T> for $view<'_, T> {
            fn len(&self) -> usize {
                self.guard.len()
            }

            fn stream(&self) -> &Arc<CudaStream> {
                self.given.no_stream()
            }
        }

        impl<T: DeviceCopy> DevicePtr<T> for $view<'_, T> {
            fn device_ptr<'b>(&'b self, stream: &'b CudaStream) -> (CUdeviceptr, SyncOnDrop<'b>) {
                // The use was entered before, and ends with the view.
                (self.given.address_for(stream, self.guard.stream()), SyncOnDrop::Sync(None))
            }
        }

        impl<T: DeviceCopy> fmt::Debug for $view<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($view), "({:?})"), self.guard)
            }
        }
    };
}

view!(CudarcView, ReadGuard, "reads");
view!(CudarcViewMut, WriteGuard, "reads and writes");

impl<T: DeviceCopy> DevicePtrMut<T> for CudarcViewMut<'_, T> {
    fn device_ptr_mut<'b>(&'b mut self, stream: &'b CudaStream) -> (CUdeviceptr, SyncOnDrop<'b>) {
        self.device_ptr(stream)
    }
}

/// The address of the elements, for a kernel that reads them.
///
/// Whoever launches it promises that it is launched on the stream of the view: cudarc does not say which it is.
// SAFETY: what is pushed is a pointer to a number of 64 bits, as a pointer of the device is, which is borrowed for as
// long as the launch can be made.
unsafe impl<'a, 'b: 'a, 'c: 'b, T: DeviceCopy> PushKernelArg<&'b CudarcView<'c, T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, view: &'b CudarcView<'c, T>) -> &mut Self {
        self.arg(&view.given.address)
    }
}

/// The address of the elements, for a kernel that reads and writes them.
///
/// Whoever launches it promises that it is launched on the stream of the view: cudarc does not say which it is.
// SAFETY: as for `CudarcView`.
unsafe impl<'a, 'b: 'a, 'c: 'b, T: DeviceCopy> PushKernelArg<&'b mut CudarcViewMut<'c, T>>
    for LaunchArgs<'a>
{
    #[inline(always)]
    fn arg(&mut self, view: &'b mut CudarcViewMut<'c, T>) -> &mut Self {
        self.arg(&view.given.address)
    }
}

/// The address that a guard gave out, for a kernel that is launched while the guard is there.
///
/// Whoever launches it promises that it is launched on the stream of the guard: cudarc does not say which it is.
// SAFETY: what is pushed is a pointer to a number of 64 bits, as a pointer of the device is, which is borrowed for as
// long as the launch can be made.
unsafe impl<'a, 'b: 'a, 'g: 'b> PushKernelArg<&'b GuardedPtr<'g>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, address: &'b GuardedPtr<'g>) -> &mut Self {
        // SAFETY: `GuardedPtr` is `repr(transparent)` over `DevicePtr`, and that over a `u64` that is not 0: the reference is
        // aligned, valid for as long, and to a number. Nobody writes through it.
        let number: &'b CUdeviceptr = unsafe { &*core::ptr::from_ref(address).cast() };
        self.arg(number)
    }
}
