//! A driver of one's own with the methods that have no body, and no other: memory of its devices is managed over it, and whatever it
//! does not have is refused.

#![expect(unsafe_code, reason = "implements the driver seam")]

use std::ptr::NonNull;
use std::sync::Arc;

use alluvion::driver::{
    Call, CaptureMode, CaptureStatus, Code, DeviceAttribute, Driver, DriverError, DriverResult, FillValue,
    HandleType, MemoryHandle, MemoryInfo, PinnedFlags, PoolKind, PoolProperties, RawEvent, RawPool,
    RawStream, RelaxedCapture, Sharing, StreamFlags,
};
use alluvion::sim::{SimConfig, SimDriver};
use alluvion::source::{Cuda, CudaAsync, Managed, Mapped, Pinned};
use alluvion::{Device, DeviceVec, Machine, PoolConfig, ResourceExt};

/// A simulated machine by its required calls alone.
#[derive(Debug)]
struct Least(Arc<SimDriver>);

macro_rules! pass_on {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+) => {
        $(fn $name(&self, $($argument: $type),*) -> DriverResult<$answer> {
            self.0.$name($($argument),*)
        })+
    };
    ($(unsafe fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+) => {
        $(unsafe fn $name(&self, $($argument: $type),*) -> DriverResult<$answer> {
            // SAFETY: the caller's promises.
            unsafe { self.0.$name($($argument),*) }
        })+
    };
}

// SAFETY: every call is passed on to a driver that keeps the contract, and nobody captures its streams.
unsafe impl Driver for Least {
    fn name(&self) -> &'static str {
        "least"
    }

    fn version(&self) -> u32 {
        self.0.version()
    }

    fn attribute(&self, ordinal: u32, attribute: DeviceAttribute) -> DriverResult<i32> {
        let value = self.0.attribute(ordinal, attribute)?;
        Ok(if attribute == DeviceAttribute::UnifiedAddressing { value } else { 0 })
    }

    pass_on! {
        fn device_count() -> u32;
        fn device_name(ordinal: u32) -> String;
        fn memory_info(ordinal: u32) -> MemoryInfo;
        fn context_synchronize(ordinal: u32) -> ();
        fn stream_create(ordinal: u32, flags: StreamFlags) -> RawStream;
        fn event_create(ordinal: u32) -> RawEvent;
        fn allocate_device(ordinal: u32, bytes: usize) -> u64;
    }

    pass_on! {
        unsafe fn stream_destroy(ordinal: u32, stream: RawStream) -> ();
        unsafe fn stream_synchronize(ordinal: u32, stream: RawStream) -> ();
        unsafe fn stream_query(ordinal: u32, stream: RawStream) -> bool;
        unsafe fn stream_wait_event(ordinal: u32, stream: RawStream, event: RawEvent) -> ();
        unsafe fn event_destroy(ordinal: u32, event: RawEvent) -> ();
        unsafe fn event_record(ordinal: u32, event: RawEvent, stream: RawStream) -> ();
        unsafe fn event_query(ordinal: u32, event: RawEvent) -> bool;
        unsafe fn event_synchronize(ordinal: u32, event: RawEvent) -> ();
        unsafe fn free_device(ordinal: u32, address: u64) -> ();
        unsafe fn copy_async(ordinal: u32, to: u64, from: u64, bytes: usize, stream: RawStream) -> ();
        unsafe fn fill_async(ordinal: u32, to: u64, value: FillValue, count: usize, stream: RawStream) -> ();
    }
}

// SAFETY: it lends nothing.
unsafe impl Sharing for Least {
    fn device_uuid(&self, _: u32) -> DriverResult<[u8; 16]> {
        Ok([7; 16])
    }
}

fn least() -> (Arc<SimDriver>, Arc<Least>) {
    let sim = SimDriver::new(SimConfig::default());
    (Arc::clone(&sim), Arc::new(Least(sim)))
}

fn device_of(least: &Arc<Least>) -> Device {
    let machine = Machine::new(Arc::clone(least) as _).expect("it answers");
    machine.device(0).expect("there is one")
}

#[test]
fn a_pool_over_the_required_calls_serves_two_streams() {
    let (sim, least) = least();
    let device = device_of(&least);
    let before = sim.memory_info(0);
    assert!(!device.capabilities().expect("it answers").memory_pools);
    let pool = Arc::new(Cuda::new(&device).pool(PoolConfig::default()).expect("there is room"));
    let (one, two) =
        (device.stream().expect("there are streams"), device.stream().expect("there are streams"));
    for word in 0..100_u32 {
        let filled = DeviceVec::filled_in(1 << 16, word, &one, Arc::clone(&pool)).expect("there is room");
        // Memory that was freed in one stream goes to the other, and copies go there and back.
        drop(filled);
        let words = vec![word; 1 << 16];
        let vector = DeviceVec::from_slice_in(&words, &two, Arc::clone(&pool)).expect("there is room");
        assert_eq!(vector.to_vec(&two).expect("it can be copied"), words);
    }
    drop((pool, one, two));
    assert_eq!(sim.memory_info(0), before);
    assert_eq!(sim.hazards(), []);
}

#[test]
fn sources_of_what_it_lacks_are_refused() {
    let (_sim, least) = least();
    let device = device_of(&least);
    assert!(CudaAsync::new(&device).is_err_and(|error| error.is_unsupported()));
    assert!(Managed::new(&device).is_err_and(|error| error.is_unsupported()));
    assert!(Mapped::new(&device).is_err_and(|error| error.is_unsupported()));
    let stream = device.stream().expect("there are streams");
    let pinned =
        Pinned::new(&device).and_then(|pinned| DeviceVec::filled_in(1, 0_u32, &stream, pinned).map(drop));
    assert!(pinned.is_err());
}

#[test]
fn what_it_does_not_write_is_refused_or_true() {
    let (_sim, least) = least();
    let raw = least.stream_create(0, StreamFlags::default()).expect("there are streams");
    let refused = |call| DriverError::new(call, Code::NOT_SUPPORTED);
    let unknown = |call| DriverError::new(call, Code::NOT_FOUND);
    assert_eq!(least.pool_create(0, PoolProperties::default()), Err(refused(Call::PoolCreate)));
    assert_eq!(least.pool_default(0, PoolKind::Device), Err(refused(Call::PoolDefault)));
    assert_eq!(least.allocate_managed(0, 1), Err(refused(Call::AllocateManaged)));
    assert_eq!(least.allocate_pinned(0, 1, PinnedFlags::default()), Err(refused(Call::AllocatePinned)));
    assert_eq!(least.memory_create(0, 1, HandleType::NONE), Err(refused(Call::MemoryCreate)));
    assert_eq!(least.set_context(0), Err(refused(Call::ContextSet)));
    assert_eq!(least.ensure_context(), Err(refused(Call::ContextSet)));
    assert_eq!((least.context_device(), least.stream_priority_range(0)), (Ok(None), Ok((0, 0))));
    assert_eq!(least.exchange_capture_mode(CaptureMode::Global), Ok(CaptureMode::Relaxed));
    assert!(RelaxedCapture::enter(&*least).is_ok());
    assert_eq!(least.pointer_attributes(0x1000), Err(unknown(Call::PointerAttributes)));
    assert_eq!(
        (least.address_range(0x1000), least.plain_allocation(0x1000)),
        (Err(unknown(Call::AddressRange)), Ok(None))
    );
    let count = DeviceAttribute::Multiprocessors.number();
    assert_eq!(
        (least.attribute_by_number(0, count), least.attribute_by_number(9, count).is_err()),
        (Ok(0), true)
    );
    assert_eq!(least.attribute_by_number(0, -1), Err(DriverError::new(Call::Attribute, Code::INVALID_VALUE)));
    let told = Arc::new(());
    let kept = Arc::clone(&told);
    // SAFETY: the stream is live, and the function does not unwind.
    let called = unsafe { least.stream_host_call(0, raw, Box::new(move || drop(kept))) };
    assert_eq!((called, Arc::strong_count(&told)), (Err(refused(Call::StreamHostCall)), 1));
    // SAFETY: the stream is live.
    assert_eq!(unsafe { least.stream_capture_status(0, raw) }, Ok(CaptureStatus::None));
    // SAFETY: as above.
    assert_eq!(unsafe { least.stream_capture_id(0, raw) }, Ok(None));
    // SAFETY: as above.
    let begun = unsafe { least.stream_begin_capture(0, raw, CaptureMode::Relaxed) };
    assert_eq!(begun, Err(refused(Call::BeginCapture)));
    // SAFETY: as above.
    assert_eq!(unsafe { least.stream_id(0, raw) }, Err(unknown(Call::StreamId)));
    // SAFETY: as above.
    assert_eq!(unsafe { least.stream_context_device(raw) }, Err(unknown(Call::StreamContext)));
    // SAFETY: nothing is pinned there, and nothing is unpinned.
    assert_eq!(unsafe { least.unregister_host(0, NonNull::dangling()) }, Err(refused(Call::UnregisterHost)));
    // SAFETY: it was made above and nobody uses it.
    unsafe { least.stream_destroy(0, raw) }.expect("it is live");

    assert!(least.sharing().is_none());
    assert_eq!((least.can_reach(0, 1), least.process_number()), (Ok(false), 0));
    assert_eq!(least.reach(0, 1), Err(DriverError::new(Call::Reach, Code::PEER_ACCESS_UNSUPPORTED)));
    assert_eq!(least.event_create_shared(0), Err(refused(Call::EventCreate)));
    // SAFETY: no driver is asked to open it.
    assert_eq!(unsafe { least.memory_open(0, MemoryHandle([0; 64])) }, Err(refused(Call::MemoryOpen)));
    // SAFETY: no driver is asked about it.
    assert_eq!(unsafe { least.pool_export_pointer(0, 256) }, Err(refused(Call::PoolExportPointer)));
    // SAFETY: as above.
    assert_eq!(unsafe { least.pool_destroy(0, RawPool(1)) }, Err(refused(Call::PoolDestroy)));
}
