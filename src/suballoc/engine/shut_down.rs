//! Giving memory back to the upstream: a segment at a time, and all of it at the end.

#![expect(unsafe_code, reason = "gives segments back to the upstream that they came from")]

use super::Engine;
use super::events::event;
use super::grow::segment_layout;
use crate::error::Error;
use crate::resource::{DevicePtr, Layout, Resource};
use crate::stream::{Frontier, Stamp, StreamId, StreamRef};
use crate::suballoc::core::{Owned, Owner, Segment};

impl<U: Resource> Engine<U> {
    /// Gives back what nothing is left in until at most `keep_bytes` are kept, and has the upstream do the same.
    ///
    /// # Errors
    ///
    /// That of a stream that could not be asked what is over, once all that can go is gone; that of the upstream.
    pub(in crate::suballoc) fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        self.book.require_here()?;
        let mut gone = 0;
        let mut collected = Ok(());
        if self.reserved_bytes() > keep_bytes {
            collected = self.collect();
            let keep_units = keep_bytes.div_ceil(Layout::MIN_ALIGN) as u64;
            while let Some(bytes) = self.return_segment(keep_units) {
                gone += bytes;
            }
        }
        // What the upstream keeps is on top of what is kept here.
        let under = self.upstream.trim(keep_bytes.saturating_sub(self.reserved_bytes()))?;
        collected.map(|()| gone.max(under))
    }

    /// Makes a stream wait for all others that have freed here, and merges what it may then take.
    pub(in crate::suballoc) fn merge(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        self.book.device.require(stream.device())?;
        self.book.spill();
        self.book.merge_for(stream)
    }

    pub(in crate::suballoc) fn reserved_bytes(&self) -> usize {
        match self.book.inner.lock_here() {
            Some(inner) => inner.core.reserved_units() as usize * Layout::MIN_ALIGN,
            None => self.book.reserved_bytes(),
        }
    }

    /// Gives one segment back that is free and nobody's, if there are `keep_units` without it. Returns its bytes.
    pub(super) fn return_segment(&self, keep_units: u64) -> Option<usize> {
        let segment = {
            let mut inner = self.book.inner.lock();
            // In one step: of two that give back at a time, each counts what the other has taken.
            let surplus = inner.core.reserved_units().saturating_sub(keep_units);
            let segment = inner.core.take_segment(surplus)?;
            inner.leaving += u64::from(segment.units);
            inner.begin_call();
            self.book.note_reserved(&mut inner);
            segment
        };
        self.return_leaving(segment)
    }

    /// The same of one that the core has given up, and that is counted as leaving.
    pub(super) fn return_leaving(&self, segment: Segment) -> Option<usize> {
        let bytes = self.deallocate_segment(segment);
        // Not before: until then the upstream may lack it, and the maximum counts it.
        // The upstream may be the user's, and have forked.
        let mut inner = self.book.inner.lock_here()?;
        inner.leaving -= u64::from(segment.units);
        inner.end_call();
        bytes
    }

    /// Gives a segment back that `take_segment` of the core has named.
    fn deallocate_segment(&self, segment: Segment) -> Option<usize> {
        let layout = segment_layout(segment.units).ok()?;
        let block = DevicePtr::new(segment.address)?;
        self.note_upstream_call();
        // SAFETY:
        // - the block came from this upstream, with this layout: `take_segment` of the core names what `add_segment` was told.
        // - it is used no more: no block of it is out, it is in no cache, and all that ever used it is over on the device,
        //   because it is nobody's.
        unsafe { self.upstream.deallocate_sync(block, layout) };
        event!(bytes = layout.bytes(), address = segment.address, "trim");
        Some(layout.bytes())
    }
}

impl<U: Resource> Drop for Engine<U> {
    fn drop(&mut self) {
        if self.book.is_of_parent() {
            return;
        }
        let book = &self.book;
        let (owned, has_live): (Vec<Owned>, bool) = {
            let mut inner = book.inner.lock();
            // So that what is out then is out of the pool.
            book.spill_locked(&mut inner);
            if inner.core.reserved_units() == 0 {
                return;
            }
            (inner.core.owners().collect(), inner.core.out_blocks() > 0)
        };
        let machine = book.device.machine();
        // On the host, and not on a stream behind the work: the driver gives what is freed behind work to nobody else before
        // somebody has waited for that stream, and nobody would.
        let is_over = |other: &Owned| {
            machine.wait_quiescent(&Frontier::of(Stamp { stream: other.stream, epoch: other.newest })).is_ok()
        };
        // Blocks that are still out end here. What uses them was submitted, nobody knows to which stream: wait for every one.
        // Not for the device, which would break the capture of any stream of it.
        let live_are_over = !has_live || machine.wait_for_every_stream(book.device.ordinal()).is_ok();
        let lost: Vec<StreamId> =
            owned.iter().filter(|other| !is_over(other)).map(|other| other.stream).collect();
        let segments = {
            let mut inner = book.inner.lock();
            let lost: Vec<Owner> = lost.iter().filter_map(|stream| inner.core.owner_of(*stream)).collect();
            let is_lost = |holder| lost.contains(&holder) || holder == Owner::OUT && !live_are_over;
            inner.core.drain_segments(is_lost)
        };
        for (Segment { address, units }, is_lost) in segments {
            // The last use of a block in it cannot be placed in any order: a stream captures, or did at its end, or the context
            // is lost. The segment is leaked.
            let layout = segment_layout(units).ok().filter(|_| !is_lost);
            let (Some(layout), Some(block)) = (layout, DevicePtr::new(address)) else { continue };
            self.note_upstream_call();
            // SAFETY: the block came from this upstream, with this layout, and every use of it is over: of what was freed, the
            // last point of the stream that holds it is, and nobody's is; of what was not, all that any stream of the machine
            // had been given.
            unsafe { self.upstream.deallocate_sync(block, layout) };
        }
    }
}
