//! The figures of a stack for each device: those of each, and their sum.

use super::PerDevice;
use crate::adaptor::{Counts, Stats};
use crate::resource::{Layer, Resource, find};
use crate::suballoc::{Status, SuballocBook};

impl<R: Resource> PerDevice<R> {
    /// The book of the outermost layer of type `L` of each stack, as [`ResourceExt::find`](super::ResourceExt::find) finds it.
    /// Devices whose stack has no such layer have none.
    ///
    /// ```
    /// use alluvion::adaptor::Stats;
    /// use alluvion::sim::SimConfig;
    /// use alluvion::suballoc::SuballocBook;
    /// use alluvion::{DeviceVec, Recipe, Sim};
    ///
    /// let sim = Sim::with_config(SimConfig::default().devices(2));
    /// let recipe: Recipe = "stats | pool(initial=1MiB) | cuda".parse()?;
    /// let stacks = recipe.per_device(sim.machine())?;
    /// let stream = sim.device(1).stream()?;
    /// let numbers = DeviceVec::<u8, _>::zeroed_in(1000, &stream, &stacks[1])?;
    /// for (device, stats) in &stacks.find::<Stats>() {
    ///     assert_eq!(stats.counts().bytes.live, if device.ordinal() == 1 { 1000 } else { 0 });
    /// }
    /// let snapshots = stacks.find::<SuballocBook>().map(|_, pool| pool.snapshot());
    /// assert_eq!(snapshots[0].segments.len(), 1);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn find<L: Layer>(&self) -> PerDevice<&L::Book> {
        self.filter_map(|stack| find::<L>(stack))
    }

    /// What the outermost [`Stats`] of each stack have counted since they were made, added up. Stacks without one count nothing.
    ///
    /// The peaks of the devices need not have been at one moment: their sum is an upper bound, and
    /// [`peak_error`](crate::adaptor::Counter::peak_error) says by how much it may be too high.
    ///
    /// ```
    /// use alluvion::sim::SimConfig;
    /// use alluvion::{DeviceVec, Recipe, Sim};
    ///
    /// let sim = Sim::with_config(SimConfig::default().devices(2));
    /// let stacks = "stats | cuda".parse::<Recipe>()?.per_device(sim.machine())?;
    /// for (device, stack) in &stacks {
    ///     let stream = device.stream()?;
    ///     drop(DeviceVec::<u8, _>::zeroed_in(1000, &stream, stack)?);
    /// }
    /// let bytes = stacks.counts().bytes;
    /// assert_eq!((bytes.live, bytes.total), (0, 2000));
    /// // One after the other: it was 1000, and could have been 2000.
    /// assert_eq!((bytes.peak, bytes.peak_error), (2000, 1000));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub fn counts(&self) -> Counts {
        let each: Vec<_> = self.find::<Stats>().into_iter().map(|(_, book)| book.whole()).collect();
        Counts::of_several(&each)
    }

    /// The figures of the outermost suballocator of each stack, added up. Stacks without one have none.
    ///
    /// The peak is the sum of the peaks of the devices, and the largest free bytes are the sum of the largest pieces, one of each
    /// device: so [`fragmentation`](Status::fragmentation) is that of all of them, each counted by its free bytes.
    ///
    /// ```
    /// use alluvion::sim::SimConfig;
    /// use alluvion::{Recipe, Sim};
    ///
    /// let sim = Sim::with_config(SimConfig::default().devices(4));
    /// let stacks = "pool(initial=1MiB) | cuda".parse::<Recipe>()?.per_device(sim.machine())?;
    /// let status = stacks.status();
    /// assert_eq!((status.reserved_bytes, status.free_bytes, status.fragmentation()), (4 << 20, 4 << 20, 0.0));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub fn status(&self) -> Status {
        let each = self.find::<SuballocBook>();
        each.into_iter().fold(Status::default(), |sum, (_, book)| sum.plus(&book.status()))
    }
}
