//! Which memory stays what it is, and who hears of it?

#![expect(unsafe_code, reason = "exports functions, and calls functions of the caller")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use alluvion::suballoc::{SegmentHooks, SegmentView, SuballocBook};
use alluvion::{AnyResource, Error, ResourceExt as _};

use crate::allocate::pointer;
use crate::boundary::{self, null};
use crate::failure::FromProgram;
use crate::handle::by_contract::lend;
use crate::resource::ResourceHandle;
use crate::source::User;
use crate::status::{ALV_OK, Status};
use crate::{ledger, machine};

/// A segment: memory that a suballocator has of its upstream in one piece.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Segment {
    /// `sizeof(alv_segment)` of the library: a program that is older knows fewer fields.
    pub struct_size: usize,
    /// Where it begins.
    pub address: *mut c_void,
    /// Its bytes.
    pub bytes: usize,
    /// The device that it is memory of.
    pub device: i32,
    /// 0.
    pub reserved: u32,
}

impl Segment {
    fn of(segment: SegmentView, device: u32) -> Self {
        Self {
            struct_size: size_of::<Self>(),
            address: pointer(segment.address),
            bytes: segment.bytes,
            device: device.cast_signed(),
            reserved: 0,
        }
    }
}

/// A function of the caller's that hears of segments.
type Hook = Option<unsafe extern "C" fn(user: *mut c_void, segment: *const Segment) -> Status>;

fn book(resource: &AnyResource) -> Result<&SuballocBook, Error> {
    resource.find::<SuballocBook>().ok_or_else(|| {
        Error::unsupported("segments", "no layer of the resource takes any", "name `pool` in the recipe")
    })
}

/// Tells a function of the caller's of a segment. What it answers beside `ALV_OK` is the error.
fn tell(hook: Hook, user: &User, segment: SegmentView, device: u32) -> Result<(), Error> {
    let Some(hook) = hook else { return Ok(()) };
    let segment = Segment::of(segment, device);
    // SAFETY: the caller's function and what it is called with; the segment lives beyond the call.
    match unsafe { hook(user.get(), &raw const segment) } {
        ALV_OK => Ok(()),
        refused => Err(Error::foreign(FromProgram(refused))),
    }
}

/// Has the outermost suballocator of a resource tell of its segments: `added` before the first block of one goes out, `dropped` before it
/// goes back to the upstream; either may be null. `added` is called for every segment that is there already, too, before this returns.
/// Hooks that were set before hear of nothing any more.
///
/// Both are called with no lock held, by the thread whose request, trim, sleep or release it is, and may call this library; a request of
/// theirs that takes another segment is refused. They must not throw. If `added` answers another status than `ALV_OK`, the segment goes
/// back, and the request fails with `ALV_FOREIGN`; one that was there stays, and this call fails. If `dropped` does, the segment stays, and
/// is leaked at the end of the resource. `alv_last_error` has the status.
///
/// `drop`, which may be null, is called once with `user`: when other hooks are set, when the resource goes, or in this call if that fails
/// otherwise. `ALV_UNSUPPORTED` without a suballocator, and over pages that move: name `pool(registered=64MiB) | mapped` then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_set_segment_hooks(
    resource: *const ResourceHandle,
    added: Option<unsafe extern "C" fn(user: *mut c_void, segment: *const Segment) -> Status>,
    dropped: Option<unsafe extern "C" fn(user: *mut c_void, segment: *const Segment) -> Status>,
    drop: Option<unsafe extern "C" fn(user: *mut c_void)>,
    user: *mut c_void,
) -> Status {
    boundary::call(|| {
        let user = Arc::new(User { user, drop });
        let resource = lend!(resource).get();
        let (book, device) = (book(resource)?, resource.device().ordinal());
        let of_added = Arc::clone(&user);
        let hooks = SegmentHooks::default()
            .on_added(move |segment| tell(added, &of_added, segment, device))
            .on_dropped(move |segment| tell(dropped, &user, segment, device));
        // The last error: C++ has kept the last exception.
        book.introduce_segment_hooks(&hooks)
    })
}

/// Calls `see` for every segment that the outermost suballocator has, in the order of addresses, until it answers another number than 0.
/// No lock is held meanwhile. It must not throw. `ALV_UNSUPPORTED` without a suballocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_segments(
    resource: *const ResourceHandle,
    see: Option<unsafe extern "C" fn(user: *mut c_void, segment: *const Segment) -> c_int>,
    user: *mut c_void,
) -> Status {
    boundary::call(|| {
        let see = see.ok_or_else(|| null("see"))?;
        let resource = lend!(resource).get();
        let device = resource.device().ordinal();
        for segment in book(resource)?.segments() {
            let segment = Segment::of(segment, device);
            // SAFETY: the caller's function and what it is called with; the segment lives beyond the call.
            if unsafe { see(user, &raw const segment) } != 0 {
                break;
            }
        }
        Ok(())
    })
}

/// The outermost suballocator of a resource takes no more memory of its upstream and gives none back, until it ends. A request that does not
/// fit fails, with the cause `ALV_CAUSE_FROZEN`, and a trim does nothing. `ALV_UNSUPPORTED` without a suballocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_freeze(resource: *const ResourceHandle) -> Status {
    boundary::call(|| {
        book(lend!(resource).get())?.freeze();
        Ok(())
    })
}

/// A descriptor of the segment of the outermost suballocator that begins at `address`, by which another process maps the same memory with
/// `cuMemImportFromShareableHandle`. The caller closes it; it keeps the memory, also when the segment is given back, until then. The segment
/// is there until this returns: a block on it is live and awake, or no thread trims the resource, has it grow or releases it meanwhile.
/// `ALV_INVALID_ARGUMENT` if no segment begins there. `ALV_UNSUPPORTED` without a suballocator, and for memory that no one descriptor stands
/// for: it is of `pool(registered=64MiB) | mapped(handles=fd)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_export_segment(
    resource: *const ResourceHandle,
    address: *const c_void,
    descriptor: *mut i32,
) -> Status {
    boundary::call(|| {
        let resource = lend!(resource);
        let address = ledger::address(address).ok_or_else(|| null("address"))?;
        if descriptor.is_null() {
            return Err(null("descriptor"));
        }
        #[cfg(unix)]
        {
            // SAFETY: the segment is there until this returns, by the function's text.
            let lent = unsafe { resource.get().export_segment(address) }?;
            // SAFETY: the contract of pointers.
            unsafe { descriptor.write(std::os::fd::IntoRawFd::into_raw_fd(lent)) };
            Ok(())
        }
        #[cfg(not(unix))]
        {
            let _ = (resource, address);
            Err(Error::unsupported(
                "a descriptor of a segment",
                "the system has none",
                "share blocks of it, by `alv_share`",
            ))
        }
    })
}

/// A descriptor of a dma-buf, through which the kernel's other drivers reach memory of a device of the chosen machine, as
/// `ibv_reg_dmabuf_mr` does; a negative number means the current device. The range is live memory, whole pages of the host, and within one
/// segment. The caller closes the descriptor, which keeps the memory until then. `ALV_UNSUPPORTED` where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_dma_buf(
    device: i32,
    address: *const c_void,
    bytes: usize,
    descriptor: *mut i32,
) -> Status {
    boundary::call(|| {
        if address.is_null() || descriptor.is_null() {
            return Err(null("address or descriptor"));
        }
        #[cfg(unix)]
        {
            let address = address.expose_provenance() as u64;
            // SAFETY: the range is live, by the function's text.
            let lent = unsafe { machine::device(device)?.dma_buf(address, bytes) }?;
            // SAFETY: the contract of pointers.
            unsafe { descriptor.write(std::os::fd::IntoRawFd::into_raw_fd(lent)) };
            Ok(())
        }
        #[cfg(not(unix))]
        {
            let _ = (machine::device(device)?, bytes);
            Err(Error::unsupported(
                "memory as a dma-buf",
                "the system has none",
                "register the address itself",
            ))
        }
    })
}
