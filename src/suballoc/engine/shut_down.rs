//! Returns memory to the upstream: a segment at a time, and all of it at the end.

#![expect(unsafe_code, reason = "gives segments back to the upstream that they came from")]

use super::Engine;
use super::events::event;
use super::taking::segment_layout;
use super::telling::view_of;
use crate::error::Error;
use crate::nvtx;
use crate::resource::{DevicePtr, Layout, Resource};
use crate::stream::{Frontier, Stamp, StreamId, StreamRef};
use crate::suballoc::core::{Owned, Owner, Segment};

impl<U: Resource> Engine<U> {
    /// Returns empty segments until at most `keep_bytes` are kept, and trims the upstream. Waits for the device only for memory that
    /// nothing else can say to be free: see [`RawStreams`](crate::stream::RawStreams); and for copies of a sleep or a wake that
    /// failed.
    pub(in crate::suballoc) fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        self.book.require_same_process()?;
        let mut gone = 0;
        let mut collected = Ok(());
        if self.book.is_frozen() || self.book.is_within_hooks() {
            return Ok(gone);
        }
        if self.reserved_bytes() > keep_bytes {
            self.close_open_ends();
            let _ = self.book.settle_copies();
            collected = self.book.defragment();
            let keep_units = keep_bytes.div_ceil(Layout::MIN_ALIGN) as u64;
            gone += self.return_segments(keep_units, || true);
            gone += self.trim_pages(keep_units);
        }
        // The bytes kept here count against what the upstream may keep.
        let under = self.upstream.trim(keep_bytes.saturating_sub(self.reserved_bytes()))?;
        collected.map(|()| gone.max(under))
    }

    /// Waits for the device if a stream that came by its raw handle has freed here last without an event. Where that fails, or would
    /// break a capture, its memory stays.
    fn close_open_ends(&self) {
        let machine = self.book.device.machine();
        self.book.spill_in_turn();
        let owned: Vec<Owned> = self.book.lock().core.owners().collect();
        if owned.iter().any(|other| machine.has_open_end(other.stream)) {
            let _ = machine.wait_for_device(self.book.device.ordinal());
        }
    }

    /// Makes a stream wait for all others that have freed here, and merges the memory that it may take then.
    pub(in crate::suballoc) fn merge(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        self.book.device.require(stream.device())?;
        self.book.spill();
        self.book.merge_for(stream)
    }

    pub(in crate::suballoc) fn reserved_bytes(&self) -> usize {
        match self.book.lock_unless_forked() {
            Some(inner) => inner.core.reserved_units() as usize * Layout::MIN_ALIGN,
            None => self.book.reserved_bytes(),
        }
    }

    /// Returns empty, unowned segments to the upstream, of which `keep_units` are left, as long as there `are_more` to return. Returns
    /// their bytes.
    pub(super) fn return_segments(&self, keep_units: u64, are_more: impl Fn() -> bool) -> usize {
        let mut gone = 0;
        // Those that a hook does not let go of are out of the core until the end: else each would be the next one again.
        let mut refused: Vec<Segment> = Vec::new();
        // They count to what is kept: others go in their place.
        let mut refused_units = 0;
        while are_more()
            && let Some(segment) = self.take_surplus(keep_units.saturating_sub(refused_units))
        {
            if self.let_go_of(segment) {
                gone += self.return_leaving(segment).unwrap_or(0);
            } else {
                refused_units += u64::from(segment.units);
                refused.push(segment);
            }
        }
        refused.into_iter().for_each(|segment| self.keep_leaving(segment));
        gone
    }

    /// Takes one empty, unowned segment out of the core, if `keep_units` are left without it, and counts it as leaving.
    fn take_surplus(&self, keep_units: u64) -> Option<Segment> {
        // A hook may have forked.
        let mut inner = self.book.lock_unless_forked().filter(|inner| !inner.told.is_frozen)?;
        // In one step: of two threads that return segments, each counts what the other has taken.
        let surplus = inner.core.reserved_units().saturating_sub(keep_units);
        let segment = inner.core.take_segment(surplus)?;
        inner.leaving += u64::from(segment.units);
        inner.begin_call();
        self.book.note_reserved(&mut inner);
        Some(segment)
    }

    /// Returns a segment that is out of the core and counted as leaving, unless a hook does not let go of it.
    pub(super) fn return_unless_refused(&self, segment: Segment) -> Option<usize> {
        if self.let_go_of(segment) {
            return self.return_leaving(segment);
        }
        self.keep_leaving(segment);
        None
    }

    fn let_go_of(&self, segment: Segment) -> bool {
        view_of(segment.address, segment.units).is_none_or(|segment| self.book.let_go(segment, None))
    }

    /// Gives a segment back to the core that is counted as leaving.
    fn keep_leaving(&self, segment: Segment) {
        let Some(mut inner) = self.book.lock_unless_forked() else { return };
        inner.leaving -= u64::from(segment.units);
        inner.core.add_segment(segment.address, segment.units);
        inner.end_call();
        self.book.note_reserved(&mut inner);
    }

    /// Returns to the upstream a segment that is out of the core and counted as leaving.
    fn return_leaving(&self, segment: Segment) -> Option<usize> {
        let bytes = self.deallocate_segment(segment);
        // Only now: until the call has ended, the maximum counts the segment. The upstream may be a user's, and may
        // have forked.
        let mut inner = self.book.lock_unless_forked()?;
        inner.leaving -= u64::from(segment.units);
        inner.end_call();
        bytes
    }

    /// Deallocates a segment that `take_segment` of the core has returned.
    pub(super) fn deallocate_segment(&self, segment: Segment) -> Option<usize> {
        let layout = segment_layout(segment.units).ok()?;
        let block = DevicePtr::new(segment.address)?;
        self.withdraw_memory(segment.address, layout.bytes());
        self.note_upstream_call();
        let _range = nvtx::range(c"trim", layout.bytes());
        // SAFETY:
        // - the block came from this upstream, with this layout: `take_segment` of the core names what `add_segment` was told, or
        //   of the engine what it got.
        // - it is used no more: no block of it is out, it is in no cache, and all that ever used it is over on the
        //   device, because it is unowned; or nobody has seen it.
        unsafe { self.upstream.deallocate_sync(block, layout) };
        event!(bytes = layout.bytes(), address = segment.address, "trim");
        Some(layout.bytes())
    }
}

impl<U: Resource> Drop for Engine<U> {
    fn drop(&mut self) {
        if self.book.is_forked_child() {
            return;
        }
        let book = &self.book;
        let (owned, has_live): (Vec<Owned>, bool) = {
            let mut inner = book.lock();
            // So that a block that is out of the core is live.
            book.spill_locked(&mut inner);
            if inner.core.reserved_units() == 0 && self.book.page_units == 0 {
                return;
            }
            (inner.core.owners().collect(), inner.core.out_blocks() > 0)
        };
        let machine = book.device.machine();
        // On the host, and not on a stream behind the work: the driver reuses memory that is freed behind work only
        // after a wait for that stream, and there would be none.
        let is_over = |other: &Owned| {
            machine.wait_quiescent(&Frontier::of(Stamp { stream: other.stream, epoch: other.newest })).is_ok()
        };
        // Blocks that are still out end here. Their last work may be on any stream, so wait for every stream. A wait
        // for the device would break the captures of its streams: there is one only where a bare stream has come.
        let live_are_over = !has_live || machine.wait_for_every_stream(book.device.ordinal()).is_ok();
        let lost: Vec<StreamId> =
            owned.iter().filter(|other| !is_over(other)).map(|other| other.stream).collect();
        let lost: Vec<Owner> = {
            let inner = book.lock();
            lost.iter().filter_map(|stream| inner.core.owner_of(*stream)).collect()
        };
        let is_live = |holder| matches!(holder, Owner::OUT | Owner::ASLEEP);
        let is_lost = |holder| lost.contains(&holder) || is_live(holder) && !live_are_over;
        // Who has a graph that is not gone may launch it after this.
        let of_graphs = book.graphs.held();
        let is_of_graph =
            |address: u64, end: u64| of_graphs.iter().any(|(of, bytes)| *of < end && address < of + bytes);
        self.return_ranges(is_lost, is_of_graph);
        let segments = book.lock().core.drain_segments(is_lost);
        for (Segment { address, units }, is_lost) in segments {
            let end = address + u64::from(units) * Layout::MIN_ALIGN as u64;
            let is_lost = is_lost || is_of_graph(address, end);
            // What a hook does not let go of is leaked, too.
            let is_lost = is_lost || !self.let_go_of(Segment { address, units });
            // The last use of a block in it has no known order: a stream captures, or ended in a capture, or the
            // context is lost. The segment is leaked.
            let layout = segment_layout(units).ok().filter(|_| !is_lost);
            let (Some(layout), Some(block)) = (layout, DevicePtr::new(address)) else { continue };
            self.withdraw_memory(address, layout.bytes());
            self.note_upstream_call();
            // SAFETY: the block came from this upstream, with this layout, and every use of it is over: of what was
            // freed, the last point of the stream that holds it is, and unowned memory's is; of what was not, all that
            // any stream of the machine had been given.
            unsafe { self.upstream.deallocate_sync(block, layout) };
        }
    }
}
