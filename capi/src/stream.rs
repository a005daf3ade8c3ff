//! Which stream does a call mean?
//!
//! A call brings a bare handle of CUDA, or a stream of the library, which needs no look-up.

#![expect(unsafe_code, reason = "takes streams that C names by bare numbers")]

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

use alluvion::driver::{RawStream, StreamFlags};
use alluvion::{Device, Error, Stream, StreamRef};

use crate::boundary::{self, null};
use crate::handle::by_contract::{give_to, lend, lend_or_null};
use crate::handle::{self, Handle};
use crate::machine::{self, MachineHandle};
use crate::status::Status;

/// What a handle of CUDA points to.
#[allow(non_camel_case_types, reason = "CUDA's name, by which C programs know the type")]
#[derive(Debug)]
pub struct CUstream_st {
    _opaque: [u8; 0],
}

/// A bare stream of CUDA: a `CUstream` or a `cudaStream_t`.
pub type CudaStream = *mut CUstream_st;

/// The driver's handle.
pub(crate) fn raw(stream: CudaStream) -> RawStream {
    RawStream(stream.expose_provenance() as u64)
}

/// The handle of a stream, as C has it.
pub(crate) fn handle_of(stream: StreamRef<'_>) -> CudaStream {
    std::ptr::with_exposed_provenance_mut(stream.raw().0 as usize)
}

/// Calls `body` with the stream of a bare handle.
///
/// # Safety
///
/// `stream` is a live stream of `device`, or names a default stream, and lives until the call is over.
#[inline]
pub(crate) unsafe fn with<T>(
    device: &Device,
    stream: CudaStream,
    body: impl FnOnce(StreamRef<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    // SAFETY: the caller's promise.
    unsafe { device.raw_streams().with(raw(stream), body) }?
}

/// As [`with`]; `at_once` is asked first, which takes a block at once.
///
/// # Safety
///
/// As for [`with`]. `at_once` does nothing with the stream but take blocks by `allocate_at_once`.
#[inline]
pub(crate) unsafe fn with_or_at_once<T>(
    device: &Device,
    stream: CudaStream,
    at_once: impl FnOnce(StreamRef<'_>) -> Option<Result<T, Error>>,
    body: impl FnOnce(StreamRef<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    // SAFETY: the caller's promise.
    unsafe { device.raw_streams().with_or_at_once(raw(stream), at_once, body) }?
}

/// As [`with`], if the driver need not be asked which stream it is; `free` gives a block back at once.
///
/// # Safety
///
/// As for [`with`]. `free` does nothing with the stream but give blocks back by `deallocate_at_once`.
#[inline]
pub(crate) unsafe fn visit(
    device: &Device,
    stream: CudaStream,
    free: impl FnOnce(StreamRef<'_>) -> bool,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe { device.raw_streams().visit(raw(stream), free) }
}

/// A stream that the library knows: a call with it needs no look-up, and a call that brings its bare handle while this is held
/// needs no driver call.
#[derive(Debug)]
pub struct StreamHandle {
    stream: Stream,
}

impl Handle for StreamHandle {
    const NAME: &'static str = "stream";
}

impl StreamHandle {
    /// A call that brings the bare handle finds the stream, too, while it is held.
    fn registered(stream: Stream) -> Self {
        stream.device().raw_streams().register(&stream);
        Self { stream }
    }

    pub(crate) fn as_ref(&self) -> StreamRef<'_> {
        self.stream.as_ref()
    }
}

/// What keeps a stream of somebody else alive.
struct Owner {
    owner: *mut c_void,
    drop: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: who wraps a stream with an owner lets `drop` be called on any thread, as `alv_stream_wrap_owned_raw` says.
unsafe impl Send for Owner {}
// SAFETY: as above; nothing reads the pointer.
unsafe impl Sync for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the promise of who made it, and it is called once.
        unsafe { (self.drop)(self.owner) };
    }
}

/// A new stream of a device of the chosen machine, which does not wait for the legacy default stream; a negative number means the
/// current device.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_stream_create(device: i32, out: *mut *mut StreamHandle) -> Status {
    // SAFETY: the contract of pointers.
    boundary::call(|| unsafe { handle::give_to(out, || create(&machine::device(device)?)) })
}

/// As `alv_stream_create`, on a device of that machine.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_stream_create_on(
    machine: *const MachineHandle,
    device: i32,
    out: *mut *mut StreamHandle,
) -> Status {
    boundary::call(|| {
        let make = || create(&lend!(machine).device(device)?);
        give_to!(out, make)
    })
}

fn create(device: &Device) -> Result<StreamHandle, Error> {
    Ok(StreamHandle::registered(device.stream()?))
}

/// The stream waits for the legacy default stream of its device, and that one for it, as a stream of `cudaStreamCreate` does.
pub const ALV_STREAM_WAITS_FOR_LEGACY: u32 = 1;

/// As `alv_stream_create`, with `flags`: 0, or `ALV_STREAM_WAITS_FOR_LEGACY`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_stream_create_with(
    device: i32,
    flags: u32,
    out: *mut *mut StreamHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            if flags & !ALV_STREAM_WAITS_FOR_LEGACY != 0 {
                let why = "it has a bit that means nothing";
                return Err(Error::invalid_argument("flags", why, "pass 0 or ALV_STREAM_WAITS_FOR_LEGACY"));
            }
            let flags = StreamFlags { blocking: flags == ALV_STREAM_WAITS_FOR_LEGACY, ..Default::default() };
            Ok(StreamHandle { stream: machine::device(device)?.stream_with(flags)? })
        };
        give_to!(out, make)
    })
}

/// Wraps a stream of CUDA, which must stay valid until the last count of the handle is released. A default stream is itself,
/// whichever thread uses the handle: that of a thread is the calling thread's.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_stream_wrap_raw(
    device: i32,
    stream: CudaStream,
    out: *mut *mut StreamHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let device = machine::device(device)?;
            if let Some(stream) = default_of(&device, stream)? {
                return Ok(StreamHandle { stream });
            }
            // SAFETY: the caller keeps it valid, and says that it is a stream; the look-up has refused one of another device.
            unsafe { with(&device, stream, |_| Ok(())) }?;
            // SAFETY: as above.
            let stream = unsafe { Stream::from_raw(&device, raw(stream)) }?;
            Ok(StreamHandle::registered(stream))
        };
        give_to!(out, make)
    })
}

/// Wraps a stream of CUDA that is valid while `owner` lives. The library calls `drop(owner)` once, on any thread, when it does
/// not need the stream any more: that may be later than the last release, and is never earlier. A free on such a stream costs no
/// driver call. If the call fails, `drop` is not called.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_stream_wrap_owned_raw(
    device: i32,
    stream: CudaStream,
    owner: *mut c_void,
    drop: Option<unsafe extern "C" fn(*mut c_void)>,
    out: *mut *mut StreamHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let drop = drop.ok_or_else(|| null("drop"))?;
            let device = machine::device(device)?;
            if default_of(&device, stream)?.is_some() {
                return Err(Error::invalid_argument(
                    "stream",
                    "a default stream has no owner",
                    "wrap it without one (alv_stream_wrap)",
                ));
            }
            // SAFETY: the owner keeps it valid, and the caller says that it is a stream; the look-up refuses one of another device.
            unsafe { with(&device, stream, |_| Ok(())) }?;
            let owner = Arc::new(Owner { owner, drop });
            let held = Arc::clone(&owner) as Arc<dyn Any + Send + Sync>;
            // SAFETY: a stream of the device, valid while the owner lives, as the caller promises, and none of the default streams.
            match unsafe { Stream::from_owner(&device, raw(stream), held) } {
                Ok(stream) => Ok(StreamHandle::registered(stream)),
                Err(error) => {
                    // The caller keeps the owner.
                    if let Some(owner) = Arc::into_inner(owner) {
                        std::mem::forget(owner);
                    }
                    Err(error)
                }
            }
        };
        give_to!(out, make)
    })
}

fn default_of(device: &Device, stream: CudaStream) -> Result<Option<Stream>, Error> {
    let raw = raw(stream);
    if raw == RawStream::PER_THREAD {
        return Ok(Some(device.per_thread_stream()?.as_ref().to_stream()));
    }
    Ok(raw.is_default().then(|| device.default_stream()))
}

/// One more count of a stream, which it returns; null for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_stream_retain(stream: *mut StreamHandle) -> *mut StreamHandle {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_stream_retain", std::ptr::null_mut(), || unsafe { handle::retain(stream) })
}

/// Takes a count of a stream; null is allowed. Work that is on a stream of `alv_stream_create` goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_stream_release(stream: *mut StreamHandle) {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_stream_release", (), || unsafe { handle::release(stream) });
}

/// The stream as CUDA knows it, to launch work on: valid while the handle is held. Null, the legacy default stream, for a null
/// handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_stream_handle(stream: *const StreamHandle) -> CudaStream {
    boundary::unanswered("alv_stream_handle", std::ptr::null_mut(), || {
        let stream = lend_or_null!(stream);
        Ok(stream.map_or(std::ptr::null_mut(), |stream| handle_of(stream.as_ref())))
    })
}

/// Waits for the work on a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_stream_synchronize(stream: *const StreamHandle) -> Status {
    boundary::call(|| lend!(stream).stream.synchronize())
}
