//! `PinnedConfig` and `NumaPolicy`: the knobs of `Pinned`.

/// How a [`Pinned`](super::Pinned) makes its blocks.
///
/// ```
/// use alluvion::source::{NumaPolicy, PinnedConfig};
///
/// let config = PinnedConfig::default().numa(NumaPolicy::Node(1)).threads(16);
/// assert_eq!(config, PinnedConfig::default().threads(16).numa(NumaPolicy::Node(1)));
/// ```
///
/// There is no knob to leave the memory unmapped on the device, because a `Pinned` is accessible to it by its type, and
/// none for write-combined memory: stores to it may be seen by another thread after the lock that guards them was
/// released, which no `Vec` survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a configuration does nothing until a source is made with it"]
pub struct PinnedConfig {
    pub(super) portable: bool,
    pub(super) numa: NumaPolicy,
    pub(super) huge_bytes: usize,
    pub(super) threads: usize,
}

/// The host's NUMA node that large blocks are put on.
///
/// It is a preference: where a node is full, absent or forbidden to the process, the memory comes from another one. Small
/// blocks come from the driver, which puts them where it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NumaPolicy {
    /// The node nearest to the device, as far as the driver knows it: a copy from another node crosses the sockets.
    #[default]
    NearDevice,
    /// One node, by its number.
    Node(u32),
    /// As the process does elsewhere: usually the node of the thread that touches a page first.
    Anywhere,
}

/// A second thread pays from here on. Eight threads fill and pin 30 MiB a millisecond (4 GiB in 143 ms on an H200 host),
/// so that one needs about 1 ms for 4 MiB, against some tens of microseconds to start it.
pub(super) const BYTES_PER_THREAD: usize = 4 << 20;

/// One huge page. From here up the mapped path is ahead of the driver: on an H200 host it takes 0.22 ms against 0.44 at
/// 2 MiB, 4.7 against 6.1 at 32 MiB and 156 against 1,138 at 4 GiB, and its free a third of the time (`tests/gpu/pinned.rs` prints
/// the table).
const HUGE_BYTES: usize = 2 << 20;

impl Default for PinnedConfig {
    /// Portable, near the device, mapped from 2 MiB up, with eight threads at most.
    fn default() -> Self {
        Self { portable: true, numa: NumaPolicy::NearDevice, huge_bytes: HUGE_BYTES, threads: 8 }
    }
}

impl PinnedConfig {
    /// Pinned for every device of the machine, not only its own. On by default.
    pub const fn portable(mut self, portable: bool) -> Self {
        self.portable = portable;
        self
    }

    /// Where large blocks are put.
    pub const fn numa(mut self, numa: NumaPolicy) -> Self {
        self.numa = numa;
        self
    }

    /// The size from which a block is mapped in huge pages, touched by several threads and registered, instead of being
    /// asked of the driver. `usize::MAX` asks the driver for all of them.
    ///
    /// The default is one huge page, 2 MiB.
    pub const fn huge_bytes(mut self, bytes: usize) -> Self {
        self.huge_bytes = bytes;
        self
    }

    /// The most threads that touch one block; never more than the process may run at once. The default is 8.
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }
}
