//! What the runtime libraries do as libcuda does not, or each in its way.

#![expect(unsafe_code, reason = "calls a vendor's library")]

use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use core::ptr;

use super::{Runtime, RuntimeLibrary};
use crate::driver::library::answer::capture_status_of;
use crate::driver::library::exported::Descriptors;
use crate::driver::library::functions::Functions;
use crate::driver::library::{Interface, abi, address_range, numa};
use crate::driver::{
    AddressRange, Call, CaptureId, CaptureStatus, Code, DeviceAttribute, DriverError, DriverResult,
    FillValue, HandleType, PointerInfo, RawGraph, RawStream,
};

/// `cudaMemcpyDefault`: the library finds out from the addresses which side is where.
const COPY_DEFAULT: c_uint = 4;

impl Interface for RuntimeLibrary {
    const MISSING: c_uint = Code::NOT_SUPPORTED.0;
    const ALIGNS: bool = false;
    const UUIDS_DIFFER: bool = false;

    fn name(&self) -> &'static str {
        self.runtime.name()
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn functions(&self) -> &Functions {
        &self.symbols.shared
    }

    /// cudart's pages are the CUDA driver's; of the others no document says that memory with two addresses is coherent.
    fn may_alias(&self) -> bool {
        self.runtime == Runtime::Cudart
    }

    fn granularity(&self) -> c_uint {
        self.table().granularity
    }

    fn descriptors(&self) -> Descriptors {
        let by_value = self.version >= self.table().descriptors_by_value_since;
        if by_value { Descriptors::ByValue } else { Descriptors::ByAddress }
    }

    fn pool_limit_version(&self) -> u32 {
        self.table().pool_limit_version
    }

    fn event_handles_begin(&self) -> Option<&'static str> {
        self.table().event_handles_begin
    }

    fn lends_events(&self) -> bool {
        self.symbols.lends_events()
    }

    fn usable(&self, call: Call) -> DriverResult<()> {
        super::usable(self.runtime, call)
    }

    fn device_count(&self) -> u32 {
        self.devices.len() as u32
    }

    fn number_of(&self, ordinal: u32, call: Call) -> DriverResult<c_int> {
        Ok(self.device(ordinal, call)?.ordinal())
    }

    fn number_for_pages(&self, ordinal: u32, call: Call) -> DriverResult<c_int> {
        Ok(self.device(ordinal, call)?.number())
    }

    fn ordinal_for_pages(&self, number: c_int) -> Option<u32> {
        self.devices.iter().position(|device| device.number() == number).map(|ordinal| ordinal as u32)
    }

    /// Streams are pointers in C; what this driver makes fits, whatever the width.
    fn stream_of(&self, stream: RawStream) -> usize {
        if stream == RawStream::LEGACY { self.table().legacy_stream } else { stream.0 as usize }
    }

    fn check(&self, call: Call, code: c_uint) -> DriverResult<()> {
        self.result_of(call, code)
    }

    fn on_device(&self, ordinal: u32, call: Call, function: impl FnOnce() -> c_uint) -> DriverResult<()> {
        let device = self.device(ordinal, call)?;
        let _current = self.enter(device)?;
        self.check(call, function())
    }

    /// In a context that this driver has already, so that none is made for a question; a call without any would make cudart choose a
    /// device for the thread.
    fn on_any_device(&self, call: Call, function: impl FnMut() -> c_uint) -> DriverResult<()> {
        let made = self.devices.iter().position(|device| device.known_context().is_some()).unwrap_or(0);
        self.on_device(made as u32, call, function)
    }

    fn of_stream(
        &self,
        ordinal: u32,
        call: Call,
        _: RawStream,
        function: impl FnMut() -> c_uint,
    ) -> DriverResult<()> {
        self.on_device(ordinal, call, function)
    }

    fn attribute(&self, ordinal: u32, attribute: DeviceAttribute) -> DriverResult<i32> {
        let value = self.known_attribute(ordinal, attribute)?;
        let (symbols, functions) = (&self.symbols, self.functions());
        let if_it = |has: bool| Ok(if has { value.unwrap_or(0) } else { 0 });
        match attribute {
            DeviceAttribute::HostNumaNode if value.is_none() => Ok(numa::node_of_pci_device(
                self.attribute(ordinal, DeviceAttribute::PciDomain)?,
                self.attribute(ordinal, DeviceAttribute::PciBus)?,
                self.attribute(ordinal, DeviceAttribute::PciDevice)?,
            )),
            // Where a library does not say, a registration tries, and checks the address. cudart says it of the address, too.
            DeviceAttribute::HostRegister => {
                let can = functions.host_register.is_some() && functions.host_unregister.is_some();
                if self.table().numbers_as_cuda && value == Some(1) {
                    let same = self.device_attribute(ordinal, abi::REGISTERED_SAME_ADDRESS)?;
                    return Ok(i32::from(can && same == Some(1)));
                }
                Ok(i32::from(can && value != Some(0)))
            }
            // A device may have what the library has no function for.
            DeviceAttribute::MemoryPools => {
                if_it(functions.pool_create.is_some() && functions.free_async.is_some())
            }
            DeviceAttribute::ManagedMemory => if_it(functions.memory_allocate_managed.is_some()),
            DeviceAttribute::ConcurrentManagedAccess => {
                if_it(functions.prefetch_to_location.is_some() || functions.prefetch_to_device.is_some())
            }
            DeviceAttribute::VirtualMemory => {
                if_it(functions.get_granularity.is_some() && functions.memory_set_access.is_some())
            }
            DeviceAttribute::PoolHandleTypes => if_it(symbols.lends_pools()),
            DeviceAttribute::MemoryFabricHandles => if_it(symbols.lends_pages()),
            // Where a library does not say, its manual does.
            DeviceAttribute::MemoryDescriptors => {
                let has_pages = self.attribute(ordinal, DeviceAttribute::VirtualMemory)?;
                Ok(if symbols.lends_pages() { value.unwrap_or(has_pages) } else { 0 })
            }
            DeviceAttribute::SharedEvents => Ok(if symbols.lends_events() { value.unwrap_or(1) } else { 0 }),
            _ => Ok(value.unwrap_or(0)),
        }
    }

    fn attribute_by_number(&self, ordinal: u32, number: i32) -> DriverResult<Option<i32>> {
        if self.table().numbers_as_cuda {
            return self.device_attribute(ordinal, number);
        }
        self.device(ordinal, Call::Attribute)?;
        let named = DeviceAttribute::ALL.iter().find(|attribute| attribute.number() == number);
        named.map_or(Ok(None), |attribute| self.known_attribute(ordinal, *attribute))
    }

    fn makes_pages_for_rdma(&self, ordinal: u32) -> bool {
        let device = self.device(ordinal, Call::Attribute);
        let can = device.and_then(|device| self.driver_attribute(device, DeviceAttribute::PageRdma.number()));
        can.is_ok_and(|can| can.unwrap_or(0) != 0)
    }

    fn code_name(&self, _: Code) -> Option<String> {
        None
    }

    fn code_text(&self, _: Code) -> Option<String> {
        None
    }

    fn current_device(&self) -> DriverResult<Option<u32>> {
        self.device_of_thread()
    }

    fn has_current(&self) -> DriverResult<bool> {
        Ok(self.device_of_thread()?.is_some())
    }

    fn set_current(&self, ordinal: u32) -> DriverResult<()> {
        let device = self.device(ordinal, Call::ContextSet)?;
        // SAFETY: the library has a device of that ordinal.
        self.check(Call::ContextSet, unsafe { (self.symbols.set_device)(device.ordinal()) })
    }

    unsafe fn capture_status(&self, ordinal: u32, stream: RawStream) -> DriverResult<CaptureStatus> {
        let status: c_uint = self.read_on_device(ordinal, Call::StreamCaptureStatus, |status| {
            match self.symbols.stream_is_capturing {
                // SAFETY: the stream is live, as the caller promises; `status` is writable.
                Some(is_capturing) => unsafe { is_capturing(self.stream_of(stream), status) },
                // Without it nothing can be captured: see `tells_captures`.
                None => abi::SUCCESS,
            }
        })?;
        Ok(capture_status_of(status))
    }

    unsafe fn capture_id(&self, ordinal: u32, stream: RawStream) -> DriverResult<Option<CaptureId>> {
        if self.stream_of(stream) == 0 {
            // The legacy stream is never captured, and HIP refuses the question.
            self.device(ordinal, Call::StreamCaptureId)?;
            return Ok(None);
        }
        let (mut status, mut number, mut graph): (c_uint, c_ulonglong, usize) = (0, 0, 0);
        self.on_device(ordinal, Call::StreamCaptureId, || {
            let (stream, none) = (self.stream_of(stream), ptr::null_mut());
            match (self.symbols.stream_get_capture_info, self.symbols.stream_get_capture_info_with_edges) {
                // SAFETY: the stream is live, as the caller promises; the first three places are writable, and the last ones may be
                // null, because what the next node depends on is not asked for.
                (Some(get), _) => unsafe {
                    get(stream, &raw mut status, &raw mut number, &raw mut graph, ptr::null_mut(), none)
                },
                // SAFETY: as above.
                (None, Some(get)) => unsafe {
                    let (nodes, edges) = (ptr::null_mut(), ptr::null_mut());
                    get(stream, &raw mut status, &raw mut number, &raw mut graph, nodes, edges, none)
                },
                (None, None) => Code::NOT_FOUND.0,
            }
        })?;
        Ok((status == 1).then_some(CaptureId { number, graph: RawGraph(graph as u64) }))
    }

    fn tells_captures(&self) -> bool {
        self.symbols.stream_is_capturing.is_some()
    }

    unsafe fn device_of_stream(&self, stream: RawStream) -> DriverResult<Option<u32>> {
        // SAFETY: the caller's promise.
        unsafe { self.device_behind(stream) }
    }

    fn pointer_info(&self, address: u64) -> DriverResult<Option<PointerInfo>> {
        self.known_of(address)
    }

    fn plain_range_around(&self, address: u64) -> DriverResult<Option<AddressRange>> {
        self.plain_range(address)
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> c_uint {
        // SAFETY: the caller's promise.
        unsafe { (self.symbols.copy)(to, from, bytes, COPY_DEFAULT) }
    }

    unsafe fn copy_async(&self, to: u64, from: u64, bytes: usize, stream: usize) -> c_uint {
        // SAFETY: the caller's promise.
        unsafe { (self.symbols.copy_async)(to, from, bytes, COPY_DEFAULT, stream) }
    }

    unsafe fn copy_between_devices(
        &self,
        ordinal: u32,
        to: u64,
        from: u64,
        bytes: usize,
        stream: usize,
        refused: DriverResult<()>,
    ) -> DriverResult<()> {
        let device_of = |address| self.pointer_info(address).ok().flatten().and_then(|info| info.ordinal);
        let (Some(of_to), Some(of_from)) = (device_of(to), device_of(from)) else { return refused };
        let Some(copy) = self.symbols.copy_peer_async.filter(|_| of_to != of_from) else { return refused };
        self.on_device(ordinal, Call::CopyAsync, || {
            // SAFETY: both ranges stay live until the copy has run and nobody conflicts, as the caller promises.
            unsafe { copy(to, of_to as c_int, from, of_from as c_int, bytes, stream) }
        })
    }

    unsafe fn fill_async(
        &self,
        ordinal: u32,
        to: u64,
        value: FillValue,
        count: usize,
        stream: usize,
    ) -> DriverResult<()> {
        if !to.is_multiple_of(value.bytes() as u64) {
            self.device(ordinal, Call::FillAsync)?;
            return Err(DriverError::new(Call::FillAsync, Code::INVALID_VALUE));
        }
        let device = self.device(ordinal, Call::FillAsync)?;
        let _current = self.enter(device)?;
        let symbols = &self.symbols;
        let code = match (value, symbols.fill_2_async, symbols.fill_4_async) {
            (FillValue::U8(value), ..) => {
                // SAFETY: the range stays live until then and nobody conflicts, as the caller promises.
                let code = unsafe { (symbols.fill_1_async)(to, c_int::from(value), count, stream) };
                return self.check(Call::FillAsync, code);
            }
            // SAFETY: as above.
            (FillValue::U16(value), Some(fill), _) => unsafe { fill(to, value, count, stream) },
            // SAFETY: as above.
            (FillValue::U32(value), _, Some(fill)) => unsafe { fill(to, value, count, stream) },
            _ => Self::MISSING,
        };
        if self.table().numbers_as_cuda {
            self.check_of_driver(Call::FillAsync, code)
        } else {
            self.check(Call::FillAsync, code)
        }
    }

    fn lent_address(&self, address: u64) -> DriverResult<u64> {
        if self.table().handles_are_whole { Ok(address) } else { self.start_of(address) }
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
        // Without the function to be let in, none is. The question is about no current device, and makes no context.
        let (Some(can_access), Some(_)) =
            (self.functions().device_can_access_peer, self.symbols.device_enable_peer_access)
        else {
            return Ok(false);
        };
        let mut answer: c_int = 0;
        // SAFETY: `answer` is writable; the library has both devices.
        self.check(CALL, unsafe { can_access(&raw mut answer, device, peer) })?;
        Ok(answer != 0)
    }

    fn let_reach(&self, ordinal: u32, peer: u32) -> DriverResult<()> {
        let peer = self.device(peer, Call::Reach)?;
        // Where there are contexts, the peer's is there for good then.
        self.context(peer)?;
        self.call_with(ordinal, Call::Reach, self.symbols.device_enable_peer_access, |enable| {
            // SAFETY: the library has a device of that ordinal; the flags must be 0.
            unsafe { enable(peer.ordinal(), 0) }
        })
    }
}

impl RuntimeLibrary {
    /// One attribute that this crate has a name for; `None` where the library has none.
    fn known_attribute(&self, ordinal: u32, attribute: DeviceAttribute) -> DriverResult<Option<i32>> {
        match (self.table().attribute)(attribute) {
            Some(number) => self.device_attribute(ordinal, number),
            None => self.device(ordinal, Call::Attribute).map(|_| None),
        }
    }

    /// Where the allocation starts that an address lies in.
    fn start_of(&self, address: u64) -> DriverResult<u64> {
        match address_range::address_range(self, address) {
            Ok(Some(range)) => Ok(range.start),
            Ok(None) => Err(DriverError::new(Call::MemoryHandle, Code::INVALID_VALUE)),
            // A library that does not say.
            Err(DriverError { code: Code::NOT_FOUND, .. }) => {
                Err(DriverError::new(Call::MemoryHandle, Code::NOT_SUPPORTED))
            }
            Err(error) => Err(DriverError::new(Call::MemoryHandle, error.code)),
        }
    }
}
