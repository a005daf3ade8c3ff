//! `Strategy`: the ways to find memory when it runs out, in order.

use crate::suballoc::Reuse;

/// One way to find memory, when the stream's cache and the core have no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Blocks of other streams that the requester already comes after. No driver call.
    WithinReach,
    /// Blocks whose work is completed, as the driver says when asked.
    Completed,
    /// The requester's own cache, merged.
    OwnCache,
    /// The requester's own cache, and the others that `Emptying` selects; then `WithinReach` and `Completed` again.
    IdleCaches,
    /// The same with all caches.
    Caches,
    /// A new segment, as large as the growth policy says.
    Grow,
    /// Blocks whose work is not completed: the requester's stream waits for it, on the device.
    DeviceWait,
    /// The same, and the host waits.
    HostWait,
    /// Empty segments go back to the upstream, and one that fits is taken. Over pages, free pages move, as in `Grow`, and
    /// at last a block is taken from the other range.
    Trim,
    /// A block of any stream is taken, and then the host waits for that stream.
    TakeThenWait,
}

/// The strategies in the order in which they are tried. Then the user's handlers are asked; if they freed memory, the
/// first strategy is next.
///
/// Growing comes before waiting, because it keeps streams independent: a wait stays in the queue of the stream, and may
/// wait for unrelated work. Queries come before growing where the policy says so: a query takes 0.1 µs, a segment 50.
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
