//! `SimDriver`: the handle to a simulated machine, with methods for tests.

#![expect(unsafe_code, reason = "launching a kernel is as unsafe as queueing a copy")]

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::thread;

use super::entry::of;
use super::fault::Fault;
use super::hazard::Hazard;
use super::kernel::Kernel;
use super::lane::Work;
use super::live::Live;
use super::machine::{SharedMachine, SimMachine};
use super::process::ProcessId;
use super::schedule::{Scheduler, Seeded};
use super::{CallCounts, SimConfig};
use crate::driver::{Call, Code, DriverResult, RawStream};
use crate::sync::{Condvar, Mutex};

/// A simulated machine behind the [`Driver`](crate::driver::Driver) seam.
///
/// See the [module](super) for what it simulates. The methods here are for tests: they count calls, return hazards and live
/// objects, and inject faults. They take raw handles and cost no simulated time.
///
/// # Thread safety
///
/// Any thread may call anything. No lock is held while a kernel or a host function runs.
///
/// # Examples
///
/// ```
/// use alluvion::sim::{SimConfig, SimDriver};
/// use alluvion::driver::{Driver, FillValue, RawStream};
///
/// let driver = SimDriver::new(SimConfig::default());
/// let address = driver.allocate_device(0, 1024)?;
/// let mut back = [0_u8; 1024];
/// // SAFETY: both ranges are live until the host has waited, below, and no other code uses them.
/// unsafe {
///     driver.fill_async(0, address, FillValue::U8(7), 1024, RawStream::LEGACY)?;
/// }
/// // SAFETY: as above.
/// unsafe {
///     driver.copy(0, back.as_mut_ptr().expose_provenance() as u64, address, 1024)?;
/// }
/// assert_eq!(back, [7; 1024]);
/// # Ok::<(), alluvion::driver::DriverError>(())
/// ```
pub struct SimDriver {
    pub(super) shared: Arc<SharedMachine>,
    pub(super) process: ProcessId,
    /// While every schedule is explored, only the program moves the machine.
    is_explored: bool,
    watches_blocks: bool,
}

impl SimDriver {
    /// A machine as configured.
    #[must_use]
    pub fn new(config: SimConfig) -> Arc<Self> {
        let scheduler = Scheduler::Seeded(Seeded::new(config.seed));
        Self::with_scheduler(config, scheduler)
    }

    pub(super) fn with_scheduler(config: SimConfig, scheduler: Scheduler) -> Arc<Self> {
        let is_explored = matches!(scheduler, Scheduler::Scripted(_));
        static NEXT: AtomicU32 = AtomicU32::new(1);
        // Relaxed: only that the numbers differ matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let watches_blocks = config.watches_blocks;
        let machine = Mutex::new(SimMachine::new(config, scheduler));
        let (changed, host_call_runner) = (Condvar::default(), Once::new());
        let shared = Arc::new(SharedMachine { number, machine, changed, host_call_runner });
        Arc::new(Self { shared, process: ProcessId::FIRST, is_explored, watches_blocks })
    }

    /// Another process on the same machine.
    ///
    /// It sees the same devices, the same free memory and the same scheduler. All else is its own: handles, addresses, contexts and
    /// their errors, current devices, captures, faults, hazards, counts of calls, live objects. It gets memory and events of other
    /// processes by [`sharing`](crate::driver::Driver::sharing) alone. Two accesses that race are found whichever processes make them,
    /// and reported to the one that makes the second.
    ///
    /// The process ends when the last reference is dropped, or by [`kill`](Self::kill).
    ///
    /// ```
    /// use alluvion::driver::Driver;
    /// use alluvion::sim::{SimConfig, SimDriver};
    ///
    /// let exporter = SimDriver::new(SimConfig::default());
    /// let importer = exporter.process();
    /// let address = exporter.allocate_device(0, 512)?;
    /// assert_eq!(importer.memory_info(0), exporter.memory_info(0));
    /// assert_eq!(importer.address_range(address), Ok(None));
    ///
    /// // SAFETY: the address lies in the memory above.
    /// let handle = unsafe { exporter.sharing().unwrap().memory_handle(0, address) }?;
    /// // SAFETY: the memory is not freed before it is closed.
    /// let opened = unsafe { importer.sharing().unwrap().memory_open(0, handle) }?;
    /// assert_eq!(importer.live().opened, 1);
    /// // SAFETY: it was opened above, and nothing uses it.
    /// unsafe { importer.sharing().unwrap().memory_close(0, opened) }?;
    /// # Ok::<(), alluvion::driver::DriverError>(())
    /// ```
    #[must_use]
    pub fn process(&self) -> Arc<Self> {
        let process = self.look(SimMachine::begin_process).unwrap_or(ProcessId::NONE);
        let Self { ref shared, is_explored, watches_blocks, .. } = *self;
        Arc::new(Self { shared: Arc::clone(shared), process, is_explored, watches_blocks })
    }

    /// Ends the process as by SIGKILL: its queued work is dropped, every later call returns [`Code::DEINITIALIZED`], and its memory
    /// goes back to the devices, unless another process has it open, imported or mapped.
    ///
    /// As on hardware, whoever waits for a shared event that the process had recorded behind work which has not run waits for ever, or
    /// until it is killed itself.
    ///
    /// Descriptors are the test's, and stay open. So does memory of the host, which the test may still use.
    ///
    /// ```
    /// use alluvion::driver::{Code, Driver};
    /// use alluvion::sim::{SimConfig, SimDriver};
    ///
    /// let first = SimDriver::new(SimConfig::default());
    /// let second = first.process();
    /// let before = first.memory_info(0);
    /// second.allocate_device(0, 1 << 20)?;
    /// assert_ne!(first.memory_info(0), before);
    /// second.kill();
    /// assert_eq!(first.memory_info(0), before);
    /// assert_eq!(second.memory_info(0).unwrap_err().code, Code::DEINITIALIZED);
    /// # Ok::<(), alluvion::driver::DriverError>(())
    /// ```
    pub fn kill(&self) {
        if let Some(mut machine) = self.shared.lock_unless_forked_as(self.process) {
            machine.end_process();
            self.shared.changed.notify_all();
            drop(self.shared.drop_discarded(machine));
        }
    }

    /// Queues a kernel on a stream.
    ///
    /// # Errors
    ///
    /// Those of any call that queues work. An error of the kernel itself is returned by a later synchronisation.
    ///
    /// # Safety
    ///
    /// `stream` is live and belongs to this device. All that the kernel touches is live until it has run, and no
    /// unordered work conflicts; memory of the host that it touches is not used by the host meanwhile, and holds what
    /// it writes there.
    pub unsafe fn launch(&self, ordinal: u32, stream: RawStream, kernel: Kernel) -> DriverResult<()> {
        let mut machine = self.enter_uncounted(Call::StreamHostCall, ordinal)?;
        let stream = machine.stream(ordinal, stream).map_err(of(Call::StreamHostCall))?;
        let (name, ranges) = (Arc::clone(&kernel.name), kernel.ranges.clone());
        let target = machine.target(&stream).map_err(of(Call::StreamHostCall))?;
        machine.put(target, Work::Kernel(kernel), name, &ranges);
        Ok(())
    }

    /// The hazards so far.
    #[must_use]
    pub fn hazards(&self) -> Vec<Hazard> {
        let take_a_look = |machine: &mut SimMachine| {
            machine.process.hazards_seen = machine.process.hazards.len();
            machine.process.hazards.clone()
        };
        self.look(take_a_look).unwrap_or_default()
    }

    /// The hazards since they were last taken.
    #[must_use]
    pub fn take_hazards(&self) -> Vec<Hazard> {
        let take = |machine: &mut SimMachine| {
            machine.process.hazards_seen = 0;
            core::mem::take(&mut machine.process.hazards)
        };
        self.look(take).unwrap_or_default()
    }

    /// The hazards that the test has not read, if the configuration asks for a panic.
    pub(crate) fn unseen_hazards(&self) -> Vec<Hazard> {
        let unseen = |machine: &mut SimMachine| match machine.config.panics_on_unseen_hazards {
            true => machine.process.hazards[machine.process.hazards_seen..].to_vec(),
            false => Vec::new(),
        };
        self.look(unseen).unwrap_or_default()
    }

    /// The live allocations, mapped memory with its addresses, and streams, except for the streams in `kept`.
    pub(crate) fn leaked_memory_and_streams(&self, kept: &[RawStream]) -> Vec<Hazard> {
        let leaked = |machine: &mut SimMachine| {
            machine.block_leaks().chain(machine.virtual_leaks()).chain(machine.stream_leaks(kept)).collect()
        };
        self.look(leaked).unwrap_or_default()
    }

    /// The number of calls of each kind.
    #[must_use]
    pub fn calls(&self) -> CallCounts {
        self.look(|machine| machine.process.calls.clone()).unwrap_or_default()
    }

    /// The number of live objects of each kind.
    #[must_use]
    pub fn live(&self) -> Live {
        self.look(|machine| machine.live()).unwrap_or_default()
    }

    /// One hazard for each live object: for the end of a test.
    #[must_use]
    pub fn leaks(&self) -> Vec<Hazard> {
        self.look(|machine| machine.leaks()).unwrap_or_default()
    }

    /// Simulated time: the cost of the calls so far, in nanoseconds.
    #[must_use]
    pub fn clock_ns(&self) -> u64 {
        self.look(|machine| machine.process.clock_ns).unwrap_or_default()
    }

    /// Makes a coming call fail.
    pub fn inject(&self, fault: Fault) {
        let _ = self.look(|machine| machine.process.faults.add(fault));
    }

    /// Removes all faults that have not occurred yet.
    pub fn clear_faults(&self) {
        let _ = self.look(|machine| machine.process.faults.clear());
    }

    /// The number of faults that have not occurred yet.
    #[must_use]
    pub fn faults_left(&self) -> usize {
        self.look(|machine| machine.process.faults.left()).unwrap_or_default()
    }

    /// Loses the context of a device: its queued work never runs, and every later call on it fails with `code`.
    pub fn poison(&self, ordinal: u32, code: Code) {
        if let Some(mut machine) = self.shared.lock_unless_forked_as(self.process) {
            machine.lose(ordinal, code);
            self.shared.changed.notify_all();
            drop(self.shared.drop_discarded(machine));
        }
    }

    /// Reads the machine, unless it belongs to another process.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut SimMachine) -> T) -> Option<T> {
        self.shared.lock_unless_forked_as(self.process).map(|mut machine| look(&mut machine))
    }

    /// Returns `true` if layers are to tell of their blocks.
    pub(super) const fn watches_blocks(&self) -> bool {
        self.watches_blocks
    }

    /// Starts the thread that runs host functions that no call waits for.
    pub(super) fn start_host_call_runner(&self) {
        self.shared.changed.notify_all();
        if self.is_explored {
            return;
        }
        self.shared.host_call_runner.call_once(|| {
            let shared = Arc::clone(&self.shared);
            // Without the thread, a host function runs when a call waits for it, as all other work does.
            let _ = thread::Builder::new()
                .name("simulated machine".to_owned())
                .spawn(move || shared.run_overdue_host_calls());
        });
    }
}

impl fmt::Debug for SimDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("SimDriver");
        if let Some((devices, live)) = self.look(|machine| (machine.devices.len(), machine.live())) {
            debug.field("devices", &devices).field("live", &format_args!("{live}"));
        }
        debug.finish_non_exhaustive()
    }
}

impl Drop for SimDriver {
    /// The process ends. Queued work is dropped, not run. Live memory of the host is leaked, because it may still be in use.
    fn drop(&mut self) {
        let Some(mut machine) = self.shared.lock_unless_forked_as(self.process) else { return };
        machine.end_process();
        machine.closed = machine.leave_process();
        self.shared.changed.notify_all();
        drop(self.shared.drop_discarded(machine));
    }
}
