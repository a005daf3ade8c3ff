//! The structures and numbers of CUDA's binary interface that this crate hands to the driver. The libraries of
//! [`runtime`](crate::driver::runtime) have the same ones.
//!
//! They are written here, as plain integers, and not taken from cudarc: cudarc's are those of *one* CUDA version, and some are
//! Rust enums, which must not hold a value that only a newer driver knows. The layouts are frozen by NVIDIA (what a version adds
//! comes out of the reserved bytes, which are 0 here), and the assertions below compare them with whichever version cudarc was
//! built for.

use core::ffi::{c_int, c_uint, c_ushort, c_void};
use core::ptr;

use crate::driver::{Advice, DriverResult, HandleType, Location, MapAccess, PinnedFlags, PoolAttribute};

/// `CUDA_SUCCESS`.
pub(in crate::driver) const SUCCESS: c_uint = 0;
/// `CU_STREAM_NON_BLOCKING`.
pub(in crate::driver) const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
pub(in crate::driver) const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_EVENT_INTERPROCESS`.
pub(in crate::driver) const EVENT_INTERPROCESS: c_uint = 4;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: the only flag there is, and it must be given.
pub(in crate::driver) const IPC_LAZY_PEER_ACCESS: c_uint = 1;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
pub(in crate::driver) const RANGE_AS_DMA_BUF: c_uint = 1;
/// `CU_MEMORYTYPE_HOST`.
pub(in crate::driver) const MEMORY_TYPE_HOST: c_uint = 1;
/// `CU_MEM_ATTACH_GLOBAL`.
pub(in crate::driver) const MEM_ATTACH_GLOBAL: c_uint = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const ALLOCATION_PINNED: c_uint = 1;
/// `CU_MEM_ALLOCATION_TYPE_MANAGED`.
pub(in crate::driver) const ALLOCATION_MANAGED: c_uint = 2;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
pub(in crate::driver) const GRANULARITY_MINIMUM: c_uint = 0;
/// `CU_DEVICE_CPU`: the host, where a call older than 12.2 wants a device.
const DEVICE_CPU: c_int = -1;

/// `CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM`.
pub(in crate::driver) const REGISTERED_SAME_ADDRESS: i32 = 91;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::driver) struct MemLocation {
    kind: c_uint,
    id: c_int,
}

impl MemLocation {
    pub(in crate::driver) const fn device(device: c_int) -> Self {
        Self { kind: 1, id: device }
    }

    /// `number` is what the function that takes the location calls a device by. Node numbers above `c_int::MAX` do not exist; they become
    /// -1, which no library has.
    pub(in crate::driver) fn of(
        location: Location,
        number: impl FnOnce(u32) -> DriverResult<c_int>,
    ) -> DriverResult<Self> {
        Ok(match location {
            Location::Device(ordinal) => Self::device(number(ordinal)?),
            Location::Host => Self { kind: 2, id: 0 },
            Location::HostNuma(node) => Self { kind: 3, id: c_int::try_from(node).unwrap_or(-1) },
        })
    }

    /// The location as a device number, as CUDA named it before 12.2; nodes of the host had no name.
    pub(in crate::driver) const fn as_device(self) -> Option<c_int> {
        match self.kind {
            1 => Some(self.id),
            2 => Some(DEVICE_CPU),
            _ => None,
        }
    }
}

/// `CUmemPoolProps` of 12.2 and later. Before, `max_bytes` was reserved and had to be 0.
#[repr(C)]
pub(in crate::driver) struct PoolProps {
    allocation: c_uint,
    handle_types: c_uint,
    location: MemLocation,
    security: *const c_void,
    max_bytes: usize,
    reserved: [u8; 56],
}

impl PoolProps {
    pub(in crate::driver) const fn new(device: c_int, handle_types: HandleType, max_bytes: usize) -> Self {
        Self {
            allocation: ALLOCATION_PINNED,
            handle_types: handle_types.0,
            location: MemLocation::device(device),
            security: ptr::null(),
            max_bytes,
            reserved: [0; 56],
        }
    }
}

/// `CUmemAllocationProp`.
#[repr(C)]
pub(in crate::driver) struct AllocationProp {
    allocation: c_uint,
    handle_types: c_uint,
    location: MemLocation,
    security: *const c_void,
    compression: u8,
    rdma: u8,
    usage: c_ushort,
    reserved: [u8; 4],
}

impl AllocationProp {
    pub(in crate::driver) const fn new(device: c_int, handle_types: HandleType) -> Self {
        Self {
            allocation: ALLOCATION_PINNED,
            handle_types: handle_types.0,
            location: MemLocation::device(device),
            security: ptr::null(),
            compression: 0,
            rdma: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }

    /// Memory that network cards may read and write, which the device must be able to make.
    pub(in crate::driver) const fn for_rdma(mut self, rdma: bool) -> Self {
        self.rdma = rdma as u8;
        self
    }

    pub(in crate::driver) const fn location(&self) -> MemLocation {
        self.location
    }
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub(in crate::driver) struct AccessDesc {
    location: MemLocation,
    flags: c_uint,
}

impl AccessDesc {
    pub(in crate::driver) const fn new(location: MemLocation, access: MapAccess) -> Self {
        let flags = match access {
            MapAccess::None => 0,
            MapAccess::Read => 1,
            MapAccess::ReadWrite => 3,
        };
        Self { location, flags }
    }
}

/// `CUipcMemHandle`, `CUipcEventHandle` and `CUmemPoolPtrExportData`. Two functions take it by value: as a structure, not as an array,
/// which C would pass by its address.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::driver) struct Portable(pub(in crate::driver) [u8; 64]);

impl Default for Portable {
    fn default() -> Self {
        Self([0; 64])
    }
}

#[cfg(feature = "cuda")]
const _: () = assert!(size_of::<Portable>() == size_of::<cudarc::driver::sys::CUipcMemHandle>());
#[cfg(feature = "cuda")]
const _: () = assert!(size_of::<Portable>() == size_of::<cudarc::driver::sys::CUipcEventHandle>());
#[cfg(feature = "cuda")]
const _: () = assert!(size_of::<Portable>() == size_of::<cudarc::driver::sys::CUmemPoolPtrExportData>());
#[cfg(feature = "cuda")]
const _: () = assert!(align_of::<Portable>() == align_of::<cudarc::driver::sys::CUipcMemHandle>());
#[cfg(feature = "cuda")]
const _: () = assert!(size_of::<MemLocation>() == size_of::<cudarc::driver::sys::CUmemLocation>());
#[cfg(feature = "cuda")]
const _: () = assert!(size_of::<PoolProps>() == size_of::<cudarc::driver::sys::CUmemPoolProps>());
#[cfg(feature = "cuda")]
const _: () = assert!(size_of::<AllocationProp>() == size_of::<cudarc::driver::sys::CUmemAllocationProp>());
#[cfg(feature = "cuda")]
const _: () = assert!(size_of::<AccessDesc>() == size_of::<cudarc::driver::sys::CUmemAccessDesc>());

/// The number of a pool's attribute, and whether its value is a C `int`; else it is 64 bits wide.
pub(in crate::driver) const fn pool_attribute(attribute: PoolAttribute) -> (c_uint, bool) {
    match attribute {
        PoolAttribute::ReuseFollowEventDependencies => (1, true),
        PoolAttribute::ReuseAllowOpportunistic => (2, true),
        PoolAttribute::ReuseAllowInternalDependencies => (3, true),
        PoolAttribute::ReleaseThreshold => (4, false),
        PoolAttribute::ReservedCurrent => (5, false),
        PoolAttribute::ReservedHigh => (6, false),
        PoolAttribute::UsedCurrent => (7, false),
        PoolAttribute::UsedHigh => (8, false),
    }
}

/// The flags of `cuMemHostAlloc`; those of `cuMemHostRegister` share the first two.
pub(in crate::driver) const fn pinned_flags(flags: PinnedFlags) -> c_uint {
    (flags.portable as c_uint) | (flags.mapped as c_uint) << 1 | (flags.write_combined as c_uint) << 2
}

/// The number of an advice, and its location, if any.
pub(in crate::driver) const fn advice(advice: Advice) -> (c_uint, Option<Location>) {
    match advice {
        Advice::ReadMostly(true) => (1, None),
        Advice::ReadMostly(false) => (2, None),
        Advice::PreferredLocation(Some(location)) => (3, Some(location)),
        Advice::PreferredLocation(None) => (4, None),
        Advice::AccessedBy(location, true) => (5, Some(location)),
        Advice::AccessedBy(location, false) => (6, Some(location)),
    }
}
