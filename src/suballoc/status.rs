//! `Status`: what a suballocator holds, and what it has done.

#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// In blocks that are out.
    pub live_bytes: usize,
    pub live_blocks: usize,
    /// Free, in the shared core: usable or pending.
    pub free_bytes: usize,
    /// Free, in the caches of streams.
    pub cached_bytes: usize,
    /// Of the free and cached bytes, those behind work that is not known to be over.
    pub pending_bytes: usize,
    /// Taken from the upstream and not given back.
    pub reserved_bytes: usize,
    pub peak_reserved_bytes: usize,
    /// The largest free piece in the core, whoever may use it.
    pub largest_free_bytes: usize,
    /// Allocations served by a stream's cache: no shared lock, no driver call.
    pub hits: u64,
    /// Allocations that went to the core.
    pub misses: u64,
    /// Blocks taken of what another stream has freed.
    pub steals: u64,
    /// Waits of a stream for another, on the device.
    pub waits: u64,
    pub events_recorded: u64,
    /// Allocations and frees that reached the upstream.
    pub upstream_calls: u64,
}

impl Status {
    /// How much of the free memory is not in the largest piece: 0 if all of it is, near 1 if it is dust.
    #[must_use]
    pub fn fragmentation(&self) -> f64 {
        if self.free_bytes == 0 { 0.0 } else { 1.0 - self.largest_free_bytes as f64 / self.free_bytes as f64 }
    }
}
