//! `Sim`: a simulated machine, ready to use.

use core::fmt;
use core::ops::Deref;
use core::panic::{RefUnwindSafe, UnwindSafe};

use super::{Device, Machine};
use crate::sim::{Hazard, SimConfig, SimDriver};
use crate::sync::Arc;

/// A simulated machine, ready to use: devices with real bytes and finite memory, and no GPU.
///
/// Dereferences to its [`SimDriver`], where hazards are reported, faults injected and calls counted.
///
/// # When it is dropped
///
/// Dropping it releases the current resources of its devices. Then it panics if the machine has found
/// [hazards](SimDriver::hazards) that the test has not read: so a test that forgets to check for them fails. It does not panic
/// while the thread panics already, and [`SimConfig::panic_on_unseen_hazards`] switches the panic off. For a simulator that was
/// passed to [`with_driver`](Self::with_driver), checking is left to its owner.
///
/// Other values of this crate never panic when they are dropped. This one is a tool for tests, and messages of passing tests are
/// not read.
///
/// ```
/// use alluvion::{DeviceVec, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let vector = DeviceVec::from_slice(&[1, 2, 3], &stream)?;
/// assert_eq!(vector.to_vec(&stream)?, [1, 2, 3]);
/// drop((vector, stream));
/// sim.assert_clean(); // No hazard, and no live block or stream.
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Sim {
    machine: Machine,
    driver: Arc<SimDriver>,
    /// It made the driver, so it has to check for hazards.
    is_judge: bool,
}

static_assertions::assert_impl_all!(Sim: Send, Sync, UnwindSafe, RefUnwindSafe);

// All of its mutable data is under locks that a panic leaves usable: see `sync::Mutex`.
impl UnwindSafe for Sim {}
impl RefUnwindSafe for Sim {}

impl Sim {
    /// One device of the default size.
    #[must_use]
    pub fn new() -> Self {
        Self::with_config(SimConfig::default())
    }

    /// A machine with that configuration.
    #[must_use]
    pub fn with_config(config: SimConfig) -> Self {
        let mut sim = Self::with_driver(SimDriver::new(config));
        sim.is_judge = true;
        sim
    }

    /// A machine over an existing simulator, such as the one that [`explore`](crate::sim::explore) passes.
    #[must_use]
    pub fn with_driver(driver: Arc<SimDriver>) -> Self {
        // The device count of a simulated driver can fail only in a child of a fork, where a machine has no devices.
        let machine = Machine::new(Arc::clone(&driver) as _)
            .unwrap_or_else(|_| Machine::without_devices(Arc::clone(&driver) as _));
        Self { machine, driver, is_judge: false }
    }

    /// Another process on the same hardware, with devices, streams and memory of its own: see [`SimDriver::process`].
    ///
    /// It judges its own hazards when it is dropped, as this one does.
    ///
    /// ```
    /// use alluvion::{DeviceVec, Sim};
    ///
    /// let first = Sim::new();
    /// let second = first.process();
    /// let stream = second.device(0).stream()?;
    /// let vector = DeviceVec::from_slice(&[1, 2, 3], &stream)?;
    /// assert!(first.live().is_empty() && !second.live().is_empty());
    /// drop((vector, stream));
    /// second.assert_clean();
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub fn process(&self) -> Self {
        let mut process = Self::with_driver(self.driver.process());
        process.is_judge = self.is_judge;
        process
    }

    /// Waits for all work, and fails if the machine has found a hazard, or if a block, a stream, a range of addresses
    /// or physical memory is still live: for the end of a test, after all of its values are dropped.
    ///
    /// Values that the devices keep do not count: a stream for calls without one, spare events, a pool of the driver.
    ///
    /// # Panics
    ///
    /// If there is a hazard, or a live block, stream, range or page. The message lists each hazard on a line.
    #[track_caller]
    pub fn assert_clean(&self) {
        let leaks = self.left_over();
        let hazards = self.driver.hazards();
        assert!(
            hazards.is_empty() && leaks.is_empty(),
            "the simulated machine is not clean: {} hazards, {} blocks, pages and streams are out{}",
            hazards.len(),
            leaks.len(),
            HazardLines(&[&hazards, &leaks])
        );
    }

    /// Waits for all work, and returns the blocks, streams, ranges of addresses and physical memory that are still live, without what
    /// the devices keep: a stream for calls without one, spare events, a pool of the driver.
    ///
    /// ```
    /// use alluvion::{Layout, Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let resource = Cuda::new(&sim.device(0));
    /// let block = resource.allocate_sync(Layout::from_bytes(1000)?)?;
    /// assert_eq!(sim.left_over().len(), 1);
    /// // SAFETY: the block came from `resource` with this layout, and nothing uses it.
    /// unsafe { resource.deallocate_sync(block, Layout::from_bytes(1000)?) };
    /// assert_eq!(sim.left_over().len(), 0);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub fn left_over(&self) -> Vec<Hazard> {
        for device in self.machine.devices() {
            // A lost context has no work left that could run.
            let _ = device.synchronize();
        }
        self.driver.leaked_memory_and_streams(&self.machine.kept_streams())
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Device `ordinal`.
    ///
    /// # Panics
    ///
    /// If the machine has fewer devices; [`Machine::device`] returns an error instead.
    #[must_use]
    pub fn device(&self, ordinal: u32) -> Device {
        match self.machine.device(ordinal) {
            Ok(device) => device,
            Err(error) => panic!("{error}"),
        }
    }

    /// The simulator behind it.
    #[must_use]
    pub fn sim_driver(&self) -> &Arc<SimDriver> {
        &self.driver
    }
}

impl Default for Sim {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Sim {
    type Target = SimDriver;

    fn deref(&self) -> &SimDriver {
        &self.driver
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.machine.release_attachments();
        if !self.is_judge || std::thread::panicking() {
            return;
        }
        let unseen = self.driver.unseen_hazards();
        assert!(
            unseen.is_empty(),
            "a simulated machine was dropped with {} hazards that the test has not read; `SimDriver::hazards` returns them, and \
             `SimConfig::panic_on_unseen_hazards(false)` ignores them{}",
            unseen.len(),
            HazardLines(&[&unseen])
        );
    }
}

/// Each hazard on a line of its own.
struct HazardLines<'a>(&'a [&'a [Hazard]]);

impl fmt::Display for HazardLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().copied().flatten().try_for_each(|hazard| write!(f, "\n  {hazard}"))
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim({:?})", self.machine)
    }
}
