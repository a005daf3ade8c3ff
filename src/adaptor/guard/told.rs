//! `Told`: who is told of what a guard finds.

use std::io::Write as _;

use super::Trespass;
use super::config::TrespassHandler;
use crate::contain::contain;
use crate::sync::Mutex;

/// The handlers of a guard, in the order in which they were added. Without one, a finding is a line on the standard error stream.
pub(super) struct Told {
    handlers: Mutex<Vec<TrespassHandler>>,
}

impl Told {
    pub(super) fn new(first: Option<TrespassHandler>) -> Self {
        Self { handlers: Mutex::new(first.into_iter().collect()) }
    }

    pub(super) fn push(&self, handler: TrespassHandler) {
        if let Some(mut handlers) = self.handlers.lock_unless_forked() {
            handlers.push(handler);
        }
    }

    pub(super) fn tell(&self, found: &[Trespass]) {
        if found.is_empty() {
            return;
        }
        // Handles of all, so that they are called without the lock.
        let handlers =
            self.handlers.lock_unless_forked().map(|handlers| handlers.clone()).unwrap_or_default();
        for trespass in found {
            if handlers.is_empty() {
                // A failure to write is no failure of the free.
                let _ = writeln!(std::io::stderr(), "alluvion: a guard has found: {trespass}");
            }
            for handler in &handlers {
                // Nothing of ours is in the middle of anything: the trespass is only lent.
                contain(|| handler(trespass));
            }
        }
    }
}
