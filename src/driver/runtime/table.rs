//! `Table`: how the libraries differ, but for the names of their functions, which are in `symbols`.
//!
//! docs/runtimes.md says where each number comes from.

use crate::driver::library::abi;
use crate::driver::{Code, DeviceAttribute, MemoryKind};

/// How one vendor's library differs from the others.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) libraries: &'static [&'static str],
    /// The variable that names the folder of the vendor's toolkit, whose `lib` is looked into first.
    pub(super) toolkit: Option<&'static str>,
    /// Why there is no driver where none of the libraries is found, and what to do.
    pub(super) not_found: (&'static str, &'static str),
    /// The same where the library is too old.
    pub(super) too_old: (&'static str, &'static str),
    /// The least version, as [`Table::version`] returns it.
    pub(super) oldest_version: u32,
    /// The version that the library reports, as CUDA counts: 13000 is 13.0.
    pub(super) version: fn(u32) -> u32,
    /// What stands for the legacy stream: the value that names it, or null.
    pub(super) legacy_stream: usize,
    /// The numbers of attributes are CUDA's, also of those that this crate has no name for.
    pub(super) numbers_as_cuda: bool,
    /// The library's number of an attribute; `None`: it has none.
    pub(super) attribute: fn(DeviceAttribute) -> Option<i32>,
    /// The kind of memory by the library's number, in the major version given first.
    pub(super) memory_kind: fn(u32, u32) -> Option<MemoryKind>,
    /// Codes that are not CUDA's.
    pub(super) codes: &'static [(u32, Code)],
    /// Which granularity is asked for: the least, or the one that is recommended.
    pub(super) granularity: u32,
    /// The version that first had a limit in the properties of a pool; before, these bytes must be 0.
    pub(super) pool_limit_version: u32,
    /// A handle of plain memory is of the whole allocation, whatever address in it is given. Else it is of what follows the address.
    pub(super) handles_are_whole: bool,
    /// How a handle of an event begins, which is a text then, and ends with a zero.
    pub(super) event_handles_begin: Option<&'static str>,
    /// The version that first took a descriptor of pages by its value.
    pub(super) descriptors_by_value_since: u32,
}

impl Table {
    pub(super) fn code(&self, code: u32) -> Code {
        let found = self.codes.iter().find(|(number, _)| *number == code);
        found.map_or(Code(code), |(_, code)| *code)
    }
}

/// `hipMemAllocationGranularityRecommended`. The least may be a page of the host, 4 KiB, and a pool of 100 GiB would have 26 million of
/// them; CUDA's least is the recommended one, 2 MiB.
const RECOMMENDED: u32 = 1;

/// HIP counts 6.3.42134 as 60342134.
const HIP_MAJOR: u32 = 10_000_000;
const HIP_MINOR: u32 = 100_000;

/// Codes from before CUDA 10.1, each replaced by `cudaErrorInvalidValue` since; HIP and MACA still have them: an invalid pointer of
/// the host, one of the device, and an invalid direction of a copy.
const OLD_CODES: [(u32, Code); 3] =
    [(16, Code::INVALID_VALUE), (17, Code::INVALID_VALUE), (21, Code::INVALID_VALUE)];

/// `cudaErrorCallRequiresNewerDriver`, which the driver's interface does not have: the library knows the call, and the driver behind it
/// does not.
const NEWER_DRIVER_NEEDED: (u32, Code) = (36, Code::NOT_SUPPORTED);

/// `cudart`: the numbers of attributes and codes are those of the driver's interface.
pub(super) static CUDART: Table = Table {
    name: "cudart",
    libraries: &[
        "libcudart.so.13",
        "libcudart.so.12",
        "/usr/local/cuda/lib64/libcudart.so.13",
        "/usr/local/cuda/lib64/libcudart.so.12",
    ],
    toolkit: None,
    not_found: (
        "libcudart.so.13 and libcudart.so.12 are not installed, or not where the dynamic linker looks",
        "install the CUDA toolkit's runtime, or use the driver itself, which needs none",
    ),
    too_old: (
        "the CUDA runtime, or the driver behind it, is older than 12.0",
        "install a runtime of CUDA 12.0 or later, and an NVIDIA driver of series 525 or later",
    ),
    oldest_version: 12_000,
    version: |reported| reported,
    legacy_stream: 1,
    numbers_as_cuda: true,
    attribute: |attribute| Some(attribute.number()),
    memory_kind: |_, number| kind_since_cuda_11(number),
    codes: &[OLD_CODES[0], OLD_CODES[1], OLD_CODES[2], NEWER_DRIVER_NEEDED],
    granularity: abi::GRANULARITY_MINIMUM,
    pool_limit_version: 12_020,
    handles_are_whole: true,
    event_handles_begin: None,
    descriptors_by_value_since: 0,
};

/// HIP. Names of the legacy stream other than null are of ROCm 6.3 and later.
pub(super) static HIP: Table = Table {
    name: "hip",
    libraries: &[
        "libamdhip64.so.7",
        "libamdhip64.so.6",
        "libamdhip64.so.5",
        "/opt/rocm/lib/libamdhip64.so.7",
        "/opt/rocm/lib/libamdhip64.so.6",
        "/opt/rocm/lib/libamdhip64.so.5",
    ],
    toolkit: Some("ROCM_PATH"),
    not_found: (
        "libamdhip64.so.7, .6 and .5 are not installed, or not where the dynamic linker looks",
        "install ROCm, or simulate a machine",
    ),
    too_old: ("HIP is older than 5.5", "install ROCm 5.5 or later"),
    oldest_version: 5_050,
    version: |reported| reported / HIP_MAJOR * 1000 + reported % HIP_MAJOR / HIP_MINOR * 10,
    legacy_stream: 0,
    numbers_as_cuda: false,
    attribute: hip_attribute,
    memory_kind: |major, number| if major < 6 { kind_of_hip_5(number) } else { kind_since_cuda_11(number) },
    codes: &OLD_CODES,
    granularity: RECOMMENDED,
    pool_limit_version: 6_000,
    handles_are_whole: false,
    event_handles_begin: Some("/hip_"),
    descriptors_by_value_since: 7_010,
};

/// MACA. Its header is not public: the numbers are those that public programs have copied from it.
pub(super) static MACA: Table = Table {
    name: "maca",
    libraries: &["libmcruntime.so", "/opt/maca/lib/libmcruntime.so"],
    toolkit: Some("MACA_PATH"),
    not_found: (
        "libmcruntime.so is not installed, or neither in the folder MACA_PATH nor where the dynamic linker looks",
        "install MetaX's MACA, or simulate a machine",
    ),
    too_old: ("MACA reports no version", "install MetaX's MACA anew"),
    oldest_version: 1,
    version: |reported| reported,
    legacy_stream: 0,
    numbers_as_cuda: false,
    attribute: maca_attribute,
    memory_kind: |_, number| kind_since_cuda_11(number),
    codes: &[
        OLD_CODES[0],
        OLD_CODES[1],
        OLD_CODES[2],
        (10_004, Code::INVALID_VALUE),
        (10_005, Code::INVALID_HANDLE),
        (10_007, Code::OUT_OF_MEMORY),
        (10_010, Code::NOT_SUPPORTED),
        (10_012, Code::OUT_OF_MEMORY),
        (10_021, Code::HOST_MEMORY_ALREADY_REGISTERED),
        (10_022, Code::HOST_MEMORY_NOT_REGISTERED),
        (10_023, Code::INVALID_VALUE),
        (10_025, Code::INVALID_CONTEXT),
        (10_027, Code::NOT_FOUND),
        (10_028, Code::CONTEXT_DESTROYED),
    ],
    granularity: RECOMMENDED,
    pool_limit_version: u32::MAX,
    handles_are_whole: false,
    event_handles_begin: None,
    descriptors_by_value_since: 0,
};

/// Unregistered, host, device, managed.
const fn kind_since_cuda_11(number: u32) -> Option<MemoryKind> {
    match number {
        1 => Some(MemoryKind::PinnedHost),
        2 => Some(MemoryKind::Device),
        3 => Some(MemoryKind::Managed),
        _ => None,
    }
}

/// Before ROCm 6: host, device, array, unified, managed. Memory that is not registered is an error there.
const fn kind_of_hip_5(number: u32) -> Option<MemoryKind> {
    match number {
        0 => Some(MemoryKind::PinnedHost),
        1 => Some(MemoryKind::Device),
        3 | 4 => Some(MemoryKind::Managed),
        _ => None,
    }
}

macro_rules! attributes {
    ($($name:ident = $hip:tt $maca:tt;)+) => {
        fn hip_attribute(attribute: DeviceAttribute) -> Option<i32> {
            match attribute { $(DeviceAttribute::$name => number!($hip),)+ }
        }

        fn maca_attribute(attribute: DeviceAttribute) -> Option<i32> {
            match attribute { $(DeviceAttribute::$name => number!($maca),)+ }
        }
    };
}

macro_rules! number {
    (-) => {
        None
    };
    ($number:literal) => {
        Some($number)
    };
}

attributes! {
    Multiprocessors = 63 16;
    Integrated = 16 28;
    MapHostMemory = 3 43;
    PciBus = 67 24;
    PciDevice = 68 25;
    UnifiedAddressing = 85 64;
    PciDomain = 69 82;
    ComputeMajor = 23 21;
    ComputeMinor = 61 22;
    ManagedMemory = 24 50;
    PageableMemoryAccess = 65 53;
    ConcurrentManagedAccess = 9 52;
    HostRegister = 90 -;
    PageableUsesHostPageTables = 66 54;
    VirtualMemory = 89 55;
    MemoryPools = 88 63;
    PoolHandleTypes = 91 69;
    MemoryDescriptors = - 56;
    PageRdma = - -;
    DmaBuf = - -;
    SharedEvents = - -;
    MemoryFabricHandles = 95 -;
    HostNumaNode = 92 -;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_counted_as_cuda_counts() {
        assert_eq!((HIP.version)(60_342_134), 6_030);
        assert_eq!((HIP.version)(50_730_921), 5_070);
        assert_eq!((HIP.version)(70_126_015), 7_010);
        assert_eq!(((CUDART.version)(13_000), (MACA.version)(3_020)), (13_000, 3_020));
    }

    #[test]
    fn kinds_of_memory_were_renumbered_in_hip_6() {
        let kinds = |major| [0, 1, 2, 3, 4].map(|number| (HIP.memory_kind)(major, number));
        use MemoryKind::{Device, Managed, PinnedHost};
        assert_eq!(kinds(5), [Some(PinnedHost), Some(Device), None, Some(Managed), Some(Managed)]);
        assert_eq!(kinds(7), [None, Some(PinnedHost), Some(Device), Some(Managed), None]);
    }

    #[test]
    fn codes_that_are_not_cudas_have_one_of_cudas() {
        assert_eq!(MACA.code(10_007), Code::OUT_OF_MEMORY);
        assert_eq!(HIP.code(17), Code::INVALID_VALUE);
        assert_eq!((CUDART.code(36), HIP.code(36)), (Code::NOT_SUPPORTED, Code(36)));
        // What is not in the list is as the library says it.
        assert_eq!((HIP.code(1052), MACA.code(2)), (Code(1052), Code::OUT_OF_MEMORY));
    }
}
