//! `Growth`: how much to take from the upstream at a time.

/// How much a [`Pool`](super::Pool) takes from its upstream when it has nothing that fits.
///
/// Whatever the policy, never less than the request needs, and never beyond the maximum. If the upstream refuses, the
/// amount is halved until it is what the request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Growth {
    /// What the request needs, and a sixteenth of what the pool has, at least 32 MiB, to spare: few calls, and little that
    /// is never used.
    Spare,
    /// As much as the pool has already, as RMM's.
    Doubling,
    /// This many bytes.
    Step(usize),
    /// What the request needs.
    Exact,
}
