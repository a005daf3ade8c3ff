//! `CudaConfig`: the configuration of `Cuda`.

use crate::device::Device;

/// The configuration of a [`Cuda`](super::Cuda), set by chaining.
///
/// ```
/// use alluvion::sim::SimConfig;
/// use alluvion::source::{Cuda, CudaConfig};
/// use alluvion::{DeviceVec, Sim};
///
/// let sim = Sim::with_config(SimConfig::default().devices(2));
/// let (own, peer) = (sim.device(0), sim.device(1));
/// let source = Cuda::with_config(&own, CudaConfig::default().peers([peer]))?;
/// let stream = own.stream()?;
/// let shared = DeviceVec::from_slice_in(&[1, 2, 3], &stream, &source)?; // Kernels of gpu 1 may use it, too.
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a configuration does nothing until a source is made with it"]
pub struct CudaConfig {
    peers: Vec<Device>,
}

impl CudaConfig {
    /// The other devices that may access the memory, too. There are none by default.
    ///
    /// The driver knows this access for all memory of a device, and not for a block: the peers reach the memory of every
    /// [`Cuda`](super::Cuda) of the device from then on, as long as the process lives.
    pub fn peers(mut self, peers: impl IntoIterator<Item = Device>) -> Self {
        self.peers = peers.into_iter().collect();
        self
    }

    /// The other devices that may access the memory.
    #[must_use]
    pub fn peer_devices(&self) -> &[Device] {
        &self.peers
    }
}
