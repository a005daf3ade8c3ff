//! `PerDevice`: one value for each device, such as a stack.

use core::fmt;
use core::ops::Index;

use super::PerDeviceError;
use crate::device::{Device, Machine};
use crate::error::Error;
use crate::resource::{AnyResource, DeviceAccessible};

impl Machine {
    /// Makes a value for each device of the machine, in the order of their numbers: a stack, or a stream.
    ///
    /// ```
    /// use alluvion::sim::SimConfig;
    /// use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim, source::CudaAsync};
    ///
    /// let sim = Sim::with_config(SimConfig::default().devices(2));
    /// let machine = sim.machine();
    /// let stacks = machine.per_device(|device| Ok(CudaAsync::new(device)?.pool(PoolConfig::default())?.stats()))?;
    /// let streams = machine.per_device(|device| device.stream())?;
    /// let numbers = DeviceVec::from_slice_in(&[1, 2, 3], &streams[1], &stacks[1])?;
    /// assert_eq!(numbers.to_vec(&streams[1])?, [1, 2, 3]);
    /// assert_eq!(stacks[1].upstream().describe().to_string(), "Pool(2 MiB) > CudaAsync(gpu 1)");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first that `make` returns, with the device and with what was made for the devices before it. `?` turns it into an
    /// [`Error`] that names the device.
    pub fn per_device<R>(
        &self,
        make: impl FnMut(&Device) -> Result<R, Error>,
    ) -> Result<PerDevice<R>, PerDeviceError<R>> {
        PerDevice::of(self.devices(), make)
    }
}

/// One value for each of several devices of a machine: a stack, or a stream. [`Machine::per_device`] makes it.
///
/// It is indexed by the number of the device, and iterated in the order of those numbers.
///
/// # Examples
///
/// ```
/// use alluvion::compose::PerDevice;
/// use alluvion::sim::SimConfig;
/// use alluvion::{AnyResource, Recipe, Sim};
///
/// let sim = Sim::with_config(SimConfig::default().devices(8));
/// let recipe: Recipe = "pool(initial=8MiB) | cuda-async".parse()?;
/// // The last two of the eight.
/// let stacks: PerDevice<AnyResource> =
///     PerDevice::of([sim.device(6), sim.device(7)], |device| recipe.build(device))?;
/// assert_eq!(stacks.len(), 2);
/// assert_eq!(stacks[7].describe().to_string(), "Pool(8 MiB) > CudaAsync(gpu 7)");
/// assert!(stacks.get(&sim.device(0)).is_none());
/// for (device, stack) in &stacks {
///     assert_eq!(stack.device(), device);
/// }
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "the values are dropped with it"]
pub struct PerDevice<R> {
    /// In the order of the numbers of the devices, all of one machine.
    values: Vec<(Device, R)>,
}

static_assertions::assert_impl_all!(PerDevice<crate::source::Cuda>: Send, Sync, Clone);

impl<R> PerDevice<R> {
    /// Makes a value for each of these devices, in the order of their numbers.
    ///
    /// # Errors
    ///
    /// As [`Machine::per_device`]. `DeviceMismatch` for devices of different machines and `InvalidArgument` for a device that
    /// is named twice, before anything is made.
    pub fn of(
        devices: impl IntoIterator<Item = Device>,
        mut make: impl FnMut(&Device) -> Result<R, Error>,
    ) -> Result<Self, PerDeviceError<R>> {
        let mut devices: Vec<_> = devices.into_iter().collect();
        devices.sort_by_key(Device::ordinal);
        let mut values = Vec::with_capacity(devices.len());
        for pair in devices.windows(2) {
            if let Err(error) = require_two(&pair[0], &pair[1]) {
                return Err(PerDeviceError::new(values, pair[1].clone(), error));
            }
        }
        for device in devices {
            match make(&device) {
                Ok(value) => values.push((device, value)),
                Err(error) => return Err(PerDeviceError::new(values, device, error)),
            }
        }
        Ok(Self { values })
    }

    /// The value of that device, if there is one.
    #[must_use]
    pub fn get(&self, device: &Device) -> Option<&R> {
        let (found, value) = &self.values[self.place(device.ordinal())?];
        (found == device).then_some(value)
    }

    /// The value of that device.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a device of another machine, `InvalidArgument` for one that has none.
    pub fn on(&self, device: &Device) -> Result<&R, Error> {
        if let Some((first, _)) = self.values.first() {
            first.require_machine(device)?;
        }
        self.get(device).ok_or_else(|| {
            Error::invalid_argument_that(format!(
                "nothing was made for {device}: name it where the {} others are named",
                self.len()
            ))
        })
    }

    /// The number of devices that have a value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns `true` if no device has a value, as on a machine without devices.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The devices and their values.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, R> {
        Iter(self.values.iter())
    }

    /// Makes another value of each: a layer over each stack.
    pub fn map<S>(self, mut make: impl FnMut(&Device, R) -> S) -> PerDevice<S> {
        let values = self.values.into_iter().map(|(device, value)| {
            let value = make(&device, value);
            (device, value)
        });
        PerDevice { values: values.collect() }
    }

    /// What `make` returns for each of the values, where it returns something.
    pub(super) fn filter_map<'p, S>(&'p self, mut make: impl FnMut(&'p R) -> Option<S>) -> PerDevice<S> {
        let values = self.values.iter().filter_map(|(device, value)| Some((device.clone(), make(value)?)));
        PerDevice { values: values.collect() }
    }

    fn place(&self, ordinal: u32) -> Option<usize> {
        // Where all devices of the machine have a value, its place is its number.
        let is_there = |at: usize| self.values.get(at).is_some_and(|(device, _)| device.ordinal() == ordinal);
        if is_there(ordinal as usize) {
            return Some(ordinal as usize);
        }
        self.values.binary_search_by_key(&ordinal, |(device, _)| device.ordinal()).ok()
    }
}

impl<R: DeviceAccessible + Send + Sync + 'static> PerDevice<R> {
    /// Erases the type of each resource.
    pub fn into_any(self) -> PerDevice<AnyResource> {
        self.map(|_, resource| AnyResource::new(resource))
    }
}

/// Two devices of one machine that are not one device.
fn require_two(one: &Device, other: &Device) -> Result<(), Error> {
    one.require_machine(other)?;
    if one == other {
        return Err(Error::invalid_argument(
            "a device that is named twice",
            "each has one value",
            "name it once",
        ));
    }
    Ok(())
}

impl<R> Index<u32> for PerDevice<R> {
    type Output = R;

    /// The value of the device with that number.
    ///
    /// # Panics
    ///
    /// If it has none; [`get`](PerDevice::get) and [`on`](PerDevice::on) say so.
    #[track_caller]
    fn index(&self, ordinal: u32) -> &R {
        match self.place(ordinal) {
            Some(at) => &self.values[at].1,
            None => panic!("gpu {ordinal} is none of the {} devices", self.len()),
        }
    }
}

/// The devices of a [`PerDevice`] and their values, in the order of their numbers.
#[derive(Clone, Debug)]
pub struct Iter<'p, R>(core::slice::Iter<'p, (Device, R)>);

impl<'p, R> Iterator for Iter<'p, R> {
    type Item = (&'p Device, &'p R);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(device, value)| (device, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<R> ExactSizeIterator for Iter<'_, R> {}

impl<'p, R> IntoIterator for &'p PerDevice<R> {
    type Item = (&'p Device, &'p R);
    type IntoIter = Iter<'p, R>;

    fn into_iter(self) -> Iter<'p, R> {
        self.iter()
    }
}

impl<R> IntoIterator for PerDevice<R> {
    type Item = (Device, R);
    type IntoIter = std::vec::IntoIter<(Device, R)>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.into_iter()
    }
}

impl<R: fmt::Debug> fmt::Debug for PerDevice<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(device, value)| (device.ordinal(), value))).finish()
    }
}
