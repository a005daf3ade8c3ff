//! Puts blocks to sleep, and wakes them, over an upstream with pages.
//!
//! To sleep: the blocks are marked, so that a free of one is noticed; their work is waited for; their contents are copied; then
//! the pages that nobody else needs are taken out of the core, unmapped and released. Until that last step everything can be
//! undone. To wake: pages are created and mapped at the addresses that miss them, all of them or none; the contents are copied
//! back; only then are the blocks awake, so that a failure in between can be tried again.
//!
//! One thread at a time does either. It holds no lock meanwhile, and others may allocate, and free blocks that sleep.

#![expect(unsafe_code, reason = "copies contents, and maps and unmaps pages of the upstream")]

mod by_files;
mod copying;
mod filter;
mod marking;
mod sleepers;
mod waking;

pub(super) use filter::AsleepFilter;
pub(super) use sleepers::Sleepers;

use super::Engine;
use super::book::SuballocBook;
use super::events::event;
use super::grow::Caller;
use crate::error::Error;
use crate::nvtx;
use crate::resource::{
    DevicePtr, HostCopy, Kept, Layout, Pages, Place, Resource, SleepRecord, Sleeping, Tagged,
};
use crate::stream::{Frontier, StreamRef};
use crate::suballoc::core::{Extent, Want};
use crate::suballoc::sleep_config::Chosen;
use crate::sync::nap;
use copying::Direction;

/// The turn of a thread to put blocks to sleep, or to wake them.
struct Turn<'b>(&'b SuballocBook);

impl<'b> Turn<'b> {
    /// Waits for the turns of other threads.
    fn begin(book: &'b SuballocBook) -> Result<Self, Error> {
        let me = Caller::current();
        loop {
            book.require_same_process()?;
            match &mut book.lock().sleepers.caller {
                Some(other) if *other == me => {
                    return Err(Error::invalid_argument(
                        "sleep or wake within a sleep or wake of the same pool",
                        "one thread at a time does either",
                        "call it after the other has returned",
                    ));
                }
                Some(_) => {}
                free => {
                    *free = Some(me);
                    return Ok(Self(book));
                }
            }
            nap();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(mut inner) = self.0.lock_unless_forked() {
            inner.sleepers.caller = None;
        }
    }
}

impl<U: Resource> Engine<U> {
    /// Itself, over an upstream with pages.
    pub(in crate::suballoc) fn sleeping(&self) -> Option<&dyn Sleeping> {
        self.pages().map(|_| self as &dyn Sleeping)
    }

    /// Puts the chosen blocks to sleep.
    ///
    /// # Safety
    ///
    /// Every use of the chosen blocks is over, in the frontier, or, without one, on a stream that the machine knows. No thread
    /// frees one until this returns, and no work uses one until it is awake.
    pub(in crate::suballoc) unsafe fn sleep<'k>(
        &self,
        chosen: Chosen<'_>,
        behind: Option<&Frontier>,
        keep: Kept<'k>,
    ) -> Result<SleepRecord<'k>, Error> {
        let Some(pages) = self.pages() else { return Err(no_pages()) };
        self.book.require_outside_of_hooks()?;
        if self.book.is_frozen() {
            return Err(Error::unsupported(
                "sleep of what is frozen",
                "its memory stays where it is until it ends",
                "leave out `freeze`",
            ));
        }
        if let Some(Place::Host(store)) = &keep.0 {
            self.book.device.require(store.device())?;
        }
        let _turn = Turn::begin(&self.book)?;
        // Else a page could be unmapped under them: a block of which copies go on may lie on any page of what is to sleep.
        self.book.settle_copies()?;
        let blocks = self.book.chosen(&chosen)?;
        let mut record: SleepRecord<'k> = self.book.mark(&blocks, &chosen)?;
        if let Err(error) = self.save(&mut record, behind, keep) {
            self.book.unmark(&mut record);
            return Err(error);
        }
        self.return_pages_of(pages, &record);
        if matches!(chosen, Chosen::All) {
            self.trim_pages(0);
        }
        event!(blocks = record.blocks(), bytes = record.bytes(), kept = record.kept_bytes(), "sleep");
        Ok(record)
    }

    /// Waits for the work of the blocks, and copies their contents.
    fn save<'k>(
        &self,
        record: &mut SleepRecord<'k>,
        behind: Option<&Frontier>,
        keep: Kept<'k>,
    ) -> Result<(), Error> {
        let machine = self.book.device.machine();
        match behind {
            Some(frontier) => machine.wait_quiescent(frontier)?,
            None => machine.wait_for_every_stream(self.book.device.ordinal())?,
        }
        // Free memory whose work is over is no obstacle then. A stream that cannot be asked keeps its pages.
        let _ = self.book.defragment();
        let Some(place) = keep.0 else { return Ok(()) };
        let bytes = record.bytes();
        let _range = nvtx::range(c"sleep", bytes);
        match place {
            Place::Host(store) => {
                let host = record.host.insert(HostCopy::allocate(store, bytes as u64)?);
                self.copy(&record.blocks, host, Direction::ToHost)
            }
            // A file of nothing would only come and go.
            Place::Files(_) if bytes == 0 => Ok(()),
            Place::Files(files) => self.write_out(record, &*files),
        }
    }

    /// Unmaps and releases every page that only these blocks need.
    fn return_pages_of(&self, pages: &dyn Pages, record: &SleepRecord<'_>) {
        let given_up = {
            let mut inner = self.book.lock();
            let given_up = inner.core.give_up_pages(record.blocks.iter().map(|block| block.address));
            inner.leaving += units_of(&given_up);
            inner.begin_call();
            self.book.note_reserved(&mut inner);
            given_up
        };
        let (kept, _) = self.give_back(pages, &given_up);
        // In a forked child the parent's memory is leaked.
        let Some(mut inner) = self.book.lock_unless_forked() else { return };
        inner.leaving -= units_of(&given_up);
        for extent in given_up {
            if kept.contains(&extent) {
                inner.core.regain(extent);
            } else {
                inner.core.finish_giving_up(extent.address);
            }
        }
        inner.end_call();
        self.book.note_reserved(&mut inner);
    }

    /// Frees a block if it sleeps; else `None`, and it is freed like any other.
    pub(in crate::suballoc::engine) fn free_asleep(
        &self,
        want: Want,
        block: DevicePtr,
        layout: Layout,
        stream: Option<StreamRef<'_>>,
    ) -> Option<Result<(), Error>> {
        let address = block.address();
        let has_open = {
            let sleepers = &self.book.lock_unless_forked()?.sleepers;
            sleepers.blocks.get(&address)?;
            sleepers.copying.iter().any(|copying| copying.open.is_some())
        };
        if has_open {
            // So that it is free now, and not only later; or awake, and freed like any other.
            let _ = self.book.settle_copies();
            self.book.lock_unless_forked()?.sleepers.blocks.get(&address)?;
        }
        if self.book.ledger.is_some()
            && let Err(error) = self.remove_from_ledger(block, layout)
        {
            return Some(Err(error));
        }
        // If it is being woken it may be a region again.
        self.book.withdraw(block, layout, stream);
        let behind = stream.map(StreamRef::release);
        if !self.book.free_if_asleep(want, block, behind) {
            // It is awake by now.
            self.book.take_back(want, block, behind);
        }
        Some(Ok(()))
    }
}

fn units_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.units)).sum()
}

#[cold]
fn no_pages() -> Error {
    Error::unsupported(
        "sleep of a pool over this upstream",
        "it has no pages, so that memory cannot leave its addresses",
        "make the pool over `source::Mapped`",
    )
}

// SAFETY: a block that sleeps is out in the core under its address, so nothing else gets that; its pages are unmapped once its work
// is over and its contents are copied. It is awake only when all of its pages are mapped and the contents are back.
unsafe impl<U: Resource> Sleeping for Engine<U> {
    unsafe fn sleep<'k>(
        &self,
        block: DevicePtr,
        behind: &Frontier,
        keep: Kept<'k>,
    ) -> Result<SleepRecord<'k>, Error> {
        // SAFETY: the caller's promises.
        unsafe { self.sleep(Chosen::One(block), Some(behind), keep) }
    }

    unsafe fn sleep_all<'k>(
        &self,
        tagged: Option<Tagged<'_>>,
        keep: Kept<'k>,
    ) -> Result<SleepRecord<'k>, Error> {
        let chosen = tagged.map_or(Chosen::All, Chosen::Tagged);
        // SAFETY: the caller's promises.
        unsafe { self.sleep(chosen, None, keep) }
    }

    fn give_up(&self, record: &SleepRecord<'_>) {
        self.book.give_up_waking(record);
    }

    fn wake(&self, record: &mut SleepRecord<'_>) -> Result<(), Error> {
        self.wake(record)
    }
}
