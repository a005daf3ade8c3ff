//! `Unsupported`: what is missing, and what to use in its place.

/// A missing feature, the reason, and a replacement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Unsupported {
    /// The feature that was asked for.
    pub what: &'static str,
    /// The reason why it is missing.
    pub why: &'static str,
    /// The replacement.
    pub instead: &'static str,
}
