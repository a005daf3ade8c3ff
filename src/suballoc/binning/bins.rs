//! `Bins`: the bins of a `Binning`, and which one a request and a free go to.
//!
//! # How a free finds its bin
//!
//! At the first request the bins are *sealed*: sorted, and never changed again. A bin that is added before that is one of
//! them. Which of them serves follows from the layout alone, which the free has, too.
//!
//! A bin that is added later serves requests that another one served before. So a block of such a bin is entered in a table,
//! by its address, while it is live; a block that is not there is of the sealed bins, or of the upstream. A free looks into the table
//! only if an added bin could have served its layout. It sees every added bin that the allocation has seen, because the allocation
//! comes before it.

use std::sync::OnceLock;

use super::added::AddedBins;
use super::bin::Bin;
use crate::driver::DriverResult;
use crate::error::Error;
use crate::resource::{DevicePtr, Layout, Resource};
use crate::sync::Mutex;

pub(super) struct Bins<U: Resource, B> {
    /// Those that are there before the first request; `None` once they are sealed.
    first: Mutex<Option<Vec<Bin<U, B>>>>,
    /// The same, by size, from the first request on.
    sealed: OnceLock<Box<[Bin<U, B>]>>,
    /// Those that came later.
    added: OnceLock<Box<AddedBins<U, B>>>,
}

/// The bin that serves a request.
pub(super) enum Serving<'b, U: Resource, B> {
    /// A sealed one; the upstream if there is none.
    First(Option<&'b Bin<U, B>>),
    /// One that was added later, and its number. The block is to be entered.
    Added(&'b AddedBins<U, B>, u32, &'b Bin<U, B>),
}

/// The bin that a block came from. Its entry is gone from the table.
pub(super) enum BinHome<'b, U: Resource, B> {
    First(Option<&'b Bin<U, B>>),
    Added(&'b AddedBins<U, B>, u32, &'b Bin<U, B>),
}

impl<'b, U: Resource, B: Resource> BinHome<'b, U, B> {
    /// The bin; `None` for the upstream.
    #[inline]
    pub(super) fn bin(&self) -> Option<&'b Bin<U, B>> {
        match *self {
            Self::First(bin) => bin,
            Self::Added(_, _, bin) => Some(bin),
        }
    }

    /// Enters a block again that was not freed.
    #[cold]
    pub(super) fn put_back(&self, block: DevicePtr) {
        if let Self::Added(added, number, _) = *self {
            added.enter(block, number);
        }
    }
}

impl<U: Resource, B: Resource> Bins<U, B> {
    pub(super) fn new(first: Vec<Bin<U, B>>) -> Self {
        Self { first: Mutex::new(Some(first)), sealed: OnceLock::new(), added: OnceLock::new() }
    }

    /// Adds a bin, behind those of its size.
    pub(super) fn add(&self, bin: Bin<U, B>) -> Result<(), Error> {
        self.first.require_same_process()?;
        let mut first = self.first.lock();
        match &mut *first {
            Some(first) => first.push(bin),
            // Still under the lock: bins are added one after the other. A bin that is refused is dropped behind it.
            None => {
                let refused = self.added.get_or_init(Box::default).push(bin);
                drop(first);
                return refused.map_or(Ok(()), |_bin| Err(too_many()));
            }
        }
        Ok(())
    }

    /// The sizes, sorted.
    pub(super) fn sizes(&self) -> Vec<usize> {
        let first = self.first.lock_unless_forked().and_then(|first| {
            first.as_ref().map(|first| first.iter().map(|bin| bin.bytes).collect::<Vec<_>>())
        });
        let mut sizes = first.unwrap_or_else(|| self.all().map(|bin| bin.bytes).collect());
        sizes.sort_unstable();
        sizes
    }

    /// All bins, the largest first. They are sealed from then on.
    pub(super) fn largest_first(&self) -> Vec<&Bin<U, B>> {
        self.sealed();
        let mut bins: Vec<_> = self.all().collect();
        bins.sort_by_key(|bin| core::cmp::Reverse(bin.bytes));
        bins
    }

    fn all(&self) -> impl Iterator<Item = &Bin<U, B>> {
        let sealed = self.sealed.get().into_iter().flat_map(|sealed| sealed.iter());
        sealed.chain(self.added.get().into_iter().flat_map(|added| added.iter()))
    }

    #[inline]
    fn sealed(&self) -> &[Bin<U, B>] {
        match self.sealed.get() {
            Some(sealed) => sealed,
            None => self.seal(),
        }
    }

    #[cold]
    fn seal(&self) -> &[Bin<U, B>] {
        self.sealed.get_or_init(|| {
            let first = self.first.lock_unless_forked().and_then(|mut first| first.take());
            let mut first = first.unwrap_or_default();
            // Stable: of equal sizes the one that came first is found first.
            first.sort_by_key(|bin| bin.bytes);
            first.into_boxed_slice()
        })
    }

    /// The sealed bin that serves this layout; none if the upstream does.
    #[inline]
    fn first_serving(&self, layout: Layout) -> Option<&Bin<U, B>> {
        // There are few bins, so a scan is faster than a search.
        self.sealed().iter().find(|bin| bin.serves(layout))
    }

    /// The smallest bin that serves a request.
    #[inline]
    pub(super) fn serving(&self, layout: Layout) -> Serving<'_, U, B> {
        let first = self.first_serving(layout);
        if let Some(added) = self.added.get()
            && let Some((number, bin)) = added.serving(layout, first)
        {
            return Serving::Added(added, number, bin);
        }
        Serving::First(first)
    }

    /// The bin that a live block came from, `None` for the upstream.
    pub(super) fn bin_of(&self, block: DevicePtr, layout: Layout) -> DriverResult<Option<&Bin<U, B>>> {
        let first = self.first_serving(layout);
        if let Some(added) = self.added.get()
            && added.serving(layout, first).is_some()
        {
            added.require_same_process()?;
            if let Some(bin) = added.bin_of(block) {
                return Ok(Some(bin));
            }
        }
        Ok(first)
    }

    /// The bin that a block came from, and takes its entry out of the table: from the free on another block may have its
    /// address. `None` in a child of the process that it was made in, where the block is leaked.
    #[inline]
    pub(super) fn home_of(&self, block: DevicePtr, layout: Layout) -> Option<BinHome<'_, U, B>> {
        let first = self.first_serving(layout);
        if let Some(added) = self.added.get()
            && added.serving(layout, first).is_some()
        {
            added.require_same_process().ok()?;
            if let Some((number, bin)) = added.leave(block) {
                return Some(BinHome::Added(added, number, bin));
            }
        }
        Some(BinHome::First(first))
    }
}

#[cold]
fn too_many() -> Error {
    Error::invalid_argument(
        "one more bin",
        "there are 65536 that were added after the first request",
        "add bins for fewer sizes",
    )
}
