//! `Search`: tries stacks, one after the other.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use alluvion::recipe::Recipe;
use alluvion::sim::CostModel;

use super::candidate::{Candidate, Over};
use super::front::{Front, Point};
use crate::failure::Failure;
use crate::replay::{Log, Outcome, Plan, Standing, Threads};
use crate::rig::{Driver, Rig, Simulated};

/// Why no more was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// As many as were asked for.
    Candidates,
    /// The time was over.
    Time,
    /// There was nothing new near what is good.
    Exhausted,
}

/// What stacks stand over.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    pub(super) plain: Recipe,
    /// A source of pages, over which pools have budgets. None if no such stack is wanted.
    pub(super) pages: Option<Recipe>,
}

impl Sources {
    /// Nothing but that source.
    pub(super) fn named(source: Recipe) -> Self {
        let has_pages = source.ingredients().any(|ingredient| ingredient.name() == "mapped");
        Self { pages: has_pages.then(|| source.clone()), plain: source }
    }

    fn of(&self, candidate: Candidate) -> &Recipe {
        match candidate.over {
            Over::Plain => &self.plain,
            Over::Pages => self.pages.as_ref().unwrap_or(&self.plain),
        }
    }
}

/// Tries stacks, one after the other, each on a simulated GPU of its own: the same in the same order for the same seed.
pub(super) struct Search<'l> {
    log: &'l Log,
    sources: Sources,
    memory_bytes: usize,
    peak: u64,
    seen: HashSet<String>,
    state: u64,
    pub(super) front: Front<Candidate>,
    pub(super) tried: usize,
    /// Of those tried, in which an allocation failed, or that could not be made.
    pub(super) failed: usize,
}

impl<'l> Search<'l> {
    pub(super) fn new(log: &'l Log, sources: Sources, memory_bytes: usize, seed: u64) -> Self {
        Self {
            log,
            sources,
            memory_bytes,
            peak: log.peak_live_bytes(|_| false),
            seen: HashSet::new(),
            state: seed,
            front: Front::new(),
            tried: 0,
            failed: 0,
        }
    }

    /// Tries the grid, and then what is next to the front.
    pub(super) fn run(
        &mut self,
        candidates: usize,
        time: Option<Duration>,
        mut about_to_try: impl FnMut(&Recipe),
    ) -> Result<End, Failure> {
        // What is wrong with the source itself is told, and not searched around.
        for source in core::iter::once(&self.sources.plain).chain(&self.sources.pages) {
            let rig = self.rig()?;
            for device in self.log.devices(&rig)? {
                drop(Standing::new(source, &rig, &device)?);
            }
        }
        let has_pages = self.sources.pages.is_some();
        let begun = Instant::now();
        let is_late = || time.is_some_and(|time| begun.elapsed() >= time);
        for candidate in Candidate::grid(self.peak, has_pages) {
            if self.tried >= candidates {
                return Ok(End::Candidates);
            }
            if is_late() {
                return Ok(End::Time);
            }
            self.attempt(candidate, &mut about_to_try)?;
        }
        // So many that have been tried already come in a row only where there is next to nothing else.
        let mut known_in_a_row = 0;
        while known_in_a_row < 1000 {
            if self.tried >= candidates {
                return Ok(End::Candidates);
            }
            if is_late() {
                return Ok(End::Time);
            }
            let Some(next) = self.next() else { break };
            known_in_a_row = if self.attempt(next, &mut about_to_try)? { 0 } else { known_in_a_row + 1 };
        }
        Ok(End::Exhausted)
    }

    fn rig(&self) -> Result<Rig, Failure> {
        let (devices, memory_bytes) = (self.log.machine_devices(), self.memory_bytes);
        let simulated = Simulated { devices, memory_bytes, cost: CostModel::h200() };
        Rig::open_with(Driver::Sim, simulated)
    }

    /// One that is one or two steps from the front.
    fn next(&mut self) -> Option<Candidate> {
        let at = match self.front.points().len() {
            0 => return None,
            points => self.draw(points),
        };
        let (mut candidate, peak) = (self.front.points()[at].candidate, self.peak);
        let has_pages = self.sources.pages.is_some();
        for _ in 0..=self.draw(2) {
            candidate = candidate.neighbour(peak, has_pages, |below| self.draw(below));
        }
        Some(candidate)
    }

    /// Returns `false` if it has been tried before.
    fn attempt(
        &mut self,
        candidate: Candidate,
        about_to_try: &mut impl FnMut(&Recipe),
    ) -> Result<bool, Failure> {
        let layers = candidate.to_string();
        let separator = if layers.is_empty() { "" } else { " | " };
        let line = format!("{layers}{separator}{}", self.sources.of(candidate));
        // A part of a peak that is near the end of all addresses is a size that no recipe can say.
        let Ok(recipe) = line.parse::<Recipe>() else {
            let is_new = self.seen.insert(line);
            self.tried += usize::from(is_new);
            self.failed += usize::from(is_new);
            return Ok(is_new);
        };
        if !self.seen.insert(recipe.to_string()) {
            return Ok(false);
        }
        about_to_try(&recipe);
        self.tried += 1;
        let rig = self.rig()?;
        let plan = Plan { threads: Threads::LogOrder, rounds: 1 };
        match Outcome::of(&recipe, self.log, &rig, plan, || ()) {
            Ok(outcome) if outcome.total.failures == 0 => {
                self.front.offer(Point { candidate, recipe, outcome });
            }
            // A stack that the simulated GPU is too small for, or that serves not all of it, is none to propose.
            Ok(_) | Err(Failure::Failed(_) | Failure::Usage(_)) => self.failed += 1,
            Err(failure) => return Err(failure),
        }
        Ok(true)
    }

    /// A number below `below`: splitmix64, whose low bits are as good as its high ones. The bias of the remainder is below one in
    /// 2 to the 50th here.
    fn draw(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed % below.max(1) as u64) as usize
    }
}

impl End {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Candidates => "candidates",
            Self::Time => "time",
            Self::Exhausted => "exhausted",
        }
    }
}
