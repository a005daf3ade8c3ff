//! `Reuse`: what a stream may take of what was freed on another.

/// What a stream may take of the memory that was freed on other streams. Each includes those before it.
///
/// What a stream has freed itself, and what it has already waited for, it may always take: that needs no driver call.
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::suballoc::Reuse;
/// use alluvion::{DeviceVec, Error, PoolConfig, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let (first, second) = (sim.device(0).stream()?, sim.device(0).stream()?);
/// // One stream fills and frees 8 MiB, another one wants as much: how much has the pool then?
/// let after = |config: PoolConfig| -> Result<usize, Error> {
///     let pool = Cuda::new(&sim.device(0)).pool(config.initial(8 << 20))?;
///     drop(DeviceVec::filled_in(8 << 20, 1_u8, &first, &pool)?);
///     let _taken = DeviceVec::filled_in(8 << 20, 2_u8, &second, &pool)?;
///     Ok(pool.pool_size() >> 20)
/// };
/// assert!(after(PoolConfig::default().reuse(Reuse::Own))? > 8);
/// // It cannot grow, so the second stream waits for the first, on the device.
/// assert_eq!(after(PoolConfig::default().reuse(Reuse::Wait).maximum(8 << 20))?, 8);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reuse {
    /// Nothing, while the pool can grow. No stream ever waits for another, unless memory runs out: then the host waits, until
    /// enough is over.
    Own,
    /// Before the pool grows, what is over on the device, as far as the pool asks for it; when it cannot grow, the host waits.
    ///
    /// The pool asks about one stream after the other, those first whose last free is the longest ago, until it has enough. It
    /// stops where 64 of them are still at work: the next request goes on with those that follow. So a request costs a bounded
    /// number of queries in vain, however many streams there are, and the pool may grow while something is over that it has not
    /// asked for.
    ///
    /// Blocks that other streams keep in their caches, for requests of the same size, count as freed, too. The pool takes them
    /// back for others as long as fewer than half of the streams that lose some ask for them again soon; else it leaves them
    /// those of short blocks that they use, and grows.
    Completed,
    /// The same before the pool grows; and when it cannot grow, anything: the stream waits, on the device, for as few others as
    /// are enough. The host waits only where no stream can, as for memory of the host or in a capture.
    Wait,
    /// In models alone: nothing, and the only strategy is the last one. Beside the others it makes a model too large to explore.
    #[cfg(loom)]
    #[doc(hidden)]
    LastStrategy,
}
