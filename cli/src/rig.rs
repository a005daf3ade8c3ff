//! `Rig`: the machine that the program runs on.

use core::cell::Cell;

use alluvion::sim::{CostModel, SimConfig};
use alluvion::{Device, Error, Machine, Sim, Stream};
use clap::ValueEnum;

use crate::failure::Failure;
use crate::note::note;

/// Where blocks come from in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Driver {
    /// The driver that ALLUVION_DRIVER names, or that of CUDA; without a GPU the simulator
    Auto,
    /// The CUDA driver, device 0
    Cuda,
    /// The CUDA runtime, libcudart
    Cudart,
    /// AMD's HIP: not run on hardware yet
    Hip,
    /// MetaX's MACA: not run on hardware yet
    Maca,
    /// A simulated GPU, whose driver calls take no time: this measures the library alone
    Sim,
    /// Addresses without memory, on the streams of a simulated GPU
    Null,
}

/// A machine by one of its devices, and the driver that it is reached through.
pub(crate) struct Rig {
    /// The first.
    pub(crate) device: Device,
    /// That of its driver, `sim` or `null`.
    pub(crate) name: &'static str,
    /// Whether it has been said that pools begin with less than they should.
    scaled: Cell<bool>,
    /// Kept for its resources, which go with it when the program is done; and it has the clock of what calls would cost.
    sim: Option<Sim>,
}

/// Simulated GPUs.
#[derive(Clone, Debug)]
pub(crate) struct Simulated {
    pub(crate) devices: u32,
    /// Of each.
    pub(crate) memory_bytes: usize,
    /// What its clock counts for a call.
    pub(crate) cost: CostModel,
}

impl Default for Simulated {
    fn default() -> Self {
        Self { devices: 1, memory_bytes: SIMULATED_BYTES, cost: CostModel::free() }
    }
}

/// Memory of the simulated device: that of an H200. It costs nothing until it is touched, and nobody touches it here.
const SIMULATED_BYTES: usize = 141 << 30;

impl Rig {
    pub(crate) fn open(driver: Driver) -> Result<Self, Failure> {
        Self::open_with(driver, Simulated::default())
    }

    /// With simulated GPUs of that kind, if it comes to them.
    pub(crate) fn open_with(driver: Driver, simulated: Simulated) -> Result<Self, Failure> {
        match driver {
            Driver::Cuda => Ok(Self::on(&Machine::cuda()?)?),
            Driver::Cudart => Ok(Self::on(&Machine::cudart()?)?),
            Driver::Hip => Ok(Self::on(&Machine::hip()?)?),
            Driver::Maca => Ok(Self::on(&Machine::maca()?)?),
            Driver::Sim => Ok(Self::simulated("sim", simulated)?),
            Driver::Null => Ok(Self::simulated("null", simulated)?),
            Driver::Auto => match Machine::of_environment().and_then(|machine| Self::on(&machine)) {
                Err(error) if error.is_no_device() => {
                    note(&format!("{error}; measuring on the simulator"));
                    Ok(Self::simulated("sim", simulated)?)
                }
                opened => Ok(opened?),
            },
        }
    }

    fn on(machine: &Machine) -> Result<Self, Error> {
        let (device, name) = (machine.device(0)?, machine.driver().name());
        Ok(Self { device, name, scaled: Cell::new(false), sim: None })
    }

    fn simulated(name: &'static str, simulated: Simulated) -> Result<Self, Error> {
        // A log does not tell which stream waited for which, so that a block which another stream frees looks like a hazard where
        // there is only the source. Nobody touches the memory here.
        let Simulated { devices, memory_bytes, cost } = simulated;
        // And what is measured is not the watch.
        let config = SimConfig::default().devices(devices).memory_bytes(memory_bytes).cost(cost);
        let config = config.watch_blocks(false);
        let sim = Sim::with_config(config.streams_keep_up(true).panic_on_unseen_hazards(false));
        Ok(Self { device: sim.machine().device(0)?, name, scaled: Cell::new(false), sim: Some(sim) })
    }

    /// What the calls to the driver would have cost so far, if it is simulated.
    pub(crate) fn charged_ns(&self) -> Option<u64> {
        Some(self.sim.as_ref()?.clock_ns())
    }

    /// Whether it is a GPU, and neither simulated nor none.
    pub(crate) fn is_hardware(&self) -> bool {
        self.sim.is_none()
    }

    pub(crate) fn stream(&self) -> Result<Stream, Error> {
        self.device.stream()
    }

    /// `wanted` bytes to begin with, or three quarters of what is free where that is less; the first time, it says so.
    pub(crate) fn initial_bytes(&self, wanted: usize) -> Result<usize, Error> {
        let free = self.device.memory_info()?.free_bytes;
        if wanted <= free {
            return Ok(wanted);
        }
        let scaled = (free / 4 * 3) & !((2 << 20) - 1);
        if !self.scaled.replace(true) {
            let [free, scaled, wanted] = [free, scaled, wanted].map(|bytes| bytes >> 20);
            note(&format!("{free} MiB are free, so pools begin with {scaled} MiB instead of {wanted} MiB"));
        }
        Ok(scaled)
    }
}
