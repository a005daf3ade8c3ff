//! `Exploration`: the schedules of a program, one after the other.

use std::sync::Arc;

use super::SimConfig;
use super::driver::SimDriver;
use super::explore::{Choice, Schedule, Scripted, next_script};
use super::schedule::Scheduler;

/// The schedules of a program, one after the other: what [`explore`](super::explore) goes through, for a program that is no closure, such as
/// one in another language.
///
/// ```
/// use alluvion::driver::{Driver, FillValue, StreamFlags};
/// use alluvion::sim::{Exploration, SimConfig};
///
/// let mut exploration = Exploration::new(SimConfig::default());
/// while let Some(driver) = exploration.begin() {
///     let address = driver.allocate_managed(0, 1).unwrap();
///     for value in [1, 2] {
///         let stream = driver.stream_create(0, StreamFlags::default()).unwrap();
///         // SAFETY: the range stays live to the end of the program; that the fills race is the point.
///         unsafe { driver.fill_async(0, address, FillValue::U8(value), 1, stream) }.unwrap();
///     }
///     driver.context_synchronize(0).unwrap();
///     let ran = exploration.end().expect("it has begun");
///     assert!(ran.is_deterministic && ["0", "1"].contains(&ran.schedule.to_string().as_str()));
/// }
/// assert_eq!((exploration.schedules(), exploration.is_complete()), (2, true));
/// ```
#[derive(Debug)]
pub struct Exploration {
    config: SimConfig,
    /// The choices of the next schedule; `None` after the last.
    next: Option<Vec<Choice>>,
    /// The machine of the schedule that has begun and not ended.
    now: Option<Arc<SimDriver>>,
    /// One schedule alone is wanted.
    is_replay: bool,
    schedules: u64,
}

/// What a program did under one schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ran {
    /// The choices that were made.
    pub schedule: Schedule,
    /// Whether the program had the choices that it had before. Where it had not, not every schedule can be found.
    pub is_deterministic: bool,
}

static_assertions::assert_impl_all!(Exploration: Send, Sync);

impl Exploration {
    /// All schedules, each on a new machine.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        Self { config, next: Some(Vec::new()), now: None, is_replay: false, schedules: 0 }
    }

    /// One schedule alone.
    #[must_use]
    pub fn of_schedule(config: SimConfig, schedule: &Schedule) -> Self {
        let script = schedule.0.iter().map(|&taken| Choice { taken, options: None }).collect();
        Self { config, next: Some(script), now: None, is_replay: true, schedules: 0 }
    }

    /// The machine of the next schedule; `None` after the last. A schedule that has begun and not [ended](Self::end) ends.
    pub fn begin(&mut self) -> Option<Arc<SimDriver>> {
        let _ = self.end();
        let script = self.next.take()?;
        let scheduler = Scheduler::Scripted(Scripted::new(script));
        let driver = SimDriver::with_scheduler(self.config.clone(), scheduler);
        self.now = Some(Arc::clone(&driver));
        self.schedules += 1;
        Some(driver)
    }

    /// Ends the schedule that has begun: the program has run. `None` if there is none.
    pub fn end(&mut self) -> Option<Ran> {
        let driver = self.now.take()?;
        let machine = driver.shared.machine.lock();
        let Scheduler::Scripted(scripted) = &machine.scheduler else { return None };
        let (made, is_deterministic) = (scripted.made.clone(), !scripted.has_diverged());
        drop(machine);
        let schedule = Schedule(made.iter().map(|choice| choice.taken).collect());
        if !self.is_replay {
            self.next = next_script(made);
        }
        Some(Ran { schedule, is_deterministic })
    }

    /// How many have begun.
    #[must_use]
    pub fn schedules(&self) -> u64 {
        self.schedules
    }

    /// Returns `true` if there are no others.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.now.is_none() && self.next.is_none()
    }
}
