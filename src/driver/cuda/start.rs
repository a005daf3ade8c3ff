//! Loading and starting libcuda.

#![expect(unsafe_code, reason = "calls libcuda")]

use core::ffi::{c_int, c_uint};
use std::sync::Once;

use super::context::{CudaDevice, check};
use super::symbols::{self, Symbols};
use super::{LOADED_IN, Libcuda, LoadError, exit};
use crate::driver::{Call, Code, DriverError};

/// The oldest driver that is accepted: 12.0, of December 2022. It is the first with stream ids.
const OLDEST_VERSION: c_int = 12000;

impl Libcuda {
    /// Loads libcuda, finds its functions, starts it and lists its devices.
    ///
    /// The version is checked first: for an old library, which lacks functions, "too old" is the better error.
    pub(super) fn start() -> Result<Self, LoadError> {
        if !symbols::is_library_present() {
            return Err(LoadError::NoDriver {
                why: "libcuda is not installed, or not where the dynamic linker looks",
                instead: "install the NVIDIA driver, or simulate a machine",
            });
        }
        // Before any code of libcuda runs: a later fork must be noticed.
        LOADED_IN.note();

        // SAFETY: the library can be loaded: it just was.
        let version = match unsafe { symbols::driver_version() } {
            None => return Err(incomplete("the loaded libcuda has no function cuDriverGetVersion")),
            Some(Err(code)) => return Err(failed_to_start(code)),
            Some(Ok(version)) if version < OLDEST_VERSION => {
                return Err(LoadError::NoDriver {
                    why: "the driver is older than CUDA 12.0",
                    instead: "install an NVIDIA driver of series 525 or later",
                });
            }
            Some(Ok(version)) => version.unsigned_abs(),
        };
        // SAFETY: as above.
        let symbols = unsafe { Symbols::find() }.map_err(incomplete)?;

        // SAFETY: the flags must be 0, and are.
        let code = unsafe { (symbols.init)(0) };
        check(Call::Init, code).map_err(|error| failed_to_start(error.code.0))?;
        static EXIT_IS_WATCHED: Once = Once::new();
        // It is one library, however often it is started.
        EXIT_IS_WATCHED.call_once(exit::watch_for_exit);

        let devices = devices(&symbols)?;
        Ok(Self { version, symbols, devices })
    }
}

fn devices(symbols: &Symbols) -> Result<Box<[CudaDevice]>, DriverError> {
    let mut count: c_int = 0;
    // SAFETY: `count` is writable.
    check(Call::DeviceCount, unsafe { (symbols.device_get_count)(&raw mut count) })?;
    (0..count)
        .map(|ordinal| {
            let mut number = 0;
            // SAFETY: `number` is writable.
            check(Call::DeviceCount, unsafe { (symbols.device_get)(&raw mut number, ordinal) })?;
            Ok(CudaDevice::new(number))
        })
        .collect()
}

#[cold]
fn incomplete(why: &'static str) -> LoadError {
    LoadError::NoDriver {
        why,
        instead: "take what shadows the NVIDIA driver's own libcuda off the library path",
    }
}

/// The error for a code of `cuInit`. Two codes get a longer explanation.
#[cold]
fn failed_to_start(code: c_uint) -> LoadError {
    match Code(code) {
        Code::STUB_LIBRARY => LoadError::NoDriver {
            why: "the loaded libcuda is a stub (34), which is there to link against",
            instead: "take the toolkit's directory of stubs off the library path",
        },
        Code::UNKNOWN => LoadError::NoDriver {
            why: "cuInit failed for a reason that it does not know (999)",
            instead: "see whether nvidia-smi works and the kernel has its nvidia-uvm module",
        },
        code => DriverError::new(Call::Init, code).into(),
    }
}
