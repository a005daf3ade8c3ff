//! `ShareStatus`: what a device has open of other processes, and what of its own waits for others.

use super::imports::Imports;
use super::parked::Parked;
use crate::device::Device;
use crate::metrics::Metrics;
use crate::resource::Figures;

/// What a device has open of other processes, and what of its own waits for others.
///
/// ```
/// use alluvion::share::{self, Imported};
/// use alluvion::{DeviceVec, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let vector = DeviceVec::from_slice_in(&[1.0, 2.0], &stream, Cuda::new(&sim.device(0)))?;
/// let shared = vector.share(&stream)?;
/// let other = sim.process();
/// let its_stream = other.device(0).stream()?;
/// let imported = Imported::<f64>::open(shared.message(), None, &its_stream)?;
/// assert_eq!(share::status(&other.device(0)).imported_bytes, 16);
///
/// drop(shared);
/// assert_eq!(share::status(&sim.device(0)).parked_bytes, 16);
/// drop(imported);
/// assert_eq!(share::sweep(&sim.device(0)), 1);
/// assert_eq!(share::status(&sim.device(0)).parked, 0);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[must_use]
pub fn status(device: &Device) -> ShareStatus {
    let ((imports, imported_bytes), parked) = (Imports::of(device).figures(), Parked::of(device));
    ShareStatus { imports, imported_bytes, parked: parked.len(), parked_bytes: parked.bytes() }
}

/// What a device has open of other processes, and what of its own waits for others: see [`status`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareStatus {
    /// The containers that are imported.
    pub imports: usize,
    /// Their bytes.
    pub imported_bytes: usize,
    /// The containers that were shared, and dropped while other processes had them.
    pub parked: usize,
    /// Their bytes.
    pub parked_bytes: usize,
}

impl ShareStatus {
    /// Reports each figure under its name in a page of metrics.
    fn figures(&self, to: &mut Figures<'_>) {
        let imports = "Containers of other processes that are open.";
        to.gauge("alluvion_share_imports", imports, self.imports);
        let bytes = "Bytes of the containers of other processes that are open.";
        to.gauge("alluvion_share_imported_bytes", bytes, self.imported_bytes);
        let parked = "Containers that were shared, and dropped while other processes had them.";
        to.gauge("alluvion_share_parked", parked, self.parked);
        let bytes = "Bytes of the containers that were dropped while other processes had them.";
        to.gauge("alluvion_share_parked_bytes", bytes, self.parked_bytes);
    }
}

impl Metrics {
    /// Adds what the device has open of other processes, and what of its own waits for others: the figures of
    /// [`share::status`](status), with the label `device`. They are of the device and not of a stack, because memory of other
    /// processes belongs to no stack of this one.
    ///
    /// ```
    /// use alluvion::metrics::Metrics;
    /// use alluvion::share::Imported;
    /// use alluvion::{DeviceVec, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let vector = DeviceVec::from_slice_in(&[1.0, 2.0], &stream, Cuda::new(&sim.device(0)))?;
    /// let shared = vector.share(&stream)?;
    /// let other = sim.process();
    /// let its_stream = other.device(0).stream()?;
    /// let imported = Imported::<f64>::open(shared.message(), None, &its_stream)?;
    ///
    /// let mut page = Metrics::new();
    /// page.add_sharing(&other.device(0));
    /// assert!(page.to_string().contains("alluvion_share_imported_bytes{device=\"0\"} 16\n"));
    /// # drop(imported);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn add_sharing(&mut self, device: &Device) {
        let ordinal = device.ordinal().to_string();
        self.add_figures(&[("device", &ordinal)], |to| status(device).figures(to));
    }
}
