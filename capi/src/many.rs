//! How are many blocks asked for and given back at once?

#![expect(unsafe_code, reason = "exports functions, and frees blocks that C names by their addresses")]

use std::ffi::c_void;

use alluvion::{Error, Layout, Resource, ResourceExt as _, StreamRef};

use crate::allocate::pointer;
use crate::boundary::{self, null};
use crate::handle::by_contract::lend;
use crate::resource::ResourceHandle;
use crate::status::Status;
use crate::stream::{self, CudaStream};

/// An array of the caller's. Null is one of no elements.
///
/// # Safety
///
/// `first` is null, or has `count` elements that nobody writes to meanwhile.
unsafe fn array<'a, T>(what: &'static str, first: *const T, count: usize) -> Result<&'a [T], Error> {
    match count {
        0 => Ok(&[]),
        _ if first.is_null() => Err(null(what)),
        // SAFETY: not null, so it has as many elements, which are the caller's.
        _ => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// Allocates a block for each of the `count` sizes in `sizes`, or none at all: as `alv_allocate`, with one alignment and one look-up of the
/// stream for all. `blocks` has as many places, which are null for no bytes, and all of them if the call fails. Either array may be null
/// if `count` is 0.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_allocate_many_raw(
    resource: *const ResourceHandle,
    sizes: *const usize,
    count: usize,
    align: usize,
    stream: CudaStream,
    blocks: *mut *mut c_void,
) -> Status {
    boundary::call(|| {
        if count > 0 && blocks.is_null() {
            return Err(null("blocks"));
        }
        for place in 0..count {
            // SAFETY: the caller's array has as many places.
            unsafe { blocks.wrapping_add(place).write(std::ptr::null_mut()) };
        }
        let resource = lend!(resource);
        // SAFETY: the contract of pointers.
        let sizes = unsafe { array("sizes", sizes, count) }?;
        let layouts: Vec<Layout> =
            sizes.iter().map(|&bytes| Layout::of_request(bytes, align)).collect::<Result<_, Error>>()?;
        // Blocks of no bytes are null and not asked for, as by `alv_allocate`: a log would have a row of it, and none of its free.
        let (places, layouts): (Vec<usize>, Vec<Layout>) =
            layouts.into_iter().enumerate().filter(|(_, layout)| !layout.is_empty()).unzip();
        if layouts.is_empty() {
            return Ok(());
        }
        let allocate = |stream: StreamRef<'_>| resource.get().allocate_many(&layouts, stream);
        // SAFETY: a live stream of the device, by the function's text.
        let made = unsafe { stream::with(resource.device(), stream, allocate) }?;
        for (place, block) in places.into_iter().zip(made) {
            // SAFETY: as above.
            unsafe { blocks.wrapping_add(place).write(pointer(block)) };
        }
        Ok(())
    })
}

/// Gives `count` blocks back: as `alv_deallocate` for each of them with its size, with one look-up of the stream for all. Whichever call
/// they came from, they have one alignment. Nulls are nothing to free. Either array may be null if `count` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_deallocate_many_raw(
    resource: *const ResourceHandle,
    blocks: *const *mut c_void,
    sizes: *const usize,
    count: usize,
    align: usize,
    stream: CudaStream,
) {
    boundary::unanswered("alv_deallocate_many", (), || {
        let resource = lend!(resource);
        // SAFETY: the contract of pointers.
        let blocks = unsafe { array("blocks", blocks, count) }?;
        // SAFETY: the contract of pointers.
        let sizes = unsafe { array("sizes", sizes, count) }?;
        let all = blocks
            .iter()
            .zip(sizes)
            .filter_map(|(&of, &bytes)| Layout::of_freed(of, bytes, align).transpose());
        // One that has no layout leaks, and the others are freed.
        let (all, unknown): (Vec<_>, Vec<_>) = all.partition(Result::is_ok);
        let mut outcome = unknown.into_iter().find_map(Result::err).map_or(Ok(()), Err);
        if all.is_empty() {
            return outcome;
        }
        let deallocate = |stream: StreamRef<'_>| {
            for (block, layout) in all.into_iter().flatten() {
                // SAFETY: as in `alv_deallocate_raw`.
                let freed = resource.freeing(|| unsafe { resource.get().deallocate(block, layout, stream) });
                outcome = outcome.and(freed);
            }
            outcome
        };
        // Where the stream cannot be had, the blocks leak.
        // SAFETY: a live stream of the device, by the function's text.
        unsafe { stream::with(resource.device(), stream, deallocate) }
    });
}
