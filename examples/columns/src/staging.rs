//! Pinned memory of the host, where the elements of a column are put in order before the device reads them.

use alluvion::{Error, PinnedAlloc, PinnedVec};

/// A vector with room for `len` elements: pushing as many allocates nothing.
///
/// Pinned memory runs out sooner than ordinary memory, and a `Vec` that cannot grow aborts the process. So room is made here,
/// once, where that is an error.
pub(crate) fn room_for<T>(len: usize, staging: &PinnedAlloc) -> Result<PinnedVec<T>, Error> {
    let mut room = PinnedVec::new_in(staging.clone());
    room.try_reserve_exact(len).map_err(|_| Error::out_of_memory(len.saturating_mul(size_of::<T>())))?;
    Ok(room)
}

/// A bitmap of the rows that have a value, or `None` if all have: bit `row % 32` of word `row / 32`.
pub(crate) fn bitmap_of<T>(
    rows: &[Option<T>],
    staging: &PinnedAlloc,
) -> Result<Option<PinnedVec<u32>>, Error> {
    if rows.iter().all(Option::is_some) {
        return Ok(None);
    }
    let mut words = room_for(rows.len().div_ceil(32), staging)?;
    words.extend(rows.chunks(32).map(|rows| {
        rows.iter().enumerate().fold(0, |word, (bit, row)| word | u32::from(row.is_some()) << bit)
    }));
    Ok(Some(words))
}
