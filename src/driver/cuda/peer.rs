//! Copies between two devices where a plain copy is refused.

#![expect(unsafe_code, reason = "asks libcuda about addresses, and copies")]

use core::ffi::{c_int, c_uint};

use super::context::check;
use super::symbols::Symbols;
use super::{Libcuda, abi};
use crate::driver::{Call, DriverResult};

/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const DEVICE_ORDINAL: c_uint = 9;

impl Libcuda {
    /// Queues a copy that `cuMemcpyAsync` has refused, if source and destination are on different devices.
    ///
    /// By default, memory of a pool is accessible to its own device alone. `cuMemcpyAsync` refuses with `INVALID_VALUE` if the
    /// stream's device has no access. `cuMemcpyPeerAsync` takes both contexts and needs no access. On two H200s it copied between
    /// device, pool and pinned memory on a stream of either device.
    ///
    /// # Safety
    ///
    /// As [`Driver::copy_async`](crate::driver::Driver::copy_async).
    pub(super) unsafe fn copy_between_contexts(
        &self,
        to: u64,
        from: u64,
        bytes: usize,
        stream: usize,
        refused: DriverResult<()>,
    ) -> DriverResult<()> {
        let symbols = &self.symbols;
        let (Some(of_to), Some(of_from)) = (device_of(symbols, to), device_of(symbols, from)) else {
            return refused;
        };
        let Some(copy) = symbols.copy_peer_async.filter(|_| of_to != of_from) else { return refused };
        let to_context = self.device(of_to, Call::CopyAsync)?.context(symbols)?;
        let from_context = self.device(of_from, Call::CopyAsync)?.context(symbols)?;
        // SAFETY: both ranges stay live until the copy has run and nobody conflicts, as the caller promises; the contexts
        // were retained and never released.
        check(Call::CopyAsync, unsafe { copy(to, to_context.0, from, from_context.0, bytes, stream) })
    }
}

/// The device that an address belongs to, if libcuda knows it.
fn device_of(symbols: &Symbols, address: u64) -> Option<u32> {
    let get = symbols.pointer_get_attribute?;
    let mut ordinal: c_int = -1;
    // SAFETY: the attribute is an `int`, which `ordinal` is; any address may be queried.
    let code = unsafe { get((&raw mut ordinal).cast(), DEVICE_ORDINAL, address) };
    if code == abi::SUCCESS { u32::try_from(ordinal).ok() } else { None }
}
