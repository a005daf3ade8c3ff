//! `ByTag`: the allocations of one thread under each tag.

use hashbrown::HashMap;

use crate::stream::Places;
use crate::sync::{AtomicU64, Ordering, Token};
use crate::tag::Tag;

/// The number of recent tags that are found without a lookup: a thread changes between a few tags.
const RECENT: usize = 8;

/// The allocations of a thread under one tag.
#[derive(Debug)]
pub(super) struct OfTag {
    pub(super) tag: Tag,
    pub(super) bytes: AtomicU64,
    pub(super) blocks: AtomicU64,
    pub(super) failures: AtomicU64,
}

/// The counts of one thread, in the order in which it first used the tags. The memory depends on the number of these
/// tags, and not on the tags of other threads.
///
/// The thread that has the seat writes; other threads read, without a lock.
#[derive(Debug, Default)]
pub(super) struct ByTag {
    /// Tags, with the places of their counts: see `packed`. Tag 0 is none.
    recent: [AtomicU64; RECENT],
    counts: Places<OfTag>,
    /// The place of each tag. Behind a token because the book is shared: only the writer takes it.
    places: Token<HashMap<Tag, u32>>,
}

/// A tag and its place, in one word.
fn packed(tag: Tag, place: u32) -> u64 {
    u64::from(tag.number()) << 32 | u64::from(place)
}

impl ByTag {
    /// The counts of a tag, made when it is first used. By the thread that writes them.
    pub(super) fn of(&self, tag: Tag) -> &OfTag {
        // Relaxed, here and below: only this thread looks at what is recent.
        let recent = &self.recent[tag.number() as usize % RECENT];
        let known = recent.load(Ordering::Relaxed);
        if known >> 32 == u64::from(tag.number())
            && let Some(of) = self.counts.get(known as u32)
        {
            return of;
        }
        let place = self.place(tag);
        recent.store(packed(tag, place), Ordering::Relaxed);
        self.counts.get_or_make(place, || OfTag {
            tag,
            bytes: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    #[inline(never)]
    fn place(&self, tag: Tag) -> u32 {
        let mut places = self.places.lock();
        // There are 65,537 tags at most.
        let next = places.len() as u32;
        *places.entry(tag).or_insert(next)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &OfTag> {
        self.counts.iter()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_tag_has_counts_of_its_own() {
        let by_tag = ByTag::default();
        // Those of one sort, of which one is recent; and many.
        for round in 1..=3_u64 {
            for number in [8, 16, 65_537, 24, 1].into_iter().chain(100..400) {
                let of = by_tag.of(Tag::numbered(number));
                assert_eq!(of.tag, Tag::numbered(number));
                of.bytes.store(of.bytes.load(Ordering::Relaxed) + u64::from(number), Ordering::Relaxed);
                assert_eq!(of.bytes.load(Ordering::Relaxed), round * u64::from(number));
            }
        }
        assert_eq!(by_tag.iter().count(), 305);
        assert!(by_tag.iter().take(5).map(|of| of.tag.number()).eq([8, 16, 65_537, 24, 1]));
    }
}
