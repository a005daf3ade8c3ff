//! `host`: what the host's own locks, tables and allocator cost, to compare with.

use core::hint::black_box;
#[expect(clippy::disallowed_types, reason = "it is what is measured")]
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;

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

    #[cfg(feature = "mimalloc")]
    super::mimalloc::run(count, report)?;
    #[cfg(not(feature = "mimalloc"))]
    crate::note::note("mimalloc is not measured: it is in programs built with the feature `mimalloc`");
    Ok(())
}

fn each(count: usize, mut operation: impl FnMut()) -> Result<f64, Failure> {
    per_operation(count, || {
        operation();
        Ok(())
    })
}
