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
/// # The end
///
/// Dropping it lets go of the current resources of its devices. Then it panics if the machine has seen
/// [hazards](SimDriver::hazards) that nobody has asked for: a test that forgets to ask fails all the same. It does not while the
/// thread panics already, and [`SimConfig::panic_on_unseen_hazards`] switches it off. A simulator that was passed to
/// [`with_driver`](Self::with_driver) is its owner's to ask.
///
/// Other values of this crate never panic when they are dropped. This one is an instrument of tests: a message that a passing
/// test prints is one that nobody reads.
///
/// ```
/// use alluvion::{DeviceVec, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let vector = DeviceVec::from_slice(&[1, 2, 3], &stream)?;
/// assert_eq!(vector.to_vec(&stream)?, [1, 2, 3]);
/// drop((vector, stream));
/// sim.assert_clean(); // No hazard, and no block or stream is out.
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Sim {
    machine: Machine,
    driver: Arc<SimDriver>,
    /// It made the driver, so nobody else is the one to ask for hazards.
    is_judge: bool,
}

static_assertions::assert_impl_all!(Sim: Send, Sync, UnwindSafe, RefUnwindSafe);

// Everything in it that changes does so under locks that a panic leaves usable: see `sync::Mutex`.
impl UnwindSafe for Sim {}
impl RefUnwindSafe for Sim {}

impl Sim {
    /// One device of the default size.
    #[must_use]
    pub fn new() -> Self {
        Self::with_config(SimConfig::default())
    }

    /// A machine of your making.
    #[must_use]
    pub fn with_config(config: SimConfig) -> Self {
        let mut sim = Self::with_driver(SimDriver::new(config));
        sim.is_judge = true;
        sim
    }

    /// A machine over a simulator that you have already, as [`explore`](crate::sim::explore) hands out.
    #[must_use]
    pub fn with_driver(driver: Arc<SimDriver>) -> Self {
        // A simulated driver knows how many devices it has; the count can fail only in a forked child, where a machine
        // without devices is the truth.
        let machine = Machine::new(Arc::clone(&driver) as _)
            .unwrap_or_else(|_| Machine::without_devices(Arc::clone(&driver) as _));
        Self { machine, driver, is_judge: false }
    }

    /// Waits for all work, and fails if the machine has seen a hazard, or if a block or a stream is still out: for the end of a
    /// test, when all that it made was dropped.
    ///
    /// What the devices keep for themselves does not count: a stream for calls that name none, spare events, a pool of the driver.
    ///
    /// # Panics
    ///
    /// If there is one. The message has them all, each on a line.
    #[track_caller]
    pub fn assert_clean(&self) {
        for device in self.machine.devices() {
            // A lost context has nothing left that could run.
            let _ = device.synchronize();
        }
        let hazards = self.driver.hazards();
        let leaks = self.driver.leaked_blocks_and_streams(&self.machine.kept_streams());
        assert!(
            hazards.is_empty() && leaks.is_empty(),
            "the simulated machine is not clean: {} hazards, {} blocks and streams are out{}",
            hazards.len(),
            leaks.len(),
            Lines(&[&hazards, &leaks])
        );
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
            "a simulated machine was dropped with {} hazards that nobody asked for; `SimDriver::hazards` returns them, and \
             `SimConfig::panic_on_unseen_hazards(false)` lets them go{}",
            unseen.len(),
            Lines(&[&unseen])
        );
    }
}

/// Each hazard on a line of its own.
struct Lines<'a>(&'a [&'a [Hazard]]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().copied().flatten().try_for_each(|hazard| write!(f, "\n  {hazard}"))
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim({:?})", self.machine)
    }
}
