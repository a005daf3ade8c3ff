//! `RetiredPools`: unused pools of the driver, until they can be destroyed.

#![expect(unsafe_code, reason = "destroys pools that were given to it")]

use crate::driver::{Driver, PoolAttribute, RawPool, RelaxedCapture};
use crate::sync::Mutex;

/// The pools of one device that are waiting to be destroyed.
///
/// The driver's manual permits destroying a pool whose frees have not run yet, or whose blocks are live. Driver 580 crashes on
/// both: with SIGSEGV or SIGFPE, within 200 pools on an H200. Waiting for the device would break a capture on another thread, so a
/// pool that still holds memory after a trim is kept here and checked again whenever a pool is made or retired.
#[derive(Debug, Default)]
pub(crate) struct RetiredPools {
    pools: Mutex<Vec<RawPool>>,
}

impl RetiredPools {
    /// Takes over a pool.
    ///
    /// # Safety
    ///
    /// `pool` was made by `pool_create` of this device, and nobody allocates from it any more.
    pub(crate) unsafe fn retire(&self, driver: &dyn Driver, ordinal: u32, pool: RawPool) {
        if self.pools.is_forked_child() {
            // The pool is the parent's.
            return;
        }
        let _relaxed = RelaxedCapture::attempt(driver);
        // So that late frees return memory to the device, too. A failure keeps more memory, and is harmless. SAFETY: the pool is
        // live: only `sweep` destroys it, and it is not in the list yet.
        let _ = unsafe { driver.pool_set_attribute(ordinal, pool, PoolAttribute::ReleaseThreshold, 0) };
        self.pools.lock().push(pool);
        self.sweep(driver, ordinal);
    }

    /// Destroys the pools that are empty.
    pub(crate) fn sweep(&self, driver: &dyn Driver, ordinal: u32) {
        let Some(mut pools) = self.pools.lock_unless_forked() else { return };
        let mut waiting = core::mem::take(&mut *pools);
        drop(pools);
        if waiting.is_empty() {
            return;
        }
        let _relaxed = RelaxedCapture::attempt(driver);
        waiting.retain(|&pool| {
            // SAFETY: the pool is live: it was in the list, and the thread that takes the list out is alone with it.
            let trimmed = unsafe { driver.pool_trim(ordinal, pool, 0) };
            // SAFETY: as above.
            let held = unsafe { driver.pool_attribute(ordinal, pool, PoolAttribute::ReservedCurrent) };
            if trimmed.is_err() || held != Ok(0) {
                return true;
            }
            // SAFETY:
            // - `pool_create` made it, and it is not used again: the promise to `retire`, and it leaves the list here.
            // - none of its memory is live, and every free has run: it holds no memory at all. A failure leaks an empty pool.
            let _ = unsafe { driver.pool_destroy(ordinal, pool) };
            false
        });
        self.pools.lock().append(&mut waiting);
    }
}
