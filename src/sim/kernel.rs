//! Kernels: closures that declare the memory that they use.

use core::any::Any;
use core::cell::Cell;
use core::fmt;
use std::sync::Arc;

use super::device_bytes::junk;
use super::hazard::{AccessMode, Hazard, HazardKind, StreamLabel};
use super::machine::SharedMachine;
use super::process::ProcessId;
use crate::contain::contain_and_read;
use crate::driver::Code;

type KernelBody = dyn Fn(&mut DeviceMemory<'_>) + Send + Sync;

/// Work for a device: a name, the ranges that it reads and writes, and a closure that does it.
///
/// Hazards are found from the ranges, and the closure may use no other memory. A kernel without a closure only declares its
/// ranges, which is enough to check the order.
///
/// ```
/// use alluvion::sim::{Kernel, SimConfig, SimDriver};
/// use alluvion::driver::{Driver, RawStream};
///
/// let driver = SimDriver::new(SimConfig::default());
/// let address = driver.allocate_device(0, 4)?;
/// let kernel = Kernel::new("answer").writes(address, 4).run(move |memory| memory.write(address, &[42; 4]));
/// // SAFETY: the legacy stream always exists; the kernel touches no memory of the host.
/// unsafe { driver.launch(0, RawStream::LEGACY, kernel) }?;
/// driver.context_synchronize(0)?;
/// assert!(driver.hazards().is_empty());
/// # Ok::<(), alluvion::driver::DriverError>(())
/// ```
#[derive(Clone)]
#[must_use = "a kernel does nothing until it is launched"]
pub struct Kernel {
    pub(super) name: Arc<str>,
    pub(super) ranges: Vec<Range>,
    body: Option<Arc<KernelBody>>,
}

/// A range that an operation declares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) mode: AccessMode,
}

impl Kernel {
    /// A kernel that uses no memory yet. Hazards print its name.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ranges: Vec::new(), body: None }
    }

    /// Declares bytes that the kernel reads.
    pub fn reads(self, address: u64, bytes: usize) -> Self {
        self.touches(address, bytes, AccessMode::Read)
    }

    /// Declares bytes that the kernel writes, and may read.
    pub fn writes(self, address: u64, bytes: usize) -> Self {
        self.touches(address, bytes, AccessMode::Write)
    }

    /// Sets the closure that the kernel runs. A kernel in a graph may run more than once.
    pub fn run(mut self, body: impl Fn(&mut DeviceMemory<'_>) + Send + Sync + 'static) -> Self {
        self.body = Some(Arc::new(body));
        self
    }

    fn touches(mut self, address: u64, bytes: usize, mode: AccessMode) -> Self {
        if bytes > 0 {
            self.ranges.push(Range { address, bytes: bytes as u64, mode });
        }
        self
    }

    /// Returns `true` if the whole range was declared for this mode.
    fn declares(&self, address: u64, bytes: u64, mode: AccessMode) -> bool {
        let end = address.saturating_add(bytes);
        let mut at = address;
        while at < end {
            let reached = self
                .ranges
                .iter()
                .filter(|range| range.mode == AccessMode::Write || mode == AccessMode::Read)
                .filter(|range| range.address <= at && at < range.address.saturating_add(range.bytes))
                .map(|range| range.address.saturating_add(range.bytes))
                .max();
            match reached {
                Some(reached) => at = reached,
                None => return false,
            }
        }
        true
    }

    /// Runs the closure with no lock held. Returns the health of the device afterwards.
    pub(super) fn execute(
        &self,
        shared: &SharedMachine,
        process: ProcessId,
        ordinal: u32,
        stream: StreamLabel,
    ) -> Result<(), Code> {
        let Some(body) = &self.body else { return Ok(()) };
        let mut memory = DeviceMemory { shared, process, kernel: self, ordinal, stream, failed: None };
        let panic = run_callback(|| body(&mut memory)).err();
        let failed = memory.failed;
        if let Some(words) = panic {
            let words = format!("kernel `{}` on {stream} panicked: {words}", self.name);
            shared.lock_as(process).report(Hazard::rule(HazardKind::Panic, words));
            return Err(Code::LAUNCH_FAILED);
        }
        failed.map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("name", &self.name)
            .field("ranges", &self.ranges)
            .finish_non_exhaustive()
    }
}

/// Memory as a running kernel sees it.
///
/// Using memory that is not mapped loses the context, as on hardware: the kernel runs on, reads junk, and every later call on the
/// device fails with [`Code::ILLEGAL_ADDRESS`].
#[derive(Debug)]
pub struct DeviceMemory<'a> {
    shared: &'a SharedMachine,
    process: ProcessId,
    kernel: &'a Kernel,
    ordinal: u32,
    stream: StreamLabel,
    failed: Option<Code>,
}

impl DeviceMemory<'_> {
    /// Reads bytes from an address.
    pub fn read(&mut self, address: u64, into: &mut [u8]) {
        let declared = self.check(address, into.len(), AccessMode::Read);
        let machine = self.shared.lock_as(self.process);
        if let Err(code) = machine.kernel_read(self.ordinal, address, into, declared) {
            self.failed = self.failed.or(Some(code));
            junk(address, 0, into);
        }
    }

    /// Writes bytes to an address.
    pub fn write(&mut self, address: u64, from: &[u8]) {
        let declared = self.check(address, from.len(), AccessMode::Write);
        let mut machine = self.shared.lock_as(self.process);
        if let Err(code) = machine.kernel_write(self.ordinal, address, from, declared) {
            self.failed = self.failed.or(Some(code));
        }
    }

    /// Reads four bytes as a number, in the machine's order.
    pub fn read_u32(&mut self, address: u64) -> u32 {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes);
        u32::from_ne_bytes(bytes)
    }

    /// Writes a number as four bytes, in the machine's order.
    pub fn write_u32(&mut self, address: u64, value: u32) {
        self.write(address, &value.to_ne_bytes());
    }

    /// The device that the kernel runs on.
    #[must_use]
    pub const fn ordinal(&self) -> u32 {
        self.ordinal
    }

    fn check(&self, address: u64, bytes: usize, mode: AccessMode) -> bool {
        let declared = self.kernel.declares(address, bytes as u64, mode);
        if !declared {
            let (name, stream) = (&self.kernel.name, self.stream);
            let words = format!(
                "kernel `{name}` on {stream} did not declare the {mode} of {bytes} bytes at {address:#x}; declare it, \
                 or races with it cannot be seen"
            );
            self.shared.lock_as(self.process).report(Hazard::rule(HazardKind::UndeclaredAccess, words));
        }
        declared
    }
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` on a thread that runs a kernel or a host function now.
pub(super) fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Runs a foreign closure. Catches a panic, and returns its message.
pub(super) fn run_callback(callback: impl FnOnce()) -> Result<(), String> {
    let before = IN_CALLBACK.replace(true);
    let outcome = contain_and_read(callback, panic_words);
    IN_CALLBACK.set(before);
    outcome
}

/// The message of a panic.
pub(super) fn panic_words(payload: &(dyn Any + Send)) -> String {
    let words = payload.downcast_ref::<&str>().map(|words| (*words).to_owned());
    words.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no words".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_ranges_join_up_and_writing_includes_reading() {
        let kernel = Kernel::new("k").reads(100, 10).writes(110, 10);
        assert!(kernel.declares(100, 20, AccessMode::Read));
        assert!(kernel.declares(112, 8, AccessMode::Write));
        assert!(!kernel.declares(109, 2, AccessMode::Write));
        assert!(!kernel.declares(99, 2, AccessMode::Read));
        assert!(!kernel.declares(119, 2, AccessMode::Read));
        assert!(kernel.declares(5, 0, AccessMode::Write));
    }

    #[test]
    fn a_panic_comes_back_as_words() {
        assert_eq!(run_callback(|| panic!("at {}", 7)), Err("at 7".to_owned()));
        assert!(!in_callback());
        assert_eq!(run_callback(|| assert!(in_callback())), Ok(()));
    }
}
