//! `RawStreamTable`: the streams of one device that came by their handles.

use super::registered::Registered;
use crate::device::Attachment;
use crate::driver::{CaptureId, RawStream};
use crate::order::Timeline;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

/// The number of entries that are kept though nobody uses them. Programs have a handful of streams, PyTorch at most 64 a device.
/// A model has two.
pub(super) const KEPT: usize = if cfg!(loom) { 1 } else { 128 };

/// A stream of the driver, as far as it can be told apart from the others that have had its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawIdentity {
    pub(super) raw: RawStream,
    pub(super) part: Part,
}

/// What tells a stream apart from others with its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The driver's number for the stream.
    Stream(u64),
    /// The capture that it takes part in.
    Capture(CaptureId),
}

/// A stream that was found once.
#[derive(Debug)]
pub(super) struct RawEntry {
    pub(super) identity: RawIdentity,
    pub(super) timeline: Arc<Timeline>,
    /// The turn of the table in which it was used last.
    used: AtomicU64,
}

/// The streams of one device that came by their handles.
#[derive(Debug, Default)]
pub(super) struct RawStreamTable {
    pub(super) registered: Registered,
    pub(super) entries: Mutex<Vec<Arc<RawEntry>>>,
    /// The number of streams that have been entered: the time by which entries are old.
    turn: AtomicU64,
}

impl Attachment for RawStreamTable {
    /// An entry keeps no machine alive.
    fn release(&self) {}
}

impl RawEntry {
    pub(super) fn new(identity: RawIdentity, timeline: Arc<Timeline>) -> Arc<Self> {
        Arc::new(Self { identity, timeline, used: AtomicU64::new(0) })
    }
}

impl RawStreamTable {
    /// The entry of a stream, with a lease.
    pub(super) fn find(&self, identity: RawIdentity) -> Option<Arc<RawEntry>> {
        let known = {
            let entries = self.entries.lock();
            entries.iter().find(|entry| entry.identity == identity).map(Arc::clone)
        };
        let entry = known.filter(|entry| entry.timeline.wake())?;
        self.note_use(&entry);
        Some(entry)
    }

    pub(super) fn note_use(&self, entry: &RawEntry) {
        // Relaxed: a wrong turn costs a stream its place, and with it one look-up.
        entry.used.store(self.turn.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Adds an entry. Takes out those that are not in use, the oldest first, beyond the number that is kept.
    ///
    /// Two threads that come with one stream for the first time may both add an entry. Then it is two streams to this crate, which
    /// wait for each other: slower, and in the same order.
    pub(super) fn add(&self, entry: &Arc<RawEntry>) -> Vec<Arc<RawEntry>> {
        // Relaxed: as in `note_use`.
        entry.used.store(self.turn.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let mut entries = self.entries.lock();
        entries.push(Arc::clone(entry));
        let excess = entries.len().saturating_sub(KEPT);
        if excess == 0 {
            return Vec::new();
        }
        entries.sort_by_key(|entry| entry.used.load(Ordering::Relaxed));
        let mut left = excess;
        let is_idle = |entry: &mut Arc<RawEntry>| {
            let goes = left > 0 && entry.timeline.is_resting();
            left -= usize::from(goes);
            goes
        };
        entries.extract_if(.., is_idle).collect()
    }

    pub(super) fn put_back(&self, entry: Arc<RawEntry>) {
        self.entries.lock().push(entry);
    }
}
