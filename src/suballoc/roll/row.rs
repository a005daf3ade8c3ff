//! What a debugger follows from a record: arrays, and caches.

/// Where an array of a suballocator lies, whose own type a debugger does not know.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(in crate::suballoc) struct Row {
    at: usize,
    count: usize,
}

impl Row {
    pub(in crate::suballoc) fn of<T>(array: &[T]) -> Self {
        Self { at: array.as_ptr().addr(), count: array.len() }
    }

    /// Pushes onto a vector that this leads to: at any instruction to a whole one.
    pub(in crate::suballoc) fn push<T>(&mut self, array: &mut Vec<T>, pushed: T) {
        if array.len() == array.capacity() {
            let mut longer = Vec::with_capacity((2 * array.len()).max(4));
            longer.append(array);
            self.at = longer.as_ptr().addr();
            *array = longer;
        }
        array.push(pushed);
        self.count = array.len();
    }
}

/// In the place of a number of a stream where there is none.
pub(in crate::suballoc) const NO_STREAM: u64 = u64::MAX;

/// The beginning of what a debugger knows of a cache.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::suballoc) struct Trail {
    /// The address of the trail of the next cache, or 0.
    pub(in crate::suballoc) next: usize,
    /// The number of its stream, or [`NO_STREAM`].
    pub(in crate::suballoc) stream: u64,
    /// The address of its entries, or 0.
    pub(in crate::suballoc) entries: usize,
}

impl Default for Trail {
    fn default() -> Self {
        Self { next: 0, stream: NO_STREAM, entries: 0 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_row_leads_to_the_array_however_long_it_gets() {
        let (mut row, mut array) = (Row::default(), Vec::new());
        for pushed in 0..1000 {
            row.push(&mut array, pushed);
            assert_eq!((row.at, row.count), (array.as_ptr().addr(), pushed + 1));
        }
        assert!(array.into_iter().eq(0..1000));
    }
}
