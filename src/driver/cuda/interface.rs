//! What libcuda does as no runtime library does.

#![expect(unsafe_code, reason = "calls libcuda")]

use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use core::ptr;

use super::context::check;
use super::{Libcuda, abi, numa, usable};
use crate::driver::library::Interface;
use crate::driver::library::answer::capture_status_of;
use crate::driver::library::exported::Descriptors;
use crate::driver::library::functions::Functions;
use crate::driver::{
    AddressRange, Call, CaptureId, CaptureStatus, Code, DeviceAttribute, DriverResult, FillValue, HandleType,
    PointerInfo, RawGraph, RawStream,
};

/// The driver that first had `CUmemPoolProps::maxSize`.
const POOL_LIMIT_VERSION: u32 = 12020;

impl Interface for Libcuda {
    const MISSING: c_uint = Code::NOT_FOUND.0;
    const ALIGNS: bool = true;
    const UUIDS_DIFFER: bool = true;

    fn name(&self) -> &'static str {
        "cuda"
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn functions(&self) -> &Functions {
        &self.symbols.shared
    }

    /// "Virtual aliasing" in CUDA's guide: coherent from the end of the operation that wrote.
    fn may_alias(&self) -> bool {
        true
    }

    fn granularity(&self) -> c_uint {
        abi::GRANULARITY_MINIMUM
    }

    fn descriptors(&self) -> Descriptors {
        Descriptors::ByValue
    }

    fn pool_limit_version(&self) -> u32 {
        POOL_LIMIT_VERSION
    }

    fn event_handles_begin(&self) -> Option<&'static str> {
        None
    }

    fn lends_events(&self) -> bool {
        true
    }

    fn usable(&self, call: Call) -> DriverResult<()> {
        usable(call)
    }

    fn device_count(&self) -> u32 {
        self.devices.len() as u32
    }

    fn number_of(&self, ordinal: u32, call: Call) -> DriverResult<c_int> {
        Ok(self.device(ordinal, call)?.number)
    }

    fn number_for_pages(&self, ordinal: u32, call: Call) -> DriverResult<c_int> {
        self.number_of(ordinal, call)
    }

    fn ordinal_for_pages(&self, number: c_int) -> Option<u32> {
        self.devices.iter().position(|device| device.number == number).map(|ordinal| ordinal as u32)
    }

    fn stream_of(&self, stream: RawStream) -> usize {
        stream.0 as usize
    }

    fn check(&self, call: Call, code: c_uint) -> DriverResult<()> {
        check(call, code)
    }

    fn on_device(&self, ordinal: u32, call: Call, function: impl FnOnce() -> c_uint) -> DriverResult<()> {
        let device = self.device(ordinal, call)?;
        let _current = device.make_current(&self.symbols)?;
        check(call, function())
    }

    fn on_any_device(&self, call: Call, function: impl FnMut() -> c_uint) -> DriverResult<()> {
        self.in_any_context(call, function)
    }

    /// A stream's handle says which context it is of, so the driver wants none to be current: to make one current and the one before
    /// again costs 50 ns, three times the question. The handles of the default streams do not say so.
    fn of_stream(
        &self,
        ordinal: u32,
        call: Call,
        stream: RawStream,
        mut function: impl FnMut() -> c_uint,
    ) -> DriverResult<()> {
        if stream.is_default() || stream == RawStream::PER_THREAD {
            return self.on_device(ordinal, call, function);
        }
        usable(call)?;
        match function() {
            code if Code(code) == Code::INVALID_CONTEXT => self.on_device(ordinal, call, function),
            code => check(call, code),
        }
    }

    fn attribute(&self, ordinal: u32, attribute: DeviceAttribute) -> DriverResult<i32> {
        let value = self.device_attribute(ordinal, attribute.number())?;
        match (attribute, value) {
            // Registered memory must also keep its address: the contract of pinned memory asks for that.
            (DeviceAttribute::HostRegister, Some(1)) => {
                Ok(self.device_attribute(ordinal, abi::REGISTERED_SAME_ADDRESS)?.unwrap_or(0))
            }
            (DeviceAttribute::HostNumaNode, None) => Ok(numa::node_of_pci_device(
                self.attribute(ordinal, DeviceAttribute::PciDomain)?,
                self.attribute(ordinal, DeviceAttribute::PciBus)?,
                self.attribute(ordinal, DeviceAttribute::PciDevice)?,
            )),
            (_, value) => Ok(value.unwrap_or(0)),
        }
    }

    fn attribute_by_number(&self, ordinal: u32, number: i32) -> DriverResult<Option<i32>> {
        self.device_attribute(ordinal, number)
    }

    fn code_name(&self, code: Code) -> Option<String> {
        self.symbols.get_error_name.and_then(|get| error_text(code, get))
    }

    fn code_text(&self, code: Code) -> Option<String> {
        self.symbols.get_error_string.and_then(|get| error_text(code, get))
    }

    fn current_device(&self) -> DriverResult<Option<u32>> {
        self.device_of_current_context()
    }

    fn has_current(&self) -> DriverResult<bool> {
        // Which device the context is of does not matter here: one question, and not two.
        self.has_current_context()
    }

    fn set_current(&self, ordinal: u32) -> DriverResult<()> {
        let context = self.device(ordinal, Call::ContextSet)?.context(&self.symbols)?;
        // SAFETY: `context` was retained and never released.
        check(Call::ContextSet, unsafe { (self.symbols.context_set_current)(context.0) })
    }

    unsafe fn capture_status(&self, ordinal: u32, stream: RawStream) -> DriverResult<CaptureStatus> {
        let status: c_uint = self.read_on_device(ordinal, Call::StreamCaptureStatus, |status| {
            // SAFETY: the stream is live, as the caller promises; `status` is writable.
            unsafe { (self.symbols.stream_is_capturing)(self.stream_of(stream), status) }
        })?;
        Ok(capture_status_of(status))
    }

    unsafe fn capture_id(&self, ordinal: u32, stream: RawStream) -> DriverResult<Option<CaptureId>> {
        let (mut status, mut number, mut graph): (c_uint, c_ulonglong, usize) = (0, 0, 0);
        self.of_stream(ordinal, Call::StreamCaptureId, stream, || {
            match self.symbols.stream_get_capture_info {
                // SAFETY: the stream is live, as the caller promises; the first three places are writable, and the last two may
                // be null, because what the next node depends on is not asked for.
                Some(get_info) => unsafe {
                    get_info(
                        self.stream_of(stream),
                        &raw mut status,
                        &raw mut number,
                        &raw mut graph,
                        ptr::null_mut(),
                        ptr::null_mut(),
                    )
                },
                None => Self::MISSING,
            }
        })?;
        Ok((status == 1).then_some(CaptureId { number, graph: RawGraph(graph as u64) }))
    }

    fn tells_captures(&self) -> bool {
        true
    }

    unsafe fn device_of_stream(&self, stream: RawStream) -> DriverResult<Option<u32>> {
        // SAFETY: the caller's promise.
        unsafe { self.device_of_context_of(stream) }
    }

    fn pointer_info(&self, address: u64) -> DriverResult<Option<PointerInfo>> {
        self.known_of(address)
    }

    fn is_rdma_capable(&self, address: u64) -> DriverResult<Option<bool>> {
        self.rdma_of(address)
    }

    fn plain_range_around(&self, address: u64) -> DriverResult<Option<AddressRange>> {
        self.plain_range(address)
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> c_uint {
        // SAFETY: the caller's promise.
        unsafe { (self.symbols.copy)(to, from, bytes) }
    }

    unsafe fn copy_async(&self, to: u64, from: u64, bytes: usize, stream: usize) -> c_uint {
        // SAFETY: the caller's promise.
        unsafe { (self.symbols.copy_async)(to, from, bytes, stream) }
    }

    unsafe fn copy_between_devices(
        &self,
        _: u32,
        to: u64,
        from: u64,
        bytes: usize,
        stream: usize,
        refused: DriverResult<()>,
    ) -> DriverResult<()> {
        // SAFETY: the caller's promises.
        unsafe { self.copy_between_contexts(to, from, bytes, stream, refused) }
    }

    unsafe fn fill_async(
        &self,
        ordinal: u32,
        to: u64,
        value: FillValue,
        count: usize,
        stream: usize,
    ) -> DriverResult<()> {
        let symbols = &self.symbols;
        self.on_device(ordinal, Call::FillAsync, || match value {
            // SAFETY: the range stays live until then and nobody conflicts, as the caller promises.
            FillValue::U8(value) => unsafe { (symbols.fill_1_async)(to, value, count, stream) },
            // SAFETY: as above.
            FillValue::U16(value) => unsafe { (symbols.fill_2_async)(to, value, count, stream) },
            // SAFETY: as above.
            FillValue::U32(value) => unsafe { (symbols.fill_4_async)(to, value, count, stream) },
        })
    }

    fn lent_address(&self, address: u64) -> DriverResult<u64> {
        Ok(address)
    }

    unsafe fn export_pool(&self, to: *mut c_void, pool: usize, handle_type: HandleType) -> c_uint {
        match self.symbols.pool_export {
            // SAFETY: the caller's promise; the flags must be 0.
            Some(export) => unsafe { export(to, pool, handle_type.0, 0) },
            None => Self::MISSING,
        }
    }

    unsafe fn import_pool(&self, pool: *mut usize, handle: *mut c_void, handle_type: HandleType) -> c_uint {
        match self.symbols.pool_import {
            // SAFETY: the caller's promise; the flags must be 0.
            Some(import) => unsafe { import(pool, handle, handle_type.0, 0) },
            None => Self::MISSING,
        }
    }

    fn can_reach(&self, ordinal: u32, peer: u32) -> DriverResult<bool> {
        const CALL: Call = Call::CanReach;
        let (device, peer) = (self.number_of(ordinal, CALL)?, self.number_of(peer, CALL)?);
        if device == peer {
            return Ok(false);
        }
        let mut answer: c_int = 0;
        let code = match self.functions().device_can_access_peer {
            // SAFETY: `answer` is writable; both numbers came from `cuDeviceGet`.
            Some(can_access) => unsafe { can_access(&raw mut answer, device, peer) },
            None => Self::MISSING,
        };
        check(CALL, code).map(|()| answer != 0)
    }

    fn let_reach(&self, ordinal: u32, peer: u32) -> DriverResult<()> {
        let of_peer = self.device(peer, Call::Reach)?.context(&self.symbols)?;
        self.call_with(ordinal, Call::Reach, self.symbols.context_enable_peer_access, |enable| {
            // SAFETY: the context was retained and never released; the flags must be 0.
            unsafe { enable(of_peer.0, 0) }
        })
    }
}

/// The text that libcuda has for a code, if it has one.
fn error_text(code: Code, get: unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint) -> Option<String> {
    usable(Call::Init).ok()?;
    let mut text = ptr::null();
    // SAFETY: `text` is writable; any number may be asked about.
    let found = unsafe { get(code.0, &raw mut text) } == abi::SUCCESS && !text.is_null();
    // SAFETY: libcuda has set the pointer to a text that ends in a zero byte and lives as long as the library.
    found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
