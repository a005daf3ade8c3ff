//! `Asleep<C>`: a container without memory, which keeps its address.

#![expect(unsafe_code, reason = "promises that nothing uses a container that nobody has")]

use core::fmt;

use super::device_vec::DeviceVec;
use super::owned::Owned;
use crate::error::{Error, Returned};
use crate::resource::{DeviceAccessible, SleepRecord};
use crate::suballoc::SleepConfig;

/// A [`DeviceVec`] that sleeps: it has its address and no memory, so that nothing can be done with it but to [wake](Self::wake) it.
/// Made by [`DeviceVec::sleep`].
///
/// One that is dropped gives the block back, and what was kept of it. One that is leaked leaks both.
///
/// ```
/// use alluvion::source::{Mapped, Pinned};
/// use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim, SleepConfig};
///
/// let sim = Sim::new();
/// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
/// let pool = Mapped::new(&device)?.pool(PoolConfig::default())?;
/// let host = Pinned::new(&device)?;
/// let weights = DeviceVec::from_slice_in(&[1.0, 2.0, 3.0], &stream, &pool)?;
///
/// let asleep = weights.sleep(SleepConfig::default().keep_in(&host))?;
/// assert_eq!(pool.pool_size(), 0);
/// let weights = asleep.wake()?;
/// assert_eq!(weights.to_vec(&stream)?, [1.0, 2.0, 3.0]);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[must_use = "the contents are lost with it"]
pub struct Asleep<'k, C> {
    // Before what is kept of it: it is freed first.
    container: C,
    record: SleepRecord<'k>,
}

static_assertions::assert_impl_all!(Asleep<'static, DeviceVec<f32>>: Send, Sync);
static_assertions::assert_not_impl_any!(Asleep<'static, DeviceVec<f32>>: Clone);

impl<'k, C> Asleep<'k, C> {
    /// The bytes of the host's memory, or of the file, that the contents are kept in; 0 if they were dropped.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.record.kept_bytes()
    }
}

impl<T, R: DeviceAccessible> DeviceVec<T, R> {
    /// Gives the memory back, and keeps the address; and the contents, if the configuration says where. Waits, on the host, for all
    /// uses of the vector. Pages that other blocks lie on stay mapped.
    ///
    /// The resource is a [`Pool`](crate::Pool) over a resource with pages, a handle of one, or a layer over one that passes its
    /// blocks on, such as [`Stats`](crate::adaptor::Stats). A tag in the configuration is ignored.
    ///
    /// # Errors
    ///
    /// The vector itself, as it was: `Unsupported` for any other resource; a capture error while a stream that uses it captures;
    /// `InvalidArgument` if a graph may use it; `OutOfMemory` of the host's memory; as the driver says.
    pub fn sleep<'k>(self, config: SleepConfig<'k>) -> Result<Asleep<'k, Self>, Returned<Self>> {
        match fall_asleep(self.owned(), config) {
            Ok(record) => Ok(Asleep { container: self, record }),
            Err(error) => Err(Returned::new(self, error)),
        }
    }
}

impl<T, R: DeviceAccessible> Asleep<'_, DeviceVec<T, R>> {
    /// Has memory mapped at the address again, and what was kept restored. Waits, on the host, until that is over.
    ///
    /// # Errors
    ///
    /// The sleeping vector itself, to be woken later: `OutOfMemory`, whose [`requested_bytes`](Error::requested_bytes) are those
    /// that miss; as the driver says. Nothing is lost.
    pub fn wake(mut self) -> Result<DeviceVec<T, R>, Returned<Self>> {
        let woken = match self.container.owned().resource().sleeping() {
            // An empty container has no block that could sleep.
            _ if self.record.blocks() == 0 => Ok(()),
            Some(sleeping) => sleeping.wake(&mut self.record),
            None => Err(no_sleep()),
        };
        match woken {
            Ok(()) => Ok(self.container),
            Err(error) => Err(Returned::new(self, error)),
        }
    }
}

fn fall_asleep<'k>(
    owned: &Owned<impl DeviceAccessible>,
    config: SleepConfig<'k>,
) -> Result<SleepRecord<'k>, Error> {
    let block = owned.block();
    if block.layout.is_empty() {
        return Ok(SleepRecord::of_nothing());
    }
    if block.is_in_a_graph() {
        return Err(Error::invalid_argument(
            "sleep of a container that a graph may use",
            "the graph may be launched at any time",
            "copy it, and let the copy sleep",
        ));
    }
    let sleeping = owned.resource().sleeping().ok_or_else(no_sleep)?;
    let mut behind = block.frontier();
    behind.extend(block.home.as_ref().release());
    // SAFETY:
    // - the block is live, and of this resource, whose layers pass the blocks of a pool on.
    // - every use of it is on its home up to now, or entered, and so in the frontier.
    // - nothing uses it until it is awake: the container was given by value, without a borrow of it, and comes back awake.
    unsafe { sleeping.sleep(block.address, &behind, config.keep) }
}

#[cold]
fn no_sleep() -> Error {
    Error::unsupported(
        "sleep of a container of this resource",
        "its memory cannot leave its address",
        "allocate it from a pool over `source::Mapped`",
    )
}

impl<C> fmt::Debug for Asleep<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Asleep({:?})", self.record)
    }
}
