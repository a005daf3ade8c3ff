//! `Candidate`: a stack that may be right for a trace, and those next to it.

use core::fmt;

/// Amounts are whole pages, as a pool takes them.
const PAGE: u64 = 2 << 20;

/// Parts of the live peak, in percent, that a pool may begin with and an arena may have.
pub(super) const PARTS: [u64; 10] = [0, 50, 75, 90, 100, 103, 106, 112, 125, 150];

/// What a pool may take at a time.
pub(super) const GROWTHS: [Growth; 9] = [
    Growth::Word("spare"),
    Growth::Word("doubling"),
    Growth::Word("exact"),
    Growth::Step("2MiB"),
    Growth::Step("8MiB"),
    Growth::Step("32MiB"),
    Growth::Step("128MiB"),
    Growth::Step("512MiB"),
    Growth::Step("2GiB"),
];

/// Budgets of a pool over pages, in hundredths of the live peak. Above 1.25 there is next to nothing left to move.
pub(super) const BUDGETS: [u32; 9] = [100, 101, 102, 103, 105, 107, 110, 115, 125];

const REUSES: [&str; 3] = ["wait", "completed", "own"];

/// The smallest bins and the largest ones, in powers of two.
const FROM: core::ops::RangeInclusive<u32> = 10..=20;
const TO: core::ops::RangeInclusive<u32> = 12..=23;

/// How many blocks a bin may take at a time.
const BLOCKS: [u32; 5] = [4, 8, 32, 128, 512];

/// What a pool takes at a time, as a recipe says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    Word(&'static str),
    Step(&'static str),
}

/// A stack that may be right for a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) bins: Option<Bins>,
    pub(super) base: Base,
    pub(super) over: Over,
}

/// What a stack stands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The source that was asked for.
    Plain,
    /// A source of pages.
    Pages,
}

/// Bins over the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bins {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) blocks: u32,
}

/// What serves all that no bin does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The source alone.
    Bare,
    Pool {
        initial: u64,
        growth: Growth,
        reuse: &'static str,
        /// One of `BUDGETS`, and only over pages.
        budget: Option<u32>,
    },
    Arena {
        bytes: u64,
    },
}

/// A part of `peak` in whole pages, rounded up.
pub(super) fn part(peak: u64, percent: u64) -> u64 {
    let bytes = u128::from(peak) * u128::from(percent) / 100;
    u64::try_from(bytes).unwrap_or(u64::MAX / 2).div_ceil(PAGE).saturating_mul(PAGE)
}

impl Candidate {
    pub(super) fn pool(initial: u64, growth: Growth) -> Self {
        let base = Base::Pool { initial, growth, reuse: REUSES[0], budget: None };
        Self { bins: None, base, over: Over::Plain }
    }

    pub(super) fn pages(budget: Option<u32>) -> Self {
        let base = Base::Pool { initial: 0, growth: GROWTHS[0], reuse: REUSES[0], budget };
        Self { bins: None, base, over: Over::Pages }
    }

    fn plain(base: Base) -> Self {
        Self { bins: None, base, over: Over::Plain }
    }

    /// What is looked at first: each parameter by itself, from the least to the most.
    pub(super) fn grid(peak: u64, has_pages: bool) -> Vec<Self> {
        let mut grid = vec![Self::plain(Base::Bare)];
        if has_pages {
            grid.push(Self::pages(None));
            grid.extend(BUDGETS.map(|budget| Self::pages(Some(budget))));
        }
        grid.extend(GROWTHS.map(|growth| Self::pool(0, growth)));
        grid.extend(PARTS[1..].iter().map(|&percent| Self::pool(part(peak, percent), GROWTHS[0])));
        let large = PARTS.into_iter().filter(|percent| *percent >= 100);
        grid.extend(large.map(|percent| Self::plain(Base::Arena { bytes: part(peak, percent) })));
        for (from, to) in [(10, 14), (12, 16), (14, 18), (18, 22)] {
            let bins = Some(Bins { from, to, blocks: 8 });
            grid.push(Self { bins, ..Self::pool(0, GROWTHS[0]) });
        }
        grid
    }

    /// One that differs in one thing. `draw` draws a number below the one that it is given.
    pub(super) fn neighbour(self, peak: u64, has_pages: bool, mut draw: impl FnMut(usize) -> usize) -> Self {
        let mut next = self;
        let kinds = if has_pages { 8 } else { 6 };
        match (draw(kinds), &mut next.base) {
            (6, _) => next.over = if next.over == Over::Pages { Over::Plain } else { Over::Pages },
            (7, Base::Pool { budget, .. }) if next.over == Over::Pages => {
                *budget = BUDGETS.get(draw(BUDGETS.len() + 1)).copied();
            }
            (0, base) => {
                *base = match draw(3) {
                    0 => Base::Bare,
                    1 => Base::Arena { bytes: part(peak, 100 + draw(60) as u64) },
                    _ => Base::Pool {
                        initial: 0,
                        growth: GROWTHS[draw(GROWTHS.len())],
                        reuse: REUSES[0],
                        budget: None,
                    },
                };
            }
            (1, _) => next.bins = next.bins.is_none().then(|| Bins::any(&mut draw)),
            (2, _) if next.bins.is_some() => next.bins = next.bins.map(|bins| bins.neighbour(&mut draw)),
            (3, Base::Pool { growth, .. }) => *growth = GROWTHS[draw(GROWTHS.len())],
            (4, Base::Pool { reuse, .. }) => *reuse = REUSES[draw(REUSES.len())],
            (_, Base::Pool { initial, .. }) => *initial = part(peak, draw(160) as u64),
            (_, Base::Arena { bytes }) => *bytes = part(peak, 100 + draw(60) as u64),
            (_, base @ Base::Bare) => {
                *base = Base::Pool {
                    initial: part(peak, PARTS[draw(PARTS.len())]),
                    growth: GROWTHS[draw(GROWTHS.len())],
                    reuse: REUSES[0],
                    budget: None,
                };
            }
        }
        if let (Over::Plain, Base::Pool { budget, .. }) = (next.over, &mut next.base) {
            *budget = None;
        }
        next
    }
}

impl Bins {
    fn any(draw: &mut impl FnMut(usize) -> usize) -> Self {
        let start = Self { from: 14, to: 18, blocks: 8 };
        start.neighbour(draw)
    }

    fn neighbour(self, draw: &mut impl FnMut(usize) -> usize) -> Self {
        let step = |at: u32, range: core::ops::RangeInclusive<u32>, up: bool| {
            let at = if up { at.saturating_add(1) } else { at.saturating_sub(1) };
            at.clamp(*range.start(), *range.end())
        };
        let mut bins = self;
        match draw(3) {
            0 => bins.from = step(self.from, FROM, draw(2) == 0).min(self.to),
            1 => bins.to = step(self.to, TO, draw(2) == 0).max(self.from),
            _ => bins.blocks = BLOCKS[draw(BLOCKS.len())],
        }
        bins
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(text) | Self::Step(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Candidate {
    /// As a recipe without a source, and without what is the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Bins { from, to, blocks }) = self.bins {
            write!(f, "binning({}, {}, {blocks})", 1_u64 << from, 1_u64 << to)?;
        }
        let before = if self.bins.is_some() { " | " } else { "" };
        match self.base {
            Base::Bare => Ok(()),
            Base::Arena { bytes } => write!(f, "{before}arena({bytes})"),
            Base::Pool { initial, growth, reuse, budget } => {
                let mut arguments = Vec::new();
                if initial > 0 {
                    arguments.push(format!("initial={initial}"));
                }
                if growth != GROWTHS[0] {
                    arguments.push(format!("growth={growth}"));
                }
                if reuse != REUSES[0] {
                    arguments.push(format!("reuse={reuse}"));
                }
                if let Some(budget) = budget {
                    arguments.push(format!("budget={}.{:02}", budget / 100, budget % 100));
                }
                let (open, close) = if arguments.is_empty() { ("", "") } else { ("(", ")") };
                write!(f, "{before}pool{open}{}{close}", arguments.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alluvion::recipe::Recipe;

    use super::*;

    #[test]
    fn every_candidate_is_a_recipe() {
        let mut state = 1_u64;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        let peak = 376 << 20;
        let mut candidates = Candidate::grid(peak, true);
        for _ in 0..2000 {
            let from = candidates[draw(candidates.len())];
            candidates.push(from.neighbour(peak, true, &mut draw));
        }
        for candidate in candidates {
            let recipe: Recipe = candidate.to_string().parse().unwrap_or_else(|error| panic!("{error}"));
            assert!(recipe.source().is_none());
            if let Base::Pool { budget: Some(_), .. } = candidate.base {
                assert_eq!(candidate.over, Over::Pages, "{candidate}");
            }
            if let Some(bins) = candidate.bins {
                assert!(bins.from <= bins.to, "{candidate}");
            }
        }
    }

    #[test]
    fn what_is_the_default_is_not_said() {
        assert_eq!(Candidate::pool(0, GROWTHS[0]).to_string(), "pool");
        assert_eq!(
            Candidate::pool(4096, Growth::Step("8MiB")).to_string(),
            "pool(initial=4096, growth=8MiB)"
        );
        assert_eq!(Candidate::pages(Some(105)).to_string(), "pool(budget=1.05)");
        assert_eq!(part(100 << 20, 103), 104 << 20);
    }
}
