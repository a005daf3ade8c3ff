//! `CudaAsyncConfig`: the configuration of a pool of the driver.

use crate::device::{Capabilities, Device};
use crate::driver::{HandleType, PoolAttribute};
use crate::error::Error;

/// The configuration of a [`CudaAsync`](super::CudaAsync), set by chaining.
///
/// ```
/// use alluvion::{Sim, source::{CudaAsync, CudaAsyncConfig}};
///
/// let sim = Sim::new();
/// let config = CudaAsyncConfig::default().initial_bytes(8 << 20).reuse_allow_internal_dependencies(false);
/// let resource = CudaAsync::with_config(&sim.device(0), config)?;
/// assert!(resource.reserved_bytes()? >= 8 << 20);
/// assert_eq!(resource.used_bytes()?, 0);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a configuration does nothing until a resource is made with it"]
pub struct CudaAsyncConfig {
    initial_bytes: usize,
    maximum_bytes: Option<usize>,
    release_threshold_bytes: u64,
    follow_event_dependencies: Option<bool>,
    allow_opportunistic: Option<bool>,
    allow_internal_dependencies: Option<bool>,
    handle_types: HandleType,
    peers: Vec<Device>,
}

impl Default for CudaAsyncConfig {
    /// No initial bytes, no maximum, all memory kept, all three kinds of reuse, no export, no peers.
    fn default() -> Self {
        Self {
            initial_bytes: 0,
            maximum_bytes: None,
            release_threshold_bytes: u64::MAX,
            follow_event_dependencies: None,
            allow_opportunistic: None,
            allow_internal_dependencies: None,
            handle_types: HandleType::NONE,
            peers: Vec::new(),
        }
    }
}

impl CudaAsyncConfig {
    /// Bytes that the pool takes from the device when it is made, so that the first allocations do not have to.
    pub const fn initial_bytes(mut self, bytes: usize) -> Self {
        self.initial_bytes = bytes;
        self
    }

    /// The most bytes that the pool holds at a time, handed out or not; a request beyond them fails. The driver may round it up.
    ///
    /// Needs CUDA 12.2.
    pub const fn maximum_bytes(mut self, bytes: usize) -> Self {
        self.maximum_bytes = Some(bytes);
        self
    }

    /// Bytes that a synchronisation leaves in the pool; further unused memory returns to the device.
    ///
    /// All of them by default: growing again costs a call that can wait for the device.
    pub const fn release_threshold_bytes(mut self, bytes: u64) -> Self {
        self.release_threshold_bytes = bytes;
        self
    }

    /// Whether memory freed on another stream may be reused once the allocating stream has waited for it.
    pub const fn reuse_follow_event_dependencies(mut self, allow: bool) -> Self {
        self.follow_event_dependencies = Some(allow);
        self
    }

    /// Whether memory freed on another stream may be reused once that free is seen to be over.
    pub const fn reuse_allow_opportunistic(mut self, allow: bool) -> Self {
        self.allow_opportunistic = Some(allow);
        self
    }

    /// Whether the driver may make the allocating stream wait for another one, in order to reuse memory that the other one freed.
    pub const fn reuse_allow_internal_dependencies(mut self, allow: bool) -> Self {
        self.allow_internal_dependencies = Some(allow);
        self
    }

    /// The handle types that the pool's memory can be exported as, to other processes. Bits may be combined; each is checked.
    pub const fn handle_types(mut self, handle_types: HandleType) -> Self {
        self.handle_types = handle_types;
        self
    }

    /// The other devices that may access the memory, too. There are none by default: memory of a pool is for its own device, also
    /// where plain memory of the device is for others.
    ///
    /// ```
    /// use alluvion::sim::SimConfig;
    /// use alluvion::source::{CudaAsync, CudaAsyncConfig};
    /// use alluvion::Sim;
    ///
    /// let sim = Sim::with_config(SimConfig::default().devices(2));
    /// let config = CudaAsyncConfig::default().peers([sim.device(1)]);
    /// let pool = CudaAsync::with_config(&sim.device(0), config)?;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn peers(mut self, peers: impl IntoIterator<Item = Device>) -> Self {
        self.peers = peers.into_iter().collect();
        self
    }

    /// The other devices that may access the memory.
    #[must_use]
    pub fn peer_devices(&self) -> &[Device] {
        &self.peers
    }

    pub(super) const fn initial(&self) -> usize {
        self.initial_bytes
    }

    /// 0 is no maximum, as in the driver.
    pub(super) fn maximum(&self) -> u64 {
        self.maximum_bytes.unwrap_or(0) as u64
    }

    pub(super) const fn handles(&self) -> HandleType {
        self.handle_types
    }

    /// The attributes that are set on the new pool, and their values.
    pub(super) fn attributes(&self) -> impl Iterator<Item = (PoolAttribute, u64)> {
        let reuse = [
            (PoolAttribute::ReuseFollowEventDependencies, self.follow_event_dependencies),
            (PoolAttribute::ReuseAllowOpportunistic, self.allow_opportunistic),
            (PoolAttribute::ReuseAllowInternalDependencies, self.allow_internal_dependencies),
        ];
        let reuse = reuse.into_iter().filter_map(|(attribute, allow)| Some((attribute, u64::from(allow?))));
        [(PoolAttribute::ReleaseThreshold, self.release_threshold_bytes)].into_iter().chain(reuse)
    }

    pub(super) fn check(&self, capabilities: &Capabilities) -> Result<(), Error> {
        if !capabilities.memory_pools {
            return Err(Error::unsupported("a memory pool", "the device has none", "use `Cuda`"));
        }
        match self.maximum_bytes {
            Some(0) => {
                return Err(Error::invalid_argument(
                    "a maximum of 0 bytes",
                    "the pool could hold nothing, and the driver takes 0 for no maximum",
                    "give one of 2 MiB or more, or none",
                ));
            }
            Some(most) if self.initial_bytes > most => {
                return Err(Error::invalid_argument(
                    "an initial size above the maximum",
                    "the pool may never hold it",
                    "raise the maximum",
                ));
            }
            _ => {}
        }
        if self.initial_bytes as u64 > self.release_threshold_bytes {
            return Err(Error::invalid_argument(
                "an initial size above the release threshold",
                "the first synchronisation would give it back",
                "raise the threshold",
            ));
        }
        require_handle_types(self.handle_types, capabilities.pool_handle_types)
    }
}

fn require_handle_types(wanted: HandleType, offered: HandleType) -> Result<(), Error> {
    let known = [
        (HandleType::POSIX_FILE_DESCRIPTOR, "a pool that is exported as a POSIX file descriptor"),
        (HandleType::WIN32, "a pool that is exported as a Windows NT handle"),
        (HandleType::WIN32_KMT, "a pool that is exported as a Windows D3DKMT handle"),
        (HandleType::FABRIC, "a pool that is exported as a fabric handle"),
    ];
    let missing = HandleType(wanted.0 & !offered.0);
    if missing == HandleType::NONE {
        return Ok(());
    }
    let what = known.into_iter().find(|(bit, _)| missing.contains(*bit));
    Err(Error::unsupported(
        what.map_or("a pool that is exported as an unknown type of handle", |(_, what)| what),
        "the device's pools cannot be exported so",
        "ask for types among its `Capabilities::pool_handle_types`, or for none",
    ))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_bit_is_checked_and_named() {
        let both = HandleType::POSIX_FILE_DESCRIPTOR.with(HandleType::FABRIC);
        assert!(require_handle_types(both, both).is_ok());
        assert!(require_handle_types(HandleType::NONE, HandleType::NONE).is_ok());
        for (wanted, offered, word) in [
            (both, HandleType::POSIX_FILE_DESCRIPTOR, "fabric"),
            (both, HandleType::FABRIC, "POSIX"),
            (HandleType::WIN32.with(HandleType::WIN32_KMT), HandleType::WIN32, "D3DKMT"),
            (HandleType(1 << 20), both, "unknown"),
        ] {
            let error = require_handle_types(wanted, offered).unwrap_err();
            assert!(error.is_unsupported(), "{error}");
            assert!(error.unsupported_detail().is_some_and(|detail| detail.what.contains(word)), "{error}");
        }
    }

    #[test]
    fn only_what_was_said_is_set() {
        let set = |config: CudaAsyncConfig| config.attributes().collect::<Vec<_>>();
        assert_eq!(set(CudaAsyncConfig::default()), [(PoolAttribute::ReleaseThreshold, u64::MAX)]);
        assert_eq!(
            set(CudaAsyncConfig::default().release_threshold_bytes(7).reuse_allow_opportunistic(false)),
            [(PoolAttribute::ReleaseThreshold, 7), (PoolAttribute::ReuseAllowOpportunistic, 0)],
        );
    }
}
