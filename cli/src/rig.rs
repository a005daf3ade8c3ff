//! `Rig`: the machine that the program runs on.

use core::cell::Cell;
use std::io::{self, Write};

use alluvion::driver::sim::SimConfig;
use alluvion::{Device, Error, Machine, Sim, Stream};
use clap::ValueEnum;

use crate::failure::Failure;

/// Where blocks come from in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Driver {
    /// The CUDA driver if there is one, else the simulator
    Auto,
    /// The CUDA driver, device 0
    Cuda,
    /// A simulated GPU: real driver calls are free there, so this measures the library alone
    Sim,
    /// Addresses without memory, on the streams of a simulated GPU
    Null,
}

/// One device, and the driver that it is reached through.
pub(crate) struct Rig {
    pub(crate) device: Device,
    /// `cuda`, `sim` or `null`.
    pub(crate) name: &'static str,
    /// Whether it has been said that pools begin with less than they should.
    scaled: Cell<bool>,
    /// Drops the simulated machine's resources when the program is done.
    _sim: Option<Sim>,
}

/// Memory of the simulated device: that of an H200. It costs nothing until it is touched, and nobody touches it here.
const SIMULATED_BYTES: usize = 141 << 30;

impl Rig {
    pub(crate) fn open(driver: Driver) -> Result<Self, Failure> {
        match driver {
            Driver::Cuda => Ok(Self::cuda()?),
            Driver::Sim => Ok(Self::simulated("sim")?),
            Driver::Null => Ok(Self::simulated("null")?),
            Driver::Auto => match Self::cuda() {
                Err(error) if error.is_no_device() => {
                    note(&format!("{error}; measuring on the simulator"));
                    Ok(Self::simulated("sim")?)
                }
                opened => Ok(opened?),
            },
        }
    }

    fn cuda() -> Result<Self, Error> {
        Ok(Self { device: Machine::cuda()?.device(0)?, name: "cuda", scaled: Cell::new(false), _sim: None })
    }

    fn simulated(name: &'static str) -> Result<Self, Error> {
        let sim = Sim::with_config(SimConfig::default().memory_bytes(SIMULATED_BYTES));
        Ok(Self { device: sim.machine().device(0)?, name, scaled: Cell::new(false), _sim: Some(sim) })
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

/// Says something that is no figure.
pub(crate) fn note(words: &str) {
    // Where nobody can hear it, the figures still count.
    let _ = writeln!(io::stderr(), "note: {words}");
}
