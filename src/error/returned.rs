//! `Returned<V>`: what was given by value and refused.

use core::fmt;

use super::Error;

/// A value that was to be used up and was not, as it was, and why: std's [`SendError`](std::sync::mpsc::SendError), with an [`Error`].
///
/// Calls that take a container, a buffer of the host or a graph by value give it back so where they fail: nothing is lost. It reads as
/// its error, and converts into it, so that `?` works where the value is not needed.
///
/// ```
/// use alluvion::{DeviceVec, Sim, SleepConfig, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let vector = DeviceVec::from_slice_in(&[7_u8], &stream, Cuda::new(&sim.device(0)))?;
/// let returned = vector.sleep(SleepConfig::default()).unwrap_err();
/// assert!(returned.error().is_unsupported());
/// assert_eq!(returned.into_value().to_vec(&stream)?, [7]);
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Returned<V> {
    /// In a box: a container has 200 bytes, and a result with it is moved where all goes well.
    value: Box<V>,
    error: Error,
}

impl<V> Returned<V> {
    pub(crate) fn new(value: V, error: Error) -> Self {
        Self { value: Box::new(value), error }
    }

    /// Why.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The value.
    #[must_use]
    pub fn into_value(self) -> V {
        *self.value
    }
}

impl<V> From<Returned<V>> for Error {
    fn from(returned: Returned<V>) -> Self {
        returned.error
    }
}

impl<V> fmt::Debug for Returned<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Returned({:?})", self.error)
    }
}

impl<V> fmt::Display for Returned<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<V> core::error::Error for Returned<V> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.error.source()
    }
}
