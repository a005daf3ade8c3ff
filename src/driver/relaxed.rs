//! `RelaxedCapture`: lets calls run during a capture.

use core::marker::PhantomData;

use super::{CaptureMode, Driver, DriverResult};

/// Lifts, for the calling thread, the restrictions of a graph capture, until it is dropped.
///
/// Allocating, freeing and querying are *potentially unsafe* while any thread captures in CUDA's default mode, and would break
/// that capture although they are unrelated to it. Each such call of this crate is made under this guard.
///
/// The mode belongs to the thread, so the guard cannot leave the thread. A leaked guard leaves the thread relaxed, which permits
/// more and breaks nothing.
#[derive(Debug)]
#[must_use = "the thread goes back to its mode when this is dropped"]
pub struct RelaxedCapture<'a> {
    driver: &'a dyn Driver,
    before: CaptureMode,
    not_send: PhantomData<*const ()>,
}

impl<'a> RelaxedCapture<'a> {
    /// Relaxes the calling thread.
    pub fn enter(driver: &'a dyn Driver) -> DriverResult<Self> {
        let before = driver.exchange_capture_mode(CaptureMode::Relaxed)?;
        Ok(Self { driver, before, not_send: PhantomData })
    }
}

impl<'a> RelaxedCapture<'a> {
    /// Relaxes the calling thread if the driver permits: for frees and waits, which go on either way. At worst they break a
    /// capture. To stop would leak memory for certain. And the result of a wait must be that of the wait itself, because memory is
    /// released when it says that the context is lost.
    pub(crate) fn attempt(driver: &'a dyn Driver) -> Option<Self> {
        Self::enter(driver).ok()
    }
}

impl Drop for RelaxedCapture<'_> {
    fn drop(&mut self) {
        if self.before != CaptureMode::Relaxed {
            // A failure here means that the driver is gone, and with it every capture.
            let _ = self.driver.exchange_capture_mode(self.before);
        }
    }
}
