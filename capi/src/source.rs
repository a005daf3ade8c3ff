//! What if the memory, or the help in need, comes from C?

#![expect(unsafe_code, reason = "calls functions of C")]

use std::ffi::c_void;
use std::sync::Arc;

use alluvion::adaptor::FailureCallback;
use alluvion::error::OutOfMemory;
use alluvion::relief::Relief;
use alluvion::source::Callback;
use alluvion::{AnyResource, DevicePtr, Error, Layout, StreamRef};

use crate::allocate::pointer;
use crate::boundary::{self, null};
use crate::failure::FromProgram;
use crate::handle::by_contract::{give_to, lend};
use crate::last_error::OomReport;
use crate::machine;
use crate::record::{self, Record};
use crate::resource::ResourceHandle;
use crate::status::{ALV_OK, ALV_OUT_OF_MEMORY, ALV_SIZE_OVERFLOW, Status};
use crate::stream::{CudaStream, handle_of};

/// Memory from functions of the caller's.
///
/// They are called from any thread, several at once, on any stream, with no lock held, and never for zero bytes. They must not
/// throw.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Source {
    /// `sizeof(alv_source)`.
    pub struct_size: usize,
    /// The largest alignment that `allocate` honours; 0 means 256.
    pub max_align: usize,
    /// Writes the address of as many bytes as asked for, which work on the stream may use from there on; overlapping no other
    /// block that is out, aligned to `align`, and valid until the work on the stream of `deallocate` is done. `ALV_OK` with null
    /// is out of memory; another status is the error of the request, which `alv_last_error` gives back as `foreign_status`: also a
    /// number of the program's own, from `ALV_OF_PROGRAM` on.
    pub allocate: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            bytes: usize,
            align: usize,
            stream: CudaStream,
            out: *mut *mut c_void,
        ) -> Status,
    >,
    /// Takes a block back, with the bytes and the alignment of its request. Called once a block.
    pub deallocate: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            block: *mut c_void,
            bytes: usize,
            align: usize,
            stream: CudaStream,
        ),
    >,
    /// Called once when the source is not needed any more, on any thread. May be null.
    pub drop: Option<unsafe extern "C" fn(user: *mut c_void)>,
    /// What the functions are called with.
    pub user: *mut c_void,
    /// 0, or `ALV_SOURCE_AT_ANY_ADDRESS`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// Blocks begin at any address, where no more than 256 is asked for: what gets them, through layers that hand blocks on as they are,
/// relies on no alignment. A suballocator over such a source refuses memory that is not aligned to 256.
pub const ALV_SOURCE_AT_ANY_ADDRESS: u32 = 1;

// SAFETY: repr(C), a size first, a number, nullable functions and a pointer: all bits zero are null.
unsafe impl Record for Source {
    const NAME: &'static str = "source, an alv_source";
}

/// What functions of the caller's are called with, and what lets go of it.
pub(crate) struct User {
    pub(crate) user: *mut c_void,
    pub(crate) drop: Option<unsafe extern "C" fn(*mut c_void)>,
}

// SAFETY: the functions that get the pointer are called from any thread, as their documentation says.
unsafe impl Send for User {}
// SAFETY: as above, several at once.
unsafe impl Sync for User {}

impl User {
    /// `drop` is called once, with `user`, when this goes.
    pub(crate) fn new(user: *mut c_void, drop: Option<unsafe extern "C" fn(*mut c_void)>) -> Self {
        Self { user, drop }
    }

    /// A method, so that a closure that calls it keeps the whole value.
    pub(crate) fn get(&self) -> *mut c_void {
        self.user
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(drop) = self.drop {
            // SAFETY: the caller's function and what it is called with; called once.
            unsafe { drop(self.user) };
        }
    }
}

/// A resource over functions of the caller's, whose memory belongs to a device of the chosen machine. If the call fails, `drop`
/// is not called.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_resource_from_source(
    device: i32,
    source: *const Source,
    out: *mut *mut ResourceHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            // SAFETY: the contract of pointers.
            let source = unsafe { record::read(source) }?;
            let allocate = source.allocate.ok_or_else(|| null("allocate of the source"))?;
            let deallocate = source.deallocate.ok_or_else(|| null("deallocate of the source"))?;
            let max_align = source.max_align.max(Layout::MIN_ALIGN);
            if !max_align.is_power_of_two() {
                return Err(Error::invalid_alignment(max_align));
            }
            if source.flags & !ALV_SOURCE_AT_ANY_ADDRESS != 0 {
                let why = "they have a bit that means nothing";
                let instead = "pass 0 or ALV_SOURCE_AT_ANY_ADDRESS";
                return Err(Error::invalid_argument("flags of the source", why, instead));
            }
            let device = machine::device(device)?;
            let user = Arc::new(User::new(source.user, source.drop));
            let of_allocate = Arc::clone(&user);
            let allocate = move |layout: Layout, stream: StreamRef<'_>| {
                let mut block = std::ptr::null_mut();
                let (bytes, align, stream) = (layout.bytes(), layout.block_align(), handle_of(stream));
                // SAFETY: the caller's function, called as its documentation says.
                let status = unsafe { allocate(of_allocate.get(), bytes, align, stream, &raw mut block) };
                match status {
                    ALV_OK => Ok(block.expose_provenance() as u64),
                    failed => Err(refused(failed, bytes)),
                }
            };
            let deallocate = move |block: DevicePtr, layout: Layout, stream: StreamRef<'_>| {
                let (bytes, align, stream) = (layout.bytes(), layout.block_align(), handle_of(stream));
                // SAFETY: as above; the block came from `allocate` with this layout, and comes back once.
                unsafe { deallocate(user.get(), pointer(block), bytes, align, stream) };
            };
            // SAFETY: the caller's functions do what their documentation demands, which is what `Callback` demands.
            let callback = unsafe { Callback::new(&device, allocate, deallocate) };
            let callback = if source.flags & ALV_SOURCE_AT_ANY_ADDRESS == 0 {
                callback
            } else {
                // SAFETY: C has blocks as bare addresses, and the caller says that nobody relies on their alignment.
                unsafe { callback.at_any_address() }
            };
            Ok(ResourceHandle::new(AnyResource::new(callback.with_max_align(max_align)?)))
        };
        give_to!(out, make)
    })
}

/// The error of a status that a function of the caller's has answered.
fn refused(status: Status, bytes: usize) -> Error {
    match status {
        ALV_OUT_OF_MEMORY => Error::out_of_memory(bytes),
        ALV_SIZE_OVERFLOW => Error::size_overflow(bytes, 1),
        other => Error::foreign(FromProgram(other)),
    }
}

/// A resource that asks `ask` when `upstream` is out of memory: 1 means that memory was freed, and the request is tried again; 0
/// that nothing could be freed. `ask` runs on the thread whose request failed, with no lock held, and may call this library; its
/// own requests ask no handler. It must not throw. `drop`, which may be null, is called once when the resource goes, on any
/// thread; not if the call fails. The new resource keeps `upstream`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_resource_with_oom_handler(
    upstream: *const ResourceHandle,
    ask: Option<unsafe extern "C" fn(user: *mut c_void, report: *const OomReport) -> i32>,
    drop: Option<unsafe extern "C" fn(user: *mut c_void)>,
    user: *mut c_void,
    out: *mut *mut ResourceHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let upstream = lend!(upstream).get().clone();
            let ask = ask.ok_or_else(|| null("ask"))?;
            let user = User::new(user, drop);
            let handler = move |report: &OutOfMemory| {
                let report = OomReport::of(report);
                // SAFETY: the caller's function and what it is called with; the report lives beyond the call.
                let freed = unsafe { ask(user.get(), &raw const report) };
                if freed == 0 { Relief::None } else { Relief::Freed }
            };
            Ok(ResourceHandle::new(AnyResource::new(FailureCallback::new(upstream, handler))))
        };
        give_to!(out, make)
    })
}
