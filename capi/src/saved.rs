//! What outlives its process?

#![expect(unsafe_code, reason = "exports functions, and copies between addresses that C names")]

use std::ffi::{c_char, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use alluvion::driver::{Call, Code, DriverError};
use alluvion::saved::{SavedFile, Saver};
use alluvion::{Error, HostBuffer, PinnedAlloc, PinnedVec, StreamRef};

use crate::boundary::{self, null};
use crate::handle::by_contract::{give_to, lend};
use crate::handle::{self, Handle};
use crate::resource::ResourceHandle;
use crate::status::Status;
use crate::stream::{self, CudaStream};
use crate::text;

/// The bytes that are copied at a time. A copy of 4 MiB takes 75 µs over PCIe 5, twenty times what its calls of the driver take.
const PART: usize = 4 << 20;

/// The buffers that are read into while one is copied.
const AHEAD: usize = 3;

/// A file that blocks are written to.
#[derive(Debug)]
pub struct SaverHandle(Mutex<Option<Saver>>);

impl Handle for SaverHandle {
    const NAME: &'static str = "saver";
}

/// A file that blocks are read from.
#[derive(Debug)]
pub struct SavedHandle(Mutex<SavedFile>);

impl Handle for SavedHandle {
    const NAME: &'static str = "saved";
}

impl SaverHandle {
    fn lock(&self) -> MutexGuard<'_, Option<Saver>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SavedHandle {
    fn lock(&self) -> MutexGuard<'_, SavedFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cold]
fn is_finished() -> Error {
    Error::invalid_argument("saver", "its file is finished", "begin another one by `alv_saver_create`")
}

/// Begins a file of blocks that will be at `path` when `alv_saver_finish` has returned `ALV_OK`, and not before: until then, and if the
/// process dies, a file that has the name is there as it was. `ALV_UNWRITABLE` where it cannot be written. The caller releases the saver; one
/// that is released before leaves nothing.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_saver_create(path: *const c_char, out: *mut *mut SaverHandle) -> Status {
    boundary::call(|| {
        let make = || {
            // SAFETY: the contract of pointers.
            let path = unsafe { text::path(path, "path") }?;
            Ok(SaverHandle(Mutex::new(Some(Saver::create(path)?))))
        };
        give_to!(out, make)
    })
}

/// Writes `bytes` bytes of memory of the resource's device, behind what `stream` does, under a name of at most 4096 bytes that the file has
/// not yet. Waits until they are written; they go by way of pinned memory. Another thread that saves to the same file waits. After an
/// error the blocks before are kept, and the name can be written again.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_saver_save_raw(
    saver: *const SaverHandle,
    resource: *const ResourceHandle,
    name: *const c_char,
    block: *const c_void,
    bytes: usize,
    stream: CudaStream,
) -> Status {
    boundary::call(|| {
        let (saver, resource) = (lend!(saver), lend!(resource));
        // SAFETY: the contract of pointers.
        let name = unsafe { text::borrow(name, "name") }?;
        if block.is_null() && bytes > 0 {
            return Err(null("block"));
        }
        let from = block.expose_provenance() as u64;
        let save = |stream: StreamRef<'_>| {
            let mut courier = Courier::new(stream, bytes)?;
            let mut saver = saver.lock();
            let saver = saver.as_mut().ok_or_else(is_finished)?;
            saver.begin(name, bytes as u64)?;
            if bytes == 0 {
                return Ok(());
            }
            saver.write_behind(|behind| {
                for (from, bytes) in parts(from, bytes) {
                    let room = courier.buffer()?;
                    // SAFETY: the memory is valid until the call returns, by the function's text; a buffer has room for a part.
                    let full = unsafe { courier.copy(room, |host| (host, from), bytes) }?;
                    courier.free.extend(behind.write(full, bytes)?);
                }
                Ok(())
            })
        };
        // SAFETY: a live stream of the device, by the function's text.
        unsafe { stream::with(resource.device(), stream, save) }
    })
}

/// Completes the file, and gives it its name; `bytes`, which may be null, gets its length. A file that had the name is replaced. After an
/// error no file is left, and the saver is finished, too.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_saver_finish(saver: *const SaverHandle, bytes: *mut u64) -> Status {
    boundary::call(|| {
        let saver = lend!(saver).lock().take().ok_or_else(is_finished)?;
        let length = saver.finish()?;
        if !bytes.is_null() {
            // SAFETY: not null, so writable.
            unsafe { bytes.write(length) };
        }
        Ok(())
    })
}

/// One more count of a saver, which it returns; null for null. From any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_saver_retain(saver: *mut SaverHandle) -> *mut SaverHandle {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_saver_retain", std::ptr::null_mut(), || unsafe { handle::retain(saver) })
}

/// Takes a count of a saver; null is allowed. From any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_saver_release(saver: *mut SaverHandle) {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_saver_release", (), || unsafe { handle::release(saver) });
}

/// Opens a file of blocks, of this machine or another one, and reads the table of them. `ALV_UNREADABLE` where it cannot be read;
/// `ALV_MALFORMED` for one that was cut short, is damaged, or is no such file: the message says which. The caller releases it.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_saved_open(path: *const c_char, out: *mut *mut SavedHandle) -> Status {
    boundary::call(|| {
        let make = || {
            // SAFETY: the contract of pointers.
            let path = unsafe { text::path(path, "path") }?;
            Ok(SavedHandle(Mutex::new(SavedFile::open(path)?)))
        };
        give_to!(out, make)
    })
}

/// The number of blocks of a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_saved_count(saved: *const SavedHandle, count: *mut usize) -> Status {
    boundary::call(|| {
        let found = lend!(saved).lock().blocks().len();
        if count.is_null() {
            return Err(null("count"));
        }
        // SAFETY: not null, so writable.
        unsafe { count.write(found) };
        Ok(())
    })
}

/// The name of a block, by its place in the order in which they were saved, from 0 on: copied into `buffer`, ended by 0, and cut where there
/// is no room; `needed`, which may be null, gets the whole length without the 0. `ALV_INVALID_ARGUMENT` for a place behind the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_saved_name(
    saved: *const SavedHandle,
    place: usize,
    buffer: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> Status {
    boundary::call(|| {
        let saved = lend!(saved).lock();
        let Some((name, _)) = saved.blocks().nth(place) else {
            return Err(Error::invalid_argument(
                "place",
                "the file has fewer blocks",
                "pass less than `alv_saved_count` answers",
            ));
        };
        // SAFETY: the contract of pointers.
        unsafe { text::copy_out(name, buffer, room, needed) }
    })
}

/// The bytes of a block. `ALV_INVALID_ARGUMENT` for a name that the file has not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_saved_bytes(
    saved: *const SavedHandle,
    name: *const c_char,
    bytes: *mut u64,
) -> Status {
    boundary::call(|| {
        let saved = lend!(saved);
        // SAFETY: the contract of pointers.
        let name = unsafe { text::borrow(name, "name") }?;
        if bytes.is_null() {
            return Err(null("bytes"));
        }
        let found = saved.lock().bytes_of(name);
        let found = found.ok_or_else(|| {
            Error::invalid_argument(
                "name",
                "the file has no block of that name",
                "`alv_saved_name` says which it has",
            )
        })?;
        // SAFETY: not null, so writable.
        unsafe { bytes.write(found) };
        Ok(())
    })
}

/// Reads a block into memory of the resource's device, which has `bytes` bytes, as many as the block: on `stream`, and waits until it is
/// there. Another thread that reads from the same handle waits. `ALV_INVALID_ARGUMENT` for a name that the file has not;
/// `ALV_LENGTH_MISMATCH`; `ALV_UNREADABLE`, and `ALV_MALFORMED` for contents that are damaged: the memory has arbitrary bytes after these two,
/// and the call can be made again.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_saved_restore_raw(
    saved: *const SavedHandle,
    resource: *const ResourceHandle,
    name: *const c_char,
    block: *mut c_void,
    bytes: usize,
    stream: CudaStream,
) -> Status {
    boundary::call(|| {
        let (saved, resource) = (lend!(saved), lend!(resource));
        // SAFETY: the contract of pointers.
        let name = unsafe { text::borrow(name, "name") }?;
        if block.is_null() && bytes > 0 {
            return Err(null("block"));
        }
        let to = block.expose_provenance() as u64;
        let restore = |stream: StreamRef<'_>| {
            let mut courier = Courier::new(stream, bytes)?;
            let mut saved = saved.lock();
            let there = saved.begin(name)?;
            if there != bytes as u64 {
                return Err(Error::length_mismatch(bytes, usize::try_from(there).unwrap_or(usize::MAX)));
            }
            saved.read_ahead(|ahead| {
                for _ in parts(to, bytes).take(AHEAD) {
                    ahead.give(courier.buffer()?)?;
                }
                let mut at = to;
                while let Some((full, bytes)) = ahead.take()? {
                    // SAFETY: the memory is valid until the call returns, by the function's text, and has as many bytes as the block; so
                    // many of the buffer were read.
                    let copied = unsafe { courier.copy(full, |host| (at, host), bytes) }?;
                    at += bytes as u64;
                    ahead.give(copied)?;
                }
                Ok(())
            })
        };
        // SAFETY: a live stream of the device, by the function's text.
        unsafe { stream::with(resource.device(), stream, restore) }
    })
}

/// One more count of an opened file, which it returns; null for null. From any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_saved_retain(saved: *mut SavedHandle) -> *mut SavedHandle {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_saved_retain", std::ptr::null_mut(), || unsafe { handle::retain(saved) })
}

/// Takes a count of an opened file; null is allowed. From any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_saved_release(saved: *mut SavedHandle) {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_saved_release", (), || unsafe { handle::release(saved) });
}

/// Where parts of a block begin, and their bytes.
fn parts(start: u64, bytes: usize) -> impl Iterator<Item = (u64, usize)> {
    (0..bytes).step_by(PART).map(move |at| (start + at as u64, PART.min(bytes - at)))
}

/// Pinned memory that contents go through.
struct Courier<'s> {
    stream: StreamRef<'s>,
    alloc: PinnedAlloc,
    /// The bytes of a buffer.
    bytes: usize,
    /// Buffers that nobody uses now.
    free: Vec<PinnedVec<u8>>,
}

impl<'s> Courier<'s> {
    /// One for a block of so many bytes. A stream that captures is refused: the copies would be the graph's.
    fn new(stream: StreamRef<'s>, bytes: usize) -> Result<Self, Error> {
        if stream.is_capturing()? {
            return Err(DriverError::new(Call::StreamCaptureStatus, Code::CAPTURE_UNSUPPORTED).into());
        }
        let alloc = PinnedAlloc::new(stream.device())?;
        Ok(Self { stream, alloc, bytes: bytes.min(PART), free: Vec::new() })
    }

    /// One for a part of the block.
    fn buffer(&mut self) -> Result<PinnedVec<u8>, Error> {
        if let Some(free) = self.free.pop() {
            return Ok(free);
        }
        let mut host = PinnedVec::new_in(self.alloc.clone());
        if host.try_reserve_exact(self.bytes).is_err() {
            return Err(Error::out_of_memory(self.bytes));
        }
        host.resize(self.bytes, 0);
        Ok(host)
    }

    /// Copies so many bytes between two addresses, of which one is the given one of the host's memory, and waits for it. After an error that
    /// memory is lost if the device may use it at any time.
    ///
    /// # Safety
    ///
    /// The other is of memory of the device, which has as many bytes until this returns. So has `host`.
    unsafe fn copy(
        &self,
        mut host: PinnedVec<u8>,
        of: impl FnOnce(u64) -> (u64, u64),
        bytes: usize,
    ) -> Result<PinnedVec<u8>, Error> {
        let (to, from) = of(HostBuffer::as_mut_ptr(&mut host).expose_provenance() as u64);
        let device = self.stream.device();
        // SAFETY:
        // - both ranges are valid: the caller's promise; the host's is waited for below, or leaked;
        // - the stream is live and of this device, because it is borrowed.
        let copied =
            unsafe { device.driver().copy_async(device.ordinal(), to, from, bytes, self.stream.raw()) };
        if let Err(error) = self.stream.synchronize() {
            // A second wait that succeeds says that the copy is over.
            if self.stream.synchronize().is_err() {
                core::mem::forget(host);
            }
            return Err(error);
        }
        copied.map(|()| host).map_err(|error| Error::of_driver(error, bytes))
    }
}
