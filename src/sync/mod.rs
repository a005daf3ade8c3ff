//! Locks and other tools for threads. The one room that knows of loom.
//!
//! All other rooms name these types. `Arc` is the standard one, under loom too: reference counts are not our protocols, and loom's
//! `Arc` does not coerce to `Arc<dyn Trait>`.

#![allow(
    clippy::disallowed_types,
    reason = "the facade over the types that the rest of the crate may not name"
)]

mod apart;
mod cell;
mod global;
pub(crate) mod held;
mod mutex;
mod process;
mod seat;
mod signal;
mod thread_token;
mod token;

pub(crate) use std::sync::Arc;

pub(crate) use apart::Apart;
pub(crate) use global::Global;
pub(crate) use held::assert_no_lock_is_held;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
pub(crate) use mutex::{Condvar, Mutex, MutexGuard};
pub(crate) use seat::Seat;
pub(crate) use signal::Signal;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
pub(crate) use thread_token::ThreadToken;
#[cfg(all(test, feature = "sim", not(loom)))]
pub(crate) use token::tests::when_it_waits;
pub(crate) use token::{Token, TokenGuard};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::AtomicBool;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::AtomicBool;

#[cfg(loom)]
pub(crate) use loom::thread::{Builder, JoinHandle, ThreadId};
#[cfg(not(loom))]
pub(crate) use std::thread::{Builder, JoinHandle, ThreadId};

#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(not(loom))]
pub(crate) use std::thread::yield_now;

/// The thread that calls.
pub(crate) fn current_thread() -> ThreadId {
    #[cfg(loom)]
    return loom::thread::current().id();
    #[cfg(not(loom))]
    std::thread::current().id()
}

/// Sleeps for a millisecond. Under loom, where there is no time, yields to other threads.
pub(crate) fn nap() {
    #[cfg(loom)]
    yield_now();
    #[cfg(not(loom))]
    std::thread::sleep(core::time::Duration::from_millis(1));
    #[cfg(all(test, not(loom)))]
    NAPS.with(|naps| naps.fetch_add(1, Ordering::Relaxed));
}

#[cfg(all(test, not(loom)))]
thread_local! {
    /// The number of naps of this thread, which another thread may read.
    static NAPS: Arc<AtomicU64> = Arc::default();
}

pub(crate) use process::MadeIn;
