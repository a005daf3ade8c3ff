//! `Growth`: how much to take from the upstream at a time.

/// How much a [`Pool`](super::Pool) takes from its upstream when it has nothing that fits.
///
/// Whatever the policy, never less than the request needs, and never beyond the maximum. If the upstream refuses, the
/// amount is halved until it is what the request needs.
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::suballoc::Growth;
/// use alluvion::{DeviceVec, Error, PoolConfig, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// // How many MiB a pool has after a request for three.
/// let after = |growth| -> Result<usize, Error> {
///     let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().growth(growth))?;
///     let _numbers = DeviceVec::<u8, _>::uninit_in(3 << 20, &stream, &pool)?;
///     Ok(pool.pool_size() >> 20)
/// };
/// assert_eq!((after(Growth::Spare)?, after(Growth::Doubling)?), (4, 4));
/// assert_eq!((after(Growth::Step(16 << 20))?, after(Growth::Exact)?), (16, 3));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Growth {
    /// What the request needs, and up to three times that to spare, but no more than a sixteenth of what the pool has. In whole
    /// pages of 2 MiB.
    ///
    /// Segments that are free, and over, and too short for the request go back to the upstream first, until they are as much
    /// as is taken; then that much is taken in one piece. So the pool does not get smaller, and its segments get longer. It
    /// has the lowest footprint of these policies, for a few more calls of the upstream: some dozen until it has what it needs.
    Spare,
    /// As much as the pool has already, as RMM's. In whole pages of 2 MiB.
    Doubling,
    /// This many bytes.
    Step(usize),
    /// What the request needs.
    Exact,
}
