//! Each call of the contract as a call of a runtime library.

#![expect(unsafe_code, reason = "calls a vendor's library")]

use core::ffi::{c_char, c_int, c_uint, c_ulonglong};
use core::ptr::{self, NonNull};

use super::RuntimeDriver;
use super::enter::MISSING;
use crate::driver::library::abi;
use crate::driver::library::answer::{capture_mode, capture_mode_of, capture_status_of, is_done, not_empty};
use crate::driver::library::{address_range, answered_in, host_call, migration, numa, pages, pinned, pools};
use crate::driver::{
    AddressRange, Advice, Call, CaptureId, CaptureMode, CaptureStatus, Code, DeviceAttribute, Driver,
    DriverError, DriverResult, ExportedMemory, FillValue, HandleType, Location, MapAccess, MemoryInfo,
    PinnedFlags, PointerInfo, PoolAttribute, PoolKind, PoolProperties, RawEvent, RawGraph, RawMemory,
    RawPool, RawStream, Sharing, StreamFlags,
};

/// `cudaMemcpyDefault`: the library finds out from the addresses which side is where.
const COPY_DEFAULT: c_uint = 4;

/// What the contract promises of memory, of a device or pinned.
const ALIGN: u64 = 256;

// SAFETY: the promises of the contract are the libraries' own: their allocations are disjoint, their streams run in order, and their
// waits cover what was recorded. The methods below add the rest: one answer to 0 bytes and to fills that are not aligned, copies that
// are synchronous, memory that is aligned, and one address of pinned memory.
unsafe impl Driver for RuntimeDriver {
    fn name(&self) -> &'static str {
        self.runtime.name()
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn device_count(&self) -> DriverResult<u32> {
        self.usable(Call::DeviceCount)?;
        Ok(self.devices.len() as u32)
    }

    fn device_name(&self, ordinal: u32) -> DriverResult<String> {
        let device = self.device(ordinal, Call::DeviceName)?;
        let Some(get) = self.symbols.device_get_name else {
            return Ok(format!("{} device {ordinal}", self.runtime));
        };
        let mut name = [0_u8; 256];
        let (start, length) = (name.as_mut_ptr().cast::<c_char>(), name.len() as c_int);
        // SAFETY: `length` bytes are writable from `start` on; the library has a device of that number.
        self.check(Call::DeviceName, unsafe { get(start, length, device.number()) })?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(name).into_owned())
    }

    fn attribute(&self, ordinal: u32, attribute: DeviceAttribute) -> DriverResult<i32> {
        let value = self.known_attribute(ordinal, attribute)?;
        let symbols = &self.symbols;
        let if_it = |has: bool| Ok(if has { value.unwrap_or(0) } else { 0 });
        match attribute {
            DeviceAttribute::HostNumaNode if value.is_none() => Ok(numa::node_of_pci_device(
                self.attribute(ordinal, DeviceAttribute::PciDomain)?,
                self.attribute(ordinal, DeviceAttribute::PciBus)?,
                self.attribute(ordinal, DeviceAttribute::PciDevice)?,
            )),
            // Where a library does not say, a registration tries, and checks the address. cudart says it of the address, too.
            DeviceAttribute::HostRegister => {
                let can = symbols.host_register.is_some() && symbols.host_unregister.is_some();
                if self.table().numbers_as_cuda && value == Some(1) {
                    let same = self.device_attribute(ordinal, abi::REGISTERED_SAME_ADDRESS)?;
                    return Ok(i32::from(can && same == Some(1)));
                }
                Ok(i32::from(can && value != Some(0)))
            }
            // A device may have what the library has no function for.
            DeviceAttribute::MemoryPools => {
                if_it(symbols.shared.pool_create.is_some() && symbols.free_async.is_some())
            }
            DeviceAttribute::ManagedMemory => if_it(symbols.memory_allocate_managed.is_some()),
            DeviceAttribute::ConcurrentManagedAccess => if_it(
                symbols.shared.prefetch_to_location.is_some() || symbols.shared.prefetch_to_device.is_some(),
            ),
            DeviceAttribute::VirtualMemory => {
                if_it(symbols.shared.get_granularity.is_some() && symbols.shared.memory_set_access.is_some())
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

    fn attribute_by_number(&self, ordinal: u32, number: i32) -> DriverResult<i32> {
        let value = if self.table().numbers_as_cuda {
            self.device_attribute(ordinal, number)?
        } else {
            self.device(ordinal, Call::Attribute)?;
            let named = DeviceAttribute::ALL.iter().find(|attribute| attribute.number() == number);
            named.map_or(Ok(None), |attribute| self.known_attribute(ordinal, *attribute))?
        };
        value.ok_or(DriverError::new(Call::Attribute, Code::INVALID_VALUE))
    }

    fn memory_info(&self, ordinal: u32) -> DriverResult<MemoryInfo> {
        let mut info = MemoryInfo::default();
        self.call(ordinal, Call::MemoryInfo, |symbols| {
            // SAFETY: both are writable.
            unsafe { (symbols.memory_get_info)(&raw mut info.free_bytes, &raw mut info.total_bytes) }
        })?;
        Ok(info)
    }

    fn context_synchronize(&self, ordinal: u32) -> DriverResult<()> {
        self.call(ordinal, Call::ContextSynchronize, |symbols| {
            // SAFETY: the device is current.
            unsafe { (symbols.device_synchronize)() }
        })
    }

    fn context_device(&self) -> DriverResult<Option<u32>> {
        self.current_device()
    }

    fn set_context(&self, ordinal: u32) -> DriverResult<()> {
        let device = self.device(ordinal, Call::ContextSet)?;
        // SAFETY: the library has a device of that ordinal.
        self.check(Call::ContextSet, unsafe { (self.symbols.set_device)(device.ordinal()) })
    }

    fn in_context(&self, ordinal: u32, function: &mut dyn FnMut()) -> DriverResult<()> {
        let device = self.device(ordinal, Call::ContextEnter)?;
        let _current = self.enter(device)?;
        function();
        Ok(())
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode> {
        self.usable(Call::CaptureMode)?;
        // A library without modes forbids nothing on account of one.
        let Some(exchange) = self.symbols.exchange_capture_mode else { return Ok(CaptureMode::Relaxed) };
        let mut number = capture_mode(mode);
        // SAFETY: `number` is readable and writable. The mode is the thread's.
        self.check(Call::CaptureMode, unsafe { exchange(&raw mut number) })?;
        Ok(capture_mode_of(number))
    }

    fn stream_priority_range(&self, ordinal: u32) -> DriverResult<(i32, i32)> {
        let (mut least, mut greatest) = (0, 0);
        self.call(ordinal, Call::StreamPriorityRange, |symbols| match symbols.get_stream_priority_range {
            // SAFETY: both are writable.
            Some(get) => unsafe { get(&raw mut least, &raw mut greatest) },
            // One priority, which is 0.
            None => abi::SUCCESS,
        })?;
        Ok((least, greatest))
    }

    fn stream_create(&self, ordinal: u32, flags: StreamFlags) -> DriverResult<RawStream> {
        let bits = if flags.blocking { 0 } else { abi::STREAM_NON_BLOCKING };
        let stream: usize = self.read(ordinal, Call::StreamCreate, |symbols, stream| {
            // SAFETY: `stream` is writable.
            unsafe { (symbols.stream_create)(stream, bits, flags.priority) }
        })?;
        Ok(RawStream(stream as u64))
    }

    unsafe fn stream_destroy(&self, ordinal: u32, raw: RawStream) -> DriverResult<()> {
        self.call(ordinal, Call::StreamDestroy, |symbols| {
            // SAFETY: the caller's promise: the stream is live and nobody uses it again.
            unsafe { (symbols.stream_destroy)(self.stream(raw)) }
        })
    }

    unsafe fn stream_synchronize(&self, ordinal: u32, raw: RawStream) -> DriverResult<()> {
        self.call(ordinal, Call::StreamSynchronize, |symbols| {
            // SAFETY: the stream is live, as the caller promises.
            unsafe { (symbols.stream_synchronize)(self.stream(raw)) }
        })
    }

    unsafe fn stream_query(&self, ordinal: u32, raw: RawStream) -> DriverResult<bool> {
        is_done(self.call(ordinal, Call::StreamQuery, |symbols| {
            // SAFETY: the stream is live, as the caller promises.
            unsafe { (symbols.stream_query)(self.stream(raw)) }
        }))
    }

    unsafe fn stream_wait_event(&self, ordinal: u32, raw: RawStream, event: RawEvent) -> DriverResult<()> {
        self.call(ordinal, Call::StreamWaitEvent, |symbols| {
            // SAFETY: stream and event are live, as the caller promises.
            unsafe { (symbols.stream_wait_event)(self.stream(raw), event.0 as usize, 0) }
        })
    }

    unsafe fn stream_capture_status(&self, ordinal: u32, raw: RawStream) -> DriverResult<CaptureStatus> {
        let status: c_uint = self.read(ordinal, Call::StreamCaptureStatus, |symbols, status| {
            match symbols.stream_is_capturing {
                // SAFETY: the stream is live, as the caller promises; `status` is writable.
                Some(is_capturing) => unsafe { is_capturing(self.stream(raw), status) },
                // Without it nothing can be captured: see `stream_begin_capture`.
                None => abi::SUCCESS,
            }
        })?;
        Ok(capture_status_of(status))
    }

    unsafe fn stream_capture_id(&self, ordinal: u32, raw: RawStream) -> DriverResult<Option<CaptureId>> {
        if self.stream(raw) == 0 {
            // The legacy stream is never captured, and HIP refuses the question.
            self.device(ordinal, Call::StreamCaptureId)?;
            return Ok(None);
        }
        let (mut status, mut number, mut graph): (c_uint, c_ulonglong, usize) = (0, 0, 0);
        self.call(ordinal, Call::StreamCaptureId, |symbols| {
            let (stream, none) = (self.stream(raw), ptr::null_mut());
            match (symbols.stream_get_capture_info, symbols.stream_get_capture_info_with_edges) {
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

    unsafe fn stream_id(&self, ordinal: u32, raw: RawStream) -> DriverResult<u64> {
        self.read(ordinal, Call::StreamId, |symbols, id: *mut c_ulonglong| match symbols.stream_get_id {
            // SAFETY: the stream is live, as the caller promises; `id` is writable.
            Some(get_id) => unsafe { get_id(self.stream(raw), id) },
            None => Code::NOT_FOUND.0,
        })
    }

    unsafe fn stream_context_device(&self, stream: RawStream) -> DriverResult<Option<u32>> {
        // SAFETY: the stream is live and none of the default streams, as the caller promises.
        unsafe { self.device_of_stream(stream) }
    }

    unsafe fn stream_begin_capture(
        &self,
        ordinal: u32,
        raw: RawStream,
        mode: CaptureMode,
    ) -> DriverResult<()> {
        self.call(ordinal, Call::BeginCapture, |symbols| {
            match symbols.stream_begin_capture.filter(|_| symbols.stream_is_capturing.is_some()) {
                // SAFETY: the stream is live, as the caller promises.
                Some(begin) => unsafe { begin(self.stream(raw), capture_mode(mode)) },
                None => MISSING,
            }
        })
    }

    unsafe fn stream_end_capture(&self, ordinal: u32, raw: RawStream) -> DriverResult<RawGraph> {
        let graph: usize =
            self.read(ordinal, Call::EndCapture, |symbols, graph| match symbols.stream_end_capture {
                // SAFETY: the stream is live, as the caller promises; `graph` is writable.
                Some(end) => unsafe { end(self.stream(raw), graph) },
                None => MISSING,
            })?;
        Ok(RawGraph(graph as u64))
    }

    unsafe fn graph_destroy(&self, ordinal: u32, graph: RawGraph) -> DriverResult<()> {
        self.call(ordinal, Call::GraphDestroy, |symbols| match symbols.graph_destroy {
            // SAFETY: the graph is live and nobody uses it again, as the caller promises.
            Some(destroy) => unsafe { destroy(graph.0 as usize) },
            None => MISSING,
        })
    }

    unsafe fn stream_host_call(
        &self,
        ordinal: u32,
        raw: RawStream,
        function: Box<dyn FnOnce() + Send>,
    ) -> DriverResult<()> {
        const CALL: Call = Call::StreamHostCall;
        // A captured call would run at every launch of the graph; the function can run once.
        // SAFETY: the stream is live, as the caller promises.
        if unsafe { self.stream_capture_status(ordinal, raw) }? != CaptureStatus::None {
            return Err(DriverError::new(CALL, Code::CAPTURE_UNSUPPORTED));
        }
        let Some(launch) = self.symbols.launch_host_function else {
            return Err(DriverError::new(CALL, Code::NOT_SUPPORTED));
        };
        let data = host_call::into_raw(function);
        let result = self.call(ordinal, CALL, |_| {
            // SAFETY: the stream is live, as the caller promises, and does not capture; `host_call::call` may be given `data` on any
            // thread, because the function is `Send`, and is given it once.
            unsafe { launch(self.stream(raw), host_call::call, data) }
        });
        if result.is_err() {
            // SAFETY: `data` is from `into_raw`, and the library, which refused it, does not call it.
            drop(unsafe { host_call::take_back(data) });
        }
        result
    }

    fn event_create(&self, ordinal: u32) -> DriverResult<RawEvent> {
        self.create_event(ordinal, abi::EVENT_DISABLE_TIMING)
    }

    unsafe fn event_destroy(&self, ordinal: u32, event: RawEvent) -> DriverResult<()> {
        self.call(ordinal, Call::EventDestroy, |symbols| {
            // SAFETY: the caller's promise: the event is live and nobody uses it again.
            unsafe { (symbols.event_destroy)(event.0 as usize) }
        })
    }

    unsafe fn event_record(&self, ordinal: u32, event: RawEvent, on: RawStream) -> DriverResult<()> {
        self.call(ordinal, Call::EventRecord, |symbols| {
            // SAFETY: event and stream are live, as the caller promises.
            unsafe { (symbols.event_record)(event.0 as usize, self.stream(on)) }
        })
    }

    unsafe fn event_query(&self, ordinal: u32, event: RawEvent) -> DriverResult<bool> {
        is_done(self.call(ordinal, Call::EventQuery, |symbols| {
            // SAFETY: the event is live, as the caller promises.
            unsafe { (symbols.event_query)(event.0 as usize) }
        }))
    }

    unsafe fn event_synchronize(&self, ordinal: u32, event: RawEvent) -> DriverResult<()> {
        self.call(ordinal, Call::EventSynchronize, |symbols| {
            // SAFETY: the event is live, as the caller promises.
            unsafe { (symbols.event_synchronize)(event.0 as usize) }
        })
    }

    fn allocate_device(&self, ordinal: u32, bytes: usize) -> DriverResult<u64> {
        not_empty(Call::AllocateDevice, bytes)?;
        let address = self.read(ordinal, Call::AllocateDevice, |symbols, address| {
            // SAFETY: `address` is writable.
            unsafe { (symbols.memory_allocate)(address, bytes) }
        })?;
        // SAFETY: the memory was just made for this device, and nobody uses it.
        aligned(Call::AllocateDevice, address, || unsafe { self.free_device(ordinal, address) })
    }

    unsafe fn free_device(&self, ordinal: u32, address: u64) -> DriverResult<()> {
        self.call(ordinal, Call::FreeDevice, |symbols| {
            // SAFETY: the caller's promise: the memory is live and nobody uses it again.
            unsafe { (symbols.memory_free)(address) }
        })
    }

    fn allocate_managed(&self, ordinal: u32, bytes: usize) -> DriverResult<u64> {
        not_empty(Call::AllocateManaged, bytes)?;
        let address = self.read(ordinal, Call::AllocateManaged, |symbols, address| {
            match symbols.memory_allocate_managed {
                // SAFETY: `address` is writable.
                Some(allocate) => unsafe { allocate(address, bytes, abi::MEM_ATTACH_GLOBAL) },
                None => MISSING,
            }
        })?;
        // SAFETY: the memory was just made for this device, and nobody uses it.
        aligned(Call::AllocateManaged, address, || unsafe { self.free_device(ordinal, address) })
    }

    fn allocate_pinned(&self, ordinal: u32, bytes: usize, flags: PinnedFlags) -> DriverResult<NonNull<u8>> {
        let pointer = pinned::allocate_pinned(self, ordinal, bytes, flags)?;
        aligned(Call::AllocatePinned, pointer.as_ptr().addr() as u64, || {
            // SAFETY: the memory was just pinned for this device, and nobody uses it.
            unsafe { self.free_pinned(ordinal, pointer) }
        })?;
        Ok(pointer)
    }

    answered_in! { pinned of Driver }

    fn pointer_attributes(&self, address: u64) -> DriverResult<Option<PointerInfo>> {
        self.pointer_info(address)
    }

    answered_in! { address_range of Driver }

    fn plain_allocation(&self, address: u64) -> DriverResult<Option<AddressRange>> {
        self.plain_range_around(address)
    }

    unsafe fn allocate_async(
        &self,
        ordinal: u32,
        bytes: usize,
        pool: RawPool,
        raw: RawStream,
    ) -> DriverResult<u64> {
        not_empty(Call::AllocateAsync, bytes)?;
        let address =
            self.read(ordinal, Call::AllocateAsync, |symbols, address| match symbols.pool_allocate_async {
                // SAFETY: `address` is writable; pool and stream are live, as the caller promises.
                Some(allocate) => unsafe { allocate(address, bytes, pools::handle(pool), self.stream(raw)) },
                None => MISSING,
            })?;
        // SAFETY: the memory was just made on this stream, and nobody uses it.
        aligned(Call::AllocateAsync, address, || unsafe { self.free_async(ordinal, address, raw) })
    }

    unsafe fn free_async(&self, ordinal: u32, address: u64, raw: RawStream) -> DriverResult<()> {
        self.call(ordinal, Call::FreeAsync, |symbols| match symbols.free_async {
            // SAFETY: the memory is live and used by earlier work only; the stream is live: as the caller promises.
            Some(free) => unsafe { free(address, self.stream(raw)) },
            None => MISSING,
        })
    }

    answered_in! { pools of Driver }

    answered_in! { pages of Driver }

    unsafe fn copy(&self, ordinal: u32, to: u64, from: u64, bytes: usize) -> DriverResult<()> {
        self.call(ordinal, Call::Copy, |symbols| {
            // SAFETY: both ranges are live and nobody conflicts, as the caller promises.
            let code = unsafe { (symbols.copy)(to, from, bytes, COPY_DEFAULT) };
            if code != abi::SUCCESS {
                return code;
            }
            // The libraries may return before a copy within a device is done, and before the last of a copy from pageable memory has
            // arrived. It ran on the legacy stream.
            // SAFETY: the legacy stream always exists.
            unsafe { (symbols.stream_synchronize)(self.stream(RawStream::LEGACY)) }
        })
    }

    unsafe fn copy_async(
        &self,
        ordinal: u32,
        to: u64,
        from: u64,
        bytes: usize,
        raw: RawStream,
    ) -> DriverResult<()> {
        let copied = self.call(ordinal, Call::CopyAsync, |symbols| {
            // SAFETY: both ranges stay live until then and nobody conflicts, as the caller promises.
            unsafe { (symbols.copy_async)(to, from, bytes, COPY_DEFAULT, self.stream(raw)) }
        });
        if copied == Err(DriverError::new(Call::CopyAsync, Code::INVALID_VALUE)) {
            // SAFETY: the caller's promises.
            return unsafe { self.copy_between_devices(ordinal, to, from, bytes, raw, copied) };
        }
        copied
    }

    unsafe fn fill_async(
        &self,
        ordinal: u32,
        to: u64,
        value: FillValue,
        count: usize,
        raw: RawStream,
    ) -> DriverResult<()> {
        if !to.is_multiple_of(value.bytes() as u64) {
            self.device(ordinal, Call::FillAsync)?;
            return Err(DriverError::new(Call::FillAsync, Code::INVALID_VALUE));
        }
        let (stream, device) = (self.stream(raw), self.device(ordinal, Call::FillAsync)?);
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
            _ => MISSING,
        };
        if self.table().numbers_as_cuda {
            self.check_of_driver(Call::FillAsync, code)
        } else {
            self.check(Call::FillAsync, code)
        }
    }

    answered_in! { migration of Driver }

    fn sharing(&self) -> Option<&dyn Sharing> {
        Some(self)
    }
}

impl RuntimeDriver {
    pub(super) fn create_event(&self, ordinal: u32, flags: c_uint) -> DriverResult<RawEvent> {
        let event: usize = self.read(ordinal, Call::EventCreate, |symbols, event| {
            // SAFETY: `event` is writable.
            unsafe { (symbols.event_create)(event, flags) }
        })?;
        Ok(RawEvent(event as u64))
    }

    /// One attribute that this crate has a name for; `None` where the library has none.
    fn known_attribute(&self, ordinal: u32, attribute: DeviceAttribute) -> DriverResult<Option<i32>> {
        match (self.table().attribute)(attribute) {
            Some(number) => self.device_attribute(ordinal, number),
            None => self.device(ordinal, Call::Attribute).map(|_| None),
        }
    }

    /// Queues a copy that was refused, if source and destination are on different devices: memory of a pool is accessible to its own
    /// device alone, and the call that names both devices needs no access.
    ///
    /// # Safety
    ///
    /// As [`Driver::copy_async`].
    unsafe fn copy_between_devices(
        &self,
        ordinal: u32,
        to: u64,
        from: u64,
        bytes: usize,
        raw: RawStream,
        refused: DriverResult<()>,
    ) -> DriverResult<()> {
        let device_of = |address| self.pointer_info(address).ok().flatten().and_then(|info| info.ordinal);
        let (Some(of_to), Some(of_from)) = (device_of(to), device_of(from)) else { return refused };
        let Some(copy) = self.symbols.copy_peer_async.filter(|_| of_to != of_from) else { return refused };
        self.call(ordinal, Call::CopyAsync, |_| {
            // SAFETY: both ranges stay live until the copy has run and nobody conflicts, as the caller promises.
            unsafe { copy(to, of_to as c_int, from, of_from as c_int, bytes, self.stream(raw)) }
        })
    }
}

/// Memory as the contract promises it: aligned. What is not is given back, and the device refused: no document of HIP or MACA says how
/// their memory is aligned.
pub(super) fn aligned(
    call: Call,
    address: u64,
    give_back: impl FnOnce() -> DriverResult<()>,
) -> DriverResult<u64> {
    if address.is_multiple_of(ALIGN) {
        return Ok(address);
    }
    // A failure leaks memory that could not be used.
    let _ = give_back();
    Err(DriverError::new(call, Code::NOT_SUPPORTED))
}
