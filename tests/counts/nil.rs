//! `Nil`: a driver that gets everything done at once and keeps nothing, for counting what the crate keeps.

#![expect(unsafe_code, reason = "implements the driver seam")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvion::driver::{
    Call, CaptureStatus, Code, DeviceAttribute, Driver, DriverError, DriverResult, FillValue, RawEvent,
    RawStream, StreamFlags,
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

    fn device_name(&self, _: u32) -> DriverResult<String> {
        refused(Call::DeviceName)
    }

    fn attribute(&self, _: u32, _: DeviceAttribute) -> DriverResult<i32> {
        refused(Call::Attribute)
    }

    fn memory_info(&self, _: u32) -> DriverResult<MemoryInfo> {
        refused(Call::MemoryInfo)
    }

    fn allocate_device(&self, _: u32, _: usize) -> DriverResult<u64> {
        refused(Call::AllocateDevice)
    }

    unsafe fn free_device(&self, _: u32, _: u64) -> DriverResult<()> {
        refused(Call::FreeDevice)
    }

    unsafe fn copy_async(&self, _: u32, _: u64, _: u64, _: usize, _: RawStream) -> DriverResult<()> {
        refused(Call::CopyAsync)
    }

    unsafe fn fill_async(&self, _: u32, _: u64, _: FillValue, _: usize, _: RawStream) -> DriverResult<()> {
        refused(Call::FillAsync)
    }
}

fn refused<T>(call: Call) -> DriverResult<T> {
    Err(DriverError::new(call, Code::NOT_SUPPORTED))
}
