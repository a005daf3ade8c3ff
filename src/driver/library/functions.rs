//! Tables of functions that several libraries have: one type for all, and a name in each.

#![expect(unsafe_code, reason = "gives the functions of a foreign library their types")]

use core::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::abi::{AccessDesc, AllocationProp, MemLocation, PoolProps, Portable};

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
    /// One function; `None` if the library does not have it.
    ///
    /// # Safety
    ///
    /// The library is there and what it is said to be, and `F` is the type of that function in every version that has it by that name.
    unsafe fn find<F: Copy>(&mut self, names: &Names) -> Option<F>;
}

/// Names in libcuda, cudart, HIP and MACA. Three: cudart's is libcuda's own, a function of the driver behind it.
macro_rules! names {
    ([$libcuda:literal, $cudart:literal, $hip:literal, $maca:literal]) => {
        Names {
            #[cfg(feature = "cuda")]
            libcuda: $libcuda,
            #[cfg(feature = "runtime")]
            cudart: $cudart,
            #[cfg(feature = "runtime")]
            hip: $hip,
            #[cfg(feature = "runtime")]
            maca: $maca,
        }
    };
    ([$of_driver:literal, $hip:literal, $maca:literal]) => {
        names!([$of_driver, $of_driver, $hip, $maca])
    };
}

macro_rules! functions {
    ($($name:ident = $names:tt($($argument:ty),*);)+) => {
        /// The functions that both drivers call by one text. A library may lack each of them. Each returns a status; handles of pools are
        /// `usize`, as wide as the pointers that they are, and those of memory 64 bits; an address is `u64`.
        pub(in crate::driver) struct SharedFunctions {
            $(pub(in crate::driver) $name: Option<unsafe extern "C" fn($($argument),*) -> c_uint>,)+
        }

        impl SharedFunctions {
            #[cfg(feature = "runtime")]
            pub(in crate::driver) const NAMES: &'static [Names] = &[$(names!($names)),+];

            /// Finds those that there are.
            ///
            /// # Safety
            ///
            /// The library is one that the names are for.
            pub(in crate::driver) unsafe fn find(library: &mut impl FindFunctions) -> Self {
                Self {
                    $($name: {
                        // SAFETY: the caller's promise; and the type is that of the function in every version that the name is for.
                        unsafe { library.find(&names!($names)) }
                    },)+
                }
            }
        }
    };
}

functions! {
    get_address_range = ["cuMemGetAddressRange_v2", "cuMemGetAddressRange", "hipMemGetAddressRange", "mcMemGetAddressRange"](
        *mut u64,
        *mut usize,
        u64
    );
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

/// The functions for pinned memory. A driver says which of them its library must have.
#[derive(Clone, Copy)]
pub(in crate::driver) struct PinnedFunctions {
    pub(in crate::driver) allocate: unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> c_uint,
    pub(in crate::driver) free: unsafe extern "C" fn(*mut c_void) -> c_uint,
    pub(in crate::driver) get_device_pointer: unsafe extern "C" fn(*mut u64, *mut c_void, c_uint) -> c_uint,
    pub(in crate::driver) register: Option<unsafe extern "C" fn(*mut c_void, usize, c_uint) -> c_uint>,
    pub(in crate::driver) unregister: Option<unsafe extern "C" fn(*mut c_void) -> c_uint>,
}
