//! Each call of the contract as a call of a vendor's library.

#![expect(unsafe_code, reason = "calls the vendors' libraries")]

use core::ffi::{c_char, c_int, c_uint, c_ulonglong};
use core::ptr::NonNull;

use super::answer::{capture_mode, capture_mode_of, is_done, not_empty};
use super::{
    Interface, LibraryDriver, abi, address_range, aligned, answered_in, host_call, migration, pages, pinned,
    pools,
};
use crate::driver::{
    AddressRange, Advice, Call, CaptureId, CaptureMode, CaptureStatus, Code, DeviceAttribute, Driver,
    DriverError, DriverResult, ExportedMemory, FillValue, HandleType, Location, MapAccess, MemoryInfo,
    PinnedFlags, PointerInfo, PoolAttribute, PoolKind, PoolProperties, RawEvent, RawGraph, RawMemory,
    RawPool, RawStream, Sharing, StreamFlags,
};

/// The event as the functions take it: handles are pointers in C, and what a library makes fits, whatever the width.
pub(super) const fn handle(event: RawEvent) -> usize {
    event.0 as usize
}

// SAFETY: the promises of the contract are the libraries' own: their allocations are disjoint, their streams run in order, and their
// waits cover what was recorded. The methods below add the rest: one answer to 0 bytes, copies that are synchronous, memory that is
// aligned, and one address of pinned memory.
unsafe impl<L: Interface> Driver for LibraryDriver<L> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn version(&self) -> u32 {
        self.0.version()
    }

    fn may_alias(&self) -> bool {
        self.0.may_alias()
    }

    fn device_count(&self) -> DriverResult<u32> {
        self.0.usable(Call::DeviceCount)?;
        Ok(self.0.device_count())
    }

    fn device_name(&self, ordinal: u32) -> DriverResult<String> {
        const CALL: Call = Call::DeviceName;
        let number = self.0.number_for_pages(ordinal, CALL)?;
        let Some(get) = self.0.functions().device_get_name else {
            return Ok(format!("{} device {ordinal}", self.0.name()));
        };
        let mut name = [0_u8; 256];
        let (start, length) = (name.as_mut_ptr().cast::<c_char>(), name.len() as c_int);
        // SAFETY: `length` bytes are writable from `start` on; the library has a device of that number.
        self.0.check(CALL, unsafe { get(start, length, number) })?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(name).into_owned())
    }

    fn attribute(&self, ordinal: u32, attribute: DeviceAttribute) -> DriverResult<i32> {
        self.0.attribute(ordinal, attribute)
    }

    fn attribute_by_number(&self, ordinal: u32, number: i32) -> DriverResult<i32> {
        let value = self.0.attribute_by_number(ordinal, number)?;
        value.ok_or(DriverError::new(Call::Attribute, Code::INVALID_VALUE))
    }

    fn code_name(&self, code: Code) -> Option<String> {
        self.0.code_name(code).or_else(|| code.name().map(str::to_owned))
    }

    fn code_text(&self, code: Code) -> Option<String> {
        self.0.code_text(code).or_else(|| code.text().map(str::to_owned))
    }

    fn memory_info(&self, ordinal: u32) -> DriverResult<MemoryInfo> {
        let mut info = MemoryInfo::default();
        self.0.on_device(ordinal, Call::MemoryInfo, || {
            // SAFETY: both are writable.
            unsafe {
                (self.0.functions().memory_get_info)(&raw mut info.free_bytes, &raw mut info.total_bytes)
            }
        })?;
        Ok(info)
    }

    fn context_synchronize(&self, ordinal: u32) -> DriverResult<()> {
        self.0.on_device(ordinal, Call::ContextSynchronize, || {
            // SAFETY: the device is current.
            unsafe { (self.0.functions().synchronize)() }
        })
    }

    fn context_device(&self) -> DriverResult<Option<u32>> {
        self.0.current_device()
    }

    fn set_context(&self, ordinal: u32) -> DriverResult<()> {
        self.0.set_current(ordinal)
    }

    fn ensure_context(&self) -> DriverResult<()> {
        if self.0.has_current()? { Ok(()) } else { self.set_context(0) }
    }

    fn in_context(&self, ordinal: u32, function: &mut dyn FnMut()) -> DriverResult<()> {
        self.0.on_device(ordinal, Call::ContextEnter, || {
            function();
            abi::SUCCESS
        })
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode> {
        const CALL: Call = Call::CaptureMode;
        self.0.usable(CALL)?;
        // A library without modes forbids nothing on account of one.
        let Some(exchange) = self.0.functions().exchange_capture_mode else {
            return Ok(CaptureMode::Relaxed);
        };
        let mut number = capture_mode(mode);
        // SAFETY: `number` is readable and writable. The mode is the thread's, so no context is needed.
        self.0.check(CALL, unsafe { exchange(&raw mut number) })?;
        Ok(capture_mode_of(number))
    }

    fn stream_priority_range(&self, ordinal: u32) -> DriverResult<(i32, i32)> {
        let (mut least, mut greatest) = (0, 0);
        self.0.on_device(ordinal, Call::StreamPriorityRange, || {
            match self.0.functions().get_stream_priority_range {
                // SAFETY: both are writable.
                Some(get) => unsafe { get(&raw mut least, &raw mut greatest) },
                // One priority, which is 0.
                None => abi::SUCCESS,
            }
        })?;
        Ok((least, greatest))
    }

    fn stream_create(&self, ordinal: u32, flags: StreamFlags) -> DriverResult<RawStream> {
        let bits = if flags.blocking { 0 } else { abi::STREAM_NON_BLOCKING };
        let stream: usize = self.0.read_on_device(ordinal, Call::StreamCreate, |stream| {
            // SAFETY: `stream` is writable.
            unsafe { (self.0.functions().stream_create)(stream, bits, flags.priority) }
        })?;
        Ok(RawStream(stream as u64))
    }

    unsafe fn stream_destroy(&self, ordinal: u32, stream: RawStream) -> DriverResult<()> {
        self.0.on_device(ordinal, Call::StreamDestroy, || {
            // SAFETY: the caller's promise: the stream is live and nobody uses it again.
            unsafe { (self.0.functions().stream_destroy)(self.0.stream_of(stream)) }
        })
    }

    unsafe fn stream_synchronize(&self, ordinal: u32, stream: RawStream) -> DriverResult<()> {
        self.0.on_device(ordinal, Call::StreamSynchronize, || {
            // SAFETY: the stream is live, as the caller promises.
            unsafe { (self.0.functions().stream_synchronize)(self.0.stream_of(stream)) }
        })
    }

    unsafe fn stream_query(&self, ordinal: u32, stream: RawStream) -> DriverResult<bool> {
        is_done(self.0.on_device(ordinal, Call::StreamQuery, || {
            // SAFETY: the stream is live, as the caller promises.
            unsafe { (self.0.functions().stream_query)(self.0.stream_of(stream)) }
        }))
    }

    unsafe fn stream_wait_event(&self, ordinal: u32, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        self.0.on_device(ordinal, Call::StreamWaitEvent, || {
            // SAFETY: stream and event are live, as the caller promises.
            unsafe { (self.0.functions().stream_wait_event)(self.0.stream_of(stream), handle(event), 0) }
        })
    }

    unsafe fn stream_capture_status(&self, ordinal: u32, stream: RawStream) -> DriverResult<CaptureStatus> {
        // SAFETY: the caller's promise.
        unsafe { self.0.capture_status(ordinal, stream) }
    }

    unsafe fn stream_capture_id(&self, ordinal: u32, stream: RawStream) -> DriverResult<Option<CaptureId>> {
        // SAFETY: the caller's promise.
        unsafe { self.0.capture_id(ordinal, stream) }
    }

    unsafe fn stream_id(&self, ordinal: u32, stream: RawStream) -> DriverResult<u64> {
        let mut id: c_ulonglong = 0;
        self.0.of_stream(ordinal, Call::StreamId, stream, || match self.0.functions().stream_get_id {
            // SAFETY: the stream is live, as the caller promises; `id` is writable.
            Some(get) => unsafe { get(self.0.stream_of(stream), &raw mut id) },
            None => Code::NOT_FOUND.0,
        })?;
        Ok(id)
    }

    unsafe fn stream_context_device(&self, stream: RawStream) -> DriverResult<Option<u32>> {
        // SAFETY: the caller's promise.
        unsafe { self.0.device_of_stream(stream) }
    }

    unsafe fn stream_begin_capture(
        &self,
        ordinal: u32,
        stream: RawStream,
        mode: CaptureMode,
    ) -> DriverResult<()> {
        // Where nobody can ask whether a stream captures, none does.
        let begin = self.0.functions().stream_begin_capture.filter(|_| self.0.tells_captures());
        self.0.call_with(ordinal, Call::BeginCapture, begin, |begin| {
            // SAFETY: the stream is live, as the caller promises.
            unsafe { begin(self.0.stream_of(stream), capture_mode(mode)) }
        })
    }

    unsafe fn stream_end_capture(&self, ordinal: u32, stream: RawStream) -> DriverResult<RawGraph> {
        let end = self.0.functions().stream_end_capture;
        let graph: usize = self.0.read_with(ordinal, Call::EndCapture, end, |end, graph| {
            // SAFETY: the stream is live, as the caller promises; `graph` is writable.
            unsafe { end(self.0.stream_of(stream), graph) }
        })?;
        Ok(RawGraph(graph as u64))
    }

    unsafe fn graph_destroy(&self, ordinal: u32, graph: RawGraph) -> DriverResult<()> {
        self.0.call_with(ordinal, Call::GraphDestroy, self.0.functions().graph_destroy, |destroy| {
            // SAFETY: the graph is live and nobody uses it again, as the caller promises.
            unsafe { destroy(graph.0 as usize) }
        })
    }

    unsafe fn stream_host_call(
        &self,
        ordinal: u32,
        stream: RawStream,
        function: Box<dyn FnOnce() + Send>,
    ) -> DriverResult<()> {
        const CALL: Call = Call::StreamHostCall;
        // A captured call would run at every launch of the graph; the function can run once.
        // SAFETY: the stream is live, as the caller promises.
        if unsafe { self.0.capture_status(ordinal, stream) }? != CaptureStatus::None {
            return Err(DriverError::new(CALL, Code::CAPTURE_UNSUPPORTED));
        }
        let Some(launch) = self.0.functions().launch_host_function else {
            return Err(DriverError::new(CALL, Code::NOT_SUPPORTED));
        };
        let data = host_call::into_raw(function);
        let result = self.0.on_device(ordinal, CALL, || {
            // SAFETY: the stream is live, as the caller promises, and does not capture; `host_call::call` may be given `data` on any
            // thread, because the function is `Send`, and is given it once.
            unsafe { launch(self.0.stream_of(stream), host_call::call, data) }
        });
        if result.is_err() {
            // SAFETY: `data` is from `into_raw`, and the library, which refused it, does not call it.
            drop(unsafe { host_call::take_back(data) });
        }
        result
    }

    fn event_create(&self, ordinal: u32) -> DriverResult<RawEvent> {
        create_event(&self.0, ordinal, abi::EVENT_DISABLE_TIMING)
    }

    unsafe fn event_destroy(&self, ordinal: u32, event: RawEvent) -> DriverResult<()> {
        self.0.on_device(ordinal, Call::EventDestroy, || {
            // SAFETY: the caller's promise: the event is live and nobody uses it again.
            unsafe { (self.0.functions().event_destroy)(handle(event)) }
        })
    }

    unsafe fn event_record(&self, ordinal: u32, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        self.0.on_device(ordinal, Call::EventRecord, || {
            // SAFETY: event and stream are live, as the caller promises.
            unsafe { (self.0.functions().event_record)(handle(event), self.0.stream_of(stream)) }
        })
    }

    unsafe fn event_query(&self, ordinal: u32, event: RawEvent) -> DriverResult<bool> {
        is_done(self.0.on_device(ordinal, Call::EventQuery, || {
            // SAFETY: the event is live, as the caller promises.
            unsafe { (self.0.functions().event_query)(handle(event)) }
        }))
    }

    unsafe fn event_synchronize(&self, ordinal: u32, event: RawEvent) -> DriverResult<()> {
        self.0.on_device(ordinal, Call::EventSynchronize, || {
            // SAFETY: the event is live, as the caller promises.
            unsafe { (self.0.functions().event_synchronize)(handle(event)) }
        })
    }

    fn allocate_device(&self, ordinal: u32, bytes: usize) -> DriverResult<u64> {
        const CALL: Call = Call::AllocateDevice;
        not_empty(CALL, bytes)?;
        let address = self.0.read_on_device(ordinal, CALL, |address| {
            // SAFETY: `address` is writable.
            unsafe { (self.0.functions().memory_allocate)(address, bytes) }
        })?;
        // SAFETY: the memory was just made for this device, and nobody uses it.
        aligned::<L>(CALL, address, || unsafe { self.free_device(ordinal, address) })
    }

    unsafe fn free_device(&self, ordinal: u32, address: u64) -> DriverResult<()> {
        self.0.on_device(ordinal, Call::FreeDevice, || {
            // SAFETY: the caller's promise: the memory is live and nobody uses it again.
            unsafe { (self.0.functions().memory_free)(address) }
        })
    }

    fn allocate_managed(&self, ordinal: u32, bytes: usize) -> DriverResult<u64> {
        const CALL: Call = Call::AllocateManaged;
        not_empty(CALL, bytes)?;
        let allocate = self.0.functions().memory_allocate_managed;
        let address = self.0.read_with(ordinal, CALL, allocate, |allocate, address| {
            // SAFETY: `address` is writable.
            unsafe { allocate(address, bytes, abi::MEM_ATTACH_GLOBAL) }
        })?;
        // SAFETY: the memory was just made for this device, and nobody uses it.
        aligned::<L>(CALL, address, || unsafe { self.free_device(ordinal, address) })
    }

    answered_in! { pinned:
        fn allocate_pinned(ordinal: u32, bytes: usize, flags: PinnedFlags) -> NonNull<u8>;
        unsafe fn free_pinned(ordinal: u32, pointer: NonNull<u8>) -> ();
        unsafe fn register_host(ordinal: u32, pointer: NonNull<u8>, bytes: usize, flags: PinnedFlags) -> ();
        unsafe fn unregister_host(ordinal: u32, pointer: NonNull<u8>) -> ();
    }

    fn pointer_attributes(&self, address: u64) -> DriverResult<Option<PointerInfo>> {
        self.0.pointer_info(address)
    }

    fn is_rdma_capable(&self, address: u64) -> DriverResult<Option<bool>> {
        self.0.is_rdma_capable(address)
    }

    answered_in! { address_range:
        fn address_range(address: u64) -> Option<AddressRange>;
    }

    fn plain_allocation(&self, address: u64) -> DriverResult<Option<AddressRange>> {
        self.0.plain_range_around(address)
    }

    unsafe fn allocate_async(
        &self,
        ordinal: u32,
        bytes: usize,
        pool: RawPool,
        stream: RawStream,
    ) -> DriverResult<u64> {
        const CALL: Call = Call::AllocateAsync;
        not_empty(CALL, bytes)?;
        let allocate = self.0.functions().pool_allocate_async;
        let address = self.0.read_with(ordinal, CALL, allocate, |allocate, address| {
            // SAFETY: `address` is writable; pool and stream are live, as the caller promises.
            unsafe { allocate(address, bytes, pools::handle(pool), self.0.stream_of(stream)) }
        })?;
        // SAFETY: the memory was just made on this stream, and nobody uses it.
        aligned::<L>(CALL, address, || unsafe { self.free_async(ordinal, address, stream) })
    }

    unsafe fn free_async(&self, ordinal: u32, address: u64, stream: RawStream) -> DriverResult<()> {
        self.0.call_with(ordinal, Call::FreeAsync, self.0.functions().free_async, |free| {
            // SAFETY: the memory is live and used by earlier work only; the stream is live: as the caller promises.
            unsafe { free(address, self.0.stream_of(stream)) }
        })
    }

    answered_in! { pools:
        fn pool_create(ordinal: u32, properties: PoolProperties) -> RawPool;
        unsafe fn pool_destroy(ordinal: u32, pool: RawPool) -> ();
        unsafe fn pool_trim(ordinal: u32, pool: RawPool, keep_bytes: usize) -> ();
        unsafe fn pool_attribute(ordinal: u32, pool: RawPool, attribute: PoolAttribute) -> u64;
        unsafe fn pool_set_attribute(ordinal: u32, pool: RawPool, attribute: PoolAttribute, value: u64) -> ();
        fn pool_default(ordinal: u32, kind: PoolKind) -> RawPool;
    }

    answered_in! { pages:
        fn virtual_granularity(ordinal: u32) -> usize;
        fn virtual_reserve(ordinal: u32, bytes: usize, align: usize) -> u64;
        unsafe fn virtual_free(ordinal: u32, address: u64, bytes: usize) -> ();
        fn memory_create(ordinal: u32, bytes: usize, handle_types: HandleType) -> RawMemory;
        unsafe fn memory_release(ordinal: u32, memory: RawMemory) -> ();
        unsafe fn memory_export(ordinal: u32, memory: RawMemory, handle_type: HandleType) -> ExportedMemory;
        unsafe fn memory_map(ordinal: u32, address: u64, bytes: usize, memory: RawMemory) -> ();
        unsafe fn memory_unmap(ordinal: u32, address: u64, bytes: usize) -> ();
        unsafe fn memory_set_access(ordinal: u32, address: u64, bytes: usize, accessor: Location, access: MapAccess) -> ();
    }

    unsafe fn copy(&self, ordinal: u32, to: u64, from: u64, bytes: usize) -> DriverResult<()> {
        self.0.on_device(ordinal, Call::Copy, || {
            // SAFETY: both ranges are live and nobody conflicts, as the caller promises.
            let code = unsafe { self.0.copy(to, from, bytes) };
            if code != abi::SUCCESS {
                return code;
            }
            // The libraries return before a copy within a device is done, and before the last of a copy from pageable memory has
            // arrived. It ran on the legacy stream.
            // SAFETY: the legacy stream always exists.
            unsafe { (self.0.functions().stream_synchronize)(self.0.stream_of(RawStream::LEGACY)) }
        })
    }

    unsafe fn copy_async(
        &self,
        ordinal: u32,
        to: u64,
        from: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        let stream = self.0.stream_of(stream);
        let copied = self.0.on_device(ordinal, Call::CopyAsync, || {
            // SAFETY: both ranges stay live until then and nobody conflicts, as the caller promises.
            unsafe { self.0.copy_async(to, from, bytes, stream) }
        });
        if copied == Err(DriverError::new(Call::CopyAsync, Code::INVALID_VALUE)) {
            // SAFETY: the caller's promises.
            return unsafe { self.0.copy_between_devices(ordinal, to, from, bytes, stream, copied) };
        }
        copied
    }

    unsafe fn fill_async(
        &self,
        ordinal: u32,
        to: u64,
        value: FillValue,
        count: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        // SAFETY: the caller's promises.
        unsafe { self.0.fill_async(ordinal, to, value, count, self.0.stream_of(stream)) }
    }

    answered_in! { migration:
        unsafe fn prefetch_async(ordinal: u32, address: u64, bytes: usize, to: Location, stream: RawStream) -> ();
        unsafe fn advise(ordinal: u32, address: u64, bytes: usize, advice: Advice) -> ();
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        Some(self)
    }
}

pub(super) fn create_event(library: &impl Interface, ordinal: u32, flags: c_uint) -> DriverResult<RawEvent> {
    let event: usize = library.read_on_device(ordinal, Call::EventCreate, |event| {
        // SAFETY: `event` is writable.
        unsafe { (library.functions().event_create)(event, flags) }
    })?;
    Ok(RawEvent(event as u64))
}
