//! `PageBudget`: how much memory a pool over pages keeps before it moves what is free.

use crate::error::Error;

/// How much memory a [`Pool`](super::Pool) over [pages](crate::resource::Pages) holds before it moves free pages instead
/// of growing.
///
/// Where growth would pass the limit, whole pages that are free, and whose work is completed, move to where memory is
/// needed. If there are not enough of them, the pool grows past the limit: a job that needs the memory is not refused.
/// For a limit that is never passed see [`maximum`](super::PoolConfig::maximum).
///
/// A page that moves costs two or three driver calls, about 50 µs on an H200 in all, and waits for no work. Where a page may have
/// [several addresses](crate::resource::Pages::may_alias), its way back to where it was costs none.
///
/// ```
/// use alluvion::source::Mapped;
/// use alluvion::suballoc::PageBudget;
/// use alluvion::{DeviceVec, PoolConfig, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// // The pages held after a block of 8 MiB, of which every second MiB was free, makes room for one of 16.
/// let after = |config: PoolConfig| -> Result<(usize, u64), alluvion::Error> {
///     let pool = Mapped::new(&sim.device(0))?.pool(config)?;
///     let mut pieces: Vec<_> =
///         (0..8).map(|_| DeviceVec::<u8, _>::uninit_in(4 << 20, &stream, &pool).map(Some)).collect::<Result<_, _>>()?;
///     pieces.iter_mut().step_by(2).for_each(|piece| *piece = None);
///     let _long = DeviceVec::<u8, _>::uninit_in(16 << 20, &stream, &pool)?;
///     Ok((pool.pool_size() >> 20, pool.status().moved_bytes >> 20))
/// };
/// assert_eq!(after(PoolConfig::default())?, (48, 0));
/// assert_eq!(after(PoolConfig::default().budget(PageBudget::TimesPeak(1.0)))?, (32, 16));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PageBudget {
    /// This many bytes.
    Bytes(usize),
    /// This many times the most bytes that were ever live, as far as growth has seen them; 1 at least.
    TimesPeak(f64),
}

impl PageBudget {
    pub(super) fn validate(self) -> Result<(), Error> {
        match self {
            Self::TimesPeak(times) if !(times.is_finite() && times >= 1.0) => {
                Err(Error::invalid_argument_that(format!(
                    "a soft limit of {times} times the live bytes: no pool holds less than is live; pass 1.0 or more"
                )))
            }
            _ => Ok(()),
        }
    }

    /// The limit in units, while so many units were live at most.
    pub(super) fn units(self, peak_live: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => (bytes / crate::resource::Layout::MIN_ALIGN) as u64,
            Self::TimesPeak(times) => (peak_live as f64 * times) as u64,
        }
    }
}
