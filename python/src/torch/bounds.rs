//! How much of a device may be out: `torch.cuda.set_per_process_memory_fraction`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// More devices than a host has. Beyond, nothing is bounded.
const DEVICES: usize = 64;

struct Bound {
    /// Whether blocks were asked for.
    used: AtomicBool,
    live: AtomicU64,
    limit: AtomicU64,
}

static BOUNDS: [Bound; DEVICES] = [const {
    Bound { used: AtomicBool::new(false), live: AtomicU64::new(0), limit: AtomicU64::new(u64::MAX) }
}; DEVICES];

/// Takes `bytes` bytes of a device, if that many may still go out. Otherwise returns how many may be out.
pub(super) fn take(device: u32, bytes: usize) -> Result<(), u64> {
    let Some(bound) = BOUNDS.get(device as usize) else { return Ok(()) };
    // Relaxed, here and below: the numbers order nothing.
    if !bound.used.load(Ordering::Relaxed) {
        bound.used.store(true, Ordering::Relaxed);
    }
    let limit = bound.limit.load(Ordering::Relaxed);
    let live = bound.live.fetch_add(bytes as u64, Ordering::Relaxed).saturating_add(bytes as u64);
    if live > limit {
        give_back(device, bytes);
        return Err(limit);
    }
    Ok(())
}

/// Ends one `take`.
pub(super) fn give_back(device: u32, bytes: usize) {
    if let Some(bound) = BOUNDS.get(device as usize) {
        bound.live.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// Sets how many bytes of a device may be out.
pub(super) fn set_limit(device: u32, bytes: u64) {
    if let Some(bound) = BOUNDS.get(device as usize) {
        bound.limit.store(bytes, Ordering::Relaxed);
    }
}

/// The devices that blocks were asked for, by their numbers.
pub(super) fn devices() -> impl Iterator<Item = u32> {
    let used = |device: &u32| BOUNDS[*device as usize].used.load(Ordering::Relaxed);
    (0..DEVICES as u32).filter(used)
}
