//! `Sim`: a simulated machine, ready to use.

use core::fmt;
use core::ops::Deref;

use super::{Device, Machine};
use crate::sim::{SimConfig, SimDriver};
use crate::sync::Arc;

/// A simulated machine, ready to use: devices with real bytes and finite memory, and no GPU.
///
/// Dereferences to its [`SimDriver`], where hazards are reported, faults injected and calls counted. Dropping it lets go of
/// the current resources of its devices.
///
/// ```
/// use alluvion::{DeviceVec, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let vector = DeviceVec::from_slice(&[1, 2, 3], &stream)?;
/// assert_eq!(vector.to_vec(&stream)?, [1, 2, 3]);
/// assert!(sim.hazards().is_empty());
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Sim {
    machine: Machine,
    driver: Arc<SimDriver>,
}

static_assertions::assert_impl_all!(Sim: Send, Sync);

impl Sim {
    /// One device of the default size.
    #[must_use]
    pub fn new() -> Self {
        Self::with_config(SimConfig::default())
    }

    /// A machine of your making.
    #[must_use]
    pub fn with_config(config: SimConfig) -> Self {
        Self::with_driver(SimDriver::new(config))
    }

    /// A machine over a simulator that you have already, as [`explore`](crate::sim::explore) hands out.
    #[must_use]
    pub fn with_driver(driver: Arc<SimDriver>) -> Self {
        // A simulated driver knows how many devices it has; the count can fail only in a forked child, where a machine
        // without devices is the truth.
        let machine = Machine::new(Arc::clone(&driver) as _)
            .unwrap_or_else(|_| Machine::without_devices(Arc::clone(&driver) as _));
        Self { machine, driver }
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
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim({:?})", self.machine)
    }
}
