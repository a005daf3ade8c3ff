//! `Undo`: what must be done before the end.

use alluvion::driver::DriverResult;

/// Gives something back when it is dropped, or [now](Self::now) to hear how that went.
pub(super) struct Undo<F: FnOnce() -> DriverResult<()>>(Option<F>);

impl<F: FnOnce() -> DriverResult<()>> Undo<F> {
    pub(super) fn new(undo: F) -> Self {
        Self(Some(undo))
    }

    pub(super) fn now(mut self) -> DriverResult<()> {
        self.0.take().map_or(Ok(()), |undo| undo())
    }
}

impl<F: FnOnce() -> DriverResult<()>> Drop for Undo<F> {
    fn drop(&mut self) {
        // Something has failed already, and that is told.
        let _ = self.0.take().map(|undo| undo());
    }
}
