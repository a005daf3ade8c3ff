//! What outlives its process?

#![expect(unsafe_code, reason = "exports functions, and copies between addresses that C names")]

use std::ffi::{c_char, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use alluvion::saved::{SavedFile, Saver};
use alluvion::{Error, StreamRef};

use crate::boundary::{self, null};
use crate::handle::by_contract::{give_to, lend};
use crate::handle::{self, Handle};
use crate::resource::ResourceHandle;
use crate::status::Status;
use crate::stream::{self, CudaStream};
use crate::text;

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
        let save = |stream: StreamRef<'_>| {
            let mut saver = saver.lock();
            let saver = saver.as_mut().ok_or_else(is_finished)?;
            // SAFETY: the memory is valid until the call returns, by the function's text.
            unsafe { saver.save_block(name, block.expose_provenance() as u64, bytes, stream, None) }
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
        let restore = |stream: StreamRef<'_>| {
            // SAFETY: the memory is valid until the call returns, by the function's text.
            unsafe { saved.lock().restore_block(name, block.expose_provenance() as u64, bytes, stream, None) }
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
