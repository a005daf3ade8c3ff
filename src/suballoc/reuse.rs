//! `Reuse`: which memory freed on other streams a stream may take.

/// Which memory freed on other streams a stream may take. Each policy includes those before it.
///
/// A stream may always take memory that it has freed itself, or that it has already waited for: that needs no driver
/// call.
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
    /// None, while the pool can grow. No stream ever waits for another. If memory runs out, the host waits until enough
    /// work is completed.
    Own,
    /// Before the pool grows: memory of completed work, as far as the pool queries the streams. If it cannot grow, the
    /// host waits.
    ///
    /// The pool queries one stream after the other, the ones with the oldest last free first, until it has enough. It
    /// stops after 64 busy streams; the next request goes on with the streams that follow. So a request costs a bounded
    /// number of vain queries for any number of streams, and the pool may grow although a stream that it has not
    /// queried is completed.
    ///
    /// Blocks in the caches of other streams count as freed, too. The pool takes them as long as fewer than half of the
    /// streams that lose some need them again soon. Else it leaves the short blocks in caches that are in use, and
    /// grows.
    Completed,
    /// The same before the pool grows. If it cannot grow, any memory: the stream waits, on the device, for as few
    /// others as are enough. The host waits only where no stream can: for synchronous calls, or in a capture.
    Wait,
    /// In models only: none, and the only strategy is the last one. With the others, a model of it is too large to
    /// explore.
    #[cfg(loom)]
    #[doc(hidden)]
    LastStrategy,
}
