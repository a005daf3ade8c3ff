//! A stream that is held up.

#![expect(unsafe_code, reason = "queues a function of the host on a stream that is borrowed")]

use core::time::Duration;

use crate::stream::StreamRef;

/// Holds a stream up, on the device, for about `duration`: work submitted to it later has not run before then.
///
/// It is how a test on hardware makes sure that earlier work is still pending.
///
/// ```
/// use alluvion::Sim;
/// use std::time::{Duration, Instant};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let before = Instant::now();
/// alluvion::testing::stall(stream.as_ref(), Duration::from_millis(5));
/// stream.synchronize()?;
/// assert!(before.elapsed() >= Duration::from_millis(5));
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// # Panics
///
/// If the driver does not take the function.
#[track_caller]
pub fn stall(stream: StreamRef<'_>, duration: Duration) {
    let device = stream.device();
    let sleep = Box::new(move || std::thread::sleep(duration));
    // SAFETY: the stream is live and of this device, because it is borrowed from its owner; sleeping does not unwind, and
    // calls no driver.
    let queued = unsafe { device.driver().stream_host_call(device.ordinal(), stream.raw(), sleep) };
    queued.expect("the driver queues a function of the host");
}
