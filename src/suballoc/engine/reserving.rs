//! Reserves the addresses that pages are mapped at, and returns them.

use core::sync::atomic::Ordering;

use super::Engine;
use super::book::Request;
use super::events::event;
use super::grow::PAGE_UNITS;
use super::paging::parts_of;
use crate::error::Error;
use crate::nvtx;
use crate::resource::{Layout, Resource};
use crate::suballoc::core::{Extent, Owner, Segment};

/// A range has this many times the memory of the upstream in addresses, so that a hole that is too short for one request
/// is left to others.
pub(super) const TIMES_MEMORY: u64 = 4;

/// All ranges of a machine take at most half of the addresses that a process has, which are 128 TiB: the driver, other libraries and the
/// heap need them, too. On an H200 231 pools had reserved all of them, after which no pool of the driver could be made, and RMM crashed.
const ADDRESSES: usize = 1 << 46;

/// A range takes at most this part of what is left of them. On an H200 the first 78 pools have ranges as long as any, and the next ones
/// shorter and shorter ones, and further ranges when they need them.
const PART_OF_ADDRESSES: usize = 16;

/// The longest range, in units: 1 TiB less a page, because a count of units has 32 bits.
const LONGEST: u64 = u32::MAX as u64 + 1 - PAGE_UNITS;

impl<U: Resource> Engine<U> {
    /// Reserves another range, in which a request fits that no range has a site for. If it is of a short block, it goes to
    /// the other ranges from now on.
    pub(super) fn reserve_longer_range(&self, request: &Request<'_>) -> Result<(), Error> {
        {
            let mut inner = self.book.lock();
            if inner.core.is_short(request.want.units()) {
                inner.core.close_short_range();
                return Ok(());
            }
        }
        let (range, units) = self.reserve_range(TIMES_MEMORY, request.need())?;
        self.book.lock().core.add_range(range, units, self.book.page_units);
        Ok(())
    }

    /// Reserves the range of short blocks, unless another thread has, or goes on without one.
    pub(super) fn reserve_short_range(&self) -> Result<(), Error> {
        let reserved = self.reserve_range(1, 0);
        let unused = {
            let mut inner = self.book.lock();
            match reserved {
                Ok((range, units)) if inner.core.wants_short_range() => {
                    inner.core.add_short_range(range, units, self.book.page_units);
                    None
                }
                Ok(unused) => Some(unused),
                Err(error) if error.is_final() => return Err(error),
                Err(_) => {
                    inner.core.close_short_range();
                    None
                }
            }
        };
        if let (Some((address, units)), Some(pages)) = (unused, self.pages()) {
            self.unreserve(pages, Segment { address, units });
        }
        Ok(())
    }

    /// Reserves a range of addresses, of so many times the memory, in which a block of `need` units fits. Returns its
    /// address and its units.
    pub(super) fn reserve_range(&self, times: u64, need: u64) -> Result<(u64, u32), Error> {
        let page = u64::from(self.book.page_units);
        if let Ok(memory) = self.upstream.memory_info() {
            // Relaxed, here and below: a figure that only grows.
            self.upstream_total.fetch_max(memory.total_bytes, Ordering::Relaxed);
        }
        let total = self.upstream_total.load(Ordering::Relaxed) / Layout::MIN_ALIGN;
        let least = need.next_multiple_of(page) + 2 * page;
        let longest = LONGEST / page * page;
        let Some(pages) = self.pages().filter(|_| least <= longest) else {
            return Err(Error::unsupported(
                "a block of almost 1 TiB over pages",
                "a range of addresses holds less",
                "ask for less at once",
            ));
        };
        let left = ADDRESSES.saturating_sub(self.book.device.machine().reserved_addresses());
        let most = (left / PART_OF_ADDRESSES / Layout::MIN_ALIGN) as u64 / page * page;
        let most = most.clamp(least, longest);
        let mut units = (total as u64 * times).next_multiple_of(page).clamp(least, most);
        loop {
            match self.reserve(pages, units as usize * Layout::MIN_ALIGN) {
                Ok(range) => {
                    self.book.require_same_process()?;
                    event!(bytes = units as usize * Layout::MIN_ALIGN, address = range.address(), "reserve");
                    self.announce_to_driver(range.address(), units as usize * Layout::MIN_ALIGN);
                    // Pages are announced to no tool, but ranges and marks are.
                    nvtx::start();
                    return Ok((range.address(), units as u32));
                }
                Err(_) if units > least => units = (units / 2).next_multiple_of(page).max(least),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns all ranges to the upstream, when the suballocator ends. Pages that work may still use are leaked.
    ///
    /// The work of a page that is leaked knows the addresses of its blocks, and not those of its aliases.
    pub(super) fn return_ranges(
        &self,
        is_lost: impl Fn(Owner) -> bool,
        is_of_graph: impl Fn(u64, u64) -> bool,
    ) {
        let Some(pages) = self.pages() else { return };
        let (aliases, ranges) = {
            let core = &mut self.book.lock().core;
            (core.drain_aliases(), core.ranges_to_drain(is_lost))
        };
        let stuck: Vec<Extent> =
            aliases.into_iter().filter(|alias| self.unmap(pages, *alias).is_err()).collect();
        // A page with an address left is not released.
        let is_stuck = |extent: Extent| stuck.iter().any(|alias| alias.number == extent.number);
        for drained in ranges {
            let Segment { address, units } = drained.range;
            let mut is_empty = parts_of(&stuck, &[(address, units)]).is_empty();
            for (extent, is_lost) in drained.extents {
                let is_lost = is_lost || is_of_graph(extent.address, extent.end());
                // A page that a hook does not let go of is leaked, too.
                let is_lost = is_lost || !self.book.let_go_of_page(extent);
                if is_lost || self.unmap(pages, extent).is_err() {
                    is_empty = false;
                } else if !is_stuck(extent) {
                    self.release(pages, extent);
                }
            }
            if is_empty {
                self.unreserve(pages, drained.range);
            }
        }
    }
}
