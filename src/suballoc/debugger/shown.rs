//! What a debugger follows from a record: arrays, and caches.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::ShownAddress;

/// Where an array lies, whose own type a debugger does not know.
#[derive(Debug, Default)]
#[repr(C)]
pub(in crate::suballoc) struct ShownArray {
    pub(super) at: ShownAddress,
    // Not of `sync`, as `ShownAddress`.
    pub(super) count: AtomicUsize,
}

impl ShownArray {
    pub(super) const fn empty() -> Self {
        Self { at: ShownAddress::nowhere(), count: AtomicUsize::new(0) }
    }

    pub(in crate::suballoc) fn of<T>(array: &[T]) -> Self {
        let shown = Self::default();
        shown.at.lead_to(array.as_ptr());
        shown.count.store(array.len(), Ordering::Relaxed);
        shown
    }

    /// Pushes onto a vector that this leads to: at any instruction to a whole one.
    pub(in crate::suballoc) fn push<T>(&self, array: &mut Vec<T>, pushed: T) {
        if array.len() == array.capacity() {
            let mut longer = Vec::with_capacity((2 * array.len()).max(4));
            longer.append(array);
            self.at.lead_to(longer.as_ptr());
            *array = longer;
        }
        array.push(pushed);
        // Release: what was pushed comes first.
        self.count.store(array.len(), Ordering::Release);
    }
}

/// In the place of a number of a stream where there is none.
pub(in crate::suballoc) const NO_STREAM: u64 = u64::MAX;

/// What a debugger follows from a cache.
#[derive(Debug)]
#[repr(C)]
pub(in crate::suballoc) struct ShownCache {
    /// The address of the same of the next cache, or 0.
    pub(in crate::suballoc) next: usize,
    /// The number of its stream, or [`NO_STREAM`].
    pub(in crate::suballoc) stream: u64,
    /// Its entries.
    pub(in crate::suballoc) entries: ShownAddress,
}

impl Default for ShownCache {
    fn default() -> Self {
        Self { next: 0, stream: NO_STREAM, entries: ShownAddress::nowhere() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_shown_array_leads_to_the_array_however_long_it_gets() {
        let (shown, mut array) = (ShownArray::default(), Vec::new());
        for pushed in 0..1000 {
            shown.push(&mut array, pushed);
            let count = shown.count.load(Ordering::Relaxed);
            assert_eq!((shown.at.address(), count), (array.as_ptr().addr(), pushed + 1));
        }
        assert!(array.into_iter().eq(0..1000));
    }
}
