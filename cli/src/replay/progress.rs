//! `Progress`: how far a run is, for who watches a terminal.

use std::io::{self, IsTerminal};

use alluvion::recipe::Recipe;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::recipe_name;

/// How far a run is. Nothing, unless the standard error stream is a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn new(steps: u64) -> Self {
        if !io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// What is played now.
    pub(crate) fn on(&self, trace: &str, recipe: &Recipe) {
        // A recipe may be as long as a screen.
        let recipe: String = recipe_name(recipe).chars().take(48).collect();
        self.bar.set_message(format!("{trace}: {recipe}"));
    }

    /// One step is done. Called between rounds, where no clock runs.
    pub(crate) fn round(&self) {
        self.bar.inc(1);
    }

    /// Prints something else, with the bar out of its way.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    pub(crate) fn done(&self) {
        self.bar.finish_and_clear();
    }
}
