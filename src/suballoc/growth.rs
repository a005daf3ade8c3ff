//! `Growth`: how much to take from the upstream at a time.

/// How much a [`Pool`](super::Pool) takes from its upstream when it has nothing that fits.
///
/// With every policy it takes at least what the request needs, and never exceeds the maximum. If the upstream refuses,
/// the amount is halved, down to what the request needs.
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
    /// What the request needs, and up to three times that to spare, but no more than 1/16 of the size of the pool. In
    /// whole pages of 2 MiB.
    ///
    /// Empty segments that are too short for the request go back to the upstream first, up to the amount that is taken;
    /// then that amount is taken in one piece. So the pool keeps its size, and its segments get longer. This policy has
    /// the lowest footprint, for a few more calls of the upstream: some dozen until the pool has its final size.
    Spare,
    /// As much as the pool has already, as in RMM. In whole pages of 2 MiB.
    Doubling,
    /// This many bytes.
    Step(usize),
    /// What the request needs.
    Exact,
}
