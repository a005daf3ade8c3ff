//! Who may touch a block: a type, forwarded layer by layer.

#![expect(unsafe_code, reason = "declares the markers that the host door and the containers rely on")]

use crate::resource::Resource;

/// A resource whose blocks the device may read and write.
///
/// # Safety
///
/// Every live block of the resource may be read and written by work on its device that is ordered after the allocation.
pub unsafe trait DeviceAccessible: Resource {}

/// A resource whose blocks the host may read and write: what [`OnHost`](crate::OnHost) asks for.
///
/// # Safety
///
/// Every live block of the resource is memory that the host may read and write through a pointer to the block's address,
/// whose provenance was exposed, as soon as [`Resource::allocate_sync`] has returned it, from any thread, at any time that
/// no work of the device touches it.
pub unsafe trait HostAccessible: Resource {}
