//! `Places`: a growing array, indexed by the place of a stream.

use std::sync::OnceLock;

/// Slots of the first chunk; each further one is twice as large, so 15 chunks hold every place. A program has a handful of
/// streams: one chunk. Under loom two slots, because a slot may hold an object of loom.
const FIRST: usize = if cfg!(loom) { 2 } else { 64 };
const CHUNKS: usize = if cfg!(loom) { 20 } else { 15 };

/// One `T` for each place of a stream, made at the first access. It never moves.
///
/// Chunks never move either, so a look-up takes no lock: two acquire loads. A slot has room for a `T` whether it is made or not,
/// so a large `T` belongs in a box.
#[derive(Debug)]
pub(crate) struct Places<T> {
    chunks: [OnceLock<Box<[OnceLock<T>]>>; CHUNKS],
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS] }
    }
}

impl<T> Places<T> {
    /// The value, if it has been made.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        if (index as usize) < FIRST {
            // The first chunk: nearly every stream of nearly every program.
            return self.chunks[0].get()?.get(index as usize)?.get();
        }
        let (chunk, at) = place(index);
        self.chunks.get(chunk)?.get()?.get(at)?.get()
    }

    /// The value, made now if need be. If two threads come at once, one makes it and the other waits for it. So `make` takes no
    /// lock, calls no driver, and does not access this array.
    ///
    /// # Panics
    ///
    /// If no stream can have that place: see `StreamId::PLACES`.
    pub(crate) fn get_or_make(&self, index: u32, make: impl FnOnce() -> T) -> &T {
        let (chunk, at) = place(index);
        let slots = self.chunks[chunk]
            .get_or_init(|| core::iter::repeat_with(OnceLock::new).take(FIRST << chunk).collect());
        slots[at].get_or_init(make)
    }

    /// All values that have been made, in the order of the places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.chunks.iter().filter_map(OnceLock::get).flat_map(|slots| slots.iter()).filter_map(OnceLock::get)
    }
}

/// The chunk, and the index in it.
fn place(index: u32) -> (usize, usize) {
    let position = index as usize / FIRST + 1;
    let chunk = position.ilog2() as usize;
    (chunk, index as usize - FIRST * ((1 << chunk) - 1))
}

#[cfg(test)]
mod tests {
    use super::super::StreamId;
    use super::*;

    #[test]
    fn every_index_has_one_place() {
        let (mut chunk, mut at) = (0, 0);
        for index in 0..10_000 {
            assert_eq!(place(index), (chunk, at));
            at += 1;
            if at == FIRST << chunk {
                (chunk, at) = (chunk + 1, 0);
            }
        }
        assert_eq!(place(StreamId::PLACES - 1).0, CHUNKS - 1);
    }

    #[test]
    fn what_is_made_stays_where_it_is() {
        let places = Places::default();
        let first: *const u32 = places.get_or_make(3, || 30);
        for index in (0..5_000).rev() {
            assert_eq!(places.get(index).is_some(), index == 3);
            assert_eq!(*places.get_or_make(index, || index * 10), index * 10);
        }
        assert!(core::ptr::eq(first, places.get_or_make(3, || unreachable!("it has been made"))));
        assert!(places.iter().copied().eq((0..5_000).map(|index| index * 10)));
    }

    #[test]
    fn an_empty_array_holds_nothing_anywhere() {
        let places = Places::<String>::default();
        assert!(places.get(0).is_none() && places.get(StreamId::PLACES - 1).is_none());
        assert!(places.get(u32::MAX).is_none(), "no stream can have that place");
        assert_eq!(places.iter().count(), 0);
        places.get_or_make(StreamId::PLACES - 1, || "last".to_owned());
        assert_eq!(places.get(StreamId::PLACES - 1).map(String::as_str), Some("last"));
    }

    #[cfg(not(loom))]
    #[test]
    fn two_threads_make_one_thing() {
        use std::sync::Barrier;
        use std::sync::atomic::{AtomicUsize, Ordering};

        let places = Places::default();
        let (barrier, made) = (Barrier::new(2), AtomicUsize::new(0));
        let make = || {
            barrier.wait();
            let it: &usize = places.get_or_make(77, || made.fetch_add(1, Ordering::Relaxed));
            core::ptr::from_ref(it) as usize
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(make);
            assert_eq!(make(), other.join().expect("it does not panic"));
        });
        assert_eq!(made.into_inner(), 1);
    }
}
