//! How is it doing now?

#![expect(unsafe_code, reason = "exports functions, and writes structs of the caller")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::{BufWriter, Write as _};

use alluvion::adaptor::{Allowance, Counts, Logging, Stats, Tracking};
use alluvion::metrics::Metrics;
use alluvion::suballoc::{Snapshot, Status as PoolFigures, SuballocBook};
use alluvion::{AnyResource, Error, Resource, ResourceExt as _};

use crate::allocate::pointer;
use crate::boundary::{self, null};
use crate::handle;
use crate::record::{self, Record};
use crate::resource::ResourceHandle;
use crate::status::Status;
use crate::text::{self, Write, Writer};

/// A figure now, at most, and all together. It has these fields for good, because it lies within other structs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Count {
    /// Now.
    pub value: i64,
    /// The most that it was.
    pub peak: i64,
    /// All that was ever added.
    pub total: i64,
}

/// What a layer `stats` has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StatsCounts {
    /// `sizeof(alv_counts)`.
    pub struct_size: usize,
    /// The bytes that are out.
    pub bytes: Count,
    /// The blocks that are out.
    pub allocations: Count,
    /// The requests that failed.
    pub failures: u64,
}

// SAFETY: repr(C), a size first, and numbers.
unsafe impl Record for StatsCounts {
    const NAME: &'static str = "out, an alv_counts";
}

impl From<Counts> for StatsCounts {
    fn from(counts: Counts) -> Self {
        let Counts { bytes, allocations, failures, .. } = counts;
        Self {
            struct_size: size_of::<Self>(),
            bytes: Count { value: bytes.live, peak: bytes.peak, total: bytes.total },
            allocations: Count { value: allocations.live, peak: allocations.peak, total: allocations.total },
            failures,
        }
    }
}

/// The figures of a suballocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PoolStatus {
    /// `sizeof(alv_pool_status)`.
    pub struct_size: usize,
    /// In blocks that are out: the lengths of the blocks, which may be more than the requests.
    pub live_bytes: usize,
    /// How many blocks are out.
    pub live_blocks: usize,
    /// Free, in the shared core.
    pub free_bytes: usize,
    /// Free, in the caches of streams and of synchronous calls.
    pub cached_bytes: usize,
    /// Of the free and cached bytes, those of streams whose last free is not known to be completed.
    pub pending_bytes: usize,
    /// Of the live bytes, those that belong to memory of graphs.
    pub graph_bytes: usize,
    /// In blocks that sleep.
    pub asleep_bytes: usize,
    /// Taken from the upstream and not returned.
    pub reserved_bytes: usize,
    /// The most that was ever reserved.
    pub peak_reserved_bytes: usize,
    /// The largest free piece in the core, of any owner.
    pub largest_free_bytes: usize,
    /// The host memory for the bookkeeping.
    pub metadata_bytes: usize,
    /// Allocations served by a cache.
    pub hits: u64,
    /// Allocations served by the core.
    pub misses: u64,
    /// Of the misses, those served with a block that another stream had freed.
    pub steals: u64,
    /// Pages that are mapped, over an upstream with pages.
    pub pages: usize,
    /// Pages that were unmapped where they were free, to be mapped where memory was needed.
    pub moves: u64,
    /// The bytes of these pages.
    pub moved_bytes: u64,
    /// Waits of a stream for another, on the device, to reuse its memory.
    pub waits: u64,
    /// Events recorded for such waits.
    pub events_recorded: u64,
    /// Allocations and frees that reached the upstream.
    pub upstream_calls: u64,
}

// SAFETY: repr(C), a size first, and numbers.
unsafe impl Record for PoolStatus {
    const NAME: &'static str = "out, an alv_pool_status";
}

impl From<PoolFigures> for PoolStatus {
    fn from(status: PoolFigures) -> Self {
        Self {
            struct_size: size_of::<Self>(),
            live_bytes: status.live_bytes,
            live_blocks: status.live_blocks,
            free_bytes: status.free_bytes,
            cached_bytes: status.cached_bytes,
            pending_bytes: status.pending_bytes,
            graph_bytes: status.graph_bytes,
            asleep_bytes: status.asleep_bytes,
            reserved_bytes: status.reserved_bytes,
            peak_reserved_bytes: status.peak_reserved_bytes,
            largest_free_bytes: status.largest_free_bytes,
            metadata_bytes: status.metadata_bytes,
            hits: status.hits,
            misses: status.misses,
            steals: status.steals,
            pages: status.pages,
            moves: status.moves,
            moved_bytes: status.moved_bytes,
            waits: status.waits,
            events_recorded: status.events_recorded,
            upstream_calls: status.upstream_calls,
        }
    }
}

/// Runs `body` with the stack behind a handle.
///
/// # Safety
///
/// The contract of pointers.
unsafe fn with<T>(
    resource: *const ResourceHandle,
    body: impl FnOnce(&AnyResource) -> Result<T, Error>,
) -> Result<T, Error> {
    // SAFETY: the caller's promise.
    body(unsafe { handle::lend(resource) }?.get())
}

fn without(layer: &'static str, instead: &'static str) -> Error {
    Error::unsupported(layer, "the stack has no such layer", instead)
}

/// The book of the outermost suballocator, which `what` needs.
fn suballocator<'a>(resource: &'a AnyResource, what: &'static str) -> Result<&'a SuballocBook, Error> {
    resource.find::<SuballocBook>().ok_or_else(|| without(what, "name `pool` in the recipe"))
}

const STATS: &str = "name `stats` in the recipe";

/// Gives memory that nobody uses back to the driver until at most `keep` bytes are kept; `given_back`, which may be null, gets
/// how much went.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_trim(
    resource: *const ResourceHandle,
    keep: usize,
    given_back: *mut usize,
) -> Status {
    boundary::call(|| {
        // SAFETY: the contract of pointers.
        let bytes = unsafe { with(resource, |resource| resource.trim(keep)) }?;
        if !given_back.is_null() {
            // SAFETY: not null, so writable.
            unsafe { given_back.write(bytes) };
        }
        Ok(())
    })
}

/// Empties the caches of the outermost suballocator, asks the driver which work is completed, and merges its memory. Does not wait. Call it
/// at a safe point of a program, such as the end of an iteration. `ALV_UNSUPPORTED` without a suballocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_defragment(resource: *const ResourceHandle) -> Status {
    boundary::call(|| {
        let defragment =
            |resource: &AnyResource| suballocator(resource, "memory to defragment")?.defragment();
        // SAFETY: the contract of pointers.
        unsafe { with(resource, defragment) }
    })
}

/// The free and the total bytes of the memory that the stack draws on. Either place may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_memory_info(
    resource: *const ResourceHandle,
    available: *mut usize,
    total: *mut usize,
) -> Status {
    boundary::call(|| {
        // SAFETY: the contract of pointers.
        let info = unsafe { with(resource, Resource::memory_info) }?;
        for (place, bytes) in [(available, info.free_bytes), (total, info.total_bytes)] {
            if !place.is_null() {
                // SAFETY: not null, so writable.
                unsafe { place.write(bytes) };
            }
        }
        Ok(())
    })
}

/// What the outermost layer `stats` has counted, since it was made or since the last push. `ALV_UNSUPPORTED` without such a layer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_stats(resource: *const ResourceHandle, out: *mut StatsCounts) -> Status {
    // SAFETY: the contract of pointers.
    boundary::call(|| unsafe {
        counted(resource, out, false, |resource| {
            Ok(resource.find::<Stats>().ok_or_else(|| without("statistics", STATS))?.counts())
        })
    })
}

/// Begins a scope of the statistics; `top`, which may be null, gets what was counted around it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_stats_push(resource: *const ResourceHandle, top: *mut StatsCounts) -> Status {
    // SAFETY: the contract of pointers.
    boundary::call(|| unsafe {
        counted(resource, top, true, |resource| {
            Ok(resource.find::<Stats>().ok_or_else(|| without("statistics", STATS))?.push())
        })
    })
}

/// Ends a scope of the statistics; `top`, which may be null, gets what was counted in it. `ALV_INVALID_ARGUMENT` without a scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_stats_pop(resource: *const ResourceHandle, top: *mut StatsCounts) -> Status {
    // SAFETY: the contract of pointers.
    boundary::call(|| unsafe {
        counted(resource, top, true, |resource| {
            resource.find::<Stats>().ok_or_else(|| without("statistics", STATS))?.pop()
        })
    })
}

/// # Safety
///
/// The contract of pointers.
unsafe fn counted(
    resource: *const ResourceHandle,
    out: *mut StatsCounts,
    may_be_null: bool,
    count: impl FnOnce(&AnyResource) -> Result<Counts, Error>,
) -> Result<(), Error> {
    if !out.is_null() {
        // Before anything happens: a struct without its size loses no scope.
        // SAFETY: not null, so it is a struct.
        unsafe { record::read(out.cast_const()) }?;
    } else if !may_be_null {
        return Err(null("out"));
    }
    // SAFETY: the caller's promise.
    let counts = unsafe { with(resource, count) }?;
    if out.is_null() {
        return Ok(());
    }
    // SAFETY: as above.
    unsafe { record::write(out, &counts.into()) }
}

/// The figures of the outermost suballocator. `ALV_UNSUPPORTED` without one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_status_of(resource: *const ResourceHandle, out: *mut PoolStatus) -> Status {
    boundary::call(|| {
        let figures =
            |resource: &AnyResource| Ok(suballocator(resource, "figures of a suballocator")?.status());
        // SAFETY: the contract of pointers.
        let status = unsafe { with(resource, figures) }?;
        // SAFETY: the contract of pointers.
        unsafe { record::write(out, &status.into()) }
    })
}

/// How many bytes are live under the outermost layer `limiting` or `budget`, and its limit. Either place may be null.
/// `ALV_UNSUPPORTED` without such a layer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_limit_of(
    resource: *const ResourceHandle,
    used: *mut usize,
    limit: *mut usize,
) -> Status {
    boundary::call(|| {
        let look = |resource: &AnyResource| {
            let allowance = resource.find::<Allowance>();
            let allowance = allowance.ok_or_else(|| without("a limit", "name `limiting` in the recipe"))?;
            Ok([allowance.used_bytes(), allowance.limit_bytes()])
        };
        // SAFETY: the contract of pointers.
        let figures = unsafe { with(resource, look) }?;
        for (place, bytes) in [used, limit].into_iter().zip(figures) {
            if !place.is_null() {
                // SAFETY: not null, so writable.
                unsafe { place.write(bytes) };
            }
        }
        Ok(())
    })
}

/// What a snapshot writes.
fn snapshot(resource: &AnyResource) -> Result<Snapshot, Error> {
    let mut snapshot = suballocator(resource, "a snapshot of a suballocator")?.snapshot();
    if let Some(book) = resource.find::<Tracking>() {
        snapshot.label_by(book);
    }
    Ok(snapshot)
}

fn write_json(snapshot: &Snapshot, to: impl std::io::Write) -> Result<(), Error> {
    let mut to = BufWriter::new(to);
    let written = snapshot.write_json(&mut to).and_then(|()| to.flush());
    written.map_err(|error| Error::unwritable("the snapshot", &error))
}

/// Writes every block of the outermost suballocator to a file, as JSON that `alluvion viz` draws, with the tags that a layer
/// `tracking` knows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_snapshot_write(resource: *const ResourceHandle, path: *const c_char) -> Status {
    boundary::call(|| {
        // SAFETY: the contract of pointers.
        let path = unsafe { text::path(path, "path") }?;
        let write = |resource: &AnyResource| {
            // Before the file: without a suballocator there is none.
            let snapshot = snapshot(resource)?;
            let file = File::create(&path).map_err(|error| Error::unwritable(path.display(), &error))?;
            write_json(&snapshot, file)
        };
        // SAFETY: the contract of pointers.
        unsafe { with(resource, write) }
    })
}

/// As `alv_snapshot_write`, to a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_snapshot_to(
    resource: *const ResourceHandle,
    write: Write,
    user: *mut c_void,
) -> Status {
    boundary::call(|| {
        // SAFETY: the caller's function and what it is called with, valid for the call.
        let mut writer = unsafe { Writer::new(write, user) }?;
        // SAFETY: the contract of pointers.
        unsafe { with(resource, |resource| write_json(&snapshot(resource)?, &mut writer)) }
    })
}

/// A block that is out.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OutstandingBlock {
    /// `sizeof(alv_block)` of the library: a program that is older knows fewer fields.
    pub struct_size: usize,
    /// Where it is.
    pub address: *mut c_void,
    /// The bytes that were asked for.
    pub bytes: usize,
    /// The alignment that was asked for.
    pub align: usize,
    /// The thread that asked, by the library's own number.
    pub thread: usize,
    /// When, in seconds since the layer was made.
    pub at_seconds: f64,
    /// The tag, with semicolons between the scopes: valid during the call.
    pub tag: *const c_char,
    /// The line of the program that asked, if call stacks are recorded, else empty: valid during the call.
    pub call_site: *const c_char,
}

/// Calls `each` for every block that the outermost layer `tracking` knows to be out, oldest first, until it answers another
/// number than 0. No lock is held meanwhile: `each` may free. It must not throw. `ALV_UNSUPPORTED` without such a layer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_outstanding(
    resource: *const ResourceHandle,
    each: Option<unsafe extern "C" fn(user: *mut c_void, block: *const OutstandingBlock) -> c_int>,
    user: *mut c_void,
) -> Status {
    boundary::call(|| {
        let each = each.ok_or_else(|| null("each"))?;
        let look = |resource: &AnyResource| {
            let book = resource.find::<Tracking>();
            Ok(book
                .ok_or_else(|| without("a register of blocks", "name `tracking` in the recipe"))?
                .outstanding())
        };
        // SAFETY: the contract of pointers.
        let holdings = unsafe { with(resource, look) }?;
        for holding in &holdings.blocks {
            let tag = CString::new(holding.tag.to_string()).unwrap_or_default();
            let site = holding.call_site().map(|site| site.to_string()).unwrap_or_default();
            let site = CString::new(site).unwrap_or_default();
            let block = OutstandingBlock {
                struct_size: size_of::<OutstandingBlock>(),
                address: pointer(holding.address),
                bytes: holding.bytes,
                align: holding.align,
                thread: holding.thread,
                at_seconds: holding.at.as_secs_f64(),
                tag: tag.as_ptr(),
                call_site: site.as_ptr(),
            };
            // SAFETY: the caller's function and what it is called with; the block lives beyond the call.
            if unsafe { each(user, &raw const block) } != 0 {
                break;
            }
        }
        Ok(())
    })
}

/// Writes the rows of the outermost layer `logging` to its file. Without one there is nothing to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_log_flush(resource: *const ResourceHandle) -> Status {
    boundary::call(|| {
        let flush = |resource: &AnyResource| resource.find::<Logging>().map_or(Ok(()), |log| log.flush());
        // SAFETY: the contract of pointers.
        unsafe { with(resource, flush) }
    })
}

/// Writes the figures of every layer in the text format of Prometheus, with `name` as the name of the resource. And what its device
/// shares with other processes, as `alv_sharing_of` counts it: that is the same on the page of every resource of the device, and is to be
/// kept once where pages are put together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_metrics(
    resource: *const ResourceHandle,
    name: *const c_char,
    write: Write,
    user: *mut c_void,
) -> Status {
    boundary::call(|| {
        // SAFETY: the contract of pointers.
        let name = unsafe { text::borrow(name, "name") }?;
        // SAFETY: the caller's function and what it is called with, valid for the call.
        let mut writer = unsafe { Writer::new(write, user) }?;
        let page = |resource: &AnyResource| {
            let mut page = Metrics::new();
            page.add_stack(name, resource);
            page.add_sharing(resource.device());
            Ok(page.to_string())
        };
        // SAFETY: the contract of pointers.
        let page = unsafe { with(resource, page) }?;
        writer.write_all(page.as_bytes()).map_err(|error| Error::unwritable("metrics", &error))
    })
}
