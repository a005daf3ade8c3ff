//! Runtime libraries: cudart, and those of other vendors that have its shape.
//!
//! One driver speaks to all of them. `symbols` has the names of the functions in each library, `table` the numbers that differ. A
//! library is opened when it is first asked for; none is needed to build. docs/runtimes.md says what is known of each, and where
//! from.
//!
//! What a library lacks is answered with [`Code::NOT_SUPPORTED`], a question about an address or a stream with [`Code::NOT_FOUND`], and
//! [`Driver::attribute`](super::Driver::attribute) says that the device does not have it.

mod enter;
mod family;
mod interface;
mod last_error;
mod library;
mod pointer;
mod start;
mod stream_device;
mod symbols;
mod table;

pub use family::Runtime;

use core::fmt;
use std::path::Path;
use std::sync::OnceLock;

use enter::RuntimeDevice;
use symbols::Symbols;
use table::Table;

use super::library::LibraryDriver;
use super::process::LoadedIn;
use super::{Call, Code, DriverError, DriverResult, LoadError, exit};
use crate::sync::Arc;

/// The machine's GPUs, through a vendor's runtime library.
///
/// There is one of each [`Runtime`] in a process. The contract of [`Driver`](super::Driver) is the same for all; what a library does
/// not have is refused.
///
/// # The current device
///
/// A call works on its device, whatever is current on the thread, and leaves current what was. cudart has contexts behind its devices,
/// which the driver enters and leaves. The other libraries have a current device for each thread, and one is always current: device 0
/// at first. So [`context_device`](super::Driver::context_device) never returns `None` there.
///
/// # The last error
///
/// These libraries keep the last error of each thread, for a program that asks after the fact. An error that a call of this crate
/// returns is taken back there: a program that asks finds its own errors only.
///
/// # Thread safety
///
/// Any thread may make any call. A call takes no lock of this crate.
///
/// # Examples
///
/// ```
/// use alluvion::driver::Driver;
/// use alluvion::driver::runtime::{Runtime, RuntimeDriver};
///
/// match RuntimeDriver::load(Runtime::Hip) {
///     Ok(driver) => println!("{} devices, HIP {}", driver.device_count()?, driver.version()),
///     // No ROCm, or no GPU: use a simulated machine.
///     Err(error) => assert!(alluvion::Error::from(error).is_no_device()),
/// }
/// # Ok::<(), alluvion::driver::DriverError>(())
/// ```
pub type RuntimeDriver = LibraryDriver<RuntimeLibrary>;

/// A vendor's runtime library, found and started.
pub struct RuntimeLibrary {
    runtime: Runtime,
    version: u32,
    /// Of the library: some functions and numbers are another in the next one.
    major: u32,
    symbols: Symbols,
    /// The ordinal is the index. The number of devices cannot change while the process lives.
    devices: Box<[RuntimeDevice]>,
}

static_assertions::assert_impl_all!(RuntimeDriver: Send, Sync);

/// What there is of each runtime once in a process, in the order of [`Runtime::ALL`].
struct Standing {
    driver: OnceLock<Arc<RuntimeDriver>>,
    loaded_in: LoadedIn,
}

static STANDING: [Standing; Runtime::ALL.len()] =
    [const { Standing { driver: OnceLock::new(), loaded_in: LoadedIn::no_process() } }; Runtime::ALL.len()];

impl Runtime {
    fn standing(self) -> &'static Standing {
        &STANDING[self as usize]
    }
}

impl RuntimeDriver {
    /// Loads the library and starts it, once a process: later calls return the same driver.
    ///
    /// A failure is not remembered. The next call tries again, from the start.
    ///
    /// # Errors
    ///
    /// As those of [`CudaDriver::load`](super::cuda::CudaDriver::load): no library, one that lacks a function, one that is too old;
    /// no device; a fork of a process that has loaded the library; and those of the library.
    pub fn load(runtime: Runtime) -> Result<Arc<Self>, LoadError> {
        usable(runtime, Call::Init)?;
        let driver = &runtime.standing().driver;
        if let Some(driver) = driver.get() {
            return Ok(Arc::clone(driver));
        }
        // No lock is held here: of two threads that load at once, both start the library, which does nothing the second time, and
        // one finds that the other's driver is in place.
        let started = Arc::new(LibraryDriver(RuntimeLibrary::start(runtime)?));
        Ok(Arc::clone(driver.get_or_init(|| started)))
    }

    /// A driver over the library at `path`, apart from the one of [`load`](Self::load): for a library that lies elsewhere. The library
    /// stays open for good.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    ///
    /// # Safety
    ///
    /// The file is a library of that runtime: its functions have the names and types that the vendor's headers give them.
    #[expect(unsafe_code, reason = "believes the caller that the file is what it is said to be")]
    pub unsafe fn load_from(runtime: Runtime, path: &Path) -> Result<Arc<Self>, LoadError> {
        usable(runtime, Call::Init)?;
        // SAFETY: the caller's promise.
        let library = unsafe { RuntimeLibrary::start_from(runtime, path) }?;
        Ok(Arc::new(LibraryDriver(library)))
    }

    /// Which runtime it is.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        self.0.runtime
    }

    /// The functions that the loaded library should have and does not: what needs them is refused.
    #[must_use]
    pub fn missing(&self) -> &[&'static str] {
        &self.0.symbols.missing
    }
}

impl RuntimeLibrary {
    fn table(&self) -> &'static Table {
        self.runtime.table()
    }
}

impl fmt::Debug for RuntimeLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeDriver")
            .field("runtime", &self.runtime)
            .field("version", &self.version)
            .field("devices", &self.devices.len())
            .finish_non_exhaustive()
    }
}

/// Whether this process may call the library at all. Every call checks it first.
fn usable(runtime: Runtime, call: Call) -> DriverResult<()> {
    if runtime.standing().loaded_in.is_parent() {
        return Err(DriverError::new(call, Code::NOT_INITIALIZED));
    }
    if exit::is_exiting() {
        return Err(DriverError::new(call, Code::DEINITIALIZED));
    }
    Ok(())
}
