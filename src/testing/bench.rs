//! `Bench`: the machine that a test runs on.

use core::fmt;
use std::rc::Rc;

use crate::device::{Device, Machine, Sim};
use crate::sim::{Live, SimConfig};
use crate::stream::Stream;
use crate::sync::MutexGuard;

/// Memory of a simulated device on a bench: sixteen blocks of 4 MiB, so that running out takes no time.
const SIMULATED_BYTES: usize = 64 << 20;

/// The largest block that a clause asks for and expects to get, unless the bench says less.
const LARGEST_BYTES: usize = 4 << 20;

/// How many blocks of [`Bench::exhaustion_bytes`] a machine holds at most.
const EXHAUSTION_BLOCKS: usize = 16;

/// The machine that a test runs on: a simulated one that every test has to itself, or the GPU of this computer.
///
/// A clause of the [suite](crate::resource_suite) takes a bench, makes resources on it, and in the end has it checked.
///
/// # Examples
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::testing::{Bench, suite};
///
/// let bench = Bench::sim();
/// suite::blocks_hold_what_is_written(&bench, |device| Cuda::new(device));
/// bench.check();
/// ```
pub struct Bench {
    kind: Kind,
    largest_bytes: usize,
}

enum Kind {
    Simulated {
        sim: Box<Sim>,
        config: Box<SimConfig>,
    },
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "without a driver there is no hardware"))]
    Hardware {
        machine: Machine,
        _alone: Rc<Alone>,
    },
}

/// The right to use the GPU: tests of one process that fill it up must not do so at once.
struct Alone {
    _guard: MutexGuard<'static, ()>,
}

impl Kind {
    fn simulated(config: SimConfig) -> Self {
        Self::Simulated { sim: Box::new(Sim::with_config(config.clone())), config: Box::new(config) }
    }
}

impl Bench {
    /// A simulated machine with two devices of 64 MiB, and 64 MiB of memory to pin or manage.
    #[must_use]
    pub fn sim() -> Self {
        Self::sim_with(Self::config())
    }

    /// What [`sim`](Self::sim) is made from, to change one thing in.
    #[must_use]
    pub fn config() -> SimConfig {
        SimConfig::default().devices(2).memory_bytes(SIMULATED_BYTES).pinned_bytes(SIMULATED_BYTES)
    }

    /// A simulated machine of your making. Give it two devices, so that a stream can be another device's.
    #[must_use]
    pub fn sim_with(config: SimConfig) -> Self {
        Self { kind: Kind::simulated(config), largest_bytes: LARGEST_BYTES }
    }

    /// The GPU of this computer, through the driver that `ALLUVION_DRIVER` names, to itself: other threads that ask for it wait until this bench is gone.
    ///
    /// # Panics
    ///
    /// If there is none: a test that asked for a GPU has proved nothing without one.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn gpu() -> Self {
        use crate::sync::Mutex;
        static ONE_AT_A_TIME: std::sync::OnceLock<Mutex<()>> = std::sync::OnceLock::new();
        let guard = ONE_AT_A_TIME.get_or_init(|| Mutex::new(())).lock_around_foreign_code();
        let machine = match Machine::of_environment() {
            Ok(machine) if machine.devices().len() > 0 => machine,
            Ok(machine) => panic!("the driver `{}` is here, but no GPU", machine.driver().name()),
            Err(error) => panic!("a test needs a GPU: {error}"),
        };
        let alone = Rc::new(Alone { _guard: guard });
        Self { kind: Kind::Hardware { machine, _alone: alone }, largest_bytes: LARGEST_BYTES }
    }

    /// Says that the resource serves no block larger than this, as one with a fixed block size does.
    #[must_use]
    pub fn largest_bytes(mut self, bytes: usize) -> Self {
        self.largest_bytes = bytes;
        self
    }

    /// As this bench, with another seed: on a simulated machine a fresh one, on hardware the same.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        let kind = match &self.kind {
            Kind::Simulated { config, .. } => Kind::simulated((**config).clone().seed(seed)),
            Kind::Hardware { machine, _alone } => {
                Kind::Hardware { machine: machine.clone(), _alone: Rc::clone(_alone) }
            }
        };
        Self { kind, largest_bytes: self.largest_bytes }
    }

    /// The seeds that a clause tries: as many schedules on a simulated machine, as many repetitions on hardware.
    pub fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        // Hazards are found under any schedule; a schedule that also corrupts what is read is about one in eight. On hardware
        // time decides, not the seed.
        0..if self.is_simulated() { 16 } else { 4 }
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        match &self.kind {
            Kind::Simulated { sim, .. } => sim.machine(),
            Kind::Hardware { machine, .. } => machine,
        }
    }

    /// The simulated machine, if it is one.
    #[must_use]
    pub fn simulated(&self) -> Option<&Sim> {
        match &self.kind {
            Kind::Simulated { sim, .. } => Some(sim),
            Kind::Hardware { .. } => None,
        }
    }

    /// What the simulated machine was made from, if it is one.
    #[must_use]
    pub fn simulated_config(&self) -> Option<&SimConfig> {
        match &self.kind {
            Kind::Simulated { config, .. } => Some(config),
            Kind::Hardware { .. } => None,
        }
    }

    /// Returns `true` on a simulated machine.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.simulated().is_some()
    }

    /// The device that the resource under test is made on.
    ///
    /// # Panics
    ///
    /// If the machine has no device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.machine().device(0).expect("a bench has a device")
    }

    /// Another device of the machine, if there is one.
    #[must_use]
    pub fn second_device(&self) -> Option<Device> {
        self.machine().device(1).ok()
    }

    /// A new stream of [`device`](Self::device).
    ///
    /// # Panics
    ///
    /// If the driver makes none.
    #[must_use]
    pub fn stream(&self) -> Stream {
        self.device().stream().expect("the driver makes a stream")
    }

    /// A size that the resource serves: `bytes`, or the largest.
    #[must_use]
    pub fn at_most(&self, bytes: usize) -> usize {
        bytes.min(self.largest_bytes)
    }

    /// A size of which the device holds about sixteen.
    #[must_use]
    pub fn exhaustion_bytes(&self) -> usize {
        let total = match &self.kind {
            Kind::Simulated { .. } => SIMULATED_BYTES,
            Kind::Hardware { .. } => {
                self.device().memory_info().map_or(SIMULATED_BYTES, |info| info.total_bytes)
            }
        };
        self.at_most(total / EXHAUSTION_BLOCKS)
    }

    /// What the machine has handed out and not been given back, but for events, which it keeps to use again. Two of these
    /// are equal if nothing was lost in between; on hardware, if as many bytes are free.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        match &self.kind {
            Kind::Simulated { sim, .. } => Footprint(HandedOut::Things(Live { events: 0, ..sim.live() })),
            Kind::Hardware { .. } => {
                Footprint(HandedOut::FreeBytes(self.device().memory_info().map(|info| info.free_bytes).ok()))
            }
        }
    }

    /// Waits for all work, and fails if the simulated machine has seen a mistake.
    ///
    /// # Panics
    ///
    /// If there is a hazard, or if work failed.
    #[track_caller]
    pub fn check(&self) {
        self.device().synchronize().expect("all work succeeds");
        self.check_hazards();
    }

    /// Fails if the simulated machine has seen a mistake.
    ///
    /// # Panics
    ///
    /// If there is a hazard.
    #[track_caller]
    pub fn check_hazards(&self) {
        let Some(sim) = self.simulated() else { return };
        let hazards = sim.hazards();
        if !hazards.is_empty() {
            let lines: String = hazards.iter().map(|hazard| format!("\n  {hazard}")).collect();
            panic!("the simulated machine has seen {} hazards:{lines}", hazards.len());
        }
    }
}

/// What a machine has handed out: see [`Bench::footprint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint(HandedOut);

impl Footprint {
    /// Nothing was lost since `before`. On hardware more may be free than then: the driver keeps pages of managed memory on the
    /// device for some time after it was freed.
    #[must_use]
    pub fn has_lost_nothing_since(&self, before: &Self) -> bool {
        match (self.0, before.0) {
            (HandedOut::FreeBytes(Some(now)), HandedOut::FreeBytes(Some(before))) => now >= before,
            (now, before) => now == before,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandedOut {
    Things(Live),
    FreeBytes(Option<usize>),
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bench({:?})", self.machine())
    }
}
