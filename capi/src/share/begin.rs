//! How a block is shared.

#![expect(unsafe_code, reason = "exports functions")]

use std::ffi::{c_char, c_void};

use alluvion::share::ShareConfig;
use alluvion::{Error, Layout, StreamRef};

use super::lent::SharedHandle;
use super::{directory, require_known};
use crate::boundary;
use crate::handle::by_contract::{give_to, lend};
use crate::record::{self, Record};
use crate::resource::ResourceHandle;
use crate::status::Status;
use crate::stream::{self, CudaStream, StreamHandle};

/// In `flags`: importers may write. Who writes when, the processes agree on themselves.
pub const ALV_SHARE_WRITABLE: u32 = 1;

/// How a block is shared. What is 0 or null has the value that the text names.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ShareOptions {
    /// `sizeof(alv_share_options)`.
    pub struct_size: usize,
    /// 0 to be read, or `ALV_SHARE_WRITABLE`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// The directory of the file by which the processes know of each other, which both sides name; null means `/dev/shm`.
    pub directory: *const c_char,
}

// SAFETY: repr(C), a size first, numbers and a pointer, for which all bits zero are null.
unsafe impl Record for ShareOptions {
    const NAME: &'static str = "options, an alv_share_options";
}

/// # Safety
///
/// As [`record::read`] and [`super::directory`].
unsafe fn config(options: *const ShareOptions) -> Result<ShareConfig, Error> {
    let mut config = ShareConfig::default();
    if options.is_null() {
        return Ok(config);
    }
    // SAFETY: the caller's promise.
    let options = unsafe { record::read(options) }?;
    require_known(options.flags, ALV_SHARE_WRITABLE)?;
    if options.flags & ALV_SHARE_WRITABLE != 0 {
        config = config.writable();
    }
    // SAFETY: the caller's promise.
    match unsafe { directory(options.directory) }? {
        Some(directory) => Ok(config.directory(directory)),
        None => Ok(config),
    }
}

/// Lets other processes open a block of a resource, which they get by the message of `*out`: as bytes, to be read unless `options`,
/// which may be null, say otherwise. What importers do follows what `stream` has been given until now; on other streams the caller has
/// ordered the uses before. `bytes` and `align` are those of the request.
///
/// The block stays the caller's, and stays allocated until `alv_shared_end` has answered `ALV_OK`, or is given to the library by
/// `alv_shared_park`. `ALV_UNSUPPORTED` for memory that cannot be shared, such as pinned memory: the message says what can.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_share_raw(
    resource: *const ResourceHandle,
    block: *mut c_void,
    bytes: usize,
    align: usize,
    options: *const ShareOptions,
    stream: CudaStream,
    out: *mut *mut SharedHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let resource = lend!(resource);
            // SAFETY: the contract of pointers.
            let (layout, config) = (Layout::of_request(bytes, align)?, unsafe { config(options) }?);
            // SAFETY: the block is the caller's, with this size, and stays until the end, by the function's text.
            let begin = |stream: StreamRef<'_>| unsafe {
                SharedHandle::begin(resource, block, layout, config, stream)
            };
            // SAFETY: a live stream of the device, by the function's text.
            unsafe { stream::with(resource.device(), stream, begin) }
        };
        give_to!(out, make)
    })
}

/// As `alv_share`, behind a stream that the library knows.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_share_on(
    resource: *const ResourceHandle,
    block: *mut c_void,
    bytes: usize,
    align: usize,
    options: *const ShareOptions,
    stream: *const StreamHandle,
    out: *mut *mut SharedHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let resource = lend!(resource);
            let stream = lend!(stream);
            // SAFETY: the contract of pointers.
            let (layout, config) = (Layout::of_request(bytes, align)?, unsafe { config(options) }?);
            // SAFETY: as in `alv_share_raw`.
            unsafe { SharedHandle::begin(resource, block, layout, config, stream.as_ref()) }
        };
        give_to!(out, make)
    })
}
