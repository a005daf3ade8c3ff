//! The functions that have one type in all libraries, and a name in each.

#![expect(unsafe_code, reason = "gives the functions of a foreign library their types")]

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use super::abi::{AccessDesc, AllocationProp, MemLocation, PoolProps, Portable};

/// The function type that `cuLaunchHostFunc` calls.
type HostFunctionPointer = unsafe extern "C" fn(*mut c_void);

/// A function's name in each library. An empty one: that library has no such function.
#[derive(Clone, Copy, Debug)]
pub(in crate::driver) struct Names {
    #[cfg(feature = "cuda")]
    pub(in crate::driver) libcuda: &'static str,
    #[cfg(feature = "runtime")]
    pub(in crate::driver) cudart: &'static str,
    #[cfg(feature = "runtime")]
    pub(in crate::driver) hip: &'static str,
    #[cfg(feature = "runtime")]
    pub(in crate::driver) maca: &'static str,
}

/// A library whose functions are found by name.
pub(in crate::driver) trait FindFunctions {
    /// It is libcuda, which has what a runtime library may lack.
    const IS_LIBCUDA: bool;

    /// The column of the library.
    fn of(&self, names: &Names) -> &'static str;

    /// One function; `None` if the library does not have it.
    ///
    /// # Safety
    ///
    /// The library is there and what it is said to be, and `F` is the type of that function in every version that has it by that name.
    unsafe fn find<F: Copy>(&mut self, names: &Names) -> Option<F>;
}

/// Names in libcuda, cudart, HIP and MACA, after the words that come before each. Three: cudart's is libcuda's own, a function of the
/// driver behind it.
macro_rules! names {
    ([$libcuda:literal, $cudart:literal, $hip:literal, $maca:literal]) => {
        names!(["", $libcuda], ["", $cudart], ["", $hip], ["", $maca])
    };
    ([$of_driver:literal, $hip:literal, $maca:literal]) => {
        names!([$of_driver, $of_driver, $hip, $maca])
    };
    ([$($libcuda:literal),+], [$($cudart:literal),+], [$($hip:literal),+], [$($maca:literal),+]) => {
        Names {
            #[cfg(feature = "cuda")]
            libcuda: concat!($($libcuda),+),
            #[cfg(feature = "runtime")]
            cudart: concat!($($cudart),+),
            #[cfg(feature = "runtime")]
            hip: concat!($($hip),+),
            #[cfg(feature = "runtime")]
            maca: concat!($($maca),+),
        }
    };
}

/// Why a library cannot be used without the function.
macro_rules! why_missing {
    ([$libcuda:literal, $cudart:literal, $hip:literal, $maca:literal]) => {
        names!(
            ["the loaded libcuda has no function ", $libcuda],
            ["the loaded libcudart has no function ", $cudart],
            ["the loaded libamdhip64 has no function ", $hip],
            ["the loaded libmcruntime has no function ", $maca]
        )
    };
    ([$of_driver:literal, $hip:literal, $maca:literal]) => {
        why_missing!([$of_driver, $of_driver, $hip, $maca])
    };
}

macro_rules! functions {
    (
        required { $($name:ident = $names:tt($($argument:ty),*);)+ }
        required_of_libcuda { $($of_libcuda:ident = $of_libcuda_names:tt($($of_libcuda_argument:ty),*);)+ }
        optional { $($optional:ident = $optional_names:tt($($optional_argument:ty),*);)+ }
    ) => {
        /// The functions that have one type in all libraries. Each returns a status; handles are `usize`, as wide as the pointers that
        /// they are, and those of memory 64 bits; an address is `u64`.
        pub(in crate::driver) struct Functions {
            $(pub(in crate::driver) $name: unsafe extern "C" fn($($argument),*) -> c_uint,)+
            $(pub(in crate::driver) $of_libcuda: Option<unsafe extern "C" fn($($of_libcuda_argument),*) -> c_uint>,)+
            $(pub(in crate::driver) $optional: Option<unsafe extern "C" fn($($optional_argument),*) -> c_uint>,)+
        }

        impl Functions {
            #[cfg(feature = "runtime")]
            pub(in crate::driver) const NAMES: &'static [Names] =
                &[$(names!($names),)+ $(names!($of_libcuda_names),)+ $(names!($optional_names)),+];

            /// Finds those that there are. The error says which one is missing that the library must have.
            ///
            /// # Safety
            ///
            /// The library is one that the names are for.
            pub(in crate::driver) unsafe fn find<L: FindFunctions>(library: &mut L) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the caller's promise; and the type is that of the function in every version that the name is for.
                        let found = unsafe { library.find(&names!($names)) };
                        found.ok_or(library.of(&why_missing!($names)))?
                    },)+
                    $($of_libcuda: {
                        // SAFETY: as above.
                        let found = unsafe { library.find(&names!($of_libcuda_names)) };
                        if L::IS_LIBCUDA && found.is_none() {
                            return Err(library.of(&why_missing!($of_libcuda_names)));
                        }
                        found
                    },)+
                    $($optional: {
                        // SAFETY: as above.
                        unsafe { library.find(&names!($optional_names)) }
                    },)+
                })
            }
        }
    };
}

// Required is what public programs call in all of them, and what nothing works without.
functions! {
    required {
        memory_get_info = ["cuMemGetInfo_v2", "cudaMemGetInfo", "hipMemGetInfo", "mcMemGetInfo"](*mut usize, *mut usize);
        synchronize = ["cuCtxSynchronize", "cudaDeviceSynchronize", "hipDeviceSynchronize", "mcDeviceSynchronize"]();
        stream_create = [
            "cuStreamCreateWithPriority",
            "cudaStreamCreateWithPriority",
            "hipStreamCreateWithPriority",
            "mcStreamCreateWithPriority"
        ](*mut usize, c_uint, c_int);
        stream_destroy = ["cuStreamDestroy_v2", "cudaStreamDestroy", "hipStreamDestroy", "mcStreamDestroy"](usize);
        stream_synchronize = ["cuStreamSynchronize", "cudaStreamSynchronize", "hipStreamSynchronize", "mcStreamSynchronize"](usize);
        stream_query = ["cuStreamQuery", "cudaStreamQuery", "hipStreamQuery", "mcStreamQuery"](usize);
        stream_wait_event = ["cuStreamWaitEvent", "cudaStreamWaitEvent", "hipStreamWaitEvent", "mcStreamWaitEvent"](
            usize,
            usize,
            c_uint
        );
        event_create = ["cuEventCreate", "cudaEventCreateWithFlags", "hipEventCreateWithFlags", "mcEventCreateWithFlags"](
            *mut usize,
            c_uint
        );
        event_destroy = ["cuEventDestroy_v2", "cudaEventDestroy", "hipEventDestroy", "mcEventDestroy"](usize);
        event_record = ["cuEventRecord", "cudaEventRecord", "hipEventRecord", "mcEventRecord"](usize, usize);
        event_query = ["cuEventQuery", "cudaEventQuery", "hipEventQuery", "mcEventQuery"](usize);
        event_synchronize = ["cuEventSynchronize", "cudaEventSynchronize", "hipEventSynchronize", "mcEventSynchronize"](usize);
        memory_allocate = ["cuMemAlloc_v2", "cudaMalloc", "hipMalloc", "mcMalloc"](*mut u64, usize);
        memory_free = ["cuMemFree_v2", "cudaFree", "hipFree", "mcFree"](u64);
        host_allocate = ["cuMemHostAlloc", "cudaHostAlloc", "hipHostMalloc", "mcMallocHost"](*mut *mut c_void, usize, c_uint);
        host_free = ["cuMemFreeHost", "cudaFreeHost", "hipHostFree", "mcFreeHost"](*mut c_void);
        host_get_device_pointer = [
            "cuMemHostGetDevicePointer_v2",
            "cudaHostGetDevicePointer",
            "hipHostGetDevicePointer",
            "mcHostGetDevicePointer"
        ](*mut u64, *mut c_void, c_uint);
    }
    required_of_libcuda {
        device_get_name = ["cuDeviceGetName", "hipDeviceGetName", "mcDeviceGetName"](*mut c_char, c_int, c_int);
        get_stream_priority_range = [
            "cuCtxGetStreamPriorityRange",
            "cudaDeviceGetStreamPriorityRange",
            "hipDeviceGetStreamPriorityRange",
            "mcDeviceGetStreamPriorityRange"
        ](*mut c_int, *mut c_int);
        exchange_capture_mode = [
            "cuThreadExchangeStreamCaptureMode",
            "cudaThreadExchangeStreamCaptureMode",
            "hipThreadExchangeStreamCaptureMode",
            "mcThreadExchangeStreamCaptureMode"
        ](*mut c_uint);
        launch_host_function = ["cuLaunchHostFunc", "cudaLaunchHostFunc", "hipLaunchHostFunc", "mcLaunchHostFunc"](
            usize,
            HostFunctionPointer,
            *mut c_void
        );
        memory_allocate_managed = ["cuMemAllocManaged", "cudaMallocManaged", "hipMallocManaged", "mcMallocManaged"](
            *mut u64,
            usize,
            c_uint
        );
        host_register = ["cuMemHostRegister_v2", "cudaHostRegister", "hipHostRegister", "mcHostRegister"](
            *mut c_void,
            usize,
            c_uint
        );
        host_unregister = ["cuMemHostUnregister", "cudaHostUnregister", "hipHostUnregister", "mcHostUnregister"](*mut c_void);
    }
    optional {
        stream_get_id = ["cuStreamGetId", "cudaStreamGetId", "hipStreamGetId", "mcStreamGetId"](usize, *mut c_ulonglong);
        stream_begin_capture = [
            "cuStreamBeginCapture_v2",
            "cudaStreamBeginCapture",
            "hipStreamBeginCapture",
            "mcStreamBeginCapture"
        ](usize, c_uint);
        stream_end_capture = ["cuStreamEndCapture", "cudaStreamEndCapture", "hipStreamEndCapture", "mcStreamEndCapture"](
            usize,
            *mut usize
        );
        graph_destroy = ["cuGraphDestroy", "cudaGraphDestroy", "hipGraphDestroy", "mcGraphDestroy"](usize);
        pool_allocate_async = [
            "cuMemAllocFromPoolAsync",
            "cudaMallocFromPoolAsync",
            "hipMallocFromPoolAsync",
            "mcMallocFromPoolAsync"
        ](*mut u64, usize, usize, usize);
        free_async = ["cuMemFreeAsync", "cudaFreeAsync", "hipFreeAsync", "mcFreeAsync"](u64, usize);
        // What other processes and other devices use.
        device_get_uuid = ["cuDeviceGetUuid_v2", "cuDeviceGetUuid", "hipDeviceGetUuid", "mcDeviceGetUuid"](*mut [u8; 16], c_int);
        memory_get_portable = ["cuIpcGetMemHandle", "cudaIpcGetMemHandle", "hipIpcGetMemHandle", "mcIpcGetMemHandle"](
            *mut Portable,
            u64
        );
        memory_open = ["cuIpcOpenMemHandle_v2", "cudaIpcOpenMemHandle", "hipIpcOpenMemHandle", "mcIpcOpenMemHandle"](
            *mut u64,
            Portable,
            c_uint
        );
        memory_close = ["cuIpcCloseMemHandle", "cudaIpcCloseMemHandle", "hipIpcCloseMemHandle", "mcIpcCloseMemHandle"](u64);
        event_get_portable = ["cuIpcGetEventHandle", "cudaIpcGetEventHandle", "hipIpcGetEventHandle", "mcIpcGetEventHandle"](
            *mut Portable,
            usize
        );
        event_open = ["cuIpcOpenEventHandle", "cudaIpcOpenEventHandle", "hipIpcOpenEventHandle", "mcIpcOpenEventHandle"](
            *mut usize,
            Portable
        );
        device_can_access_peer = [
            "cuDeviceCanAccessPeer",
            "cudaDeviceCanAccessPeer",
            "hipDeviceCanAccessPeer",
            "mcDeviceCanAccessPeer"
        ](*mut c_int, c_int, c_int);
        get_address_range = ["cuMemGetAddressRange_v2", "cuMemGetAddressRange", "hipMemGetAddressRange", "mcMemGetAddressRange"](
            *mut u64,
            *mut usize,
            u64
        );
        // HIP's and MACA's are left out: neither says of a device whether it has them.
        get_range_handle = ["cuMemGetHandleForAddressRange", "", ""](*mut c_void, u64, usize, c_uint, c_ulonglong);
        // cudart has no functions for pages: the driver behind it is asked.
        get_granularity = ["cuMemGetAllocationGranularity", "hipMemGetAllocationGranularity", "mcMemGetAllocationGranularity"](
            *mut usize,
            *const AllocationProp,
            c_uint
        );
        address_reserve = ["cuMemAddressReserve", "hipMemAddressReserve", "mcMemAddressReserve"](
            *mut u64,
            usize,
            usize,
            u64,
            c_ulonglong
        );
        address_free = ["cuMemAddressFree", "hipMemAddressFree", "mcMemAddressFree"](u64, usize);
        memory_create = ["cuMemCreate", "hipMemCreate", "mcMemCreate"](*mut u64, usize, *const AllocationProp, c_ulonglong);
        memory_release = ["cuMemRelease", "hipMemRelease", "mcMemRelease"](u64);
        memory_export = ["cuMemExportToShareableHandle", "hipMemExportToShareableHandle", "mcMemExportToShareableHandle"](
            *mut c_void,
            u64,
            c_uint,
            c_ulonglong
        );
        memory_import = ["cuMemImportFromShareableHandle", "hipMemImportFromShareableHandle", "mcMemImportFromShareableHandle"](
            *mut u64,
            *mut c_void,
            c_uint
        );
        memory_get_properties = [
            "cuMemGetAllocationPropertiesFromHandle",
            "hipMemGetAllocationPropertiesFromHandle",
            "mcMemGetAllocationPropertiesFromHandle"
        ](*mut AllocationProp, u64);
        memory_map = ["cuMemMap", "hipMemMap", "mcMemMap"](u64, usize, usize, u64, c_ulonglong);
        memory_unmap = ["cuMemUnmap", "hipMemUnmap", "mcMemUnmap"](u64, usize);
        memory_set_access = ["cuMemSetAccess", "hipMemSetAccess", "mcMemSetAccess"](u64, usize, *const AccessDesc, usize);
        // HIP's functions for the pools of other processes are left out: docs/runtimes.md says why. MACA's have not been named.
        pool_create = ["cuMemPoolCreate", "cudaMemPoolCreate", "hipMemPoolCreate", "mcMemPoolCreate"](*mut usize, *const PoolProps);
        pool_destroy = ["cuMemPoolDestroy", "cudaMemPoolDestroy", "hipMemPoolDestroy", "mcMemPoolDestroy"](usize);
        pool_trim = ["cuMemPoolTrimTo", "cudaMemPoolTrimTo", "hipMemPoolTrimTo", "mcMemPoolTrimTo"](usize, usize);
        pool_get_attribute = [
            "cuMemPoolGetAttribute",
            "cudaMemPoolGetAttribute",
            "hipMemPoolGetAttribute",
            "mcMemPoolGetAttribute"
        ](usize, c_uint, *mut c_void);
        pool_set_attribute = [
            "cuMemPoolSetAttribute",
            "cudaMemPoolSetAttribute",
            "hipMemPoolSetAttribute",
            "mcMemPoolSetAttribute"
        ](usize, c_uint, *mut c_void);
        device_get_default_pool = [
            "cuDeviceGetDefaultMemPool",
            "cudaDeviceGetDefaultMemPool",
            "hipDeviceGetDefaultMemPool",
            "mcDeviceGetDefaultMemPool"
        ](*mut usize, c_int);
        location_get_default_pool = ["cuMemGetDefaultMemPool", "13:cudaMemGetDefaultMemPool", "7:hipMemGetDefaultMemPool", ""](
            *mut usize,
            *mut MemLocation,
            c_uint
        );
        pool_export_pointer = ["cuMemPoolExportPointer", "cudaMemPoolExportPointer", "", ""](*mut Portable, u64);
        pool_import_pointer = ["cuMemPoolImportPointer", "cudaMemPoolImportPointer", "", ""](*mut u64, usize, *mut Portable);
        pool_set_access = ["cuMemPoolSetAccess", "cudaMemPoolSetAccess", "hipMemPoolSetAccess", "mcMemPoolSetAccess"](
            usize,
            *const AccessDesc,
            usize
        );
        // Where managed memory should be. CUDA 13 gave the names of the forms with a device to those with a location, which a driver older
        // than 12.2 cannot serve.
        prefetch_to_location = [
            "cuMemPrefetchAsync_v2",
            "13:cudaMemPrefetchAsync 12:cudaMemPrefetchAsync_v2@12020",
            "7:hipMemPrefetchAsync_v2",
            ""
        ](u64, usize, MemLocation, c_uint, usize);
        prefetch_to_device = ["cuMemPrefetchAsync", "12:cudaMemPrefetchAsync", "hipMemPrefetchAsync", "mcMemPrefetchAsync"](
            u64,
            usize,
            c_int,
            usize
        );
        advise_location = ["cuMemAdvise_v2", "13:cudaMemAdvise 12:cudaMemAdvise_v2@12020", "7:hipMemAdvise_v2", ""](
            u64,
            usize,
            c_uint,
            MemLocation
        );
        advise_device = ["cuMemAdvise", "12:cudaMemAdvise", "hipMemAdvise", "mcMemAdvise"](u64, usize, c_uint, c_int);
    }
}
