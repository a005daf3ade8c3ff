//! How does a timeline rest, and how does it end?

#![expect(unsafe_code, reason = "destroys raw streams")]

use super::points::ONE_FREE;
use super::state::{Phase, TimelineState};
use super::{Ending, Timeline};
use crate::contain::contain;
use crate::order::{Cover, Epoch};
use crate::sync::{Ordering, yield_now};

impl Timeline {
    /// The handle is good only while a lease is held.
    pub(crate) fn is_fleeting(&self) -> bool {
        self.fleeting
    }

    /// Takes a lease of a fleeting stream: the caller vouches for the handle until [`rest`](Self::rest). Returns `false` if the
    /// timeline has ended.
    pub(crate) fn wake(&self) -> bool {
        let Some(mut state) = self.state.lock_unless_forked() else { return false };
        match state.phase {
            Phase::Live | Phase::Resting => {
                state.phase = Phase::Live;
                state.last = None;
                state.leases += 1;
                true
            }
            Phase::Closing | Phase::Gone => false,
        }
    }

    /// Gives a lease up. The last one covers what was handed out, if no event does, and returns when no thread uses the handle.
    ///
    /// If the stream can neither be covered nor waited for, as while it captures, the points since its last cover are over when its
    /// device has been waited for, or are covered with the next lease.
    pub(crate) fn rest(&self) {
        if self.state.is_forked_child() {
            return;
        }
        let mut tried = Epoch::NONE;
        loop {
            let (newest, clock) = {
                let mut state = self.state.lock();
                if state.leases > 1 {
                    state.leases -= 1;
                    return;
                }
                // Relaxed: all who handed points out have given their leases up under this lock, but for the caller.
                let newest = Epoch(self.handed_out.load(Ordering::Relaxed));
                let covered = state.covers.last().map_or(Epoch::NONE, Cover::epoch);
                if newest <= covered.max(tried) || self.is_done(newest) {
                    state.leases = 0;
                    state.phase = Phase::Resting;
                    state.last = Some(newest);
                    if state.pins == 0 {
                        return;
                    }
                    break;
                }
                state.pins += 1;
                (newest, state.clock.clone())
            };
            tried = newest;
            let recorded = self.record(clock);
            // Without an event, a wait is as good: see `retire`.
            if recorded.as_ref().is_err_and(|error| !error.code.is_capture()) && self.synchronize().is_ok() {
                self.finish(newest);
            }
            self.unpin(recorded.as_ref().ok());
        }
        while self.is_used_at_rest() {
            // Another thread makes a few driver calls. No new pin is taken.
            yield_now();
        }
    }

    /// A thread that took its pin while there was a lease still makes calls, and there is no new lease.
    fn is_used_at_rest(&self) -> bool {
        let state = self.state.lock();
        state.phase == Phase::Resting && state.pins > 0
    }

    /// Returns `true` if no lease of the fleeting stream is held.
    pub(crate) fn is_resting(&self) -> bool {
        self.state.lock_unless_forked().is_some_and(|state| state.phase == Phase::Resting)
    }

    /// Ends a fleeting stream that rests, without a driver call. Returns `false`, and does nothing, if it is lent again. Nobody visits it.
    pub(crate) fn end_at_rest(&self) -> bool {
        let Some(mut state) = self.state.lock_unless_forked() else { return false };
        if state.phase != Phase::Resting || state.pins > 0 {
            return false;
        }
        state.phase = Phase::Closing;
        let ended = state.end_if_unpinned();
        drop(state);
        self.end(ended);
        // Relaxed: each free has given its lease, or its share of the entry, up.
        let open = if self.has_open_end() { self.open.load(Ordering::Relaxed) % ONE_FREE } else { 0 };
        self.events.note_end(open);
        true
    }

    /// Whether frees of the stream are over only when its device has been waited for, or when it comes again.
    pub(crate) fn has_open_end(&self) -> bool {
        self.state.lock_unless_forked().is_some_and(|state| self.is_open(&state))
    }

    /// As [`has_open_end`](Self::has_open_end). No more than that is known of a fleeting stream that captured when it went to rest, or of a
    /// point that was handed out in a visit.
    pub(super) fn is_open(&self, state: &TimelineState) -> bool {
        let last = self.last_of_all(Epoch::NONE);
        state.phase != Phase::Live
            && state.covers.last().map_or(Epoch::NONE, Cover::epoch) < last
            && !self.is_done(last)
    }

    /// Covers the stream for the last time and releases it. Called by the last handle.
    ///
    /// If the stream can neither be covered nor waited for, points since its last cover are never over.
    pub(crate) fn retire(&self) {
        if self.state.is_forked_child() {
            // The stream is the parent's, and goes on there.
            return;
        }
        let (last, clock) = {
            let mut state = self.state.lock();
            state.pins += 1;
            // All submitters held a handle and have dropped it: the last work lies in this epoch or an earlier one.
            let last = self.now().epoch;
            state.last = Some(last);
            if matches!(state.ending, Ending::Branch(_)) {
                state.phase = Phase::Closing;
                drop(state);
                // What was captured is nobody's work until a graph is launched, and then not this timeline's.
                self.finish(last);
                return self.unpin(None);
            }
            (last, state.clock.clone())
        };
        let recorded = self.record(clock);
        if recorded.as_ref().is_err_and(|error| !error.code.is_capture()) {
            // Without an event, a wait is as good. Not while the stream captures: that would break the capture of the user, and
            // blocks freed within it belong to the graph for as long as it is replayed.
            if self.synchronize().is_ok() {
                self.finish(last);
            }
        }
        let superseded = {
            let mut state = self.state.lock();
            state.phase = Phase::Closing;
            recorded.map(|cover| state.publish_last(cover))
        };
        drop(superseded);
        while self.eager && self.state.lock().pins > 1 {
            // Another thread makes a few driver calls. No new pin is taken.
            yield_now();
        }
        self.unpin(None);
    }

    pub(super) fn end(&self, ended: Option<Ending>) {
        match ended {
            None => {}
            Some(Ending::Destroy) => {
                // SAFETY: `stream_create` made it for this device; the phase went to `Gone` once, under the lock, with no pin
                // left, so it is not used now or later. A failure leaves nothing to undo.
                let _ = unsafe { self.driver.stream_destroy(self.ordinal, self.raw) };
            }
            // The owner may be foreign code and panic, and this thread may be in the middle of a call of a resource.
            Some(Ending::Leave(keepalive) | Ending::Branch(keepalive)) => {
                contain(|| drop(keepalive));
            }
        }
    }

    /// Returns `true`, for ever after, if the stream is gone and all its work is known to be over.
    pub(crate) fn is_over(&self) -> bool {
        let Some(state) = self.state.lock_unless_forked() else { return false };
        state.phase == Phase::Gone && state.last.is_some_and(|last| self.is_done(self.last_of_all(last)))
    }
}
