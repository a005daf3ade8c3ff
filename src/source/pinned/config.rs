//! `PinnedConfig` and `NumaPolicy`: the configuration of `Pinned`.

/// The configuration of a [`Pinned`](super::Pinned).
///
/// ```
/// use alluvion::source::{NumaPolicy, PinnedConfig};
///
/// let config = PinnedConfig::default().numa(NumaPolicy::Node(1)).threads(16);
/// assert_eq!(config, PinnedConfig::default().threads(16).numa(NumaPolicy::Node(1)));
/// ```
///
/// There is no option to leave the memory unmapped on the device, because the type promises device access. There is none for
/// write-combined memory either: another thread may see stores to it only after the lock that guards them was released, which
/// breaks a `Vec`.
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
/// It is a preference: if the node is full, absent or forbidden to the process, the memory comes from another one. Small blocks
/// come from the driver, which chooses their node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NumaPolicy {
    /// The node nearest to the device, as far as the driver knows it: a copy from another node crosses the sockets.
    #[default]
    NearDevice,
    /// One node, by its number.
    Node(u32),
    /// The policy of the process: usually the node of the thread that first accesses a page.
    Anywhere,
}

/// The bytes for each thread: from here on a second thread pays off. Eight threads fill and pin 30 MiB in a millisecond (4 GiB in
/// 143 ms on an H200 host), so one needs about 1 ms for 4 MiB, and starting it takes some tens of microseconds.
pub(super) const BYTES_PER_THREAD: usize = 4 << 20;

/// One huge page. From here up the mapped path is faster than the driver: on an H200 host it takes 0.22 ms against 0.44 at 2 MiB,
/// 4.7 against 6.1 at 32 MiB and 156 against 1,138 at 4 GiB, and its free a third of the time (`tests/gpu/pinned.rs` prints the
/// table).
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

    /// The NUMA node of large blocks.
    pub const fn numa(mut self, numa: NumaPolicy) -> Self {
        self.numa = numa;
        self
    }

    /// Blocks of this size or more are mapped in huge pages, touched by several threads and registered; smaller ones come from the
    /// driver. With `usize::MAX` all blocks come from the driver.
    ///
    /// The default is one huge page, 2 MiB.
    pub const fn huge_bytes(mut self, bytes: usize) -> Self {
        self.huge_bytes = bytes;
        self
    }

    /// The most threads that touch one block; at most the number that the process may run at once. The default is 8.
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }
}
