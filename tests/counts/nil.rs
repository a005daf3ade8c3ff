//! `Nil`: a driver that gets everything done at once and keeps nothing, for counting what the crate keeps.

#![expect(unsafe_code, reason = "implements the driver seam")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvion::driver::{
    AddressRange, Advice, Call, CaptureId, CaptureMode, CaptureStatus, Code, DeviceAttribute, Driver,
    DriverError, DriverResult, ExportedMemory, FillValue, HandleType, Location, MapAccess, PinnedFlags,
    PointerInfo, PoolAttribute, PoolKind, PoolProperties, RawEvent, RawGraph, RawMemory, RawPool, RawStream,
    StreamFlags,
};
use alluvion::{Device, Machine, MemoryInfo};

/// Streams and events, and no memory.
#[derive(Debug, Default)]
pub(crate) struct Nil {
    handles: AtomicU64,
    calls: AtomicU64,
}

impl Nil {
    /// A machine of one device, and its driver.
    pub(crate) fn device() -> (Arc<Self>, Device) {
        let nil = Arc::new(Self::default());
        let machine = Machine::new(Arc::clone(&nil) as _).expect("it answers");
        (nil, machine.device(0).expect("there is one"))
    }

    /// How often it was called for a stream or an event.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn note(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn handle(&self) -> u64 {
        self.note();
        0x1000 + self.handles.fetch_add(1, Ordering::Relaxed)
    }
}

macro_rules! refused {
    ($(fn $name:ident($($argument:ty),*) -> $answer:ty = $call:ident;)+) => {
        $(fn $name(&self, $(_: $argument),*) -> DriverResult<$answer> {
            Err(DriverError::new(Call::$call, Code::NOT_SUPPORTED))
        })+
    };
    ($(unsafe fn $name:ident($($argument:ty),*) -> $answer:ty = $call:ident;)+) => {
        $(unsafe fn $name(&self, $(_: $argument),*) -> DriverResult<$answer> {
            Err(DriverError::new(Call::$call, Code::NOT_SUPPORTED))
        })+
    };
}

// SAFETY: it hands out no memory and runs no work, so nothing is out of order.
unsafe impl Driver for Nil {
    fn name(&self) -> &'static str {
        "nil"
    }

    fn version(&self) -> u32 {
        13_000
    }

    fn device_count(&self) -> DriverResult<u32> {
        Ok(1)
    }

    fn context_synchronize(&self, _: u32) -> DriverResult<()> {
        self.note();
        Ok(())
    }

    fn exchange_capture_mode(&self, _: CaptureMode) -> DriverResult<CaptureMode> {
        Ok(CaptureMode::Relaxed)
    }

    fn stream_create(&self, _: u32, _: StreamFlags) -> DriverResult<RawStream> {
        Ok(RawStream(self.handle()))
    }

    unsafe fn stream_destroy(&self, _: u32, _: RawStream) -> DriverResult<()> {
        self.note();
        Ok(())
    }

    unsafe fn stream_synchronize(&self, _: u32, _: RawStream) -> DriverResult<()> {
        self.note();
        Ok(())
    }

    unsafe fn stream_query(&self, _: u32, _: RawStream) -> DriverResult<bool> {
        self.note();
        Ok(true)
    }

    unsafe fn stream_wait_event(&self, _: u32, _: RawStream, _: RawEvent) -> DriverResult<()> {
        self.note();
        Ok(())
    }

    unsafe fn stream_capture_status(&self, _: u32, _: RawStream) -> DriverResult<CaptureStatus> {
        self.note();
        Ok(CaptureStatus::None)
    }

    fn event_create(&self, _: u32) -> DriverResult<RawEvent> {
        Ok(RawEvent(self.handle()))
    }

    unsafe fn event_destroy(&self, _: u32, _: RawEvent) -> DriverResult<()> {
        self.note();
        Ok(())
    }

    unsafe fn event_record(&self, _: u32, _: RawEvent, _: RawStream) -> DriverResult<()> {
        self.note();
        Ok(())
    }

    unsafe fn event_query(&self, _: u32, _: RawEvent) -> DriverResult<bool> {
        self.note();
        Ok(true)
    }

    unsafe fn event_synchronize(&self, _: u32, _: RawEvent) -> DriverResult<()> {
        self.note();
        Ok(())
    }

    fn context_device(&self) -> DriverResult<Option<u32>> {
        Ok(None)
    }

    refused! {
        fn attribute_by_number(u32, i32) -> i32 = Attribute;
        fn set_context(u32) -> () = ContextSet;
        fn pointer_attributes(u64) -> Option<PointerInfo> = PointerAttributes;
        fn address_range(u64) -> Option<AddressRange> = AddressRange;
        fn device_name(u32) -> String = DeviceName;
        fn attribute(u32, DeviceAttribute) -> i32 = Attribute;
        fn memory_info(u32) -> MemoryInfo = MemoryInfo;
        fn stream_priority_range(u32) -> (i32, i32) = StreamPriorityRange;
        fn allocate_device(u32, usize) -> u64 = AllocateDevice;
        fn allocate_managed(u32, usize) -> u64 = AllocateManaged;
        fn allocate_pinned(u32, usize, PinnedFlags) -> NonNull<u8> = AllocatePinned;
        fn pool_create(u32, PoolProperties) -> RawPool = PoolCreate;
        fn pool_default(u32, PoolKind) -> RawPool = PoolDefault;
        fn virtual_granularity(u32) -> usize = VirtualGranularity;
        fn virtual_reserve(u32, usize, usize) -> u64 = VirtualReserve;
        fn memory_create(u32, usize, HandleType) -> RawMemory = MemoryCreate;
    }

    refused! {
        unsafe fn stream_capture_id(u32, RawStream) -> Option<CaptureId> = StreamCaptureId;
        unsafe fn stream_id(u32, RawStream) -> u64 = StreamId;
        unsafe fn stream_context_device(RawStream) -> Option<u32> = StreamContext;
        unsafe fn stream_begin_capture(u32, RawStream, CaptureMode) -> () = BeginCapture;
        unsafe fn stream_end_capture(u32, RawStream) -> RawGraph = EndCapture;
        unsafe fn graph_destroy(u32, RawGraph) -> () = GraphDestroy;
        unsafe fn stream_host_call(u32, RawStream, Box<dyn FnOnce() + Send>) -> () = StreamHostCall;
        unsafe fn free_device(u32, u64) -> () = FreeDevice;
        unsafe fn free_pinned(u32, NonNull<u8>) -> () = FreePinned;
        unsafe fn register_host(u32, NonNull<u8>, usize, PinnedFlags) -> () = RegisterHost;
        unsafe fn unregister_host(u32, NonNull<u8>) -> () = UnregisterHost;
        unsafe fn allocate_async(u32, usize, RawPool, RawStream) -> u64 = AllocateAsync;
        unsafe fn free_async(u32, u64, RawStream) -> () = FreeAsync;
        unsafe fn pool_destroy(u32, RawPool) -> () = PoolDestroy;
        unsafe fn pool_trim(u32, RawPool, usize) -> () = PoolTrim;
        unsafe fn pool_attribute(u32, RawPool, PoolAttribute) -> u64 = PoolAttribute;
        unsafe fn pool_set_attribute(u32, RawPool, PoolAttribute, u64) -> () = PoolSetAttribute;
        unsafe fn virtual_free(u32, u64, usize) -> () = VirtualFree;
        unsafe fn memory_release(u32, RawMemory) -> () = MemoryRelease;
        unsafe fn memory_export(u32, RawMemory, HandleType) -> ExportedMemory = MemoryExport;
        unsafe fn memory_map(u32, u64, usize, RawMemory) -> () = MemoryMap;
        unsafe fn memory_unmap(u32, u64, usize) -> () = MemoryUnmap;
        unsafe fn memory_set_access(u32, u64, usize, Location, MapAccess) -> () = MemorySetAccess;
        unsafe fn copy(u32, u64, u64, usize) -> () = Copy;
        unsafe fn copy_async(u32, u64, u64, usize, RawStream) -> () = CopyAsync;
        unsafe fn fill_async(u32, u64, FillValue, usize, RawStream) -> () = FillAsync;
        unsafe fn prefetch_async(u32, u64, usize, Location, RawStream) -> () = PrefetchAsync;
        unsafe fn advise(u32, u64, usize, Advice) -> () = Advise;
    }
}
