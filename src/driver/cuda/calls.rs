//! Each call of the contract as a call of libcuda.

#![expect(unsafe_code, reason = "calls libcuda")]

use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use core::ptr::{self, NonNull};

use super::context::check;
use super::entry::MISSING;
use super::{CudaDriver, abi, host_call, numa, usable};
use crate::driver::library::answer::{capture_mode, capture_mode_of, capture_status_of, is_done, not_empty};
use crate::driver::library::{address_range, answered_in, migration, pages, pinned, pools};
use crate::driver::{
    AddressRange, Advice, Call, CaptureId, CaptureMode, CaptureStatus, Code, DeviceAttribute, Driver,
    DriverError, DriverResult, ExportedMemory, FillValue, HandleType, Location, MapAccess, MemoryInfo,
    PinnedFlags, PointerInfo, PoolAttribute, PoolKind, PoolProperties, RawEvent, RawGraph, RawMemory,
    RawPool, RawStream, Sharing, StreamFlags,
};

// Handles travel as 64 bits and are pointers in C. What this driver makes fits, whatever the width.

const fn stream(stream: RawStream) -> usize {
    stream.0 as usize
}

pub(super) const fn event(event: RawEvent) -> usize {
    event.0 as usize
}

// SAFETY: the promises of the contract are libcuda's own: its allocations are disjoint, its streams run in order, and its waits
// cover what was recorded. The methods below add the rest: one answer to 0 bytes, copies that are synchronous, and one address of
// pinned memory.
unsafe impl Driver for CudaDriver {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn device_count(&self) -> DriverResult<u32> {
        usable(Call::DeviceCount)?;
        Ok(self.devices.len() as u32)
    }

    fn device_name(&self, ordinal: u32) -> DriverResult<String> {
        let device = self.device(ordinal, Call::DeviceName)?;
        let mut name = [0_u8; 256];
        let (start, length) = (name.as_mut_ptr().cast::<c_char>(), name.len() as c_int);
        // SAFETY: `length` bytes are writable from `start` on; the device's number came from `cuDeviceGet`.
        check(Call::DeviceName, unsafe { (self.symbols.device_get_name)(start, length, device.number) })?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(name).into_owned())
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

    fn attribute_by_number(&self, ordinal: u32, number: i32) -> DriverResult<i32> {
        let value = self.device_attribute(ordinal, number)?;
        value.ok_or(DriverError::new(Call::Attribute, Code::INVALID_VALUE))
    }

    fn code_name(&self, code: Code) -> Option<String> {
        let asked = self.symbols.get_error_name.and_then(|get| error_text(code, get));
        asked.or_else(|| code.name().map(str::to_owned))
    }

    fn code_text(&self, code: Code) -> Option<String> {
        let asked = self.symbols.get_error_string.and_then(|get| error_text(code, get));
        asked.or_else(|| code.text().map(str::to_owned))
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
            // SAFETY: the device's context is current.
            unsafe { (symbols.context_synchronize)() }
        })
    }

    fn context_device(&self) -> DriverResult<Option<u32>> {
        self.current_device()
    }

    fn set_context(&self, ordinal: u32) -> DriverResult<()> {
        let context = self.device(ordinal, Call::ContextSet)?.context(&self.symbols)?;
        // SAFETY: `context` was retained and never released.
        check(Call::ContextSet, unsafe { (self.symbols.context_set_current)(context.0) })
    }

    fn ensure_context(&self) -> DriverResult<()> {
        // Which device the context is of does not matter here: one question, and not two.
        if self.has_current_context()? { Ok(()) } else { self.set_context(0) }
    }

    fn in_context(&self, ordinal: u32, function: &mut dyn FnMut()) -> DriverResult<()> {
        let device = self.device(ordinal, Call::ContextEnter)?;
        let _current = device.make_current(&self.symbols)?;
        function();
        Ok(())
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode> {
        usable(Call::CaptureMode)?;
        let mut number = capture_mode(mode);
        // SAFETY: `number` is readable and writable. The mode is the thread's, so no context is needed.
        let code = unsafe { (self.symbols.thread_exchange_capture_mode)(&raw mut number) };
        check(Call::CaptureMode, code)?;
        Ok(capture_mode_of(number))
    }

    fn stream_priority_range(&self, ordinal: u32) -> DriverResult<(i32, i32)> {
        let (mut least, mut greatest) = (0, 0);
        self.call(ordinal, Call::StreamPriorityRange, |symbols| {
            // SAFETY: both are writable.
            unsafe { (symbols.context_get_stream_priority_range)(&raw mut least, &raw mut greatest) }
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
            unsafe { (symbols.stream_destroy)(stream(raw)) }
        })
    }

    unsafe fn stream_synchronize(&self, ordinal: u32, raw: RawStream) -> DriverResult<()> {
        self.call(ordinal, Call::StreamSynchronize, |symbols| {
            // SAFETY: the stream is live, as the caller promises.
            unsafe { (symbols.stream_synchronize)(stream(raw)) }
        })
    }

    unsafe fn stream_query(&self, ordinal: u32, raw: RawStream) -> DriverResult<bool> {
        let result = self.call(ordinal, Call::StreamQuery, |symbols| {
            // SAFETY: the stream is live, as the caller promises.
            unsafe { (symbols.stream_query)(stream(raw)) }
        });
        is_done(result)
    }

    unsafe fn stream_wait_event(&self, ordinal: u32, raw: RawStream, waited: RawEvent) -> DriverResult<()> {
        self.call(ordinal, Call::StreamWaitEvent, |symbols| {
            // SAFETY: stream and event are live, as the caller promises.
            unsafe { (symbols.stream_wait_event)(stream(raw), event(waited), 0) }
        })
    }

    unsafe fn stream_capture_status(&self, ordinal: u32, raw: RawStream) -> DriverResult<CaptureStatus> {
        let status: c_uint = self.read(ordinal, Call::StreamCaptureStatus, |symbols, status| {
            // SAFETY: the stream is live, as the caller promises; `status` is writable.
            unsafe { (symbols.stream_is_capturing)(stream(raw), status) }
        })?;
        Ok(capture_status_of(status))
    }

    unsafe fn stream_capture_id(&self, ordinal: u32, raw: RawStream) -> DriverResult<Option<CaptureId>> {
        let (mut status, mut number, mut graph): (c_uint, c_ulonglong, usize) = (0, 0, 0);
        self.of_stream(ordinal, Call::StreamCaptureId, raw, |symbols| {
            match symbols.stream_get_capture_info {
                // SAFETY: the stream is live, as the caller promises; the first three places are writable, and the last two may
                // be null, because what the next node depends on is not asked for.
                Some(get_info) => unsafe {
                    get_info(
                        stream(raw),
                        &raw mut status,
                        &raw mut number,
                        &raw mut graph,
                        ptr::null_mut(),
                        ptr::null_mut(),
                    )
                },
                None => MISSING,
            }
        })?;
        Ok((status == 1).then_some(CaptureId { number, graph: RawGraph(graph as u64) }))
    }

    unsafe fn stream_id(&self, ordinal: u32, raw: RawStream) -> DriverResult<u64> {
        let mut id = 0;
        self.of_stream(ordinal, Call::StreamId, raw, |symbols| match symbols.stream_get_id {
            // SAFETY: the stream is live, as the caller promises; `id` is writable.
            Some(get_id) => unsafe { get_id(stream(raw), &raw mut id) },
            None => MISSING,
        })?;
        Ok(id)
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
        self.call(ordinal, Call::BeginCapture, |symbols| match symbols.stream_begin_capture {
            // SAFETY: the stream is live, as the caller promises.
            Some(begin) => unsafe { begin(stream(raw), capture_mode(mode)) },
            None => MISSING,
        })
    }

    unsafe fn stream_end_capture(&self, ordinal: u32, raw: RawStream) -> DriverResult<RawGraph> {
        let graph: usize =
            self.read(ordinal, Call::EndCapture, |symbols, graph| match symbols.stream_end_capture {
                // SAFETY: the stream is live, as the caller promises; `graph` is writable.
                Some(end) => unsafe { end(stream(raw), graph) },
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
        // A captured call would run at every launch of the graph; the function can run once.
        // SAFETY: the stream is live, as the caller promises.
        if unsafe { self.stream_capture_status(ordinal, raw) }? != CaptureStatus::None {
            return Err(DriverError::new(Call::StreamHostCall, Code::CAPTURE_UNSUPPORTED));
        }
        let data = host_call::into_raw(function);
        let result = self.call(ordinal, Call::StreamHostCall, |symbols| {
            // SAFETY: the stream is live, as the caller promises, and does not capture; `host_call::call` may be given
            // `data` on any thread, because the function is `Send`, and is given it once.
            unsafe { (symbols.launch_host_function)(stream(raw), host_call::call, data) }
        });
        if result.is_err() {
            // SAFETY: `data` is from `into_raw`, and libcuda, which refused it, does not call it.
            drop(unsafe { host_call::take_back(data) });
        }
        result
    }

    fn event_create(&self, ordinal: u32) -> DriverResult<RawEvent> {
        self.create_event(ordinal, abi::EVENT_DISABLE_TIMING)
    }

    unsafe fn event_destroy(&self, ordinal: u32, raw: RawEvent) -> DriverResult<()> {
        self.call(ordinal, Call::EventDestroy, |symbols| {
            // SAFETY: the caller's promise: the event is live and nobody uses it again.
            unsafe { (symbols.event_destroy)(event(raw)) }
        })
    }

    unsafe fn event_record(&self, ordinal: u32, raw: RawEvent, on: RawStream) -> DriverResult<()> {
        self.call(ordinal, Call::EventRecord, |symbols| {
            // SAFETY: event and stream are live, as the caller promises.
            unsafe { (symbols.event_record)(event(raw), stream(on)) }
        })
    }

    unsafe fn event_query(&self, ordinal: u32, raw: RawEvent) -> DriverResult<bool> {
        let result = self.call(ordinal, Call::EventQuery, |symbols| {
            // SAFETY: the event is live, as the caller promises.
            unsafe { (symbols.event_query)(event(raw)) }
        });
        is_done(result)
    }

    unsafe fn event_synchronize(&self, ordinal: u32, raw: RawEvent) -> DriverResult<()> {
        self.call(ordinal, Call::EventSynchronize, |symbols| {
            // SAFETY: the event is live, as the caller promises.
            unsafe { (symbols.event_synchronize)(event(raw)) }
        })
    }

    fn allocate_device(&self, ordinal: u32, bytes: usize) -> DriverResult<u64> {
        not_empty(Call::AllocateDevice, bytes)?;
        self.read(ordinal, Call::AllocateDevice, |symbols, address| {
            // SAFETY: `address` is writable.
            unsafe { (symbols.memory_allocate)(address, bytes) }
        })
    }

    unsafe fn free_device(&self, ordinal: u32, address: u64) -> DriverResult<()> {
        self.call(ordinal, Call::FreeDevice, |symbols| {
            // SAFETY: the caller's promise: the memory is live and nobody uses it again.
            unsafe { (symbols.memory_free)(address) }
        })
    }

    fn allocate_managed(&self, ordinal: u32, bytes: usize) -> DriverResult<u64> {
        not_empty(Call::AllocateManaged, bytes)?;
        self.read(ordinal, Call::AllocateManaged, |symbols, address| {
            // SAFETY: `address` is writable.
            unsafe { (symbols.memory_allocate_managed)(address, bytes, abi::MEM_ATTACH_GLOBAL) }
        })
    }

    answered_in! { pinned of Driver }

    answered_in! { pinned:
        fn allocate_pinned(ordinal: u32, bytes: usize, flags: PinnedFlags) -> NonNull<u8>;
    }

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
        from: RawPool,
        raw: RawStream,
    ) -> DriverResult<u64> {
        not_empty(Call::AllocateAsync, bytes)?;
        self.read(ordinal, Call::AllocateAsync, |symbols, address| match symbols.pool_allocate_async {
            // SAFETY: `address` is writable; pool and stream are live, as the caller promises.
            Some(allocate) => unsafe { allocate(address, bytes, pools::handle(from), stream(raw)) },
            None => MISSING,
        })
    }

    unsafe fn free_async(&self, ordinal: u32, address: u64, raw: RawStream) -> DriverResult<()> {
        self.call(ordinal, Call::FreeAsync, |symbols| match symbols.free_async {
            // SAFETY: the memory is live and used by earlier work only; the stream is live: as the caller promises.
            Some(free) => unsafe { free(address, stream(raw)) },
            None => MISSING,
        })
    }

    answered_in! { pools of Driver }

    answered_in! { pages of Driver }

    unsafe fn copy(&self, ordinal: u32, to: u64, from: u64, bytes: usize) -> DriverResult<()> {
        self.call(ordinal, Call::Copy, |symbols| {
            // SAFETY: both ranges are live and nobody conflicts, as the caller promises.
            let code = unsafe { (symbols.copy)(to, from, bytes) };
            if code != abi::SUCCESS {
                return code;
            }
            // `cuMemcpy` returns before a copy within a device is done, and before the last of a copy from pageable
            // memory has arrived. It ran on the legacy stream.
            // SAFETY: the legacy stream always exists.
            unsafe { (symbols.stream_synchronize)(stream(RawStream::LEGACY)) }
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
            unsafe { (symbols.copy_async)(to, from, bytes, stream(raw)) }
        });
        if copied == Err(DriverError::new(Call::CopyAsync, Code::INVALID_VALUE)) {
            // SAFETY: the caller's promises.
            return unsafe { self.copy_between_devices(to, from, bytes, stream(raw), copied) };
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
        self.call(ordinal, Call::FillAsync, |symbols| match value {
            // SAFETY: the range stays live until then and nobody conflicts, as the caller promises.
            FillValue::U8(value) => unsafe { (symbols.fill_1_async)(to, value, count, stream(raw)) },
            // SAFETY: as above.
            FillValue::U16(value) => unsafe { (symbols.fill_2_async)(to, value, count, stream(raw)) },
            // SAFETY: as above.
            FillValue::U32(value) => unsafe { (symbols.fill_4_async)(to, value, count, stream(raw)) },
        })
    }

    answered_in! { migration of Driver }

    fn sharing(&self) -> Option<&dyn Sharing> {
        Some(self)
    }
}

impl CudaDriver {
    pub(super) fn create_event(&self, ordinal: u32, flags: c_uint) -> DriverResult<RawEvent> {
        let event: usize = self.read(ordinal, Call::EventCreate, |symbols, event| {
            // SAFETY: `event` is writable.
            unsafe { (symbols.event_create)(event, flags) }
        })?;
        Ok(RawEvent(event as u64))
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
