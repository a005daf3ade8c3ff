//! Which point does a free carry, and which points are over?

use super::Timeline;
use crate::order::{Epoch, Stamp};
use crate::sync::{Ordering, fence};

/// The number of events after which a stream with another owner is one that stays: the frees of a task that has a stream of its own are all
/// covered. In the models after the first one.
const COVERS_OF_A_GUEST: u64 = if cfg!(loom) { 1 } else { 256 };

/// At most this much is freed without an event, and so many times. An event and the call that records it cost 450 ns on an H200, and
/// 6.6 us where sixteen threads record: for blocks of 1 MiB that is a 32nd of it for each pair, and for small ones next to nothing. What
/// no event covers waits for the stream, or for the device.
const OPEN_BYTES: u64 = 32 << 20;
const OPEN_FREES: u64 = if cfg!(loom) { 2 } else { 1024 };

/// The most bytes of a device that no event covers, of all streams that are known by their handles alone: with more such streams each may
/// leave less, and when those that have ended have left so much, every free is covered, until the device has been waited for.
const OPEN_BYTES_OF_ALL: u64 = 64 << 20;

/// One free in the count of `open`, above its bytes.
pub(super) const ONE_FREE: u64 = 1 << 40;

impl Timeline {
    /// The point that all work submitted so far lies before. Frees and uses carry it.
    #[inline]
    pub(crate) fn now(&self) -> Stamp {
        // Acquire: pairs with the fence in `advance`, through the driver's order of the stream: see the proof at the top of the
        // folder. Nothing on x86, a load barrier on Arm.
        fence(Ordering::Acquire);
        // Relaxed: only the number is read from it, and the fence keeps it from being read too early.
        let epoch = self.epoch.load(Ordering::Relaxed);
        if self.fleeting {
            // Relaxed: the lease of the caller is given up under the lock, where the number is read.
            self.handed_out.fetch_max(epoch, Ordering::Relaxed);
        }
        Stamp { stream: self.id, epoch: Epoch(epoch) }
    }

    /// As [`now`](Self::now), for a free that others may wait for. A stream with another owner is covered at once.
    #[inline]
    pub(crate) fn release(&self) -> Stamp {
        let stamp = self.now();
        if self.eager {
            // If no event can be recorded, as while the stream captures, the point stays uncovered until a wait for it, or the
            // last handle, covers it.
            let _ = self.cover(stamp.epoch);
        }
        stamp
    }

    /// As [`release`](Self::release), for a block of `bytes` bytes that the caller hands to no other stream before the point is
    /// covered: the event may come with a later free.
    #[inline]
    pub(crate) fn release_block(&self, bytes: usize) -> Stamp {
        let deferred = if self.eager { self.defer(bytes) } else { None };
        deferred.unwrap_or_else(|| self.release())
    }

    /// As [`release_block`](Self::release_block), if that takes no driver call.
    #[inline]
    pub(crate) fn release_at_once(&self, bytes: usize) -> Option<Stamp> {
        if self.eager { self.defer(bytes) } else { Some(self.now()) }
    }

    /// The point of a free that is covered with a later one; `None` if it is time for an event.
    fn defer(&self, bytes: usize) -> Option<Stamp> {
        let bytes = bytes as u64;
        fence(Ordering::Acquire);
        // Relaxed, with the fence: as in `now`.
        let epoch = self.epoch.load(Ordering::Relaxed);
        let most = self.events.open_bytes_of_one(OPEN_BYTES, OPEN_BYTES_OF_ALL);
        // Each event begins an epoch.
        if epoch <= COVERS_OF_A_GUEST || bytes >= most {
            return None;
        }
        // Relaxed: the caller gives its lease, or its share of the entry, up before anybody ends the stream. The event that is due may
        // fail, so that its point counts, too. A stream that is no guest is covered as long as there is a handle. If its last one goes within
        // a capture, what it has freed since its last event may be the graph's: it is over when nobody can launch that, which no wait tells.
        if self.fleeting && self.deferred.load(Ordering::Relaxed) < epoch {
            self.deferred.fetch_max(epoch, Ordering::Relaxed);
        }
        let one = ONE_FREE + bytes;
        // Relaxed, here and below: a free that two threads count at once comes with an event too many, or one later.
        let open = self.open.load(Ordering::Relaxed) + one;
        if open >= OPEN_FREES * ONE_FREE || open % ONE_FREE >= most {
            return None;
        }
        self.open.fetch_add(one, Ordering::Relaxed);
        Some(Stamp { stream: self.id, epoch: Epoch(epoch) })
    }

    /// Ends the current epoch. Returns it.
    pub(super) fn advance(&self) -> Epoch {
        // Relaxed: the fence orders it.
        let ended = Epoch(self.epoch.fetch_add(1, Ordering::Relaxed));
        // Release: pairs with the fence in `now`. A thread that submits behind the next driver call of the caller reads a later
        // epoch.
        fence(Ordering::Release);
        ended
    }

    pub(crate) fn is_done(&self, epoch: Epoch) -> bool {
        // Acquire: pairs with the release in `finish`. The effects of the device up to there are visible after it.
        epoch.0 <= self.done.load(Ordering::Acquire)
    }

    /// Notes that everything up to `epoch` is over on the device.
    pub(crate) fn finish(&self, epoch: Epoch) {
        // Release: pairs with the acquire in `is_done`.
        self.done.fetch_max(epoch.0, Ordering::AcqRel);
    }

    /// Every epoch up to this one is known to be over on the device.
    pub(crate) fn done(&self) -> Epoch {
        // Acquire: as in `is_done`.
        Epoch(self.done.load(Ordering::Acquire))
    }

    /// The last epoch that any work lies in, where the last handle has noted `last`. A point of a visit is later than that.
    pub(super) fn last_of_all(&self, last: Epoch) -> Epoch {
        // Relaxed: the epoch of a free that has returned is read, and one that has not is of a caller who knows of it.
        let [deferred, handed_out] =
            [&self.deferred, &self.handed_out].map(|epoch| epoch.load(Ordering::Relaxed));
        last.max(Epoch(deferred.max(handed_out)))
    }

    /// The point that all work ever submitted lies before: as [`now`](Self::now), but also valid if the stream is gone.
    pub(crate) fn latest(&self) -> Stamp {
        // Under the lock, so that an epoch that the last handle ends is not mistaken for one with work.
        let state = self.state.lock_unless_forked();
        let last = state.as_ref().and_then(|state| state.last).map(|last| self.last_of_all(last));
        Stamp { stream: self.id, epoch: last.unwrap_or_else(|| self.now().epoch) }
    }
}
