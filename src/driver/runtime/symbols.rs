//! The functions of the libraries: one name for each library, and one type for all. Those that libcuda's driver calls by the
//! same text are in `library/functions.rs`.

#![expect(unsafe_code, reason = "gives the functions of a foreign library their types")]

use core::ffi::{c_int, c_uint, c_ulonglong, c_ushort, c_void};

use super::Runtime;
use super::library::Library;
use crate::driver::library::functions::{FindFunctions, Functions, Names};

/// A function's name in one library, and where it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: &'static str,
    /// The major version that alone has the function by this name with this type.
    pub(super) only_in: Option<u32>,
    /// For a function of the driver behind the library: the version of CUDA whose type it has. Its own functions have none.
    pub(super) of_driver: Option<u32>,
    /// The version from which on the driver behind the library can do what the function asks of it; 0: any that is accepted.
    pub(super) since: u32,
}

/// The version of CUDA whose functions are asked of cudart where a name does not say otherwise: the oldest that is accepted.
const DRIVER_VERSION: u32 = 12_000;

impl Named {
    /// `name`; `13:name`, which only version 13 has; `cudaName@12020`, which needs a driver of CUDA 12.2; or `cuName@12050`, of the
    /// driver behind cudart, as of CUDA 12.5.
    fn parse(word: &'static str) -> Self {
        let (only_in, word) = match word.split_once(':') {
            Some((major, name)) => (major.parse().ok(), name),
            None => (None, word),
        };
        let (name, version) = match word.split_once('@') {
            Some((name, version)) => (name, version.parse().ok()),
            None => (word, None),
        };
        let is_of_driver = name.starts_with("cu") && !name.starts_with("cuda");
        let of_driver = is_of_driver.then_some(version.unwrap_or(DRIVER_VERSION));
        Self { name, only_in, of_driver, since: version.unwrap_or(0) }
    }
}

/// Several names, of which a library has one at most. None at all: the library has no such function.
fn names(words: &'static str) -> impl Iterator<Item = Named> {
    words.split_ascii_whitespace().map(Named::parse)
}

macro_rules! symbols {
    (
        required { $($name:ident = $symbols:tt($($argument:ty),*);)+ }
        optional { $($optional:ident = $optional_symbols:tt($($optional_argument:ty),*);)+ }
    ) => {
        /// The functions of a library that this crate calls. Each returns a status; handles are `usize`, as wide as the pointers that they
        /// are; an address is `u64`.
        pub(super) struct Symbols {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> c_uint,)+
            $(pub(super) $optional: Option<unsafe extern "C" fn($($optional_argument),*) -> c_uint>,)+
            pub(super) shared: Functions,
            /// The names of those that are not there.
            pub(super) missing: Vec<&'static str>,
        }

        impl Symbols {
            /// Finds all functions that `version` has, which is what the library and the driver behind it both know. The error says
            /// which required one is missing.
            ///
            /// # Safety
            ///
            /// The library is one of that runtime, of major version `major`.
            pub(super) unsafe fn find(
                library: &Library,
                runtime: Runtime,
                major: u32,
                version: u32,
            ) -> Result<Self, &'static str> {
                let of = (major, version);
                let mut missing = Vec::new();
                Ok(Self {
                    $($name: {
                        // SAFETY: the caller's promise; and the type is that of the function in every version that the name is for.
                        unsafe { find(library, pick!(runtime, $symbols), of, &mut missing) }
                            .ok_or(why_missing!(runtime, $symbols))?
                    },)+
                    $($optional: {
                        // SAFETY: as above.
                        unsafe { find(library, pick!(runtime, $optional_symbols), of, &mut missing) }
                    },)+
                    // SAFETY: the caller's promise.
                    shared: unsafe {
                        Functions::find(&mut Found { library, runtime, of, missing: &mut missing })
                    }?,
                    missing,
                })
            }
        }

        /// Every function that is looked for in libraries of `runtime`.
        pub(super) fn all(runtime: Runtime) -> impl Iterator<Item = Named> {
            let shared = Functions::NAMES.iter();
            [$(pick!(runtime, $symbols),)+ $(pick!(runtime, $optional_symbols),)+]
                .into_iter()
                .chain(shared.map(move |names| of(runtime, names)))
                .flat_map(names)
        }
    };
}

macro_rules! pick {
    ($runtime:expr, [$cudart:literal, $hip:literal, $maca:literal]) => {
        match $runtime {
            Runtime::Cudart => $cudart,
            Runtime::Hip => $hip,
            Runtime::Maca => $maca,
        }
    };
}

macro_rules! why_missing {
    ($runtime:expr, [$cudart:literal, $hip:literal, $maca:literal]) => {
        match $runtime {
            Runtime::Cudart => concat!("the loaded libcudart has no function ", $cudart),
            Runtime::Hip => concat!("the loaded libamdhip64 has no function ", $hip),
            Runtime::Maca => concat!("the loaded libmcruntime has no function ", $maca),
        }
    };
}

// Required is what public programs call in all three, and what nothing works without.
symbols! {
    required {
        get_device_count = ["cudaGetDeviceCount", "hipGetDeviceCount", "mcGetDeviceCount"](*mut c_int);
        get_device = ["cudaGetDevice", "hipGetDevice", "mcGetDevice"](*mut c_int);
        set_device = ["cudaSetDevice", "hipSetDevice", "mcSetDevice"](c_int);
        get_last_error = ["cudaGetLastError", "hipGetLastError", "mcGetLastError"]();
        peek_at_last_error = ["cudaPeekAtLastError", "hipPeekAtLastError", "mcPeekAtLastError"]();
        device_get_attribute = ["cudaDeviceGetAttribute", "hipDeviceGetAttribute", "mcDeviceGetAttribute"](*mut c_int, c_int, c_int);
        copy = ["cudaMemcpy", "hipMemcpy", "mcMemcpy"](u64, u64, usize, c_uint);
        copy_async = ["cudaMemcpyAsync", "hipMemcpyAsync", "mcMemcpyAsync"](u64, u64, usize, c_uint, usize);
        fill_1_async = ["cudaMemsetAsync", "hipMemsetAsync", "mcMemsetAsync"](u64, c_int, usize, usize);
    }
    optional {
        // The number of a device where it is not its ordinal, and what the runtime does not say of it.
        device_get = ["cuDeviceGet", "", ""](*mut c_int, c_int);
        device_get_driver_attribute = ["cuDeviceGetAttribute", "", ""](*mut c_int, c_uint, c_int);
        // Contexts: without these the current device stands for them.
        primary_context_retain = ["cuDevicePrimaryCtxRetain", "", ""](*mut usize, c_int);
        primary_context_get_state = ["cuDevicePrimaryCtxGetState", "", ""](c_int, *mut c_uint, *mut c_int);
        context_get_current = ["cuCtxGetCurrent", "", ""](*mut usize);
        context_push = ["cuCtxPushCurrent", "", ""](usize);
        context_pop = ["cuCtxPopCurrent", "", ""](*mut usize);
        context_get_device = ["cuCtxGetDevice", "", ""](*mut c_int);
        stream_get_context = ["cuStreamGetCtx", "", ""](usize, *mut usize);
        stream_get_contexts = ["cuStreamGetCtx@12050", "", ""](usize, *mut usize, *mut usize);
        stream_get_device = ["", "hipStreamGetDevice", "mcStreamGetDevice"](usize, *mut c_int);
        stream_is_capturing = ["cudaStreamIsCapturing", "hipStreamIsCapturing", "mcStreamIsCapturing"](usize, *mut c_uint);
        // CUDA 13 gave the name of the oldest form to the newest, which knows of edges.
        stream_get_capture_info = [
            "12:cudaStreamGetCaptureInfo_v2",
            "hipStreamGetCaptureInfo_v2",
            "mcStreamGetCaptureInfo_v2"
        ](usize, *mut c_uint, *mut c_ulonglong, *mut usize, *mut *const usize, *mut usize);
        stream_get_capture_info_with_edges = ["13:cudaStreamGetCaptureInfo", "", ""](
            usize,
            *mut c_uint,
            *mut c_ulonglong,
            *mut usize,
            *mut *const usize,
            *mut *const c_void,
            *mut usize
        );
        pointer_get_attributes = ["cudaPointerGetAttributes", "hipPointerGetAttributes", "mcPointerGetAttributes"](*mut u64, u64);
        // What cudart does not say of an address.
        pointer_get_attributes_of_driver = ["cuPointerGetAttributes", "", ""](c_uint, *const c_uint, *mut *mut c_void, u64);
        copy_peer_async = ["cudaMemcpyPeerAsync", "hipMemcpyPeerAsync", "mcMemcpyPeerAsync"](
            u64,
            c_int,
            u64,
            c_int,
            usize,
            usize
        );
        fill_2_async = ["cuMemsetD16Async", "hipMemsetD16Async", "mcMemsetD16Async"](u64, c_ushort, usize, usize);
        fill_4_async = ["cuMemsetD32Async", "hipMemsetD32Async", "mcMemsetD32Async"](u64, c_uint, usize, usize);
        // The flags of these two are 64 bits wide in libcuda. 16], c_int);
        pool_export = ["cudaMemPoolExportToShareableHandle", "", ""](*mut c_void, usize, c_uint, c_uint);
        pool_import = ["cudaMemPoolImportFromShareableHandle", "", ""](*mut usize, *mut c_void, c_uint, c_uint);
        device_enable_peer_access = ["cudaDeviceEnablePeerAccess", "hipDeviceEnablePeerAccess", "mcDeviceEnablePeerAccess"](
            c_int,
            c_uint
        );
    }
}

impl Symbols {
    /// Whether the library has what pools of other processes need.
    pub(super) fn lends_pools(&self) -> bool {
        self.pool_export.is_some()
            && self.pool_import.is_some()
            && self.shared.pool_export_pointer.is_some()
            && self.shared.pool_import_pointer.is_some()
    }

    /// Whether it has what pages of other processes need.
    pub(super) fn lends_pages(&self) -> bool {
        self.shared.memory_export.is_some() && self.shared.memory_import.is_some()
    }

    /// Whether it has what events of other processes need.
    pub(super) fn lends_events(&self) -> bool {
        self.shared.event_get_portable.is_some() && self.shared.event_open.is_some()
    }
}

/// The name in libraries of `runtime`.
const fn of(runtime: Runtime, names: &Names) -> &'static str {
    match runtime {
        Runtime::Cudart => names.cudart,
        Runtime::Hip => names.hip,
        Runtime::Maca => names.maca,
    }
}

/// A library whose functions are being found.
struct Found<'a> {
    library: &'a Library,
    runtime: Runtime,
    of: (u32, u32),
    missing: &'a mut Vec<&'static str>,
}

impl FindFunctions for Found<'_> {
    const IS_LIBCUDA: bool = false;

    fn of(&self, names: &Names) -> &'static str {
        of(self.runtime, names)
    }

    unsafe fn find<F: Copy>(&mut self, names: &Names) -> Option<F> {
        // SAFETY: the caller's promise.
        unsafe { find(self.library, of(self.runtime, names), self.of, self.missing) }
    }
}

/// One function, by the first of the names that the library has.
///
/// # Safety
///
/// The library is of major version `major`, and `F` the type of the function in every version that the names are for.
unsafe fn find<F: Copy>(
    library: &Library,
    words: &'static str,
    (major, version): (u32, u32),
    missing: &mut Vec<&'static str>,
) -> Option<F> {
    let of_this_version = || {
        names(words).filter(|named| named.only_in.is_none_or(|only| only == major) && named.since <= version)
    };
    // SAFETY: the caller's promise.
    let found = of_this_version().find_map(|named| unsafe { library.find(named) });
    if found.is_none() {
        missing.extend(of_this_version().map(|named| named.name).next());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_of_one_version_or_of_the_driver() {
        let parse = Named::parse;
        assert_eq!(parse("hipMalloc"), Named { name: "hipMalloc", only_in: None, of_driver: None, since: 0 });
        assert_eq!(parse("13:cudaMemAdvise").only_in, Some(13));
        assert_eq!(parse("13:cudaMemAdvise").of_driver, None);
        assert_eq!(parse("cuMemMap").of_driver, Some(12_000));
        assert_eq!(
            parse("cuStreamGetCtx@12050"),
            Named { name: "cuStreamGetCtx", only_in: None, of_driver: Some(12_050), since: 12_050 }
        );
        let newer = parse("12:cudaMemAdvise_v2@12020");
        assert_eq!((newer.only_in, newer.of_driver, newer.since), (Some(12), None, 12_020));
    }

    #[test]
    fn every_name_begins_as_its_vendor_begins_names() {
        for (runtime, prefixes) in
            [(Runtime::Cudart, &["cuda", "cu"][..]), (Runtime::Hip, &["hip"]), (Runtime::Maca, &["mc"])]
        {
            for named in all(runtime) {
                let rest = prefixes.iter().find_map(|prefix| named.name.strip_prefix(prefix));
                assert!(rest.is_some_and(|rest| rest.starts_with(char::is_uppercase)), "{named:?}");
            }
        }
    }
}
