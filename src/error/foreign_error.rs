//! `ForeignError`: an error of code that is not the crate's, on its way up.

use core::error::Error;
use core::fmt;

use crate::contain::contain;

/// An error of code that is not the crate's. A panic of its destructor ends here: no method of a resource unwinds.
#[derive(Debug)]
pub(super) struct ForeignError(Option<Box<dyn Error + Send + Sync>>);

impl ForeignError {
    pub(super) fn new(error: Box<dyn Error + Send + Sync>) -> Self {
        Self(Some(error))
    }

    /// The error; it goes when this is dropped, and not before.
    pub(super) fn get(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.0.as_deref()
    }
}

impl fmt::Display for ForeignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |error| fmt::Display::fmt(error, f))
    }
}

impl Drop for ForeignError {
    fn drop(&mut self) {
        let error = self.0.take();
        contain(|| drop(error));
    }
}
