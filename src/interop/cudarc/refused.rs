//! `Refused<V>`: what could not be handed over, and why.

use core::fmt;

use crate::error::Error;

/// A hand-over between this crate and cudarc that did not happen: the error, and the owner unharmed.
///
/// Converts into the [`Error`], so that `?` works where the owner is not needed.
///
/// ```no_run
/// // Needs a GPU.
/// use alluvion::DeviceVec;
///
/// let theirs = cudarc::driver::CudaContext::new(0)?.per_thread_stream();
/// let slice = theirs.clone_htod(&[1_u32, 2, 3])?;
/// let refused = DeviceVec::from_cudarc(slice).unwrap_err();
/// println!("{}", refused.error());
/// let slice = refused.into_inner();
/// assert_eq!(slice.len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Refused<V> {
    /// Boxed, because a vector has 200 bytes, and results that hold the other side are moved where all goes well.
    owner: Box<V>,
    error: Error,
}

impl<V> Refused<V> {
    pub(super) fn new(owner: V, error: Error) -> Self {
        Self { owner: Box::new(owner), error }
    }

    /// Why.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The owner that was not handed over.
    #[must_use]
    pub fn into_inner(self) -> V {
        *self.owner
    }
}

impl<V> From<Refused<V>> for Error {
    fn from(refused: Refused<V>) -> Self {
        refused.error
    }
}

impl<V> fmt::Debug for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refused({:?})", self.error)
    }
}

impl<V> fmt::Display for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not handed over: {}", self.error)
    }
}

impl<V> core::error::Error for Refused<V> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}
