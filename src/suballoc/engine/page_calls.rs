//! The calls of an upstream with pages, each with the promises that it asks for.

#![expect(unsafe_code, reason = "maps and unmaps pages of the upstream")]

use std::collections::BTreeSet;

use super::Engine;
use super::events::event;
use crate::error::Error;
use crate::resource::{DevicePtr, Layout, Page, Pages, Resource};
use crate::suballoc::core::{Extent, Segment, Stale};

impl<U: Resource> Engine<U> {
    /// The pages of the upstream, where the suballocator grows in place.
    pub(super) fn pages(&self) -> Option<&dyn Pages> {
        if self.book.page_units == 0 { None } else { self.upstream.pages() }
    }

    /// Reserves a range of addresses.
    pub(super) fn reserve(&self, pages: &dyn Pages, bytes: usize) -> Result<DevicePtr, Error> {
        self.note_upstream_call();
        let range = pages.reserve(bytes)?;
        self.book.device.machine().note_addresses(bytes);
        Ok(range)
    }

    /// Returns a range in which nothing is mapped to the upstream.
    pub(super) fn unreserve(&self, pages: &dyn Pages, range: Segment) {
        let Some(address) = DevicePtr::new(range.address) else { return };
        self.withdraw_memory(range.address, range.units as usize * Layout::MIN_ALIGN);
        self.note_upstream_call();
        // SAFETY: `reserve_range` or `map_segment` got the range of so many bytes from this upstream; nothing is mapped in it, and the
        // core hands nothing of it out: it never knew the range, no longer knows it, or has ended.
        unsafe { pages.unreserve(address, range.units as usize * Layout::MIN_ALIGN) };
        self.book.device.machine().forget_addresses(range.units as usize * Layout::MIN_ALIGN);
    }

    pub(super) fn map(&self, pages: &dyn Pages, extent: Extent) -> Result<(), Error> {
        let Some(at) = DevicePtr::new(extent.address) else { return Ok(()) };
        self.note_upstream_call();
        // SAFETY:
        // - the page was created here, and is mapped nowhere, or at aliases of it, where the upstream's pages may have them.
        // - the addresses are in a gap of a range of this upstream, which no other thread maps: its node is moving, or the
        //   page is given up, and busy; or the core does not know the range yet.
        unsafe { pages.map(page_of(extent), at) }
    }

    /// Returns `true` if nothing can be mapped there, after a page could not be.
    #[cold]
    pub(super) fn is_lost(&self, pages: &dyn Pages, extent: Extent) -> bool {
        let Some(at) = DevicePtr::new(extent.address) else { return false };
        self.note_upstream_call();
        let is_lost = pages.is_lost(at, page_of(extent).bytes());
        event!(bytes = page_of(extent).bytes(), address = extent.address, is_lost, "mapping refused");
        is_lost
    }

    /// After an error the page stays mapped.
    pub(super) fn unmap(&self, pages: &dyn Pages, extent: Extent) -> Result<(), Error> {
        let Some(at) = DevicePtr::new(extent.address) else { return Ok(()) };
        self.note_upstream_call();
        // SAFETY:
        // - the core says that the page is mapped there, and no other thread unmaps it: its node is moving, or the
        //   suballocator ends, or the page is given up, and busy; or `map_segment` mapped it, and the core does not know it yet.
        // - no work uses it there: it is an alias, on absent addresses; or no block of it is out, it is in no cache, and all that ever used it is over on the device,
        //   because it is unowned, or the block sleeps, or nobody has seen it; at the end the caller has waited for it.
        let answer = unsafe { pages.unmap(page_of(extent), at) };
        event!(bytes = page_of(extent).bytes(), address = extent.address, unmapped = answer.is_ok(), "unmap");
        answer
    }

    pub(super) fn release(&self, pages: &dyn Pages, extent: Extent) {
        self.note_upstream_call();
        // SAFETY: the page was created here, is mapped nowhere, and nobody knows it any more.
        unsafe { pages.release(page_of(extent)) };
    }

    /// Unmaps aliases, which the caller settles. Returns those that are unmapped, and those that are not, with their errors.
    pub(super) fn unmap_stale(
        &self,
        pages: &dyn Pages,
        stale: Vec<Stale>,
    ) -> (Vec<Stale>, Vec<(Stale, Error)>) {
        let (mut unmapped, mut stuck) = (Vec::new(), Vec::new());
        for stale in stale {
            match self.unmap(pages, stale.extent) {
                Ok(()) => unmapped.push(stale),
                Err(error) => stuck.push((stale, error)),
            }
        }
        (unmapped, stuck)
    }

    /// Unmaps free pages, which no search finds, with their aliases, and releases them. Returns those that stay as they were, because the
    /// driver does not unmap them or an alias of them, with the first error, because another thread is unmapping one, or because a hook
    /// does not let go of them.
    pub(super) fn give_back(
        &self,
        pages: &dyn Pages,
        extents: &[Extent],
    ) -> (Vec<Extent>, Result<(), Error>) {
        let (mut kept_numbers, mut answer) = (BTreeSet::new(), Ok(()));
        if self.book.has_aliases && !extents.is_empty() {
            let taken = self.book.lock_unless_forked().map(|mut inner| inner.core.take_aliases_of(extents));
            let (stale, busy) = taken.unwrap_or_default();
            kept_numbers.extend(busy);
            let (unmapped, stuck) = self.unmap_stale(pages, stale);
            // In a forked child the parent's memory is leaked.
            if let Some(mut inner) = self.book.lock_unless_forked() {
                unmapped.into_iter().for_each(|stale| inner.core.settle_stale(stale, true));
                for (stale, error) in stuck {
                    kept_numbers.insert(stale.extent.number);
                    inner.core.settle_stale(stale, false);
                    answer = answer.and(Err(error));
                }
            }
        }
        let mut kept = Vec::new();
        for &extent in extents {
            if kept_numbers.contains(&extent.number) || !self.book.let_go_of_page(extent) {
                kept.push(extent);
                continue;
            }
            let unmapped = self.unmap(pages, extent);
            if unmapped.is_ok() {
                self.release(pages, extent);
            } else {
                self.book.tell_of_page_again(extent);
                kept.push(extent);
            }
            answer = answer.and(unmapped);
        }
        (kept, answer)
    }
}

fn page_of(extent: Extent) -> Page {
    Page::new(extent.number, extent.units as usize * Layout::MIN_ALIGN)
}

#[cfg(all(test, feature = "sim", not(loom)))]
mod tests {
    use super::*;
    use crate::sim::SimConfig;
    use crate::source::Mapped;
    use crate::{PoolConfig, ResourceExt, Sim};

    /// However many pools there are, others find addresses.
    #[test]
    fn a_thousand_pools_leave_half_of_the_addresses() {
        const GIB: usize = 1 << 30;
        let sim = Sim::with_config(SimConfig::default().devices(1).memory_bytes(141 << 30));
        let (device, machine) = (sim.device(0), sim.machine());
        let mut pools = Vec::new();
        for count in 1..=1000 {
            let before = machine.reserved_addresses();
            let pool = Mapped::new(&device).and_then(|source| source.pool(PoolConfig::default()));
            let pool = pool.expect("a right configuration");
            // Longer than what the last ranges are reserved for else.
            let layouts = [1 << 20, if count % 100 == 0 { 1 << 30 } else { 300 }];
            let blocks = layouts.map(|bytes| {
                let layout = Layout::from_bytes(bytes).expect("it is no large number");
                (pool.allocate_sync(layout).expect("there are addresses"), layout)
            });
            let taken = machine.reserved_addresses() - before;
            assert!(count > 50 || taken >= 4 * 141 * GIB, "pool {count} has {taken} bytes of addresses");
            pools.push((pool, blocks));
        }
        let reserved = machine.reserved_addresses();
        // Ten requests found a range too short, and got one of their length.
        assert!(reserved <= (64 << 40) + 20 * GIB, "{} GiB are reserved", reserved / GIB);
        for (pool, blocks) in pools {
            for (block, layout) in blocks {
                // SAFETY: the pool made it with this layout, and nothing uses it.
                unsafe { pool.deallocate_sync(block, layout) };
            }
        }
        assert_eq!(machine.reserved_addresses(), 0);
    }
}
