//! Wakes what sleeps: pages are created and mapped, all of them or none, and the contents are copied back.

use super::super::Engine;
use super::super::events::event;
use super::super::requester::Requester;
use super::super::telling::view_of;
use super::copying::Direction;
use super::{Turn, no_pages, units_of};
use crate::error::{Error, OutOfMemory};
use crate::nvtx;
use crate::resource::{Layout, Pages, Resource, SleepRecord};
use crate::suballoc::core::Extent;

impl<U: Resource> Engine<U> {
    /// Wakes the blocks of a record.
    pub(in crate::suballoc) fn wake(&self, record: &mut SleepRecord<'_>) -> Result<(), Error> {
        let Some(pages) = self.pages() else { return Err(no_pages()) };
        if record.number == 0 {
            return Ok(());
        }
        self.book.require_outside_of_hooks()?;
        let _turn = Turn::begin(&self.book)?;
        self.book.begin_waking(record)?;
        let restored = self.restore(pages, record);
        self.book.end_waking(record);
        restored?;
        event!(blocks = record.blocks(), bytes = record.bytes(), "wake");
        self.book.unmark(record);
        // Without a lock: the store is a resource of the user's.
        (record.host, record.file) = (None, None);
        Ok(())
    }

    /// Maps pages where they are missing, and copies the contents back.
    fn restore(&self, pages: &dyn Pages, record: &mut SleepRecord<'_>) -> Result<(), Error> {
        if let Some(host) = &record.host {
            // Of an earlier attempt.
            host.copies().settle([])?;
        }
        self.map_pages_of(pages, record)?;
        let _range = nvtx::range(c"wake", record.bytes());
        if record.file.is_some() {
            return self.read_back(record);
        }
        match &record.host {
            Some(host) => self.copy(&record.blocks, host, Direction::ToDevice),
            None => Ok(()),
        }
    }

    /// Creates and maps the pages that the blocks of a record need: all of them, or none.
    fn map_pages_of(&self, pages: &dyn Pages, record: &mut SleepRecord<'_>) -> Result<(), Error> {
        let mut missing = {
            let mut inner = self.book.lock();
            let inner = &mut *inner;
            let number = record.number;
            record.blocks.retain(|block| inner.sleepers.is_of(block, number));
            inner.core.pages_to_regain(record.blocks.iter().map(|block| block.address))
        };
        let mut mapped = self.create_pages(pages, &mut missing);
        if matches!(&mapped, Err(error) if error.is_out_of_memory()) {
            // Its own free memory may be what is missing.
            let _ = self.book.defragment();
            if self.trim_pages(0) > 0 {
                mapped = self.create_pages(pages, &mut missing);
            }
        }
        // The upstream may be a user's, and may have forked.
        self.book.require_same_process()?;
        let mut inner = self.book.lock();
        let answer = match mapped {
            Ok(extents) => {
                inner.pledged -= units_of(&extents);
                extents.into_iter().for_each(|extent| inner.core.regain(extent));
                Ok(())
            }
            Err(error) => {
                missing.iter().for_each(|(address, _)| inner.core.finish_giving_up(*address));
                Err(error)
            }
        };
        self.book.note_reserved(&mut inner);
        answer
    }

    /// Pages for these addresses, mapped, whose units stay pledged; or none.
    fn create_pages(&self, pages: &dyn Pages, missing: &mut Vec<(u64, u32)>) -> Result<Vec<Extent>, Error> {
        let need: u64 = missing.iter().map(|(_, units)| u64::from(*units)).sum();
        let room = {
            let mut inner = self.book.lock();
            let room = self.book.room(&inner);
            if need <= room {
                inner.pledged += need;
                inner.begin_call();
            }
            room
        };
        if need > room {
            return Err(self.too_little(need - room, None));
        }
        let mut mapped: Vec<Extent> = Vec::with_capacity(missing.len());
        let mut answer = Ok(());
        let mut lost = None;
        for &(address, units) in &*missing {
            self.note_upstream_call();
            let made = pages.create(units as usize * Layout::MIN_ALIGN).and_then(|page| {
                let extent = Extent { address, units, number: page.number() };
                self.map(pages, extent).inspect_err(|_| {
                    self.release(pages, extent);
                    lost = self.is_lost(pages, extent).then_some(address);
                })?;
                Ok(extent)
            });
            match made {
                Ok(extent) => mapped.push(extent),
                Err(error) if error.is_out_of_memory() => {
                    answer = Err(self.too_little(need - units_of(&mapped), Some(error)));
                    break;
                }
                Err(error) => {
                    answer = Err(error);
                    break;
                }
            }
        }
        let mut known = 0;
        while answer.is_ok() && known < mapped.len() {
            let segment = view_of(mapped[known].address, mapped[known].units);
            answer = segment.map_or(Ok(()), |segment| self.book.tell_added(segment));
            known += usize::from(answer.is_ok());
        }
        if answer.is_err() {
            let mut at = 0;
            mapped.retain(|extent| {
                at += 1;
                if at <= known && !self.book.let_go_of_page(*extent) {
                    return true;
                }
                let is_unmapped = self.unmap(pages, *extent).is_ok();
                if is_unmapped {
                    self.release(pages, *extent);
                } else {
                    self.book.tell_of_page_again(*extent);
                }
                !is_unmapped
            });
        }
        self.book.require_same_process()?;
        let mut inner = self.book.lock();
        inner.end_call();
        match answer {
            Ok(()) => Ok(mapped),
            Err(error) => {
                inner.pledged -= need;
                lost.into_iter().for_each(|address| inner.core.lose_given_up(address));
                // What stayed mapped is what it was to be.
                for extent in mapped {
                    missing.retain(|(address, _)| *address != extent.address);
                    inner.core.regain(extent);
                }
                Err(error)
            }
        }
    }

    /// The error of a wake without enough memory: so many units miss.
    #[cold]
    fn too_little(&self, units: u64, refused: Option<Error>) -> Error {
        let bytes = units as usize * Layout::MIN_ALIGN;
        let Ok(layout) = Layout::from_bytes(bytes) else { return Error::out_of_memory(bytes) };
        let report = OutOfMemory {
            maximum_bytes: self.maximum_bytes(),
            upstream_memory: self.upstream.memory_info().ok(),
            upstream_error: refused,
            ..self.figures(layout, Requester::Host)
        };
        Error::from(report.explained())
    }
}
