//! `explore`: runs a small program under every schedule.

use core::fmt;
use core::str::FromStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::SimConfig;
use super::clock::LaneClock;
use super::driver::SimDriver;
use super::exploration::{Exploration, Ran};
use super::kernel::panic_words;

/// The most schedules that [`explore`] runs. Ten streams with one operation each have 3,628,800; a program that needs more should
/// be made smaller, or run by [`explore_up_to`] with a limit of its own.
const DEFAULT_LIMIT: u64 = 100_000;

/// The choices that a scheduler made, enough to make them again.
///
/// ```
/// use alluvion::sim::Schedule;
///
/// let schedule: Schedule = "1.0.2".parse()?;
/// assert_eq!(schedule.to_string(), "1.0.2");
/// # Ok::<(), core::num::ParseIntError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Schedule(pub(super) Vec<u32>);

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("-");
        }
        let mut separator = "";
        for choice in &self.0 {
            write!(f, "{separator}{choice}")?;
            separator = ".";
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = core::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "-" {
            Ok(Self::default())
        } else {
            text.split('.').map(str::parse).collect::<Result<_, _>>().map(Self)
        }
    }
}

/// The result of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an exploration that hit its limit has not seen every schedule"]
pub struct Explored {
    /// Schedules that were run.
    pub schedules: u64,
    /// Whether these were all.
    pub complete: bool,
}

/// Runs a program under every schedule, each time on a new machine.
///
/// If more than one queue could go on, each is tried first; each query on unfinished work is answered both ways (a second query on
/// the same work, with nothing submitted in between, is not put off again). Kernels, copies, fills, stream-ordered allocations and
/// frees, and host functions are one step each; event records and waits are none, since they only order steps.
///
/// The program must do the same on the same schedule: one thread, no clock, no chance. Host functions run only when
/// something waits for them, and should return without waiting for the program.
///
/// ```
/// use alluvion::sim::{SimConfig, explore};
/// use alluvion::driver::{Driver, FillValue, StreamFlags};
///
/// let mut outcomes = std::collections::HashSet::new();
/// let explored = explore(SimConfig::default(), |driver| {
///     let address = driver.allocate_managed(0, 1).unwrap();
///     for value in [1, 2] {
///         let stream = driver.stream_create(0, StreamFlags::default()).unwrap();
///         // SAFETY: the range stays live to the end of the program; that the fills race is the point.
///         unsafe { driver.fill_async(0, address, FillValue::U8(value), 1, stream) }.unwrap();
///     }
///     driver.context_synchronize(0).unwrap();
///     // SAFETY: managed memory is the host's, and nothing is left that writes it.
///     outcomes.insert(unsafe { core::ptr::with_exposed_provenance::<u8>(address as usize).read() });
/// });
/// assert_eq!((explored.schedules, explored.complete), (2, true));
/// assert_eq!(outcomes.len(), 2);
/// ```
///
/// # Panics
///
/// If the program panics: with its words and the schedule, for [`replay`]. If the program is not deterministic.
#[track_caller]
pub fn explore(config: SimConfig, program: impl FnMut(&Arc<SimDriver>)) -> Explored {
    explore_up_to(DEFAULT_LIMIT, config, program)
}

/// As [`explore`], for at most `limit` schedules.
///
/// # Panics
///
/// As [`explore`].
#[track_caller]
pub fn explore_up_to(limit: u64, config: SimConfig, mut program: impl FnMut(&Arc<SimDriver>)) -> Explored {
    let mut exploration = Exploration::new(config);
    while exploration.schedules() < limit && run(&mut exploration, &mut program) {}
    Explored { schedules: exploration.schedules(), complete: exploration.is_complete() }
}

/// Runs a program under one schedule, as named by a panic of [`explore`].
///
/// # Panics
///
/// As [`explore`].
#[track_caller]
pub fn replay(config: SimConfig, schedule: &Schedule, mut program: impl FnMut(&Arc<SimDriver>)) {
    run(&mut Exploration::of_schedule(config, schedule), &mut program);
}

/// Runs the program under the next schedule; `false` if there is none.
#[track_caller]
fn run(exploration: &mut Exploration, program: &mut impl FnMut(&Arc<SimDriver>)) -> bool {
    let Some(driver) = exploration.begin() else { return false };
    let outcome = catch_unwind(AssertUnwindSafe(|| program(&driver)));
    let Some(Ran { schedule, is_deterministic }) = exploration.end() else { return false };
    if let Err(payload) = outcome {
        panic!("under schedule {schedule}: {}", panic_words(&*payload));
    }
    assert!(
        is_deterministic,
        "the program is not deterministic: under schedule {schedule} it had other choices than before"
    );
    true
}

/// One choice among a number of options. A schedule that was parsed from text does not know that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) taken: u32,
    pub(super) options: Option<u32>,
}

/// A scheduler that makes the scripted choices, and then always takes the first option.
#[derive(Debug)]
pub(super) struct Scripted {
    script: Vec<Choice>,
    pub(super) made: Vec<Choice>,
    /// Set when a choice of the program does not match the script.
    diverged: bool,
    /// The queries that were put off, and the number of submissions at that time.
    put_off: (u64, Vec<LaneClock>),
}

impl Scripted {
    pub(super) fn new(script: Vec<Choice>) -> Self {
        Self { script, made: Vec::new(), diverged: false, put_off: (0, Vec::new()) }
    }

    /// Returns `true` if the choices of a program that has run do not match the script, or are fewer. What a schedule of text has too many
    /// is nothing that the program had before.
    pub(super) fn has_diverged(&self) -> bool {
        self.diverged || self.script.iter().skip(self.made.len()).any(|choice| choice.options.is_some())
    }

    /// Chooses one of `options`. One option is no choice.
    pub(super) fn choose(&mut self, options: usize) -> usize {
        if options < 2 {
            return 0;
        }
        let options = u32::try_from(options).unwrap_or(u32::MAX);
        let told = self.script.get(self.made.len());
        let taken = told.map_or(0, |choice| choice.taken);
        let differs = told.is_some_and(|choice| choice.options.is_some_and(|before| before != options));
        self.diverged |= differs || taken >= options;
        let taken = taken.min(options - 1);
        self.made.push(Choice { taken, options: Some(options) });
        taken as usize
    }

    /// Chooses whether a query waits for its work to be done.
    pub(super) fn query_advances(&mut self, submissions: u64, goal: &LaneClock) -> bool {
        if self.put_off.0 != submissions {
            self.put_off = (submissions, Vec::new());
        }
        if self.put_off.1.contains(goal) || self.choose(2) == 1 {
            return true;
        }
        self.put_off.1.push(goal.clone());
        false
    }
}

/// The script after this one, in depth-first order.
pub(super) fn next_script(mut made: Vec<Choice>) -> Option<Vec<Choice>> {
    while let Some(last) = made.last_mut() {
        if last.options.is_some_and(|options| last.taken + 1 < options) {
            last.taken += 1;
            return Some(made);
        }
        made.pop();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(depth: usize, width: usize) -> Vec<Vec<u32>> {
        let mut all = Vec::new();
        let mut script = Vec::new();
        loop {
            let mut scripted = Scripted::new(script);
            for _ in 0..depth {
                scripted.choose(width);
            }
            assert!(!scripted.has_diverged());
            all.push(scripted.made.iter().map(|choice| choice.taken).collect());
            match next_script(scripted.made) {
                Some(next) => script = next,
                None => return all,
            }
        }
    }

    #[test]
    fn every_leaf_of_the_tree_is_visited_once() {
        let mut all = leaves(3, 3);
        assert_eq!(all.len(), 27);
        all.dedup();
        assert_eq!(all.len(), 27);
        assert_eq!(leaves(4, 1).len(), 1, "one option is no choice");
    }

    #[test]
    fn a_program_that_changes_its_mind_is_noticed() {
        let mut scripted = Scripted::new(vec![Choice { taken: 1, options: Some(3) }]);
        scripted.choose(2);
        assert!(scripted.has_diverged());
        let known = Choice { taken: 1, options: Some(2) };
        let mut scripted = Scripted::new(vec![known, known]);
        scripted.choose(2);
        assert!(scripted.has_diverged(), "it had two choices before");
        scripted.choose(2);
        assert!(!scripted.has_diverged());
        let of_text = Scripted::new(vec![Choice { taken: 1, options: None }]);
        assert!(!of_text.has_diverged());
    }

    #[test]
    fn a_query_is_put_off_once() {
        let mut scripted = Scripted::new(Vec::new());
        let goal = LaneClock::default();
        assert!(!scripted.query_advances(5, &goal));
        assert!(scripted.query_advances(5, &goal));
        assert!(!scripted.query_advances(6, &goal));
        assert_eq!(scripted.made.len(), 2);
    }
}
