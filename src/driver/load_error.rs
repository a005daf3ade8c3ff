//! `LoadError`: why a vendor's library could not be loaded.

use core::fmt;

use super::DriverError;

/// Why a vendor's library was not loaded, or did not start. Converts into the crate's [`Error`](crate::Error).
///
/// ```
/// use alluvion::driver::LoadError;
///
/// let error = LoadError::NoDriver { why: "libcuda is not installed", instead: "simulate a machine" };
/// assert!(alluvion::Error::from(error).is_no_device());
/// assert_eq!(error.to_string(), "libcuda is not installed; simulate a machine");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// There is no usable library.
    NoDriver {
        /// The reason.
        why: &'static str,
        /// The remedy.
        instead: &'static str,
    },
    /// The library refused.
    Refused(DriverError),
}

impl From<DriverError> for LoadError {
    fn from(error: DriverError) -> Self {
        Self::Refused(error)
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver { why, instead } => write!(f, "{why}; {instead}"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for LoadError {}
