//! `Device`: one GPU of a machine.

#![expect(unsafe_code, reason = "hands retired pools on, and destroys a stream that nobody has seen")]

use core::fmt;
use core::sync::atomic::Ordering;

use super::{Capabilities, Machine};
use crate::driver::{Driver, MemoryInfo, RawPool, RelaxedCapture, StreamFlags};
use crate::error::Error;
use crate::resource::AnyResource;
use crate::stream::{Ending, PerThreadStream, Stream, StreamKind, Table, Timeline, Underlying};
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
/// // A tenth of what is free, in whole 256 bytes: a size for a first pool.
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

    /// Its number in the machine.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// The machine it belongs to.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The driver of its machine.
    #[must_use]
    pub fn driver(&self) -> &Arc<dyn Driver> {
        self.machine.driver()
    }

    /// What it calls itself.
    ///
    /// # Errors
    ///
    /// As the driver says.
    pub fn name(&self) -> Result<String, Error> {
        Ok(self.driver().device_name(self.ordinal)?)
    }

    /// What it can do: asked once, then remembered.
    ///
    /// # Errors
    ///
    /// As the driver says.
    pub fn capabilities(&self) -> Result<&Capabilities, Error> {
        self.machine.require_here()?;
        let known = &self.machine.state(self.ordinal).capabilities;
        if let Some(capabilities) = known.get() {
            return Ok(capabilities);
        }
        let probed = Capabilities::probe(&**self.driver(), self.ordinal)?;
        Ok(known.get_or_init(|| probed))
    }

    /// Free and total memory of the device, now, whoever uses it.
    ///
    /// # Errors
    ///
    /// As the driver says.
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

    /// Waits until all work of the device is done, on every stream. What was freed on any of them before is then reusable on all.
    /// Pools that were waiting for it are destroyed.
    ///
    /// While any stream of the device captures this is an error, and breaks the capture: wait for streams instead.
    ///
    /// # Errors
    ///
    /// Those of the work itself, too.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.machine.require_here()?;
        let _relaxed = RelaxedCapture::attempt(&**self.driver());
        let pasts = self.table().begin_wait(self.ordinal);
        self.driver().context_synchronize(self.ordinal)?;
        pasts.iter().for_each(|past| self.table().finish_all(past));
        self.sweep_pools();
        Ok(())
    }

    /// Makes a stream that is not ordered with the legacy default stream.
    ///
    /// # Errors
    ///
    /// As the driver says.
    pub fn stream(&self) -> Result<Stream, Error> {
        self.stream_with(StreamFlags::default())
    }

    /// Makes a stream with flags of your choice.
    ///
    /// # Errors
    ///
    /// As the driver says.
    pub fn stream_with(&self, flags: StreamFlags) -> Result<Stream, Error> {
        Stream::create(self, flags)
    }

    /// The legacy default stream: every blocking stream of the device waits for it and it for them.
    #[must_use]
    pub fn default_stream(&self) -> Stream {
        Stream::with_timeline(self, Arc::clone(self.legacy_timeline()), StreamKind::Legacy)
    }

    /// The calling thread's default stream.
    ///
    /// # Errors
    ///
    /// If the machine has no more stream numbers, or the thread is ending and has let go of its streams.
    pub fn per_thread_stream(&self) -> Result<PerThreadStream, Error> {
        PerThreadStream::of(self)
    }

    /// A stream of the crate's own, for calls that name none. The device keeps it.
    pub(crate) fn service_stream(&self) -> Result<Stream, Error> {
        self.machine.require_here()?;
        let kept = &self.machine.state(self.ordinal).service;
        if let Some(timeline) = kept.get() {
            return Ok(Stream::with_timeline(self, Arc::clone(timeline), StreamKind::Service));
        }
        let raw = self.driver().stream_create(self.ordinal, StreamFlags::default())?;
        let stream = Underlying { raw, owner: None, ending: Ending::Destroy, eager: false };
        let made = match self.enter_timeline(stream) {
            Ok(made) => made,
            Err(error) => {
                // SAFETY: it was made above, and nobody else knows of it.
                let _ = unsafe { self.driver().stream_destroy(self.ordinal, raw) };
                return Err(error);
            }
        };
        // The cell is not filled under its own lock, because that would be a driver call under a lock. Who comes second
        // ends the stream that it made.
        let timeline = match kept.set(Arc::clone(&made)) {
            Ok(()) => made,
            Err(_) => {
                made.retire();
                self.note_ended(made.id());
                kept.get().map_or(made, Arc::clone)
            }
        };
        Ok(Stream::with_timeline(self, timeline, StreamKind::Service))
    }

    /// The least and the greatest priority that a stream can have; the greatest is the lower number.
    ///
    /// # Errors
    ///
    /// As the driver says.
    pub fn stream_priority_range(&self) -> Result<(i32, i32), Error> {
        Ok(self.driver().stream_priority_range(self.ordinal)?)
    }

    /// The resource that containers on this device allocate from when nobody names another.
    ///
    /// Until one is set it is a [`CudaAsync`](crate::source::CudaAsync) where the device has memory pools, else a
    /// [`Cuda`](crate::source::Cuda), made at the first call. Inside [`with_current_resource`](Self::with_current_resource)
    /// it is, on that thread, the one given there.
    ///
    /// The environment variable `ALLUVION_RESOURCE` says otherwise, if it is set: a [recipe](crate::recipe), as
    /// `pool(initial=1GiB) | cuda-async`, from which the initial resource of every device is made. It is read once a device,
    /// and not in a process with raised privileges, as that of a program with the set-user-id bit: a recipe may name files to be
    /// written.
    ///
    /// The answer is owned: it stays good whatever is set afterwards.
    ///
    /// # Errors
    ///
    /// Those of making the initial resource. What is wrong with the recipe of the environment is told with its place.
    /// `Unsupported` where it is asked for by what is called while it is made, as a listener of `tracing` or a driver of one's own;
    /// and where another thread has been making it for a minute.
    pub fn current_resource(&self) -> Result<AnyResource, Error> {
        self.machine.state(self.ordinal).current.resource(self)
    }

    /// Sets the current resource and returns the one before. Blocks that are live go back to the resource that they came
    /// from: each container holds it.
    ///
    /// ```
    /// use alluvion::{AnyResource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let device = sim.device(0);
    /// let before = device.set_current_resource(AnyResource::new(Cuda::new(&device)))?;
    /// assert_eq!(device.current_resource()?.describe().to_string(), "Cuda(gpu 0)");
    /// device.set_current_resource(before)?;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` if the resource belongs to another device; those of making the initial resource.
    pub fn set_current_resource(&self, resource: AnyResource) -> Result<AnyResource, Error> {
        self.machine.state(self.ordinal).current.set(self, resource)
    }

    /// Puts the initial resource back and returns the one before. If nobody has the initial one any more, it is made anew.
    ///
    /// # Errors
    ///
    /// Those of making the initial resource.
    pub fn reset_current_resource(&self) -> Result<AnyResource, Error> {
        self.machine.state(self.ordinal).current.reset(self)
    }

    /// Runs `body` with another current resource, on this thread only, and puts the one before back however it ends.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` if the resource belongs to another device; `Unsupported` from the destructors of an ending thread.
    /// `body` is not run then.
    pub fn with_current_resource<T>(
        &self,
        resource: AnyResource,
        body: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        super::current::with_resource(self, resource, body)
    }

    pub(crate) fn require_machine(&self, other: &Self) -> Result<(), Error> {
        self.machine.require_here()?;
        if self.machine == other.machine { Ok(()) } else { Err(Error::machine_mismatch()) }
    }

    /// Succeeds if `other` is this device.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` if it is not: what every resource answers to a stream of another device. `ShutDown` in a child of the
    /// process that it was made in.
    pub fn require(&self, other: &Self) -> Result<(), Error> {
        self.require_machine(other)?;
        if self.ordinal == other.ordinal {
            Ok(())
        } else {
            Err(Error::device_mismatch(self.ordinal, other.ordinal))
        }
    }

    /// Takes over a pool that its resource is done with.
    ///
    /// # Safety
    ///
    /// As [`RetiredPools::retire`](crate::source::RetiredPools::retire), for a pool of this device.
    pub(crate) unsafe fn retire_pool(&self, pool: RawPool) {
        let retired = &self.machine.state(self.ordinal).retired_pools;
        // SAFETY: the caller's promises.
        unsafe { retired.retire(&**self.driver(), self.ordinal, pool) };
    }

    /// Destroys retired pools that hold nothing any more.
    pub(crate) fn sweep_pools(&self) {
        self.machine.state(self.ordinal).retired_pools.sweep(&**self.driver(), self.ordinal);
    }

    pub(crate) fn machine_number(&self) -> u32 {
        self.machine.number()
    }

    pub(crate) fn table(&self) -> &Table {
        self.machine.table()
    }

    pub(crate) fn legacy_timeline(&self) -> &Arc<Timeline> {
        let state = self.machine.state(self.ordinal);
        // Relaxed: see `Machine::wait_for_every_stream`.
        state.legacy_is_out.store(true, Ordering::Relaxed);
        &state.legacy
    }

    pub(crate) fn enter_timeline(&self, stream: Underlying) -> Result<Arc<Timeline>, Error> {
        let events = Arc::clone(&self.machine.state(self.ordinal).events);
        let driver = Arc::clone(self.driver());
        self.table().enter(|id| Timeline::new(id, driver, events, self.ordinal, stream))
    }

    pub(crate) fn note_ended(&self, stream: crate::stream::StreamId) {
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
