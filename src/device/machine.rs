//! `Machine`: a driver with its devices.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{OnceLock, Weak};

use super::attachments::Attachments;
use super::{Capabilities, Device, RetiredPools};
#[cfg(feature = "runtime")]
use crate::driver::runtime::Runtime;
use crate::driver::{Driver, DriverResult, RawStream};
use crate::error::Error;
use crate::order::{
    Cover, Ending, EventPool, Frontier, Stamp, StreamId, Table, Timeline, Uncovered, Underlying,
};
use crate::sync::{Arc, MadeIn};

/// A driver with its devices: the CUDA driver of this process, a vendor's runtime library, or a simulated one.
///
/// Cloning is a reference count. Streams, blocks and events of one machine are refused by another.
///
/// ```
/// use alluvion::Sim;
///
/// let sim = Sim::new();
/// let machine = sim.machine();
/// assert_eq!(machine.devices().count(), 1);
/// assert!(machine.device(7).unwrap_err().is_no_device());
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct Machine {
    inner: Arc<MachineInner>,
}

struct MachineInner {
    number: u32,
    made_in: MadeIn,
    driver: Arc<dyn Driver>,
    table: Table,
    devices: Box<[DeviceState]>,
    checks_frees: AtomicBool,
    /// The bytes of addresses that suballocators have reserved for pages.
    reserved_addresses: AtomicUsize,
}

/// The data of the crate about one device.
pub(super) struct DeviceState {
    pub(super) events: Arc<EventPool>,
    pub(super) legacy: Arc<Timeline>,
    /// A handle to the legacy stream has been made. An unused device has none, and no context for queries.
    pub(super) legacy_is_out: AtomicBool,
    /// The stream for calls without one, made at the first such call.
    pub(super) service: OnceLock<Arc<Timeline>>,
    pub(super) capabilities: OnceLock<Capabilities>,
    pub(super) retired_pools: RetiredPools,
    pub(super) attachments: Attachments,
}

static_assertions::assert_impl_all!(Machine: Send, Sync, Clone);

impl Machine {
    /// A machine over `driver`.
    ///
    /// Two machines over one driver know nothing of each other's streams: make one, and clone it.
    ///
    /// # Errors
    ///
    /// As the driver says when it is asked for its devices.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Self, Error> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let count = driver.device_count()?;
        // Relaxed: only that the numbers differ matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let Some(number) = u32::try_from(number).ok().filter(|number| *number < StreamId::MACHINES) else {
            return Err(Error::unsupported(
                "another machine",
                "this process has made 16777216 of them",
                "make one, and clone it",
            ));
        };
        let made_in = MadeIn::this_process();
        let table = Table::new(number);
        let devices = (0..count)
            .map(|ordinal| {
                let events = EventPool::new(Arc::clone(&driver), ordinal);
                let legacy = table.enter(|id| {
                    let stream = Underlying::of(RawStream::LEGACY, Ending::Leave(None));
                    Timeline::new(id, Arc::clone(&driver), Arc::clone(&events), ordinal, stream)
                })?;
                let (service, capabilities) = (OnceLock::new(), OnceLock::new());
                Ok(DeviceState {
                    events,
                    legacy,
                    legacy_is_out: AtomicBool::new(false),
                    service,
                    capabilities,
                    retired_pools: RetiredPools::default(),
                    attachments: Attachments::default(),
                })
            })
            .collect::<Result<_, Error>>()?;
        let checks_frees = AtomicBool::new(cfg!(debug_assertions) || driver.block_watch().is_some());
        let reserved_addresses = AtomicUsize::new(0);
        let inner =
            MachineInner { number, made_in, driver, table, devices, checks_frees, reserved_addresses };
        Ok(Self { inner: Arc::new(inner) })
    }

    #[cfg(feature = "sim")]
    pub(super) fn without_devices(driver: Arc<dyn Driver>) -> Self {
        let (number, made_in, table) = (u32::MAX, MadeIn::this_process(), Table::new(u32::MAX));
        let (devices, checks_frees) = (Box::default(), AtomicBool::new(true));
        let reserved_addresses = AtomicUsize::new(0);
        let inner =
            MachineInner { number, made_in, driver, table, devices, checks_frees, reserved_addresses };
        Self { inner: Arc::new(inner) }
    }

    /// The machine of the CUDA driver. The driver is loaded at the first call; later calls are a reference count.
    ///
    /// # Errors
    ///
    /// `NoDriver` if libcuda is missing, a stub, or too old; as the driver says. A failure is not remembered: the next call
    /// tries again.
    #[cfg(feature = "cuda")]
    pub fn cuda() -> Result<Self, Error> {
        static CUDA: OnceLock<Machine> = OnceLock::new();
        if let Some(machine) = CUDA.get() {
            return Ok(machine.clone());
        }
        let made = Self::new(crate::driver::cuda::CudaDriver::load()?)?;
        Ok(CUDA.get_or_init(|| made).clone())
    }

    /// The machine of NVIDIA's CUDA runtime, `libcudart.so.13` or `.12`, in place of the driver behind it. Its devices are those of
    /// [`Machine::cuda`], and it knows nothing of that machine's streams. The library is loaded at the first call.
    ///
    /// ```no_run
    /// // Needs a GPU.
    /// let device = alluvion::Machine::cudart()?.device(0)?;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NoDriver` if the library or the driver is missing or too old; as the library says. A failure is not remembered.
    #[cfg(feature = "runtime")]
    pub fn cudart() -> Result<Self, Error> {
        Self::of_runtime(Runtime::Cudart)
    }

    /// The machine of AMD's HIP, `libamdhip64.so.7`, `.6` or `.5`. Not run on hardware yet: docs/runtimes.md says what is known.
    ///
    /// ```no_run
    /// // Needs a GPU.
    /// let device = alluvion::Machine::hip()?.device(0)?;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`cudart`](Self::cudart).
    #[cfg(feature = "runtime")]
    pub fn hip() -> Result<Self, Error> {
        Self::of_runtime(Runtime::Hip)
    }

    /// The machine of MetaX's MACA, `libmcruntime.so`. Not run on hardware yet: docs/runtimes.md says what is known.
    ///
    /// ```no_run
    /// // Needs a GPU.
    /// let device = alluvion::Machine::maca()?.device(0)?;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`cudart`](Self::cudart).
    #[cfg(feature = "runtime")]
    pub fn maca() -> Result<Self, Error> {
        Self::of_runtime(Runtime::Maca)
    }

    /// The machine of a vendor's runtime library, of which a process has one.
    ///
    /// # Errors
    ///
    /// As [`cudart`](Self::cudart).
    #[cfg(feature = "runtime")]
    pub fn of_runtime(runtime: Runtime) -> Result<Self, Error> {
        static MADE: [OnceLock<Machine>; Runtime::ALL.len()] =
            [const { OnceLock::new() }; Runtime::ALL.len()];
        let place = &MADE[runtime as usize];
        if let Some(machine) = place.get() {
            return Ok(machine.clone());
        }
        let made = Self::new(crate::driver::runtime::RuntimeDriver::load(runtime)?)?;
        Ok(place.get_or_init(|| made).clone())
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.inner.driver
    }

    /// Whether suballocators over this machine that are made from now on keep a ledger of their blocks where their configuration says
    /// nothing: see [`PoolConfig::checked`](crate::PoolConfig::checked). Default: in debug builds, and on a
    /// [simulated machine](crate::sim) that [watches blocks](crate::sim::SimConfig::watch_blocks).
    ///
    /// ```
    /// use alluvion::{Layout, MisuseKind, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// sim.machine().check_frees(true);
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?;
    /// let (layout, stream) = (Layout::from_bytes(1000)?, sim.device(0).stream()?);
    /// let block = pool.allocate(layout, stream.as_ref())?;
    /// let wrong = Layout::from_bytes(1001)?;
    /// // SAFETY: nothing uses the block.
    /// let error = unsafe { pool.try_deallocate(block, wrong, &stream) }.unwrap_err();
    /// assert_eq!(error.misuse().map(|misuse| misuse.what), Some(MisuseKind::WrongSize { allocated_bytes: 1000 }));
    /// # unsafe { pool.deallocate(block, layout, stream.as_ref()) };
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn check_frees(&self, checks: bool) {
        // Relaxed: a setting. Who makes a suballocator because of it comes after it by other means.
        self.inner.checks_frees.store(checks, Ordering::Relaxed);
    }

    /// Returns `true` if it does: see [`check_frees`](Self::check_frees).
    #[must_use]
    pub fn checks_frees(&self) -> bool {
        self.inner.checks_frees.load(Ordering::Relaxed)
    }

    /// The bytes of addresses that suballocators have reserved for pages.
    pub(crate) fn reserved_addresses(&self) -> usize {
        // Relaxed, here and below: a figure that the length of the next range is measured by.
        self.inner.reserved_addresses.load(Ordering::Relaxed)
    }

    pub(crate) fn note_addresses(&self, reserved: usize) {
        self.inner.reserved_addresses.fetch_add(reserved, Ordering::Relaxed);
    }

    pub(crate) fn forget_addresses(&self, unreserved: usize) {
        self.inner.reserved_addresses.fetch_sub(unreserved, Ordering::Relaxed);
    }

    /// Device `ordinal`.
    ///
    /// # Errors
    ///
    /// `NoDevice` if there are fewer.
    pub fn device(&self, ordinal: u32) -> Result<Device, Error> {
        if (ordinal as usize) < self.inner.devices.len() {
            Ok(Device::new(self.clone(), ordinal))
        } else {
            Err(Error::no_device(ordinal, self.inner.devices.len() as u32))
        }
    }

    /// All devices.
    #[must_use]
    pub fn devices(&self) -> impl ExactSizeIterator<Item = Device> + '_ {
        (0..self.inner.devices.len() as u32).map(|ordinal| Device::new(self.clone(), ordinal))
    }

    /// The device that is current on the calling thread, as `cudaGetDevice` answers it: the device of the current context, or
    /// device 0 where none is current. Makes no context.
    ///
    /// ```
    /// use alluvion::Sim;
    ///
    /// let sim = Sim::new();
    /// assert_eq!(sim.machine().current_device()?.ordinal(), 0);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NoDevice` on a machine without devices; as the driver says.
    pub fn current_device(&self) -> Result<Device, Error> {
        self.device(self.driver().context_device()?.unwrap_or(0))
    }

    /// Returns `true` if all work before the frontier is known to be over, on every stream and device. Asks the driver where it
    /// must, and does not wait. Only quiescent memory may be unmapped or given back.
    ///
    /// A stream without an event is covered by one, so that a later call can succeed. While the stream captures it cannot be
    /// covered, and the answer is `false`.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a point of another machine; those of the work itself.
    pub fn is_quiescent(&self, frontier: &Frontier) -> Result<bool, Error> {
        for stamp in frontier.iter() {
            let Some(timeline) = self.timeline_to_ask(stamp)? else { continue };
            match timeline.cover(stamp.epoch) {
                Ok(_) => {}
                // It cannot be covered now, so the answer is not known.
                Err(uncovered) if uncovered.is_capture() => return Ok(false),
                Err(Uncovered::Ended { is_open: true }) => return Ok(false),
                Err(uncovered) => return Err(uncovered.into()),
            }
            if let Some(over) = timeline.poll()?.newest {
                self.table().finish_all(over.past());
            }
            if !timeline.is_done(stamp.epoch) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits, on the host, until all work before the frontier is over.
    ///
    /// # Errors
    ///
    /// As [`is_quiescent`](Self::is_quiescent); a capture error while a stream concerned captures.
    pub fn wait_quiescent(&self, frontier: &Frontier) -> Result<(), Error> {
        for stamp in frontier.iter() {
            let Some(timeline) = self.timeline_to_ask(stamp)? else { continue };
            match timeline.cover(stamp.epoch) {
                Ok(covered) => self.wait_by_event(&covered.cover)?,
                // Nothing else says when its last frees are over.
                Err(Uncovered::Ended { is_open: true }) => self.wait_for_device(timeline.ordinal())?,
                Err(uncovered) => return Err(uncovered.into()),
            }
        }
        Ok(())
    }

    /// As [`wait_quiescent`](Self::wait_quiescent), and never for a device, which would break the capture of any of its streams: the
    /// last frees of a stream that came by its raw handle may be out of reach.
    pub(crate) fn wait_by_events(&self, frontier: &Frontier) -> Result<(), Error> {
        for stamp in frontier.iter() {
            if let Some(timeline) = self.timeline_to_ask(stamp)? {
                self.wait_by_event(&timeline.cover(stamp.epoch)?.cover)?;
            }
        }
        Ok(())
    }

    fn wait_by_event(&self, cover: &Cover) -> Result<(), Error> {
        cover.synchronize()?;
        self.table().finish_all(cover.past());
        Ok(())
    }

    /// Waits, on the host, for all work of a device, unless that would break a capture: of a stream that is at hand here, or of a blocking
    /// stream of anybody. The capture of a non-blocking stream that nobody has given to this crate to hold is not seen, nor is one that
    /// begins just now.
    pub(crate) fn wait_for_device(&self, ordinal: u32) -> Result<(), Error> {
        self.require_same_process()?;
        let device = self.device(ordinal)?;
        for timeline in self.table().timelines().filter(|timeline| timeline.ordinal() == ordinal) {
            timeline.require_no_capture()?;
        }
        device.synchronize()
    }

    /// The last frees of the stream are covered by no event, and it is not at hand: they are over when its device has been waited for.
    pub(crate) fn has_open_end(&self, of: StreamId) -> bool {
        self.table().timeline(of).is_some_and(|timeline| timeline.has_open_end())
    }

    /// Waits, on the host, until all work submitted to any stream so far is over: for memory of device `ordinal` that may be used
    /// on any stream. It waits for each stream by an event, and [for each device](Self::wait_for_device) that a stream came from by its raw
    /// handle: its owner may have submitted work since, and nothing may be asked of the handle.
    pub(crate) fn wait_for_every_stream(&self, ordinal: u32) -> Result<(), Error> {
        let mut every = Frontier::quiescent();
        for timeline in self.table().timelines() {
            let state = self.state(timeline.ordinal());
            // Relaxed: work was submitted there before the event that brought the caller here.
            let is_used = timeline.ordinal() == ordinal
                || !Arc::ptr_eq(&timeline, &state.legacy)
                || state.legacy_is_out.load(Ordering::Relaxed);
            if is_used {
                every.extend(timeline.latest());
            }
        }
        for device in self.devices() {
            if self.state(device.ordinal()).events.had_fleeting() {
                self.wait_for_device(device.ordinal())?;
            }
        }
        self.wait_quiescent(&every)
    }

    /// Drops the points of the frontier that are known to be over. No driver call.
    pub fn forget_done(&self, frontier: &mut Frontier) {
        frontier.retire(|stamp| stamp.stream.machine() == self.number() && self.table().is_done(stamp));
    }

    /// The timeline of a point that is not known to be over.
    fn timeline_to_ask(&self, stamp: Stamp) -> Result<Option<Arc<Timeline>>, Error> {
        self.require_same_process()?;
        if stamp.stream.machine() != self.number() {
            return Err(Error::machine_mismatch());
        }
        let timeline = self.table().timeline(stamp.stream);
        Ok(timeline.filter(|timeline| !timeline.is_done(stamp.epoch)))
    }

    /// Returns `true` in a child of the process that made the machine. The driver refuses every call there, so all work on the
    /// devices is the parent's.
    pub(crate) fn is_inherited(&self) -> bool {
        self.inner.made_in.is_parent()
    }

    /// Releases the attachments of its devices, which keep the machine alive.
    pub(crate) fn release_attachments(&self) {
        self.inner.devices.iter().for_each(|state| state.attachments.release());
    }

    pub(crate) fn require_same_process(&self) -> DriverResult<()> {
        self.inner.made_in.require()
    }

    pub(crate) fn number(&self) -> u32 {
        self.inner.number
    }

    pub(crate) fn table(&self) -> &Table {
        &self.inner.table
    }

    /// The streams that the machine itself keeps.
    #[cfg(feature = "sim")]
    pub(super) fn kept_streams(&self) -> Vec<RawStream> {
        self.inner
            .devices
            .iter()
            .filter_map(|state| state.service.get())
            .map(|timeline| timeline.raw())
            .collect()
    }

    pub(super) fn state(&self, ordinal: u32) -> &DeviceState {
        &self.inner.devices[ordinal as usize]
    }

    pub(crate) fn downgrade(&self) -> WeakMachine {
        WeakMachine(Arc::downgrade(&self.inner))
    }
}

impl Drop for MachineInner {
    fn drop(&mut self) {
        for (ordinal, state) in self.devices.iter().enumerate() {
            if let Some(timeline) = state.service.get() {
                timeline.retire();
            }
            state.retired_pools.sweep(&*self.driver, ordinal as u32);
        }
    }
}

impl PartialEq for Machine {
    fn eq(&self, other: &Self) -> bool {
        self.number() == other.number()
    }
}

impl Eq for Machine {}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Machine({} with {} devices)", self.driver().name(), self.inner.devices.len())
    }
}

/// A reference to a machine that may have been dropped.
#[derive(Clone)]
pub(crate) struct WeakMachine(Weak<MachineInner>);

impl WeakMachine {
    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }

    pub(crate) fn upgrade(&self) -> Option<Machine> {
        self.0.upgrade().map(|inner| Machine { inner })
    }

    pub(crate) fn is(&self, machine: &Machine) -> bool {
        core::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&machine.inner))
    }
}
