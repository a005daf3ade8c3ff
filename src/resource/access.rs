//! Who may touch a block: a type, forwarded layer by layer.

#![expect(unsafe_code, reason = "declares the markers that the host door and the containers rely on")]

use crate::resource::Resource;

/// A resource whose blocks the device may read and write.
///
/// # Safety
///
/// Every live block of the resource may be read and written by work on its device that is ordered after the allocation.
#[diagnostic::on_unimplemented(
    message = "the device may not touch the blocks of `{Self}`",
    label = "not memory that a device reads and writes"
)]
pub unsafe trait DeviceAccessible: Resource {}

/// A resource whose blocks the host may read and write: what [`OnHost`](crate::OnHost) asks for.
///
/// # Safety
///
/// Every live block of the resource is memory that the host may read and write through a pointer to the block's address,
/// whose provenance was exposed, as soon as [`Resource::allocate_sync`] has returned it, from any thread, at any time that
/// no work of the device touches it.
#[diagnostic::on_unimplemented(
    message = "the host may not touch the blocks of `{Self}`",
    label = "not memory that the host reads and writes",
    note = "device memory is filled by copies: `DeviceVec` makes them; `PinnedAlloc` is memory that both sides reach"
)]
pub unsafe trait HostAccessible: Resource {}
