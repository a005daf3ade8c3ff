//! `PerDeviceError`: why not every device has a value, and what was made.

use core::fmt;

use crate::device::Device;
use crate::error::Error;

/// A value was not made for every device: the error, the device, and what was made for the devices before it.
///
/// Converts into the [`Error`], which names the device too, so that `?` works where what was made is not needed.
///
/// ```
/// use alluvion::sim::SimConfig;
/// use alluvion::{Device, Error, Sim, source::Cuda};
///
/// let sim = Sim::with_config(SimConfig::default().devices(3));
/// let not_the_last = |device: &Device| match device.ordinal() {
///     2 => Err(Error::over_limit(1 << 30, 1 << 20)),
///     _ => Ok(Cuda::new(device)),
/// };
/// let failed = sim.machine().per_device(not_the_last).unwrap_err();
/// assert_eq!((failed.device(), failed.made().len()), (&sim.device(2), 2));
/// assert!(failed.to_string().starts_with("gpu 2: out of memory"));
/// let made = failed.into_made();
/// assert_eq!(made[1].0, sim.device(1));
/// ```
pub struct PerDeviceError<R> {
    made: Vec<(Device, R)>,
    device: Device,
    error: Error,
}

impl<R> PerDeviceError<R> {
    #[cold]
    pub(super) fn new(made: Vec<(Device, R)>, device: Device, error: Error) -> Self {
        let error = error.on_device(device.ordinal());
        Self { made, device, error }
    }

    /// The device that has no value.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Why.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The values that were made, with their devices.
    #[must_use]
    pub fn made(&self) -> &[(Device, R)] {
        &self.made
    }

    /// The values that were made, to be used or given back.
    #[must_use]
    pub fn into_made(self) -> Vec<(Device, R)> {
        self.made
    }
}

impl<R> From<PerDeviceError<R>> for Error {
    fn from(failed: PerDeviceError<R>) -> Self {
        failed.error
    }
}

impl<R> fmt::Debug for PerDeviceError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PerDeviceError({:?}, {} made)", self.error, self.made.len())
    }
}

impl<R> fmt::Display for PerDeviceError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<R> core::error::Error for PerDeviceError<R> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}
