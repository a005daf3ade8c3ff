//! What of a stack sleeps, and until when?

#![expect(unsafe_code, reason = "exports functions, and puts blocks to sleep that C has the addresses of")]

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use alluvion::compose::StackSleeper;
use alluvion::tag::Tag;
use alluvion::{Error, Frontier, SleepConfig, StreamRef};

use crate::boundary::{self, null};
use crate::handle::by_contract::{give_to, lend, lend_or_null};
use crate::handle::{self, Handle};
use crate::ledger;
use crate::record::{self, Record};
use crate::resource::ResourceHandle;
use crate::status::Status;
use crate::stream::{self, CudaStream};
use crate::text;

/// What one call has put to sleep.
#[derive(Debug)]
pub struct SleeperHandle(StackSleeper);

impl Handle for SleeperHandle {
    const NAME: &'static str = "sleeper";
}

/// The figures of the blocks that sleep together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SleepFigures {
    /// `sizeof(alv_sleep_figures)`.
    pub struct_size: usize,
    /// How many blocks were put to sleep.
    pub blocks: usize,
    /// Their bytes, each rounded up to 256.
    pub bytes: usize,
    /// The bytes of the host, or of the file, that their contents went to: 0 if nothing was kept.
    pub kept_bytes: usize,
    /// 1 until they are awake.
    pub asleep: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: repr(C), a size first, and numbers.
unsafe impl Record for SleepFigures {
    const NAME: &'static str = "out, an alv_sleep_figures";
}

/// A stack sleeps: what carries the tag, or all of it if that is null.
///
/// # Safety
///
/// The tag is null or a string. Else as [`AnyResource::sleep`](alluvion::AnyResource::sleep).
unsafe fn sleep(
    stack: &ResourceHandle,
    tag: *const c_char,
    mut config: SleepConfig<'static>,
) -> Result<SleeperHandle, Error> {
    if !tag.is_null() {
        // SAFETY: the caller's promise.
        let path = unsafe { text::borrow(tag, "tag") }?;
        config = config.tag(Tag::of_path(path));
    }
    // SAFETY: the caller's promise.
    unsafe { stack.get().sleep(config) }.map(SleeperHandle)
}

/// The contents are kept in a host resource, or not at all.
fn kept_in(host: Option<&ResourceHandle>) -> Result<SleepConfig<'static>, Error> {
    let config = SleepConfig::default();
    match host {
        Some(host) => config.keep_in_stack(host.get().clone()),
        None => Ok(config),
    }
}

/// The contents are kept in a file of a folder.
///
/// # Safety
///
/// The folder is null, which is an error, or a string.
unsafe fn kept_on_disk(folder: *const c_char) -> Result<SleepConfig<'static>, Error> {
    // SAFETY: the caller's promise.
    Ok(SleepConfig::default().keep_on_disk(unsafe { text::path(folder, "folder") }?))
}

/// Gives the memory of a stack back to the device, and keeps the addresses: of all blocks if `tag` is null, and then the stack answers
/// `ALV_ASLEEP` to requests until it is awake; or of those that carry a tag, or one within it, where scopes within each other have
/// semicolons between them, `load;join`, and the rest goes on. The stack is a pool over pages, `pool | mapped`, under any layers
/// that pass blocks on; a layer `tracking` knows the tags, or a pool that is checked.
///
/// `keep_in`, which may be null, is a resource whose blocks the host reaches, such as `pool | pinned`: the contents are kept there, and
/// restored. Without one they are arbitrary afterwards.
///
/// The call waits for all work on the device. Until `alv_wake` has returned `ALV_OK` no work uses the blocks, neither work that is
/// submitted meanwhile nor a graph that is launched; and no thread frees one while the call runs. A kernel that does is the end of the
/// context.
///
/// The caller releases the sleeper. One that is released before its blocks are awake leaves them without memory until they are freed, and a
/// stack that slept as a whole serves requests again.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sleep(
    stack: *const ResourceHandle,
    tag: *const c_char,
    keep_in: *const ResourceHandle,
    out: *mut *mut SleeperHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let (stack, keep_in) = (lend!(stack), lend_or_null!(keep_in));
            // SAFETY: the contract of pointers; no work uses what sleeps, and no thread frees it meanwhile, by the function's text.
            unsafe { sleep(stack, tag, kept_in(keep_in)?) }
        };
        give_to!(out, make)
    })
}

/// As `alv_sleep`. The contents are kept in a file of `folder`, and restored: for more than the host has room for. They go by way of 16 MiB of
/// pinned memory. The file goes when they are back, or with the sleeper; a process that is killed leaves it.
///
/// `ALV_UNWRITABLE` where the folder is not there or cannot be written to, or the disk is full: nothing sleeps then, and no file is left.
/// `alv_wake` is `ALV_UNREADABLE` or `ALV_MALFORMED` where the file was cut short or is damaged: everything sleeps on, and it can be called
/// again.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sleep_on_disk(
    stack: *const ResourceHandle,
    tag: *const c_char,
    folder: *const c_char,
    out: *mut *mut SleeperHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let stack = lend!(stack);
            // SAFETY: the contract of pointers.
            let config = unsafe { kept_on_disk(folder) }?;
            // SAFETY: the contract of pointers; no work uses what sleeps, and no thread frees it meanwhile, by the text of `alv_sleep`.
            unsafe { sleep(stack, tag, config) }
        };
        give_to!(out, make)
    })
}

/// One block sleeps.
///
/// # Safety
///
/// The stream is live and of the stack's device. Else as [`AnyResource::sleep_block`](alluvion::AnyResource::sleep_block), where all that
/// uses the block is on the stream.
unsafe fn sleep_block(
    stack: &ResourceHandle,
    block: *mut c_void,
    stream: CudaStream,
    config: SleepConfig<'static>,
) -> Result<SleeperHandle, Error> {
    let address = ledger::address(block).ok_or_else(|| null("block"))?;
    let uses = |stream: StreamRef<'_>| Ok(Frontier::of(stream.release()));
    // SAFETY: the caller's promise.
    let uses = unsafe { stream::with(stack.device(), stream, uses) }?;
    // SAFETY: the caller's promise.
    unsafe { stack.get().sleep_block(address, &uses, config) }.map(SleeperHandle)
}

/// Puts one block to sleep, which keeps its address: as `alv_sleep`. All that uses the block comes before what is on `stream` now, which the
/// call waits for, and no other work. The block may be freed asleep; the sleeper is released then, too.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sleep_block_raw(
    stack: *const ResourceHandle,
    block: *mut c_void,
    stream: CudaStream,
    keep_in: *const ResourceHandle,
    out: *mut *mut SleeperHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let (stack, keep_in) = (lend!(stack), lend_or_null!(keep_in));
            // SAFETY: the contract of pointers; a live stream of the device, the block is live and of this stack, all that uses it is on
            // the stream, and nothing does until it is awake, by the function's text.
            unsafe { sleep_block(stack, block, stream, kept_in(keep_in)?) }
        };
        give_to!(out, make)
    })
}

/// As `alv_sleep_block`. The contents are kept in a file of `folder`, and restored, as by `alv_sleep_on_disk`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sleep_block_on_disk_raw(
    stack: *const ResourceHandle,
    block: *mut c_void,
    stream: CudaStream,
    folder: *const c_char,
    out: *mut *mut SleeperHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let stack = lend!(stack);
            // SAFETY: the contract of pointers.
            let config = unsafe { kept_on_disk(folder) }?;
            // SAFETY: as in `alv_sleep_block_raw`, by the text of `alv_sleep_block`.
            unsafe { sleep_block(stack, block, stream, config) }
        };
        give_to!(out, make)
    })
}

/// Gives the blocks memory again, at the addresses that they had, and restores what was kept. Waits until that is over. Nothing if they
/// are awake. `ALV_OUT_OF_MEMORY` if memory is short: everything sleeps on then, nothing is lost, and it can be called again.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_wake(sleeper: *const SleeperHandle) -> Status {
    boundary::call(|| lend!(sleeper).0.wake())
}

/// Reads `bytes` bytes of what is kept in memory of the host, from an address of a block on, while the block sleeps: into `into`, which has
/// as many. A copy of the host, for which the device is not waited for; several threads read at once.
///
/// `ALV_INVALID_ARGUMENT`, with nothing written, where not all of them lie in one block of the sleeper, nothing was kept, a file has it, or
/// the blocks are awake: the message says which. `ALV_IN_USE` while another thread wakes them. A block that is freed asleep is still read as
/// it was, whatever lies at its address by then.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sleeper_read_kept(
    sleeper: *const SleeperHandle,
    from: *const c_void,
    into: *mut c_void,
    bytes: usize,
) -> Status {
    boundary::call(|| {
        let sleeper = &lend!(sleeper).0;
        let from = ledger::address(from).ok_or_else(|| null("from"))?;
        if into.is_null() {
            return Err(null("into"));
        }
        if isize::try_from(bytes).is_err() {
            return Err(Error::size_overflow(bytes, 1));
        }
        // SAFETY: not null, not too long, and so many bytes that are the caller's to write, by the contract of pointers; they are aligned
        // to 1, and may never have been written.
        let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<MaybeUninit<u8>>(), bytes) };
        sleeper.copy_kept(from, into)
    })
}

/// What sleeps, and whether it still does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sleeper_figures(
    sleeper: *const SleeperHandle,
    out: *mut SleepFigures,
) -> Status {
    boundary::call(|| {
        let sleeper = &lend!(sleeper).0;
        let figures = SleepFigures {
            struct_size: size_of::<SleepFigures>(),
            blocks: sleeper.blocks(),
            bytes: sleeper.bytes(),
            kept_bytes: sleeper.kept_bytes(),
            asleep: u32::from(sleeper.is_asleep()),
            reserved: 0,
        };
        // SAFETY: the contract of pointers.
        unsafe { record::write(out, &figures) }
    })
}

/// One more count of a sleeper, which it returns; null for null. From any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sleeper_retain(sleeper: *mut SleeperHandle) -> *mut SleeperHandle {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_sleeper_retain", std::ptr::null_mut(), || unsafe { handle::retain(sleeper) })
}

/// Takes a count of a sleeper; null is allowed. From any thread, but not from a host function of a stream, as `alv_resource_release`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sleeper_release(sleeper: *mut SleeperHandle) {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_sleeper_release", (), || unsafe { handle::release(sleeper) });
}
