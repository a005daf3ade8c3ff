//! `Engine`: the shell around the core, the same for every suballocator.
//!
//! The engine takes segments from an upstream, has the core carve them, and does the rest: it locks, asks the driver
//! which work is completed, and makes streams wait. The suballocators differ in their [`EngineConfig`] only.

#![expect(unsafe_code, reason = "keeps the contract of resources, and gives segments back upstream")]

mod announcing;
mod book;
mod completed;
mod config;
mod emptying;
mod events;
mod export;
mod graphs;
mod grow;
mod largest;
mod page_calls;
mod paging;
mod premerge;
mod report;
mod requester;
mod reserving;
mod resource_impl;
mod serve;
mod shut_down;
mod sleeping;
mod slow_path;
mod spill;
mod strategy;
mod taking;
mod telling;
mod trimming;

use core::sync::atomic::{AtomicUsize, Ordering};

pub use book::SuballocBook;
use book::{Counters, Inner, Request};
pub(super) use config::EngineConfig;
pub(crate) use graphs::ReservationId;
pub(super) use requester::Requester;
pub(super) use resource_impl::resource_by_engine;
use slow_path::Attempt;

use super::core::{Inspected, Want};
use super::debugger::{Kind, Text};
use super::ledger::LedgerMatch;
use crate::device::Device;
use crate::error::{Cause, Error, Misuse, MisuseKind, OutOfMemory};
use crate::nvtx;
use crate::resource::{Describe, DevicePtr, Layout, Pages, Resource};
use crate::stream::StreamRef;

/// The largest alignment that a suballocator honours: a page of the device, 2 MiB.
pub(super) const MAX_ALIGN: usize = 2 << 20;

/// Segments of an upstream, carved.
#[derive(Debug)]
pub(super) struct Engine<U: Resource> {
    book: SuballocBook,
    /// The total memory of the upstream, as far as it is known. Not of `sync`, because no protocol depends on it.
    upstream_total: AtomicUsize,
    upstream: U,
}

impl<U: Resource> Engine<U> {
    pub(super) fn new(upstream: U, config: EngineConfig) -> Self {
        let pages = upstream.pages().filter(|_| config.in_place);
        let page_units = pages.map_or(0, |pages| (pages.page_bytes() / Layout::MIN_ALIGN) as u32);
        // Segments that stay what they are have one page each, at one address.
        let has_aliases = config.segment_bytes.is_none() && pages.is_some_and(Pages::may_alias);
        let text = Text::of(format_args!("{} > {}", config.name, Describe::new(&upstream)));
        let book =
            SuballocBook::new(upstream.device(), config, page_units, has_aliases, Kind::Suballocator, text);
        Self { book, upstream_total: AtomicUsize::new(0), upstream }
    }

    pub(super) fn upstream(&self) -> &U {
        &self.upstream
    }

    pub(super) fn book(&self) -> &SuballocBook {
        &self.book
    }

    pub(super) fn device(&self) -> &Device {
        &self.book.device
    }

    #[inline]
    pub(super) fn allocate(&self, layout: Layout, requester: Requester<'_>) -> Result<DevicePtr, Error> {
        if let Requester::Stream(stream) = requester
            && self.book.graphs.have_a_session()
            && let Some(served) = self.allocate_beside_sessions(layout, stream)
        {
            return served;
        }
        if let Some(want) = self.book.want(layout)
            && layout.align() <= Layout::MIN_ALIGN
            && self.book.is_plain()
            && let Some(block) = self.book.take(want, requester.id())
        {
            return Ok(block);
        }
        self.allocate_slowly(layout, requester)
    }

    /// As [`allocate`](Self::allocate), from the cache of the stream alone.
    #[inline]
    pub(super) fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
        // A session asks the driver which capture a stream is in.
        if self.book.graphs.have_a_session() {
            return None;
        }
        let Some(want) = self.book.want(layout) else {
            return (layout.is_empty() && self.may_serve_nothing(layout, stream)).then(|| layout.dangling());
        };
        if layout.align() > Layout::MIN_ALIGN {
            return None;
        }
        if !self.book.is_plain() && nvtx::listens() {
            // A tool may take as long as it likes.
            return None;
        }
        let block = self.book.take(want, Some(stream.id()))?;
        Some(self.noted(block, layout, Some(stream)))
    }

    /// Returns `true` if a request for zero bytes succeeds.
    #[cold]
    fn may_serve_nothing(&self, layout: Layout, stream: StreamRef<'_>) -> bool {
        !self.book.is_forked_child()
            && layout.align() <= MAX_ALIGN
            && self.book.device.require(stream.device()).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn allocate_slowly(&self, layout: Layout, requester: Requester<'_>) -> Result<DevicePtr, Error> {
        self.book.require_same_process()?;
        layout.require_align(MAX_ALIGN)?;
        if let Some(stream) = requester.stream() {
            self.book.device.require(stream.device())?;
        }
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        let want = self.book.want(layout);
        let want = want
            .filter(|want| u64::from(want.units()) <= self.book.maximum_units)
            .ok_or_else(|| self.too_large(layout, requester))?;
        self.book.require_awake()?;
        let align_units = (layout.block_align() / Layout::MIN_ALIGN) as u32;
        let request = Request { requester, layout, want, align_units };
        if self.may_be_beyond_upstream(layout)
            && let Some(block) = self.serve_beyond_upstream(&request)?
        {
            return Ok(self.noted(block, layout, requester.stream()));
        }
        // With a ledger or a tool the fast path was skipped, so the cache comes now.
        let is_first = align_units == 1 && !self.book.is_plain();
        let cached = if is_first { self.book.take(want, requester.id()) } else { None };
        let block = match cached.or_else(|| self.book.serve_merged(&request)) {
            Some(block) => block,
            None => self.take_slowly(&request)?,
        };
        Ok(self.noted(block, layout, requester.stream()))
    }

    /// Returns `true` if the request is more than the upstream is known to have in all. Only then is the upstream asked
    /// for its total, so a busy suballocator asks once.
    fn may_be_beyond_upstream(&self, layout: Layout) -> bool {
        // Relaxed: a figure that only grows.
        let known = self.upstream_total.load(Ordering::Relaxed).max(self.book.reserved_bytes());
        layout.rounded_bytes() > known
    }

    /// A block that goes out, noted if anybody has to know.
    fn noted(&self, block: DevicePtr, layout: Layout, stream: Option<StreamRef<'_>>) -> DevicePtr {
        if !self.book.is_plain() {
            self.note_out(block, layout, stream);
        }
        block
    }

    /// `stream` is `None` in a synchronous call.
    ///
    /// # Safety
    ///
    /// As [`Resource::deallocate`]; without a stream, as [`Resource::deallocate_sync`].
    #[inline]
    pub(super) unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: Option<StreamRef<'_>>) {
        if self.book.graphs.may_concern(block)
            && let Some(freed) = self.free_beside_graphs(block, layout, stream)
        {
            // What is no live block is left alone, as below.
            return freed.unwrap_or_else(|error| self.refuse(error, stream));
        }
        let Some(want) = self.book.want(layout) else { return self.free_of_no_want(block, layout, stream) };
        if !self.may_come_back(block, layout, stream) {
            // Not a live block, or a stream of another device: the free is ignored, so the memory stays with its owner.
            return;
        }
        // Before the block is put anywhere: everything submitted so far comes before this point.
        let freed_at = stream.map(|stream| stream.release_block(layout.bytes()));
        if !self.book.put(want, block, freed_at)
            && let Some(what) = self.book.take_back(want, block, freed_at)
        {
            self.refuse(misuse(block, layout, what), stream);
        }
    }

    /// As [`deallocate`](Self::deallocate), into the cache of the stream alone. After `false` nothing has happened.
    ///
    /// # Safety
    ///
    /// As [`Resource::deallocate`].
    #[inline]
    pub(super) unsafe fn deallocate_at_once(
        &self,
        block: DevicePtr,
        layout: Layout,
        stream: StreamRef<'_>,
    ) -> bool {
        if self.book.graphs.may_concern(block) && self.book.graphs.do_concern(block) {
            return false;
        }
        let Some(want) = self.book.want(layout) else { return layout.is_empty() };
        // Before the block is put anywhere, as in `deallocate`.
        let Some(stamp) = stream.release_at_once(layout.bytes()) else { return false };
        let put = || self.book.put(want, block, Some(stamp));
        if self.book.is_plain() {
            return self.book.may_be_out(block) && put();
        }
        if nvtx::listens()
            || self.book.is_forked_child()
            || self.book.device.require(stream.device()).is_err()
        {
            return false;
        }
        // Removed first: once the cache has the block, another thread may enter it again.
        let entry = match &self.book.ledger {
            Some(ledger) => match ledger.withdraw(block, layout) {
                Some(entry) => Some((ledger, entry)),
                None => return false,
            },
            None => None,
        };
        let is_known = self.book.withdraw(block, layout, Some(stream));
        if !is_known && entry.is_none() {
            return false;
        }
        let is_put = put();
        if !is_put {
            if let Some((ledger, entry)) = entry {
                ledger.put_back(block, entry);
            }
            self.book.stays_out(block, layout);
        }
        is_put
    }

    /// # Safety
    ///
    /// If the block is live and of this suballocator: as [`Resource::deallocate`].
    pub(super) unsafe fn try_deallocate(
        &self,
        block: DevicePtr,
        layout: Layout,
        stream: StreamRef<'_>,
    ) -> Result<(), Error> {
        self.book.device.require(stream.device())?;
        if layout.is_empty() {
            return Ok(());
        }
        if self.book.graphs.may_concern(block)
            && let Some(freed) = self.free_beside_graphs(block, layout, Some(stream))
        {
            return freed;
        }
        if self.book.ledger.is_some() {
            self.remove_from_ledger(block, layout)?;
        }
        if !self.book.is_plain() {
            if self.book.ledger.is_none() {
                // What is no live block is not withdrawn.
                self.inspect(&self.book.lock(), block, layout)?;
            }
            let is_known = self.book.withdraw(block, layout, Some(stream));
            if !is_known && self.book.ledger.is_none() {
                // Another thread has freed it since.
                return Err(misuse(block, layout, MisuseKind::DoubleFree));
            }
        }
        // Before the lock: for a stream that the crate did not make this is a driver call.
        let stamp = stream.release_block(layout.bytes());
        let mut inner = self.book.lock();
        let wanted = match self.book.want(layout) {
            Some(want) if self.book.ledger.is_some() => want,
            _ => self.inspect(&inner, block, layout)?,
        };
        // Still under the mutex: of two threads that free one block, the second sees the free of the first.
        self.book.put_or_take_back(&mut inner, wanted, block, Some(stamp));
        Ok(())
    }

    /// Returns `false` if the block cannot be one that is out, or if a ledger says that it is not: then it is left alone, and whoever
    /// frees is told.
    #[inline]
    fn may_come_back(&self, block: DevicePtr, layout: Layout, stream: Option<StreamRef<'_>>) -> bool {
        if !self.book.is_plain() {
            return self.note_back(block, layout, stream);
        }
        let may_be_out = self.book.may_be_out(block);
        if !may_be_out && !self.book.is_forked_child() {
            self.refuse(misuse(block, layout, self.misuse_kind_of(block)), stream);
        }
        may_be_out
    }

    /// A free with a layout that no block has: of zero bytes, or more than any block.
    #[cold]
    fn free_of_no_want(&self, block: DevicePtr, layout: Layout, stream: Option<StreamRef<'_>>) {
        if layout.is_empty() || self.book.is_forked_child() {
            return;
        }
        let refused = match &self.book.ledger {
            Some(_) => self.remove_from_ledger(block, layout),
            None => self.inspect(&self.book.lock(), block, layout).map(drop),
        };
        if let Err(error) = refused {
            self.refuse(error, stream);
        }
    }

    /// Leaves a block alone that was freed wrongly: counts it, and tells whoever frees, and the driver if it asks.
    #[cold]
    #[inline(never)]
    fn refuse(&self, error: Error, stream: Option<StreamRef<'_>>) {
        if let Some(Misuse { block, bytes, .. }) = error.misuse() {
            Counters::add(&self.book.counters.wrong_frees, 1);
            if let Some(watch) = self.book.watch() {
                let (ordinal, stream) = (self.book.device.ordinal(), stream.map(StreamRef::raw));
                watch.refuse(self.book.config.name, ordinal, block.address(), *bytes, stream);
            }
        }
        error.tell_of_refusal();
    }

    /// Notes a block that comes back, for a ledger, for a tool and for the driver. Returns `false` if one of them knows it for no live
    /// block: then it is left alone.
    #[cold]
    #[inline(never)]
    fn note_back(&self, block: DevicePtr, layout: Layout, stream: Option<StreamRef<'_>>) -> bool {
        if self.book.ledger.is_some() {
            if self.book.is_forked_child() {
                return false;
            }
            let removed = match stream {
                Some(stream) => self.book.device.require(stream.device()),
                None => Ok(()),
            }
            .and_then(|()| self.remove_from_ledger(block, layout));
            if let Err(refused) = removed {
                self.refuse(refused, stream);
                return false;
            }
        }
        let is_known = self.book.withdraw(block, layout, stream) || self.book.ledger.is_some();
        if !is_known {
            self.refuse(misuse(block, layout, self.misuse_kind_of(block)), stream);
        }
        is_known
    }

    /// Removes a block that is being freed from the ledger. The error says why it cannot be freed.
    fn remove_from_ledger(&self, block: DevicePtr, layout: Layout) -> Result<(), Error> {
        let Some(ledger) = &self.book.ledger else { return Ok(()) };
        match ledger.remove(block, layout) {
            LedgerMatch::Same => Ok(()),
            LedgerMatch::OtherSize { bytes } => {
                Err(misuse(block, layout, MisuseKind::WrongSize { allocated_bytes: bytes }))
            }
            LedgerMatch::Absent => Err(misuse(block, layout, self.misuse_kind_of(block))),
        }
    }

    /// The kind of misuse that a free of this address is, where no live block begins.
    fn misuse_kind_of(&self, block: DevicePtr) -> MisuseKind {
        misuse_kind(self.book.lock().core.inspect(block.address()))
    }

    /// As [`remove_from_ledger`](Self::remove_from_ledger) where there is no ledger: asks the core and the caches.
    /// Looks at every cached block; two sizes of one class look the same.
    fn inspect(&self, inner: &Inner, block: DevicePtr, layout: Layout) -> Result<Want, Error> {
        let is_cached = || {
            let caches = self.book.caches();
            caches.iter().any(|cache| cache.blocks().any(|cached| cached.address == block.address()))
        };
        let kind = match inner.core.inspect(block.address()) {
            Inspected::Out { units } if !is_cached() => {
                if let Some(want) = self.book.want(layout).filter(|want| want.units() == units) {
                    return Ok(want);
                }
                MisuseKind::WrongSize { allocated_bytes: units as usize * Layout::MIN_ALIGN }
            }
            inspected => misuse_kind(inspected),
        };
        Err(misuse(block, layout, kind))
    }

    /// Refuses a request that no block is ever large enough for. No search is made, and no handler is asked.
    #[cold]
    fn too_large(&self, layout: Layout, requester: Requester<'_>) -> Error {
        let limits = [self.maximum_bytes(), self.book.only_bytes()];
        let report = OutOfMemory {
            maximum_bytes: limits.into_iter().flatten().min(),
            cause: Cause::TooLarge,
            ..self.figures(layout, requester)
        };
        self.book.config.handlers.tell(&report);
        self.refusal(report, Attempt::default())
    }

    /// Counts a call to the upstream, before it is made.
    fn note_upstream_call(&self) {
        Counters::add(&self.book.counters.upstream_calls, 1);
    }
}

/// The kind of misuse, from the core's answer. A block that the core counts as out is in a cache here.
fn misuse_kind(inspected: Inspected) -> MisuseKind {
    match inspected {
        Inspected::Foreign => MisuseKind::ForeignPointer,
        Inspected::Inside { block } => match DevicePtr::new(block) {
            Some(block) => MisuseKind::InteriorPointer { block },
            None => MisuseKind::ForeignPointer,
        },
        Inspected::Free { .. } | Inspected::Out { .. } => MisuseKind::DoubleFree,
    }
}

#[cold]
fn misuse(block: DevicePtr, layout: Layout, what: MisuseKind) -> Error {
    Error::of_misuse(Misuse { block, bytes: layout.bytes(), what })
}
