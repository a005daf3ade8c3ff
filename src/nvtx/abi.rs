//! Layouts and numbers of the headers of NVTX 3: `nvToolsExt.h`, `nvToolsExtMem.h`, `nvToolsExtMemCudaRt.h`, `nvtxTypes.h` and `nvtxExtTypes.h`.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::size_of;
use core::ptr;

/// `NVTX_VERSION`.
pub(super) const VERSION: u16 = 3;
/// `NVTX_EXT_MODULEID_MEM` and `NVTX_EXT_COMPATID_MEM`.
pub(super) const MODULE_MEMORY: u16 = 1;
pub(super) const COMPATIBLE_MEMORY: u16 = 0x0102;
/// `NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR`: nothing of it may be accessed but its regions.
const USAGE_SUBALLOCATOR: u32 = 1;
/// `NVTX_MEM_TYPE_VIRTUAL_ADDRESS`.
const TYPE_VIRTUAL_ADDRESS: u32 = 1;
/// `NVTX_MEM_REGION_REF_TYPE_POINTER`.
const REFERENCE_POINTER: u32 = 1;
/// `NVTX_MESSAGE_TYPE_ASCII`.
const MESSAGE_ASCII: u32 = 1;
/// `NVTX_PAYLOAD_TYPE_UNSIGNED_INT64`.
const PAYLOAD_U64: i32 = 1;

/// A function of the tool: null where it has none.
pub(super) type Function = *mut c_void;
/// A handle of the tool. A heap with the handle null is the whole address space, so that null is no heap.
pub(super) type Handle = *mut c_void;

pub(super) type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;
/// `InitializeInjectionNvtx2`: returns 0 where the tool could not begin.
pub(super) type Initialize = unsafe extern "C" fn(GetExportTable) -> c_int;
/// `InitializeInjectionNvtxExtension`: the same for one extension.
pub(super) type InitializeExtension = unsafe extern "C" fn(*mut ModuleInfo) -> c_int;

pub(super) type DomainCreate = unsafe extern "C" fn(*const c_char) -> Handle;
pub(super) type DomainMark = unsafe extern "C" fn(Handle, *const EventAttributes);
pub(super) type DomainRangePush = unsafe extern "C" fn(Handle, *const EventAttributes) -> c_int;
pub(super) type DomainRangePop = unsafe extern "C" fn(Handle) -> c_int;
pub(super) type HeapRegister = unsafe extern "C" fn(Handle, *const HeapDescription) -> Handle;
pub(super) type HeapUnregister = unsafe extern "C" fn(Handle, Handle);
pub(super) type RegionsRegister = unsafe extern "C" fn(Handle, *const RegisterBatch);
pub(super) type RegionsResize = unsafe extern "C" fn(Handle, *const RangesBatch);
/// With the stream of the writes, and whether its number is that of a thread's own default stream.
pub(super) type MarkInitialized = unsafe extern "C" fn(Handle, Handle, u8, *const RangesBatch);
pub(super) type RegionsUnregister = unsafe extern "C" fn(Handle, *const UnregisterBatch);
pub(super) type RegionsName = unsafe extern "C" fn(Handle, *const NameBatch);

/// `NvtxExportTableCallbacks`, number 1 of the tables.
#[repr(C)]
pub(super) struct CallbackTable {
    pub(super) bytes: usize,
    pub(super) get_module:
        unsafe extern "C" fn(module: c_uint, table: *mut *const c_void, size: *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`, number 3 of the tables.
#[repr(C)]
pub(super) struct VersionTable {
    pub(super) bytes: usize,
    pub(super) version: u32,
    pub(super) reserved: u32,
    pub(super) set_version_of_tool: extern "C" fn(u32),
}

/// `nvtxExtModuleSegment_t`.
#[repr(C)]
pub(super) struct ModuleSegment {
    pub(super) number: usize,
    pub(super) slots: usize,
    pub(super) first: *mut c_void,
}

/// `nvtxExtModuleInfo_t`.
#[repr(C)]
pub(super) struct ModuleInfo {
    pub(super) version: u16,
    pub(super) bytes: u16,
    pub(super) module: u16,
    pub(super) compatible: u16,
    pub(super) segments: usize,
    pub(super) first: *mut ModuleSegment,
    pub(super) get_export: *const c_void,
    pub(super) more: *const c_void,
}

/// `nvtxEventAttributes_v2`.
#[repr(C)]
pub(super) struct EventAttributes {
    version: u16,
    bytes: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_char,
}

impl EventAttributes {
    /// An event with a text of one-byte letters, and a number where there is one.
    pub(super) fn new(message: *const c_char, payload: Option<u64>) -> Self {
        Self {
            version: VERSION,
            bytes: size_of::<Self>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: if payload.is_some() { PAYLOAD_U64 } else { 0 },
            reserved: 0,
            payload: payload.unwrap_or(0),
            message_type: MESSAGE_ASCII as i32,
            message,
        }
    }
}

/// `nvtxMemVirtualRangeDesc_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct VirtualRange {
    pub(super) bytes: usize,
    pub(super) address: usize,
}

/// `nvtxMemHeapDesc_v1`.
#[repr(C)]
pub(super) struct HeapDescription {
    compatible: u16,
    bytes: u16,
    reserved: u32,
    usage: u32,
    kind: u32,
    range_bytes: usize,
    range: *const VirtualRange,
    category: u32,
    message_type: u32,
    message: *const c_char,
}

impl HeapDescription {
    /// A heap of which nothing may be accessed but its regions.
    pub(super) fn new(range: &VirtualRange, name: *const c_char) -> Self {
        Self {
            compatible: COMPATIBLE_MEMORY,
            bytes: size_of::<Self>() as u16,
            reserved: 0,
            usage: USAGE_SUBALLOCATOR,
            kind: TYPE_VIRTUAL_ADDRESS,
            range_bytes: size_of::<VirtualRange>(),
            range,
            category: 0,
            message_type: MESSAGE_ASCII,
            message: name,
        }
    }
}

/// `nvtxMemRegionsRegisterBatch_v1`.
#[repr(C)]
pub(super) struct RegisterBatch {
    compatible: u16,
    bytes: u16,
    kind: u32,
    heap: Handle,
    count: usize,
    element_bytes: usize,
    elements: *const VirtualRange,
    handles: *mut Handle,
}

impl RegisterBatch {
    pub(super) fn new(heap: Handle, ranges: &[VirtualRange]) -> Self {
        Self {
            compatible: COMPATIBLE_MEMORY,
            bytes: size_of::<Self>() as u16,
            kind: TYPE_VIRTUAL_ADDRESS,
            heap,
            count: ranges.len(),
            element_bytes: size_of::<VirtualRange>(),
            elements: ranges.as_ptr(),
            handles: ptr::null_mut(),
        }
    }
}

/// `nvtxMemRegionsResizeBatch_v1` and `nvtxMemMarkInitializedBatch_v1`, which have one layout.
#[repr(C)]
pub(super) struct RangesBatch {
    compatible: u16,
    bytes: u16,
    kind: u32,
    count: usize,
    element_bytes: usize,
    elements: *const VirtualRange,
}

impl RangesBatch {
    pub(super) fn new(ranges: &[VirtualRange]) -> Self {
        Self {
            compatible: COMPATIBLE_MEMORY,
            bytes: size_of::<Self>() as u16,
            kind: TYPE_VIRTUAL_ADDRESS,
            count: ranges.len(),
            element_bytes: size_of::<VirtualRange>(),
            elements: ranges.as_ptr(),
        }
    }
}

/// `nvtxMemRegionsUnregisterBatch_v1`. A region is named by the address at which it begins.
#[repr(C)]
pub(super) struct UnregisterBatch {
    compatible: u16,
    bytes: u16,
    kind: u32,
    count: usize,
    element_bytes: usize,
    elements: *const usize,
}

impl UnregisterBatch {
    pub(super) fn new(addresses: &[usize]) -> Self {
        Self {
            compatible: COMPATIBLE_MEMORY,
            bytes: size_of::<Self>() as u16,
            kind: REFERENCE_POINTER,
            count: addresses.len(),
            element_bytes: size_of::<usize>(),
            elements: addresses.as_ptr(),
        }
    }
}

/// `nvtxMemRegionNameDesc_v1`.
#[repr(C)]
pub(super) struct RegionName {
    reference: u32,
    name_type: u32,
    address: usize,
    name: *const c_char,
    category: u32,
    reserved: u32,
}

impl RegionName {
    pub(super) fn new(address: usize, name: *const c_char) -> Self {
        Self {
            reference: REFERENCE_POINTER,
            name_type: MESSAGE_ASCII,
            address,
            name,
            category: 0,
            reserved: 0,
        }
    }
}

/// `nvtxMemRegionsNameBatch_v1`.
#[repr(C)]
pub(super) struct NameBatch {
    compatible: u16,
    bytes: u16,
    reserved: u32,
    count: usize,
    element_bytes: usize,
    elements: *const RegionName,
    reserved_too: usize,
}

impl NameBatch {
    pub(super) fn new(names: &[RegionName]) -> Self {
        Self {
            compatible: COMPATIBLE_MEMORY,
            bytes: size_of::<Self>() as u16,
            reserved: 0,
            count: names.len(),
            element_bytes: size_of::<RegionName>(),
            elements: names.as_ptr(),
            reserved_too: 0,
        }
    }
}

// What a C compiler says of the headers, on a machine with pointers of 64 bits.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<CallbackTable>() == 16 && size_of::<VersionTable>() == 24);
    assert!(size_of::<ModuleSegment>() == 24 && size_of::<ModuleInfo>() == 40);
    assert!(size_of::<EventAttributes>() == 48 && size_of::<VirtualRange>() == 16);
    assert!(size_of::<HeapDescription>() == 48 && size_of::<RegisterBatch>() == 48);
    assert!(size_of::<RangesBatch>() == 32 && size_of::<UnregisterBatch>() == 32);
    assert!(size_of::<RegionName>() == 32 && size_of::<NameBatch>() == 40);
};
