//! `SoftLimit`: a limit that is reported, and not enforced.

use core::cell::Cell;
use core::fmt;

use super::Allowance;
use crate::contain::Inside;
use crate::size::Size;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

/// The event that the live bytes exceed a soft limit, for its observers.
///
/// Displayed, it is one line.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Crossing<'a> {
    /// The allowance.
    pub allowance: &'a Allowance,
    /// The live bytes then, with the request that crossed the limit.
    pub used_bytes: usize,
    /// The soft limit.
    pub soft_bytes: usize,
}

impl fmt::Display for Crossing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, soft) = (Size(self.used_bytes), Size(self.soft_bytes));
        let (name, limit) = (self.allowance.name(), Size(self.allowance.limit_bytes()));
        write!(f, "`{name}` has {used} out, more than the soft limit of {soft}; the limit is {limit}")
    }
}

pub(super) type Observer = Arc<dyn Fn(&Crossing<'_>) + Send + Sync>;

thread_local! {
    /// An observer is running on this thread. No destructor, so it can be read while the thread's other locals are dropped.
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Marks that this thread calls observers; `None` if it does so already.
pub(super) fn telling() -> Option<Inside> {
    Inside::enter(&IS_TELLING)
}

/// The soft limit of one allowance.
pub(super) struct SoftLimit {
    /// `u64::MAX` for none, which nothing can be above.
    bytes: AtomicU64,
    crossings: AtomicU64,
    observers: Mutex<Vec<Observer>>,
}

impl Default for SoftLimit {
    fn default() -> Self {
        Self { bytes: AtomicU64::new(u64::MAX), crossings: AtomicU64::new(0), observers: Mutex::default() }
    }
}

impl SoftLimit {
    // Relaxed, all: a setting that takes effect from the next request on, and a figure.

    pub(super) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> Option<u64> {
        Some(self.bytes.load(Ordering::Relaxed)).filter(|&bytes| bytes != u64::MAX)
    }

    #[inline]
    pub(super) fn is_crossed(&self, before: u64, now: u64) -> bool {
        let bytes = self.bytes.load(Ordering::Relaxed);
        before <= bytes && bytes < now
    }

    pub(super) fn count(&self) {
        self.crossings.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn crossings(&self) -> u64 {
        self.crossings.load(Ordering::Relaxed)
    }

    pub(super) fn push(&self, observer: Observer) {
        if let Some(mut observers) = self.observers.lock_unless_forked() {
            observers.push(observer);
        }
    }

    /// Handles of all, so that they are called without the lock.
    pub(super) fn observers(&self) -> Vec<Observer> {
        self.observers.lock_unless_forked().map(|observers| observers.clone()).unwrap_or_default()
    }
}
