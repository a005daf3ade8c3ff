//! Gives free pages back, over an upstream with pages.

use std::collections::BTreeSet;

use super::Engine;
use super::paging::units_of;
use crate::nvtx;
use crate::resource::{Layout, Resource};
use crate::suballoc::core::Extent;

impl<U: Resource> Engine<U> {
    /// Unmaps and releases pages on which no live block lies, until at most `keep_units` are left. Returns the bytes.
    pub(super) fn trim_pages(&self, keep_units: u64) -> usize {
        let (mut gone, mut refused, mut open_calls) = (0, Vec::new(), 0);
        // Pages that stay, because a hook or the driver does not let go of them, count to what is kept: others go in their place. They are
        // out of the core meanwhile: else they would be the next ones again.
        while let Some((bytes, kept)) = self.trim_pages_once(keep_units.saturating_sub(units_of(&refused))) {
            gone += bytes;
            if kept.is_empty() {
                break;
            }
            refused.extend(kept);
            open_calls += 1;
        }
        if let Some(mut inner) = self.book.lock_unless_forked().filter(|_| !refused.is_empty()) {
            inner.leaving -= units_of(&refused);
            refused.into_iter().for_each(|extent| inner.core.abandon_unmapping(extent));
            (0..open_calls).for_each(|_| inner.end_call());
            self.book.note_reserved(&mut inner);
        }
        gone
    }

    /// As [`trim_pages`](Self::trim_pages), once. Returns the bytes, and the pages that stay, which are out of the core, and counted as
    /// leaving; their call goes on. `None` without pages, and in a forked child.
    fn trim_pages_once(&self, keep_units: u64) -> Option<(usize, Vec<Extent>)> {
        let pages = self.pages()?;
        let old = {
            // A hook may have forked.
            let mut inner = self.book.lock_unless_forked()?;
            // In one step: of two threads that trim, each counts what the other has taken.
            let surplus = inner.core.reserved_units().saturating_sub(keep_units);
            let surplus = if inner.told.is_frozen { 0 } else { surplus };
            let old = inner.core.take_pages(surplus, surplus);
            inner.leaving += units_of(&old);
            inner.begin_call();
            self.book.note_reserved(&mut inner);
            old
        };
        let _range =
            (!old.is_empty()).then(|| nvtx::range(c"trim", units_of(&old) as usize * Layout::MIN_ALIGN));
        let (kept, _) = self.give_back(pages, &old);
        let kept_at: BTreeSet<u64> = kept.iter().map(|extent| extent.address).collect();
        let gone_units = units_of(&old) - units_of(&kept);
        let gone = gone_units as usize * Layout::MIN_ALIGN;
        // In a forked child the parent's memory is leaked.
        let Some(mut inner) = self.book.lock_unless_forked() else { return Some((gone, Vec::new())) };
        inner.leaving -= gone_units;
        for extent in old.into_iter().filter(|extent| !kept_at.contains(&extent.address)) {
            inner.core.finish_unmapping(extent);
        }
        // Where a page fills its range, the addresses go with it.
        let empty = if self.book.moves_pages() { Vec::new() } else { inner.core.take_empty_ranges() };
        if kept.is_empty() {
            inner.end_call();
        }
        self.book.note_reserved(&mut inner);
        drop(inner);
        empty.into_iter().for_each(|range| self.unreserve(pages, range));
        Some((gone, kept))
    }
}
