//! cudarc's contexts and streams as devices and streams of this crate.

#![expect(unsafe_code, reason = "wraps streams that cudarc owns")]

use cudarc::driver::{CudaContext, CudaStream};

use crate::device::Device;
use crate::driver::RawStream;
use crate::error::Error;
use crate::stream::Stream;
use crate::sync::Arc;

impl Device {
    /// The device of a cudarc context.
    ///
    /// ```no_run
    /// // Needs a GPU.
    /// let context = cudarc::driver::CudaContext::new(0)?;
    /// let device = alluvion::Device::from_cudarc(&context)?;
    /// assert_eq!(device.ordinal(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` if the context is not the primary one of its device; as [`Device::cuda`].
    pub fn from_cudarc(context: &CudaContext) -> Result<Self, Error> {
        if !context.is_primary() {
            return Err(Error::unsupported(
                "a context that is not the primary one of its device",
                "memory of this crate belongs to primary contexts",
                "make the context by `CudaContext::new`",
            ));
        }
        // An ordinal is an `int` in CUDA.
        Self::cuda(context.ordinal() as u32)
    }
}

impl Stream {
    /// Wraps a stream of cudarc, which lives as long as the wrapping.
    ///
    /// Kernels that cudarc launches on it and memory that this crate allocates on it are then in one order. Every wrapping
    /// is a stream with an id of its own: wrap once and clone. cudarc's default stream becomes the device's.
    ///
    /// # Captures
    ///
    /// A thread that captures the stream, by cudarc's safe functions, keeps other threads off it from the call that begins the capture
    /// to the call that ends it, both included. The driver does not synchronise the graph that a capture makes, neither for this
    /// crate nor for cudarc: a race of two threads on one such stream ended a process with signal 11 on an H200.
    ///
    /// ```no_run
    /// // Needs a GPU.
    /// use alluvion::Stream;
    ///
    /// let context = cudarc::driver::CudaContext::new(0)?;
    /// let theirs = context.new_stream()?;
    /// let ours = Stream::from_cudarc(&theirs)?;
    /// assert_eq!(ours.raw().0, theirs.cu_stream() as u64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Device::from_cudarc`]; `InvalidArgument` for cudarc's per-thread stream, which is another stream on each
    /// thread.
    pub fn from_cudarc(stream: &Arc<CudaStream>) -> Result<Self, Error> {
        let device = Device::from_cudarc(stream.context())?;
        match raw_of(stream)? {
            RawStream::LEGACY => Ok(device.default_stream()),
            // SAFETY: the preconditions of `from_owner`, in its order:
            // - the stream is of the primary context of `device`: cudarc's streams are of their context, which
            //   `Device::from_cudarc` has found to be the primary one.
            // - it is valid while its owner is: the owner is `Arc<CudaStream>`, which destroys a stream of its own when
            //   it is dropped; a borrowed one outlives whatever retains the wrapper, as `wrap_borrowed_stream` demands.
            // - it is no default stream: those were matched above.
            raw => unsafe { Self::from_owner(&device, raw, Arc::clone(stream) as _) },
        }
    }
}

/// The handle of a stream of cudarc.
pub(super) fn raw_of(stream: &CudaStream) -> Result<RawStream, Error> {
    match RawStream(stream.cu_stream().addr() as u64) {
        // cudarc calls the functions for which null is the legacy stream.
        RawStream(0) | RawStream::LEGACY => Ok(RawStream::LEGACY),
        RawStream::PER_THREAD => Err(Error::invalid_argument(
            "cudarc's per-thread stream",
            "it is another stream on each thread",
            "take `Device::per_thread_stream` on the thread that means it",
        )),
        raw => Ok(raw),
    }
}
