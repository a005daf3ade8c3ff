//! `EventPool`: reuses events. Making one costs up to 21 µs with sixteen threads, taking one from here a lock.

#![expect(unsafe_code, reason = "destroys the events that it made")]

use crate::driver::{Driver, DriverResult, RawEvent};
use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};

/// The spare events of one device.
#[derive(Debug)]
pub(crate) struct EventPool {
    driver: Arc<dyn Driver>,
    ordinal: u32,
    spare: Mutex<Vec<RawEvent>>,
    /// The number of streams that are known by their handles alone, which leave frees that no event covers.
    fleeting: AtomicU64,
    /// There has been such a stream. Its owner may have submitted work after its last call, of which no point is known here.
    had_fleeting: AtomicBool,
    /// The bytes that such streams have left uncovered at their ends, since the device was last waited for.
    open_ends: AtomicU64,
}

impl EventPool {
    pub(crate) fn new(driver: Arc<dyn Driver>, ordinal: u32) -> Arc<Self> {
        let (fleeting, open_ends) = (AtomicU64::new(0), AtomicU64::new(0));
        let (spare, had_fleeting) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        Arc::new(Self { driver, ordinal, spare, fleeting, had_fleeting, open_ends })
    }

    /// Notes that there is one more stream that is known by its handle alone.
    pub(super) fn note_fleeting(&self) {
        // Relaxed, here and below: the numbers decide how often events are recorded, and order nothing.
        self.fleeting.fetch_add(1, Ordering::Relaxed);
        // Release: pairs with the acquire in `had_fleeting`. The end of a pool, or a sleep, comes after the calls that used it.
        self.had_fleeting.store(true, Ordering::Release);
    }

    /// Whether there has been such a stream.
    pub(crate) fn had_fleeting(&self) -> bool {
        // Acquire: as in `note_fleeting`.
        self.had_fleeting.load(Ordering::Acquire)
    }

    /// Notes that such a stream has ended, with frees of so many bytes that no event covers.
    pub(super) fn note_end(&self, open: u64) {
        self.fleeting.fetch_sub(1, Ordering::Relaxed);
        self.open_ends.fetch_add(open, Ordering::Relaxed);
    }

    /// Notes that the device has been waited for.
    pub(crate) fn forget_open_ends(&self) {
        self.open_ends.store(0, Ordering::Relaxed);
    }

    /// How many bytes one of these streams may have freed without an event: `most`, less where all of them could leave more than
    /// `of_all`, and nothing where those that have ended have.
    #[inline]
    pub(super) fn open_bytes_of_one(&self, most: u64, of_all: u64) -> u64 {
        if self.open_ends.load(Ordering::Relaxed) >= of_all {
            return 0;
        }
        let streams = self.fleeting.load(Ordering::Relaxed);
        if streams * most <= of_all { most } else { of_all / streams }
    }

    /// An event with no other holder.
    pub(crate) fn take(self: &Arc<Self>) -> DriverResult<PooledEvent> {
        self.spare.require_same_process()?;
        let spare = self.spare.lock().pop();
        let raw = match spare {
            Some(raw) => raw,
            None => self.driver.event_create(self.ordinal)?,
        };
        Ok(PooledEvent { raw, pool: Arc::clone(self) })
    }
}

impl Drop for EventPool {
    fn drop(&mut self) {
        let Some(spare) = self.spare.lock_unless_forked().map(|mut spare| core::mem::take(&mut *spare))
        else {
            return;
        };
        for raw in spare {
            // SAFETY: `event_create` made it for this device, and there is no `PooledEvent` for it: each of those keeps this pool
            // alive.
            let _ = unsafe { self.driver.event_destroy(self.ordinal, raw) };
        }
    }
}

/// An event of a pool. Dropping it returns it to the pool, and it may be recorded again: a wait on an event takes the state at the
/// time of the wait.
#[derive(Debug)]
pub(crate) struct PooledEvent {
    raw: RawEvent,
    pool: Arc<EventPool>,
}

impl PooledEvent {
    pub(crate) fn raw(&self) -> RawEvent {
        self.raw
    }

    pub(crate) fn ordinal(&self) -> u32 {
        self.pool.ordinal
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.pool.driver
    }
}

impl Drop for PooledEvent {
    fn drop(&mut self) {
        if let Some(mut spare) = self.pool.spare.lock_unless_forked() {
            spare.push(self.raw);
        }
    }
}
