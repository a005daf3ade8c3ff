//! `Device`: one GPU of a machine.

#![expect(unsafe_code, reason = "hands retired pools on")]

use core::fmt;
use core::sync::atomic::Ordering;
use std::sync::OnceLock;

use super::{Attachment, Capabilities, Machine};
use crate::driver::{Driver, MemoryInfo, RawPool, RelaxedCapture, Sharing};
use crate::error::Error;
use crate::order::{StreamId, Table, Timeline, Underlying};
use crate::sync::Arc;

/// One GPU of a machine. Cloning is a reference count.
///
/// ```
/// use alluvion::Sim;
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// assert_eq!(device.ordinal(), 0);
/// assert!(device.memory_info()?.free_bytes > 0);
/// // A tenth of the free memory, in whole units of 256 bytes: a size for a first pool.
/// assert_eq!(device.percent_of_free_memory(10)? % 256, 0);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Device {
    machine: Machine,
    ordinal: u32,
}

static_assertions::assert_impl_all!(Device: Send, Sync, Clone);

impl Device {
    pub(super) fn new(machine: Machine, ordinal: u32) -> Self {
        Self { machine, ordinal }
    }

    /// CUDA device `ordinal`. The same as asking [`Machine::cuda`] for it.
    ///
    /// ```no_run
    /// // Needs a GPU.
    /// let device = alluvion::Device::cuda(0)?;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NoDriver` if there is no CUDA driver, `NoDevice` if there are fewer devices.
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: u32) -> Result<Self, Error> {
        Machine::cuda()?.device(ordinal)
    }

    /// The number of the device in its machine.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// The machine that the device belongs to.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The driver of its machine.
    #[must_use]
    pub fn driver(&self) -> &Arc<dyn Driver> {
        self.machine.driver()
    }

    /// Makes the device current on the calling thread, as `cudaSetDevice` does: for libraries that use the current device. This
    /// crate needs no current device; its own calls leave the current one as it is.
    ///
    /// ```
    /// use alluvion::Sim;
    ///
    /// let sim = Sim::with_config(alluvion::sim::SimConfig::default().devices(2));
    /// sim.device(1).make_current()?;
    /// assert_eq!(sim.machine().current_device()?, sim.device(1));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn make_current(&self) -> Result<(), Error> {
        Ok(self.driver().set_context(self.ordinal)?)
    }

    /// The name of the device.
    pub fn name(&self) -> Result<String, Error> {
        Ok(self.driver().device_name(self.ordinal)?)
    }

    /// The features of the device: asked for once, then kept.
    pub fn capabilities(&self) -> Result<&Capabilities, Error> {
        self.machine.require_same_process()?;
        let known = &self.machine.state(self.ordinal).capabilities;
        if let Some(capabilities) = known.get() {
            return Ok(capabilities);
        }
        let probed = Capabilities::probe(&**self.driver(), self.ordinal)?;
        Ok(known.get_or_init(|| probed))
    }

    /// Returns `true` if this device can use memory of `other`, once it is given access: by `peers` of the configuration of a
    /// source. A device reaches itself.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a device of another machine; `Unsupported` for a driver that does not say; as the driver says.
    pub fn can_reach(&self, other: &Self) -> Result<bool, Error> {
        self.require_machine(other)?;
        if self == other {
            return Ok(true);
        }
        let sharing = self.sharing("memory of another device")?;
        let _relaxed = RelaxedCapture::enter(&**self.driver())?;
        Ok(sharing.can_reach(self.ordinal, other.ordinal)?)
    }

    /// The other devices of the machine that can use memory of this one, once they are given access.
    ///
    /// ```
    /// use alluvion::Sim;
    /// use alluvion::sim::SimConfig;
    /// use alluvion::source::{CudaAsync, CudaAsyncConfig};
    ///
    /// let sim = Sim::with_config(SimConfig::default().devices(4));
    /// let pools = sim.machine().per_device(|device| {
    ///     CudaAsync::with_config(device, CudaAsyncConfig::default().peers(device.peers()?))
    /// })?;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`can_reach`](Self::can_reach). A machine of one device has no peers, whatever its driver.
    pub fn peers(&self) -> Result<Vec<Self>, Error> {
        let mut peers = Vec::new();
        for other in self.machine.devices().filter(|other| other != self) {
            if other.can_reach(self)? {
                peers.push(other);
            }
        }
        Ok(peers)
    }

    /// The calls by which others use memory of the device.
    pub(crate) fn sharing(&self, what: &'static str) -> Result<&dyn Sharing, Error> {
        self.machine.require_same_process()?;
        self.driver().sharing().ok_or_else(|| {
            Error::unsupported(what, "the driver has no calls for it", "copy it through the host")
        })
    }

    /// Free and total memory of the device now, over all programs.
    pub fn memory_info(&self) -> Result<MemoryInfo, Error> {
        let _relaxed = RelaxedCapture::enter(&**self.driver())?;
        Ok(self.driver().memory_info(self.ordinal)?)
    }

    /// `percent` of the free memory, rounded down to 256 bytes.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` above 100; as the driver says.
    pub fn percent_of_free_memory(&self, percent: u8) -> Result<usize, Error> {
        if percent > 100 {
            return Err(Error::invalid_argument(
                "more than 100 percent of the free memory",
                "there is no more than all of it",
                "pass 0 to 100",
            ));
        }
        let free = self.memory_info()?.free_bytes as u128;
        Ok((free * u128::from(percent) / 100) as usize & !255)
    }

    /// Waits until all work of the device is done, on every stream. Blocks that were freed on any stream before are then reusable
    /// on all. Retired pools of the driver that are now empty are destroyed.
    ///
    /// While any stream of the device captures this is an error, and breaks the capture: wait for streams instead.
    ///
    /// # Errors
    ///
    /// Those of the work itself, too.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.machine.require_same_process()?;
        let _relaxed = RelaxedCapture::attempt(&**self.driver());
        let pasts = self.table().begin_wait(self.ordinal);
        self.driver().context_synchronize(self.ordinal)?;
        pasts.iter().for_each(|past| self.table().finish_all(past));
        self.machine.state(self.ordinal).events.forget_open_ends();
        self.sweep_pools();
        Ok(())
    }

    pub(crate) fn require_machine(&self, other: &Self) -> Result<(), Error> {
        self.machine.require_same_process()?;
        if self.machine == other.machine { Ok(()) } else { Err(Error::machine_mismatch()) }
    }

    /// Succeeds if `other` is this device.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` if it is not, as from every resource for a stream of another device. `ShutDown` in a child of the process
    /// that it was made in.
    pub fn require(&self, other: &Self) -> Result<(), Error> {
        self.require_machine(other)?;
        if self.ordinal == other.ordinal {
            Ok(())
        } else {
            Err(Error::device_mismatch(self.ordinal, other.ordinal))
        }
    }

    /// Takes over a pool that its resource no longer uses.
    ///
    /// # Safety
    ///
    /// As [`RetiredPools::retire`](crate::device::RetiredPools::retire), for a pool of this device.
    pub(crate) unsafe fn retire_pool(&self, pool: RawPool) {
        let retired = &self.machine.state(self.ordinal).retired_pools;
        // SAFETY: the caller's promises.
        unsafe { retired.retire(&**self.driver(), self.ordinal, pool) };
    }

    /// Destroys retired pools that are empty.
    pub(crate) fn sweep_pools(&self) {
        self.machine.state(self.ordinal).retired_pools.sweep(&**self.driver(), self.ordinal);
    }

    /// Returns `true` if a tool that watches the process may be told of a heap there: the memory begins an allocation of the driver's
    /// plain calls, and lies in it.
    pub(crate) fn begins_an_allocation(&self, address: u64, bytes: usize) -> bool {
        let around = self.driver().plain_allocation(address).ok().flatten();
        around.is_some_and(|around| around.start == address && bytes <= around.bytes)
    }

    /// Calls code of others while the device is current. `None` if it cannot be made current.
    pub(crate) fn in_context<T>(&self, function: impl FnOnce() -> T) -> Option<T> {
        let (mut function, mut answer) = (Some(function), None);
        let entered = self.driver().in_context(self.ordinal, &mut || {
            answer = function.take().map(|function| function());
        });
        entered.ok().and(answer)
    }

    pub(crate) fn machine_number(&self) -> u32 {
        self.machine.number()
    }

    pub(crate) fn table(&self) -> &Table {
        self.machine.table()
    }

    #[inline]
    pub(crate) fn legacy_timeline(&self) -> &Arc<Timeline> {
        let state = self.machine.state(self.ordinal);
        // Relaxed: see `Machine::wait_for_every_stream`.
        state.legacy_is_out.store(true, Ordering::Relaxed);
        &state.legacy
    }

    pub(crate) fn enter_timeline(&self, stream: Underlying) -> Result<Arc<Timeline>, Error> {
        let events = Arc::clone(&self.machine.state(self.ordinal).events);
        let driver = Arc::clone(self.driver());
        Ok(self.table().enter(|id| Timeline::new(id, driver, events, self.ordinal, stream))?)
    }

    /// The stream for calls without one, once it is made.
    pub(crate) fn service_timeline(&self) -> &OnceLock<Arc<Timeline>> {
        &self.machine.state(self.ordinal).service
    }

    /// The value of a room above for this device: made by `default` at the first call, and kept as long as the machine.
    pub(crate) fn attached<T: Attachment + Default>(&self) -> &T {
        self.machine.state(self.ordinal).attachments.get()
    }

    pub(crate) fn note_ended(&self, stream: StreamId) {
        self.table().note_ended(stream);
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpu {}", self.ordinal)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({} of {})", self.ordinal, self.driver().name())
    }
}
