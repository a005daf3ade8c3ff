//! The CUDA driver, through cudarc.
//!
//! It uses cudarc only for the types of the interface. libcuda is opened when [`CudaDriver::load`] is first called, and its
//! functions are found by name then: a machine without one, with a stub, or with one too old gets an error value.

mod context;
mod entry;
mod interface;
mod peer;
mod pointer;
mod start;
mod stream_context;
mod symbols;

pub use super::LoadError;

use core::fmt;
use std::sync::OnceLock;

use context::CudaDevice;
use symbols::Symbols;

use super::library::{LibraryDriver, abi, numa};
use super::{Call, Code, DriverError, DriverResult, exit, process::LoadedIn};
use crate::sync::Arc;

/// The machine's GPUs, through libcuda.
///
/// There is one of it in a process. It uses each device's *primary* context, which the CUDA runtime, cudarc and most libraries use
/// too, so streams and addresses can be exchanged with them. The context is retained at the first call that needs it and never
/// released: the last free, at exit, still finds it.
///
/// # Thread safety
///
/// Any thread may make any call. A call takes no lock of this crate.
///
/// # Examples
///
/// ```
/// use alluvion::driver::{Driver, cuda::CudaDriver};
///
/// match CudaDriver::load() {
///     Ok(driver) => println!("{} devices, CUDA {}", driver.device_count()?, driver.version()),
///     // No driver, or no GPU: use a simulated machine.
///     Err(error) => assert!(alluvion::Error::from(error).is_no_device()),
/// }
/// # Ok::<(), alluvion::driver::DriverError>(())
/// ```
pub type CudaDriver = LibraryDriver<Libcuda>;

/// libcuda, found and started.
pub struct Libcuda {
    version: u32,
    symbols: Symbols,
    /// The ordinal is the index. The number of devices cannot change while the process lives.
    devices: Box<[CudaDevice]>,
}

static_assertions::assert_impl_all!(CudaDriver: Send, Sync);

/// The process whose libcuda it is.
static LOADED_IN: LoadedIn = LoadedIn::no_process();

static DRIVER: OnceLock<Arc<CudaDriver>> = OnceLock::new();

impl CudaDriver {
    /// Loads libcuda and starts it, once a process: later calls return the same driver.
    ///
    /// A failure is not remembered. The next call tries again, from the start.
    ///
    /// # Errors
    ///
    /// As errors of the crate all of them satisfy [`is_no_device`](crate::Error::is_no_device), but the last:
    ///
    /// - [`NoDriver`](crate::ErrorKind::NoDriver) if there is no libcuda, if it is a stub, lacks a function, is older
    ///   than CUDA 12.0, or does not fit the kernel's module.
    /// - [`NoDevice`](crate::ErrorKind::NoDevice) if there is a driver but no GPU that this process may see.
    /// - [`ShutDown`](crate::ErrorKind::ShutDown) in a fork of a process that has loaded a driver, and at exit.
    /// - [`Driver`](crate::ErrorKind::Driver) if libcuda fails to start for another reason.
    pub fn load() -> Result<Arc<Self>, LoadError> {
        usable(Call::Init)?;
        if let Some(driver) = DRIVER.get() {
            return Ok(Arc::clone(driver));
        }
        // No lock is held here: of two threads that load at once, both start libcuda, which does nothing the second
        // time, and one finds that the other's driver is in place.
        let driver = Arc::new(LibraryDriver(Libcuda::start()?));
        Ok(Arc::clone(DRIVER.get_or_init(|| driver)))
    }

    /// Makes the primary context of a device current on this thread, until the returned guard is dropped: for libraries that work
    /// in the current context.
    pub(crate) fn make_current(&self, ordinal: u32) -> DriverResult<impl Drop + '_> {
        let Libcuda { devices, symbols, .. } = &self.0;
        let device = devices.get(ordinal as usize);
        let device = device.ok_or(DriverError::new(Call::DeviceCount, Code::INVALID_DEVICE))?;
        device.make_current(symbols)
    }
}

impl fmt::Debug for Libcuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDriver")
            .field("version", &self.version)
            .field("devices", &self.devices.len())
            .finish_non_exhaustive()
    }
}

/// Whether this process may call libcuda at all. Every call checks it first.
fn usable(call: Call) -> DriverResult<()> {
    if LOADED_IN.is_parent() {
        return Err(DriverError::new(call, Code::NOT_INITIALIZED));
    }
    if exit::is_exiting() {
        return Err(DriverError::new(call, Code::DEINITIALIZED));
    }
    Ok(())
}
