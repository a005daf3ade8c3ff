//! Models of alluvion's concurrent protocols: the mock driver that they run on, and how they are explored.
//!
//! Each file in `tests/` is one protocol, through the crate's public API where there is one. Run them all, in a minute on two cores,
//! and as long again to build them:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p loom-tests -- --nocapture
//! ```
//!
//! # What a model cannot show
//!
//! - loom treats `SeqCst` accesses as `AcqRel` and does not explore load buffering. The crate uses neither.
//! - Types of the standard library are invisible to it: reference counts, and the cells that are filled once.
//! - Two threads; and no bound on preemptions where a model is small enough for all of its schedules. Those of pools are
//!   not, and say what bounds them.
//! - Of each atomic loom keeps the last access alone. What a thread has read, another one reads, and then writes: that the first may
//!   read after the write is not explored. A model of such a protocol makes its accesses depend on each other: `shared_table.rs` does.
//! - A model that is not the same in each run explores nonsense: nothing in one may depend on an address or a hash.
//! - The driver here is a model of one: every query says that all work is done, or, where the model asks for it, none. It orders the
//!   calls for one stream and nothing else, which is less than CUDA's does: what a call tells one thread, another one knows only if
//!   the crate has told it.

#![cfg(loom)]
#![expect(unsafe_code, reason = "implements the driver seam and the contract of resources, and calls them")]

mod behind;
mod few;
mod ground;
mod mock;
mod site;

pub use behind::Behind;
pub use few::Few;
pub use ground::Ground;
pub use mock::{Mock, Work, WorkSet};
pub use site::{Plot, Site};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::driver::RawStream;
use alluvion::{Device, Machine, Stream, StreamRef};
use loom::thread::{self, JoinHandle};

/// The stack of a thread, in words: 256 KiB. What a pool does when it runs out of memory takes more than the 32 KiB of loom.
const STACK: usize = 1 << 15;

/// Starts a thread of a model.
///
/// # Panics
///
/// Never: loom always has one more, up to four.
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new().stack_size(STACK).spawn(body).expect("there are few")
}

/// Runs `model` under every schedule. Returns how many there were.
///
/// # Panics
///
/// If the model fails under one of them, or if there was only one.
pub fn explore(model: impl Fn() + Send + Sync + 'static) -> usize {
    explore_bounded(None, model)
}

/// Runs `model` under every schedule with at most `preemptions` preemptions, if there is a bound. Returns how many there were.
///
/// # Panics
///
/// As [`explore`].
pub fn explore_bounded(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) -> usize {
    let model = Arc::new(model);
    let schedules = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&schedules);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 10_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let model = Arc::clone(&model);
        spawn(move || model()).join().expect("it says what is wrong itself");
    });
    let schedules = schedules.load(Ordering::Relaxed);
    println!("{schedules} schedules");
    assert!(schedules > 1, "nothing was left to chance");
    schedules
}

/// How often something was seen, over all schedules: shows that a model reaches the case that it is about.
#[derive(Debug, Default)]
pub struct Seen(AtomicUsize);

impl Seen {
    /// Never so far.
    #[must_use]
    pub const fn never() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Once more, if `it` holds.
    pub fn note(&self, it: bool) {
        self.0.fetch_add(usize::from(it), Ordering::Relaxed);
    }

    /// How often.
    pub fn times(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A machine with one device over a mock driver.
#[derive(Clone, Debug)]
pub struct Rig {
    /// The driver.
    pub mock: Arc<Mock>,
    /// The machine.
    pub machine: Machine,
    /// Its device.
    pub device: Device,
}

impl Rig {
    /// A machine with nothing on it.
    ///
    /// # Panics
    ///
    /// Never: the mock driver has a device.
    #[must_use]
    pub fn new() -> Self {
        let mock = Mock::new();
        let machine = Machine::new(Arc::clone(&mock) as _).expect("the mock driver answers");
        let device = machine.device(0).expect("there is one");
        Self { mock, machine, device }
    }

    /// A stream of the crate's own.
    ///
    /// # Panics
    ///
    /// Never: the mock driver makes them.
    #[must_use]
    pub fn stream(&self) -> Stream {
        self.device.stream().expect("the mock driver makes streams")
    }

    /// A stream that somebody else owns, wrapped, and its handle.
    ///
    /// # Panics
    ///
    /// Never: the mock driver makes them.
    #[must_use]
    pub fn foreign(&self) -> (Stream, RawStream) {
        let raw = self.bare();
        // SAFETY: the models destroy it when the last handle is gone, which is what they are about.
        let stream = unsafe { Stream::from_raw(&self.device, raw) };
        (stream.expect("there are numbers left"), raw)
    }

    /// A stream that somebody else owns, by its handle.
    #[must_use]
    pub fn bare(&self) -> RawStream {
        RawStream(self.mock.create())
    }

    /// Makes the table of streams by their handles, in one thread: it lies in a cell of the standard library, which loom does not see.
    pub fn make_table(&self, raw: RawStream) {
        // SAFETY: the raw stream is live, and nothing is done with it: no thread has come with it.
        let is_known = unsafe { self.device.raw_streams().visit(raw, |_| false) };
        assert!(!is_known, "nobody has come with it");
    }

    /// The stream of a bare handle, lent until its last clone is gone.
    ///
    /// # Panics
    ///
    /// Never: the mock driver knows every stream.
    #[must_use]
    pub fn lent(&self, raw: RawStream) -> Stream {
        // SAFETY: the models destroy it when what was found is gone, which is what they are about.
        unsafe { self.device.raw_streams().stream(raw) }.expect("nothing fails")
    }

    /// Submits work.
    pub fn submit(&self, stream: StreamRef<'_>, work: Work) {
        self.mock.submit(stream.raw(), work);
    }

    /// Submits work that must come after `earlier`.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn submit_after(&self, stream: StreamRef<'_>, work: Work, earlier: Work) {
        let followed = self.mock.submit(stream.raw(), work);
        assert!(self.mock.is_before(followed, earlier), "{work:?} may overtake {earlier:?}");
    }
}

impl Default for Rig {
    fn default() -> Self {
        Self::new()
    }
}
