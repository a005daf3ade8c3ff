//! The structs of DLPack 1.1, as C lays them out.

use core::ffi::{CStr, c_void};

/// The name of a capsule with a [`ManagedTensor`].
pub(super) const OLD: &CStr = c"dltensor";
/// The same, taken.
pub(super) const OLD_USED: &CStr = c"used_dltensor";
/// The name of a capsule with a [`ManagedTensorVersioned`].
pub(super) const VERSIONED: &CStr = c"dltensor_versioned";
/// The same, taken.
pub(super) const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

/// Memory of the host.
pub(super) const CPU: i32 = 1;
/// Memory of a CUDA device.
pub(super) const CUDA: i32 = 2;
/// Pinned memory of the host.
pub(super) const CUDA_HOST: i32 = 3;
/// Managed memory.
pub(super) const CUDA_MANAGED: i32 = 13;

/// Nobody may write to the tensor.
pub(super) const READ_ONLY: u64 = 1;
/// The tensor is a copy.
pub(super) const IS_COPIED: u64 = 2;

/// The version of the structs here.
pub(super) const VERSION: Version = Version { major: 1, minor: 1 };

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub(super) struct TensorDevice {
    pub(super) kind: i32,
    pub(super) id: i32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct DataType {
    pub(super) code: u8,
    pub(super) bits: u8,
    pub(super) lanes: u16,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Tensor {
    pub(super) data: *mut c_void,
    pub(super) device: TensorDevice,
    pub(super) dimensions: i32,
    pub(super) data_type: DataType,
    pub(super) shape: *mut i64,
    pub(super) strides: *mut i64,
    pub(super) byte_offset: u64,
}

/// `DLManagedTensor`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct ManagedTensor {
    pub(super) tensor: Tensor,
    pub(super) manager: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// `DLManagedTensorVersioned`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct ManagedTensorVersioned {
    pub(super) version: Version,
    pub(super) manager: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut ManagedTensorVersioned)>,
    pub(super) flags: u64,
    pub(super) tensor: Tensor,
}
