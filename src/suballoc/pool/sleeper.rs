//! `Sleeper`: a pool, or a part of it, that has given its memory back.

#![expect(unsafe_code, reason = "puts blocks to sleep that others may have")]

use core::fmt;

use super::Pool;
use super::handle::PoolHandle;
use crate::error::Error;
use crate::resource::{AnyResource, Resource, SleepRecord, Sleeping as _};
use crate::size::Size;
use crate::suballoc::sleep_config::SleepConfig;
use crate::sync::Arc;

/// Blocks of a pool that sleep: [`Pool::sleep`]. They have their addresses and no memory, until [`wake`](Self::wake).
///
/// # The end
///
/// A sleeper that is dropped leaves its blocks without memory until they are freed, and loses what was kept of them; a pool that
/// slept as a whole serves requests again. One that is leaked leaks what was kept, and the pool sleeps on.
#[must_use = "the contents are lost with it"]
pub struct Sleeper<'p, U: Resource = AnyResource> {
    pool: PoolHandle<'p, U>,
    record: SleepRecord<'p>,
}

static_assertions::assert_impl_all!(Sleeper<'static, crate::source::Mapped>: Send, Sync);

impl<U: Resource> Pool<U> {
    /// Puts the pool to sleep, or what carries a tag: pages on which nothing but sleeping blocks and free memory lies go back to the
    /// upstream. The blocks keep their addresses, and their contents if the configuration says where. Waits, on the host, for all
    /// work on all streams that the machine knows, and for the copies.
    ///
    /// While the whole pool sleeps it refuses allocations with an error of the kind [`Asleep`](crate::ErrorKind::Asleep); while only a
    /// tag sleeps it serves them. A sleeping block may be freed: its addresses are used again then. Memory of
    /// [graphs](super::GraphMemory) does not sleep.
    ///
    /// ```
    /// use alluvion::source::{Mapped, Pinned};
    /// use alluvion::suballoc::SleepConfig;
    /// use alluvion::{DeviceVec, ErrorKind, PoolConfig, Resource, ResourceExt, Sim};
    ///
    /// let sim = Sim::new();
    /// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
    /// let pool = Mapped::new(&device)?.pool(PoolConfig::default())?;
    /// let host = Pinned::new(&device)?;
    /// let weights = DeviceVec::from_slice_in(&[1.0, 2.0, 3.0], &stream, &pool)?;
    /// let before = device.memory_info()?.free_bytes;
    ///
    /// // SAFETY: no work uses `weights` until it is awake.
    /// let mut sleeper = unsafe { pool.sleep(SleepConfig::default().keep_in(&host)) }?;
    /// assert!(device.memory_info()?.free_bytes > before && pool.pool_size() == 0);
    /// let refused = DeviceVec::<u8, _>::zeroed_in(1, &stream, &pool).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Asleep);
    ///
    /// sleeper.wake()?;
    /// assert_eq!(weights.to_vec(&stream)?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` over an upstream without [`pages`](Resource::pages), and for a tag where nobody knows the tags; `Asleep` for a
    /// pool that sleeps; a capture error while a stream captures; `OutOfMemory` of the host's memory; `DeviceMismatch` for memory
    /// of another device's host resource; as the driver says. Then nothing has changed.
    ///
    /// # Safety
    ///
    /// - No thread frees a block that is to sleep while this call runs, and none uses the pool if all of it is to sleep.
    /// - No work uses such a block from this call until it is awake: neither work that is submitted meanwhile, nor work on a stream
    ///   that the machine does not know.
    pub unsafe fn sleep<'p>(&'p self, config: SleepConfig<'p>) -> Result<Sleeper<'p, U>, Error> {
        // SAFETY: the caller's promises.
        unsafe { Sleeper::begin(PoolHandle::Borrowed(self), config) }
    }

    /// As [`sleep`](Self::sleep); the sleeper keeps the pool.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use alluvion::source::Mapped;
    /// use alluvion::suballoc::SleepConfig;
    /// use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let pool = Arc::new(Mapped::new(&sim.device(0))?.pool(PoolConfig::default())?);
    /// let mut cache = DeviceVec::<u8, _>::zeroed_in(1000, &stream, Arc::clone(&pool))?;
    /// // SAFETY: no work uses `cache` until it is awake.
    /// let mut sleeper = unsafe { pool.sleep_owned(SleepConfig::default()) }?;
    /// drop(pool);
    /// sleeper.wake()?;
    /// // Nothing was kept: it has arbitrary values.
    /// cache.fill(0, &stream)?;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn sleep_owned(
        self: &Arc<Self>,
        config: SleepConfig<'static>,
    ) -> Result<Sleeper<'static, U>, Error>
    where
        U: 'static,
    {
        // SAFETY: the caller's promises.
        unsafe { Sleeper::begin(PoolHandle::Counted(Arc::clone(self)), config) }
    }
}

impl<'p, U: Resource> Sleeper<'p, U> {
    /// # Safety
    ///
    /// As [`Pool::sleep`].
    unsafe fn begin(pool: PoolHandle<'p, U>, config: SleepConfig<'p>) -> Result<Self, Error> {
        // SAFETY: the caller's promises.
        let record = unsafe { pool.engine.sleep_all(config.tagged(), config.keep) }?;
        Ok(Self { pool, record })
    }

    /// Maps memory at the addresses that have none, and restores what was kept. Waits, on the host, until that is over; what is kept
    /// goes back to where it came from. Returns at once if it is awake.
    ///
    /// Free memory of the pool is given up first, if memory is short. Blocks that were freed meanwhile are left alone.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, whose [`requested_bytes`](Error::requested_bytes) are those that miss; as the driver says. Everything sleeps on
    /// then, nothing is lost, and it can be called again.
    pub fn wake(&mut self) -> Result<(), Error> {
        self.pool.engine.wake(&mut self.record)
    }

    /// Returns `true` until it is awake.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.record.is_asleep()
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool<U> {
        &self.pool
    }

    /// What sleeps, and what is kept of it.
    pub fn record(&self) -> &SleepRecord<'p> {
        &self.record
    }
}

impl<U: Resource> Drop for Sleeper<'_, U> {
    fn drop(&mut self) {
        self.pool.engine.book().give_up_waking(&self.record);
    }
}

impl<U: Resource> fmt::Debug for Sleeper<'_, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sleeper({} in {} blocks)", Size(self.record.bytes()), self.record.blocks())
    }
}
