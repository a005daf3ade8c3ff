//! Loading and starting a library.

#![expect(unsafe_code, reason = "calls a vendor's library")]

use core::ffi::c_int;
use std::path::{Path, PathBuf};

use super::enter::RuntimeDevice;
use super::library::Library;
use super::symbols::{Named, Symbols};
use super::{Runtime, RuntimeLibrary};
use crate::driver::library::abi;
use crate::driver::{Call, Code, DriverError, LoadError, exit};
use crate::environment;

impl RuntimeLibrary {
    /// Opens the first library that is there and that the driver behind it is new enough for, and starts it.
    pub(super) fn start(runtime: Runtime) -> Result<Self, LoadError> {
        let mut failure = None;
        let toolkit = runtime.table().toolkit.and_then(environment::variable).map(PathBuf::from);
        let bare = || runtime.libraries().iter().filter(|name| !name.contains('/'));
        // An empty variable names no folder.
        let named = toolkit.iter().filter(|folder| folder.is_absolute());
        let first = named.flat_map(|folder| bare().map(|name| folder.join("lib").join(name)));
        for file in first.chain(runtime.libraries().iter().map(PathBuf::from)) {
            // SAFETY: each name is the vendor's for the library, which is what every program that uses it relies on.
            let Some(library) = (unsafe { Library::open(file.as_os_str()) }) else { continue };
            // SAFETY: as above.
            match unsafe { Self::start_library(runtime, &library) } {
                // An older one, which comes later, may do.
                Err(error @ TOO_NEW) => failure = failure.or(Some(error)),
                started => return started,
            }
        }
        Err(failure.unwrap_or_else(|| not_found(runtime)))
    }

    /// The same, of the library at `path`.
    ///
    /// # Safety
    ///
    /// The file is a library of that runtime.
    pub(super) unsafe fn start_from(runtime: Runtime, path: &Path) -> Result<Self, LoadError> {
        // SAFETY: the caller's promise.
        let library = unsafe { Library::open(path.as_os_str()) }.ok_or_else(|| not_found(runtime))?;
        // SAFETY: the caller's promise.
        unsafe { Self::start_library(runtime, &library) }
    }

    /// The version is checked first: for an old library, which lacks functions, "too old" is the better error.
    ///
    /// # Safety
    ///
    /// The library is one of that runtime.
    unsafe fn start_library(runtime: Runtime, library: &Library) -> Result<Self, LoadError> {
        // Before the library is called, and not before it is found: a later fork must be noticed, and where there is no library a
        // child of a fork is told that, too.
        runtime.standing().loaded_in.note();
        let table = runtime.table();
        let (of_library, of_driver) = match runtime {
            Runtime::Cudart => ("cudaRuntimeGetVersion", Some("cudaDriverGetVersion")),
            Runtime::Hip => ("hipRuntimeGetVersion", None),
            Runtime::Maca => ("mcRuntimeGetVersion", None),
        };
        // SAFETY: the caller's promise; the function takes a pointer to an `int` in every version.
        let answer = unsafe { version(library, of_library) }.ok_or_else(|| incomplete(runtime))?;
        let of_library = (table.version)(answer.map_err(|code| refused(runtime, code))?);
        let mut version_of_both = of_library;
        // What works is what both the library and the driver behind it know.
        // SAFETY: as above.
        if let Some(answer) = of_driver.and_then(|name| unsafe { version(library, name) }) {
            let of_driver = (table.version)(answer.map_err(|code| refused(runtime, code))?);
            if of_driver == 0 {
                return Err(LoadError::NoDriver {
                    why: "there is a CUDA runtime, and no driver behind it",
                    instead: "install the NVIDIA driver, or simulate a machine",
                });
            }
            version_of_both = of_library.min(of_driver);
        }
        let (major, version) = (of_library / 1000, version_of_both);
        if version < table.oldest_version {
            return Err(too_old(runtime));
        }
        // SAFETY: the caller's promise, and the library said that it is of that version.
        let symbols = unsafe { Symbols::find(library, runtime, major, version) }.map_err(|why| {
            LoadError::NoDriver {
                why,
                instead: "take what shadows the vendor's own library off the library path",
            }
        })?;
        let mut count: c_int = 0;
        // SAFETY: `count` is writable.
        let code = unsafe { (symbols.get_device_count)(&raw mut count) };
        if code != abi::SUCCESS {
            // SAFETY: the function takes nothing.
            unsafe { (symbols.get_last_error)() };
            return Err(refused(runtime, code));
        }
        // For each: a library that is loaded later has its handler before those of the earlier ones.
        exit::watch_for_exit();
        let devices = (0..count).map(|ordinal| RuntimeDevice::new(ordinal, &symbols)).collect();
        Ok(Self { runtime, version, major, symbols, devices })
    }
}

/// What a function says that returns a version; `None` if the library does not have it.
///
/// # Safety
///
/// It takes a pointer to an `int`.
unsafe fn version(library: &Library, name: &'static str) -> Option<Result<u32, u32>> {
    let named = Named { name, only_in: None, of_driver: None, since: 0 };
    // SAFETY: the caller's promise.
    let get: unsafe extern "C" fn(*mut c_int) -> u32 = unsafe { library.find(named) }?;
    let mut version: c_int = 0;
    // SAFETY: `version` is writable.
    let code = unsafe { get(&raw mut version) };
    Some(if code == abi::SUCCESS { Ok(version.unsigned_abs()) } else { Err(code) })
}

#[cold]
fn not_found(runtime: Runtime) -> LoadError {
    let (why, instead) = runtime.table().not_found;
    LoadError::NoDriver { why, instead }
}

#[cold]
fn too_old(runtime: Runtime) -> LoadError {
    let (why, instead) = runtime.table().too_old;
    LoadError::NoDriver { why, instead }
}

#[cold]
fn incomplete(runtime: Runtime) -> LoadError {
    let why = match runtime {
        Runtime::Cudart => "the loaded libcudart has no function cudaRuntimeGetVersion",
        Runtime::Hip => "the loaded libamdhip64 has no function hipRuntimeGetVersion",
        Runtime::Maca => "the loaded libmcruntime has no function mcRuntimeGetVersion",
    };
    LoadError::NoDriver { why, instead: "take what shadows the vendor's own library off the library path" }
}

/// `cudaErrorInsufficientDriver`, which HIP and MACA have, too.
const INSUFFICIENT_DRIVER: u32 = 35;

/// The library needs a newer driver than there is.
const TOO_NEW: LoadError = LoadError::NoDriver {
    why: "the driver is older than the runtime library needs (35)",
    instead: "install a newer driver, or an older runtime library",
};

/// The error for a code of the first calls. Some codes get a longer explanation.
#[cold]
fn refused(runtime: Runtime, code: u32) -> LoadError {
    match runtime.table().code(code) {
        Code(INSUFFICIENT_DRIVER) => TOO_NEW,
        Code::STUB_LIBRARY => LoadError::NoDriver {
            why: "the driver behind the runtime library is a stub (34)",
            instead: "take the toolkit's directory of stubs off the library path",
        },
        code => DriverError::new(Call::Init, code).into(),
    }
}
