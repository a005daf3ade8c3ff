//! `Strategy`: what is tried, in order, when memory runs out.

use crate::suballoc::Reuse;

/// One way to find memory, when a stream's cache and the core have none that is simply there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// What other streams have freed and the requester already comes after. No driver call.
    WithinReach,
    /// What the driver says is over, once it is asked.
    Completed,
    /// What lies in the requester's own cache, merged.
    OwnCache,
    /// What lies in the caches, the requester's own included, as far as it is not wanted there again; then what is within reach and
    /// what is over, again.
    IdleCaches,
    /// The same with all that lies in the caches.
    Caches,
    /// A segment, as large as the policy says.
    Grow,
    /// What is not over: the requester's stream waits for it, on the device.
    DeviceWait,
    /// The same, and the host waits.
    HostWait,
    /// Segments that nothing is left in go back, and one that fits is taken.
    Trim,
    /// A block is taken, whoever has freed it, and then the host waits for that stream.
    TakeThenWait,
}

/// The order in which they are tried. Then the user's handlers are asked; if they freed something it begins anew.
///
/// Growing comes before waiting, because it keeps streams apart: a wait that a stream is given stays in its queue, behind
/// work that it has nothing to do with. Asking what is over comes before growing where the policy says so: a query is
/// 0.1 µs, a segment 50.
pub(super) const fn in_order(reuse: Reuse) -> &'static [Strategy] {
    use Strategy::{
        Caches, Completed, DeviceWait, Grow, HostWait, IdleCaches, OwnCache, TakeThenWait, Trim, WithinReach,
    };
    match reuse {
        Reuse::Own => &[WithinReach, OwnCache, Grow, Completed, Caches, HostWait, Trim, TakeThenWait],
        Reuse::Completed => &[WithinReach, Completed, IdleCaches, Grow, Caches, HostWait, Trim, TakeThenWait],
        Reuse::Wait => {
            &[WithinReach, Completed, IdleCaches, Grow, Caches, DeviceWait, HostWait, Trim, TakeThenWait]
        }
        #[cfg(loom)]
        Reuse::LastStrategy => &[TakeThenWait],
    }
}
