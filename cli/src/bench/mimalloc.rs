//! The cost of mimalloc, an allocator of the host that is known to be fast, to compare with.

#![expect(unsafe_code, reason = "calls an allocator directly")]

use core::alloc::{GlobalAlloc, Layout};
use core::hint::black_box;

use alluvion::Error;
use mimalloc::MiMalloc;

use super::figure::{Figure, Report};
use crate::failure::Failure;
use crate::timing::per_operation;

pub(super) fn run(count: usize, report: &mut Report) -> Result<(), Failure> {
    for (operation, bytes) in
        [("mimalloc pair 64 B", 64), ("mimalloc pair 64 KiB", 64 << 10), ("mimalloc pair 1 MiB", 1 << 20)]
    {
        let layout = Layout::from_size_align(bytes, 16)
            .map_err(|error| Failure::while_doing("measuring mimalloc", error))?;
        let ns = per_operation(count, || pair(black_box(layout)))?;
        report.print(&Figure::Host { operation, ns })?;
    }
    Ok(())
}

#[inline]
fn pair(layout: Layout) -> Result<(), Error> {
    // SAFETY: the layouts of `run` are not of size zero.
    let block = black_box(unsafe { MiMalloc.alloc(layout) });
    if block.is_null() {
        return Err(Error::out_of_memory(layout.size()));
    }
    // SAFETY:
    // - the block came from this allocator just now, and nobody else has seen it;
    // - with this layout.
    unsafe { MiMalloc.dealloc(block, layout) };
    Ok(())
}
