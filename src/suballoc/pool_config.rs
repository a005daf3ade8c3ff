//! `PoolConfig`: the knobs of `Pool`.

use std::sync::Arc;

use super::{Growth, OutOfMemory, Relief, Reuse};

pub(super) type Handler = Arc<dyn Fn(&OutOfMemory) -> Relief + Send + Sync>;

#[derive(Clone)]
#[must_use = "a configuration does nothing until a pool is made with it"]
pub struct PoolConfig {
    pub(super) initial_bytes: usize,
    pub(super) maximum_bytes: usize,
    pub(super) growth: Growth,
    pub(super) reuse: Reuse,
    pub(super) checked: bool,
    pub(super) handlers: Vec<Handler>,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            initial_bytes: 0,
            maximum_bytes: usize::MAX,
            growth: Growth::Eighth,
            reuse: Reuse::Wait,
            checked: cfg!(debug_assertions),
            handlers: Vec::new(),
        }
    }
}

impl PoolConfig {
    /// Takes this much from the upstream at once, when the pool is made.
    pub fn initial(mut self, bytes: usize) -> Self {
        self.initial_bytes = bytes;
        self
    }

    /// Never has more than this from the upstream.
    pub fn maximum(mut self, bytes: usize) -> Self {
        self.maximum_bytes = bytes;
        self
    }

    pub fn growth(mut self, growth: Growth) -> Self {
        self.growth = growth;
        self
    }

    pub fn reuse(mut self, reuse: Reuse) -> Self {
        self.reuse = reuse;
        self
    }

    /// Keeps a ledger of live blocks, so that a wrong free is refused rather than believed. On in debug builds.
    pub fn checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }

    /// Asks `handler` for help when the pool has tried everything else. Several are asked in turn.
    pub fn on_out_of_memory(
        mut self,
        handler: impl Fn(&OutOfMemory) -> Relief + Send + Sync + 'static,
    ) -> Self {
        self.handlers.push(Arc::new(handler));
        self
    }
}

impl std::fmt::Debug for PoolConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolConfig").finish_non_exhaustive()
    }
}
