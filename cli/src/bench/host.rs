//! `host`: what the host's own locks, tables and allocator cost, to compare with.

#![expect(unsafe_code, reason = "calls an allocator directly")]

use core::alloc::{GlobalAlloc, Layout};
use core::hint::black_box;
#[expect(clippy::disallowed_types, reason = "it is what is measured")]
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};

use alluvion::Error;
use hashbrown::HashMap;
use mimalloc::MiMalloc;

use super::figure::{Figure, Report};
use crate::failure::Failure;
use crate::timing::per_operation;

/// Entries of the table: more than the second-level cache holds.
const ENTRIES: u64 = 100_000;

pub(super) fn run(quick: bool, report: &mut Report) -> Result<(), Failure> {
    let count = if quick { 10_000 } else { 1_000_000 };
    let mut print = |operation, ns| report.print(&Figure::Host { operation, ns });

    #[expect(clippy::disallowed_types, reason = "it is what is measured")]
    let mutex = Mutex::new(0_u64);
    let locked = per_operation(count, || {
        *black_box(&mutex).lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Ok(())
    })?;
    print("Mutex lock+unlock uncontended", locked)?;

    let shared = Arc::new(0_u64);
    print("Arc clone+drop", each(count, || drop(black_box(Arc::clone(&shared))))?)?;

    // Keys as addresses of blocks are: multiples of 256.
    let mut table: HashMap<u64, u32> = (0..ENTRIES).map(|key| (key << 8, key as u32)).collect();
    let mut key = 0;
    let mut next = || {
        key = (key + 1) % ENTRIES;
        key << 8
    };
    let found = each(count, || {
        black_box(table.get(&next()));
    })?;
    print("hashbrown get of 100k", found)?;
    let replaced = each(count, || {
        let key = next();
        table.remove(&key);
        table.insert(key, 0);
    })?;
    print("hashbrown insert+remove", replaced)?;

    for (operation, bytes) in
        [("mimalloc pair 64 B", 64), ("mimalloc pair 64 KiB", 64 << 10), ("mimalloc pair 1 MiB", 1 << 20)]
    {
        let layout = Layout::from_size_align(bytes, 16)
            .map_err(|error| Failure::while_doing("measuring mimalloc", error))?;
        print(operation, per_operation(count, || mimalloc_pair(black_box(layout)))?)?;
    }
    Ok(())
}

fn each(count: usize, mut operation: impl FnMut()) -> Result<f64, Failure> {
    per_operation(count, || {
        operation();
        Ok(())
    })
}

#[inline]
fn mimalloc_pair(layout: Layout) -> Result<(), Error> {
    // SAFETY: the layouts above are not of size zero.
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
