//! `MappedConfig`: the configuration of `Mapped`.

use crate::device::Device;
use crate::driver::HandleType;

/// The configuration of a [`Mapped`](super::Mapped), set by chaining.
///
/// ```
/// use alluvion::sim::SimConfig;
/// use alluvion::source::{Mapped, MappedConfig};
/// use alluvion::{Layout, Resource, Sim};
///
/// let sim = Sim::with_config(SimConfig::default().devices(2));
/// let config = MappedConfig::default().peers([sim.device(1)]);
/// let source = Mapped::with_config(&sim.device(0), config)?;
/// assert_eq!(source.config().peer_devices().len(), 1);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a configuration does nothing until a source is made with it"]
pub struct MappedConfig {
    peers: Vec<Device>,
    handle_types: HandleType,
}

impl MappedConfig {
    /// The other devices that may access the memory, too. Each of them costs one more driver call for each page that is mapped:
    /// 31 to 47 µs on an H200. There are none by default.
    pub fn peers(mut self, peers: impl IntoIterator<Item = Device>) -> Self {
        self.peers = peers.into_iter().collect();
        self
    }

    /// The handle types that the memory can be exported as, to other processes. Bits may be combined; there are none by default.
    pub const fn handle_types(mut self, handle_types: HandleType) -> Self {
        self.handle_types = handle_types;
        self
    }

    /// The other devices that may access the memory.
    #[must_use]
    pub fn peer_devices(&self) -> &[Device] {
        &self.peers
    }

    /// The handle types that the memory can be exported as.
    #[must_use]
    pub const fn exported_as(&self) -> HandleType {
        self.handle_types
    }
}
