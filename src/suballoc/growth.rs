//! `Growth`: how much to take from the upstream at a time.

/// How much a [`Pool`](super::Pool) takes from its upstream when it has nothing that fits.
///
/// Whatever the policy, never less than the request needs, and never beyond the maximum. If the upstream refuses, the
/// amount is halved until it is what the request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Growth {
    /// An eighth of what the pool has, and at least 2 MiB: few calls, and little that is never used.
    Eighth,
    /// As much as the pool has already, as RMM's.
    Doubling,
    /// This many bytes.
    Step(usize),
    /// What the request needs.
    Exact,
}
