//! A stream that is held up.

#![expect(unsafe_code, reason = "queues a function of the host on a stream that is borrowed")]
#![allow(clippy::disallowed_types, reason = "a flag that a test reads; no model has one")]

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use crate::stream::{OnStream, StreamRef};

/// The longest that a stream is held up: a test that waits for what it holds up itself fails then, and does not hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// Long enough for a thread that is about to wait to do so. If it comes later it finds the stream idle.
const SOON: Duration = Duration::from_millis(30);

/// Holds a stream up, on the device, until it is let go of or dropped: work submitted to the stream later has not run before
/// then.
///
/// It is how a test makes sure that earlier work is still pending, on hardware and on the simulator, however slow or busy the
/// machine is. Work that only has to come late, where a fixed time is enough, has [`stall`].
///
/// ```
/// use alluvion::Sim;
/// use alluvion::testing::Stall;
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let mut stall = Stall::on(&stream);
/// assert!(!stream.is_idle()? && !stall.is_over());
/// stall.let_go();
/// stream.synchronize()?;
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it holds the stream up until it is dropped"]
pub struct Stall {
    let_go: Option<Sender<()>>,
    over: Arc<AtomicBool>,
}

impl Stall {
    /// Holds up what is submitted to `stream` from now on.
    ///
    /// # Panics
    ///
    /// If the driver does not take a function of the host.
    #[track_caller]
    pub fn on<'s>(stream: impl OnStream<'s>) -> Self {
        let (let_go, gone) = channel::<()>();
        let over = Arc::new(AtomicBool::new(false));
        let sets = Arc::clone(&over);
        submit(stream.stream_ref(), move || {
            // An error says that it was let go of.
            let _ = gone.recv_timeout(PATIENCE);
            sets.store(true, Ordering::SeqCst);
        });
        Self { let_go: Some(let_go), over }
    }

    /// Returns `true` once the stream goes on.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Lets the stream go on. [`is_over`](Self::is_over) tells when it does.
    pub fn let_go(&mut self) {
        self.let_go = None;
    }

    /// Lets the stream go on a little later, from another thread: while this one waits for it.
    pub fn let_go_soon(&mut self) {
        let let_go = self.let_go.take();
        std::thread::spawn(move || {
            std::thread::sleep(SOON);
            drop(let_go);
        });
    }
}

/// Holds a stream up, on the device, for about `duration`: work submitted to it later has not run before then.
///
/// It is how a test has earlier work come late. What must still be pending when the test looks is held up by a [`Stall`]: a
/// test that sleeps itself may look too late.
///
/// ```
/// use alluvion::Sim;
/// use std::time::{Duration, Instant};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let before = Instant::now();
/// alluvion::testing::stall(&stream, Duration::from_millis(5));
/// stream.synchronize()?;
/// assert!(before.elapsed() >= Duration::from_millis(5));
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// # Panics
///
/// If the driver does not take the function.
#[track_caller]
pub fn stall<'s>(stream: impl OnStream<'s>, duration: Duration) {
    submit(stream.stream_ref(), move || std::thread::sleep(duration));
}

#[track_caller]
fn submit(stream: StreamRef<'_>, function: impl FnOnce() + Send + 'static) {
    let device = stream.device();
    // SAFETY: the stream is live and of this device, because it is borrowed from its owner; both functions of this file wait and
    // store to an atomic, which does not unwind, and call no driver.
    let queued =
        unsafe { device.driver().stream_host_call(device.ordinal(), stream.raw(), Box::new(function)) };
    queued.expect("the driver queues a function of the host");
}
