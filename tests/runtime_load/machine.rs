//! The simulated machine behind a stand-in: each question as a call of it.

use std::cell::RefCell;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use alluvion::driver::{
    Advice, Call, CaptureMode, CaptureStatus, Code, Driver, DriverError, DriverResult, EventHandle,
    ExportedMemory, FillValue, HandleType, Location, MapAccess, MemoryHandle, MemoryKind, PinnedFlags,
    PointerHandle, PoolAttribute, PoolKind, PoolProperties, RawEvent, RawGraph, RawMemory, RawPool,
    RawStream, Sharing, StreamFlags,
};
use alluvion::sim::SimDriver;

/// The number of a call, its arguments, and where its answers go.
pub(crate) type Answer = unsafe extern "C" fn(u32, *const u64, *mut u64) -> u32;

static QUESTIONS: AtomicU64 = AtomicU64::new(0);
static MACHINE: RwLock<Option<Arc<SimDriver>>> = RwLock::new(None);

thread_local! {
    /// The simulated process that this thread stands for.
    static OF_THREAD: RefCell<Option<Arc<SimDriver>>> = const { RefCell::new(None) };
}

/// From now on this thread stands for a process of its own: its stand-ins ask that one.
pub(crate) fn choose_for_thread(process: Arc<SimDriver>) {
    OF_THREAD.set(Some(process));
}

/// Which machine the stand-ins of this process ask from now on, but for threads that have one of their own.
pub(crate) fn choose(machine: Arc<SimDriver>) {
    *MACHINE.write().unwrap_or_else(PoisonError::into_inner) = Some(machine);
}

/// How often a stand-in has asked.
pub(crate) fn questions() -> u64 {
    QUESTIONS.load(Ordering::SeqCst)
}

/// Asks the machine, with no lock held.
pub(crate) unsafe extern "C" fn answer(call: u32, arguments: *const u64, answers: *mut u64) -> u32 {
    QUESTIONS.fetch_add(1, Ordering::SeqCst);
    // A thread that ends has no values of its own any more, and nothing to ask either.
    let of_thread = OF_THREAD.try_with(|of_thread| of_thread.borrow().clone()).ok().flatten();
    let machine = of_thread.or_else(|| MACHINE.read().unwrap_or_else(PoisonError::into_inner).clone());
    let Some(machine) = machine else { return Code::NOT_INITIALIZED.0 };
    // SAFETY: the stand-in passes as many arguments as the call has, and as much room as it has answers.
    match unsafe { ask(&machine, Call::ALL[call as usize], arguments, answers) } {
        Ok(()) => 0,
        Err(error) => error.code.0,
    }
}

fn location(kind: u64, id: u64) -> Location {
    match kind {
        1 => Location::Device(id as u32),
        2 => Location::Host,
        _ => Location::HostNuma(id as u32),
    }
}

fn advice(number: u64, location: Location) -> Advice {
    match number {
        1 => Advice::ReadMostly(true),
        2 => Advice::ReadMostly(false),
        3 => Advice::PreferredLocation(Some(location)),
        4 => Advice::PreferredLocation(None),
        5 => Advice::AccessedBy(location, true),
        _ => Advice::AccessedBy(location, false),
    }
}

const POOL_ATTRIBUTES: [PoolAttribute; 8] = [
    PoolAttribute::ReuseFollowEventDependencies,
    PoolAttribute::ReuseAllowOpportunistic,
    PoolAttribute::ReuseAllowInternalDependencies,
    PoolAttribute::ReleaseThreshold,
    PoolAttribute::ReservedCurrent,
    PoolAttribute::ReservedHigh,
    PoolAttribute::UsedCurrent,
    PoolAttribute::UsedHigh,
];

const CAPTURE_MODES: [CaptureMode; 3] = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

/// # Safety
///
/// There are as many arguments as the call has, and room for its answers; what the call's own contract asks of handles and addresses.
unsafe fn ask(sim: &SimDriver, call: Call, arguments: *const u64, answers: *mut u64) -> DriverResult<()> {
    // SAFETY: the caller's promise: no call reads more arguments than it has.
    let a = |i: usize| unsafe { *arguments.add(i) };
    // SAFETY: the caller's promise.
    let put = |i: usize, value: u64| unsafe { *answers.add(i) = value };
    let (ordinal, stream) = (a(0) as u32, |i| RawStream(a(i)));
    let size = |i| a(i) as usize;
    // SAFETY: for every call below, the driver under test promises for the library's call what its own caller has promised.
    unsafe {
        match call {
            Call::Attribute => put(0, sim.attribute_by_number(ordinal, a(1) as i32)? as u32 as u64),
            Call::ContextSynchronize => sim.context_synchronize(ordinal)?,
            Call::MemoryInfo => {
                let info = sim.memory_info(ordinal)?;
                put(0, info.free_bytes as u64);
                put(1, info.total_bytes as u64);
            }
            Call::StreamPriorityRange => {
                let (least, greatest) = sim.stream_priority_range(ordinal)?;
                put(0, least as u64);
                put(1, greatest as u64);
            }
            Call::StreamCreate => {
                let flags = StreamFlags { blocking: a(1) != 0, priority: a(2) as i32 };
                put(0, sim.stream_create(ordinal, flags)?.0);
            }
            Call::StreamDestroy => sim.stream_destroy(ordinal, stream(1))?,
            Call::StreamSynchronize => sim.stream_synchronize(ordinal, stream(1))?,
            Call::StreamQuery => {
                if !sim.stream_query(ordinal, stream(1))? {
                    return Err(DriverError::new(call, Code::NOT_READY));
                }
            }
            Call::StreamWaitEvent => sim.stream_wait_event(ordinal, stream(1), RawEvent(a(2)))?,
            Call::StreamId => put(0, sim.stream_id(ordinal, stream(1))?),
            Call::StreamContext => {
                let device = sim.stream_context_device(stream(0))?;
                put(0, device.expect("the machine has no other contexts").into());
            }
            Call::CaptureMode => {
                put(0, sim.exchange_capture_mode(CAPTURE_MODES[size(0)])? as u64);
            }
            Call::StreamCaptureStatus => put(0, status(sim.stream_capture_status(ordinal, stream(1))?)),
            Call::StreamCaptureId => {
                put(0, status(sim.stream_capture_status(ordinal, stream(1))?));
                if let Some(id) = sim.stream_capture_id(ordinal, stream(1))? {
                    put(1, id.number);
                    put(2, id.graph.0);
                }
            }
            Call::BeginCapture => {
                sim.stream_begin_capture(ordinal, stream(1), CAPTURE_MODES[size(2)])?;
            }
            Call::EndCapture => put(0, sim.stream_end_capture(ordinal, stream(1))?.0),
            Call::GraphDestroy => sim.graph_destroy(ordinal, RawGraph(a(1)))?,
            Call::StreamHostCall => {
                let (function, data) = (a(2) as usize, a(3) as usize);
                let run = move || {
                    let data = std::ptr::with_exposed_provenance_mut(data);
                    let function = std::ptr::with_exposed_provenance::<()>(function);
                    // The driver under test passed a function of that type, and what it is to be called with, once.
                    let function = std::mem::transmute::<
                        *const (),
                        unsafe extern "C" fn(*mut std::ffi::c_void),
                    >(function);
                    function(data);
                };
                sim.stream_host_call(ordinal, stream(1), Box::new(run))?;
            }
            Call::EventCreate if a(1) != 0 => put(0, sharing(sim).event_create_shared(ordinal)?.0),
            Call::EventCreate => put(0, sim.event_create(ordinal)?.0),
            Call::EventDestroy => sim.event_destroy(ordinal, RawEvent(a(1)))?,
            Call::EventRecord => sim.event_record(ordinal, RawEvent(a(1)), stream(2))?,
            Call::EventQuery => {
                if !sim.event_query(ordinal, RawEvent(a(1)))? {
                    return Err(DriverError::new(call, Code::NOT_READY));
                }
            }
            Call::EventSynchronize => sim.event_synchronize(ordinal, RawEvent(a(1)))?,
            Call::AllocateDevice => put(0, sim.allocate_device(ordinal, size(1))?),
            Call::FreeDevice => sim.free_device(ordinal, a(1))?,
            Call::AllocateManaged => put(0, sim.allocate_managed(ordinal, size(1))?),
            Call::AllocatePinned => {
                let flags = PinnedFlags { portable: a(2) != 0, mapped: a(3) != 0, write_combined: a(4) != 0 };
                let pointer = sim.allocate_pinned(ordinal, size(1), flags)?;
                put(0, pointer.as_ptr().expose_provenance() as u64);
            }
            Call::FreePinned => sim.free_pinned(ordinal, pointer(a(1)))?,
            Call::RegisterHost => {
                let flags = PinnedFlags { portable: a(3) != 0, mapped: a(4) != 0, write_combined: false };
                sim.register_host(ordinal, pointer(a(1)), size(2), flags)?;
            }
            Call::UnregisterHost => sim.unregister_host(ordinal, pointer(a(1)))?,
            Call::PointerAttributes => {
                if let Some(info) = sim.pointer_attributes(a(0))? {
                    put(
                        0,
                        match info.kind {
                            MemoryKind::Device => 1,
                            MemoryKind::Managed => 2,
                            _ => 3,
                        },
                    );
                    put(1, info.ordinal.map_or(u64::MAX, u64::from));
                    put(2, u64::from(sim.plain_allocation(a(0))?.is_some()));
                }
                if let Some(range) = sim.address_range(a(0))? {
                    put(3, range.start);
                    put(4, range.bytes as u64);
                }
            }
            Call::AddressRange => {
                let range = sim.address_range(a(0))?;
                let range = range.ok_or(DriverError::new(call, Code::INVALID_VALUE))?;
                put(0, range.start);
                put(1, range.bytes as u64);
            }
            Call::AllocateAsync => put(0, sim.allocate_async(ordinal, size(1), RawPool(a(2)), stream(3))?),
            Call::FreeAsync => sim.free_async(ordinal, a(1), stream(2))?,
            Call::PoolCreate => {
                let properties = PoolProperties { handle_types: HandleType(a(1) as u32), max_bytes: a(2) };
                put(0, sim.pool_create(ordinal, properties)?.0);
            }
            Call::PoolDestroy => sim.pool_destroy(ordinal, RawPool(a(1)))?,
            Call::PoolTrim => sim.pool_trim(ordinal, RawPool(a(1)), size(2))?,
            Call::PoolAttribute => {
                let attribute = POOL_ATTRIBUTES[size(2) - 1];
                put(0, sim.pool_attribute(ordinal, RawPool(a(1)), attribute)?);
            }
            Call::PoolSetAttribute => {
                let attribute = POOL_ATTRIBUTES[size(2) - 1];
                sim.pool_set_attribute(ordinal, RawPool(a(1)), attribute, a(3))?;
            }
            Call::PoolDefault => {
                let kind = if a(1) == 0 { PoolKind::Device } else { PoolKind::Managed };
                put(0, sim.pool_default(ordinal, kind)?.0);
            }
            Call::VirtualGranularity => put(0, sim.virtual_granularity(ordinal)? as u64),
            Call::VirtualReserve => put(0, sim.virtual_reserve(ordinal, size(1), size(2))?),
            Call::VirtualFree => sim.virtual_free(ordinal, a(1), size(2))?,
            Call::MemoryCreate => {
                put(0, sim.memory_create(ordinal, size(1), HandleType(a(2) as u32))?.0);
            }
            Call::MemoryRelease => sim.memory_release(ordinal, RawMemory(a(1)))?,
            Call::MemoryExport => {
                hand_out(sim.memory_export(ordinal, RawMemory(a(1)), HandleType(a(2) as u32))?, put);
            }
            Call::MemoryMap => sim.memory_map(ordinal, a(1), size(2), RawMemory(a(3)))?,
            Call::MemoryUnmap => sim.memory_unmap(ordinal, a(1), size(2))?,
            Call::MemorySetAccess => {
                sim.memory_set_access(ordinal, a(1), size(2), location(a(3), a(4)), access(a(5)))?;
            }
            Call::Copy => sim.copy(ordinal, a(1), a(2), size(3))?,
            Call::CopyAsync => sim.copy_async(ordinal, a(1), a(2), size(3), stream(4))?,
            Call::FillAsync => {
                let value = match a(2) {
                    1 => FillValue::U8(a(3) as u8),
                    2 => FillValue::U16(a(3) as u16),
                    _ => FillValue::U32(a(3) as u32),
                };
                sim.fill_async(ordinal, a(1), value, size(4), stream(5))?;
            }
            Call::PrefetchAsync => {
                sim.prefetch_async(ordinal, a(1), size(2), location(a(3), a(4)), stream(5))?;
            }
            Call::Advise => {
                sim.advise(ordinal, a(1), size(2), advice(a(3), location(a(4), a(5))))?;
            }
            Call::DeviceUuid => {
                let uuid = sharing(sim).device_uuid(ordinal)?;
                let words = [0, 8].map(|at| u64::from_ne_bytes(uuid[at..at + 8].try_into().expect("eight")));
                put(0, words[0]);
                put(1, words[1]);
            }
            Call::MemoryHandle => put_bytes(&sharing(sim).memory_handle(ordinal, a(1))?.0, put),
            Call::MemoryOpen => put(0, sharing(sim).memory_open(ordinal, MemoryHandle(bytes(a, 1)))?),
            Call::MemoryClose => sharing(sim).memory_close(ordinal, a(1))?,
            Call::EventHandle => put_bytes(&sharing(sim).event_handle(ordinal, RawEvent(a(1)))?.0, put),
            Call::EventOpen => put(0, sharing(sim).event_open(ordinal, EventHandle(bytes(a, 1)))?.0),
            Call::PoolExport => {
                hand_out(sharing(sim).pool_export(ordinal, RawPool(a(1)), HandleType(a(2) as u32))?, put);
            }
            Call::PoolImport => put(0, sharing(sim).pool_import(ordinal, &taken_in(a))?.0),
            Call::PoolExportPointer => {
                put_bytes(&sharing(sim).pool_export_pointer(ordinal, a(1))?.0, put);
            }
            Call::PoolImportPointer => {
                let handle = PointerHandle(bytes(a, 2));
                put(0, sharing(sim).pool_import_pointer(ordinal, RawPool(a(1)), handle)?);
            }
            Call::PoolSetAccess => {
                sharing(sim).pool_set_access(ordinal, RawPool(a(1)), a(2) as u32, access(a(3)))?;
            }
            Call::DmaBuf => hand_out(sharing(sim).dma_buf(ordinal, a(1), size(2))?, put),
            Call::MemoryImport => put(0, sharing(sim).memory_import(ordinal, &taken_in(a))?.0),
            Call::CanReach => put(0, sharing(sim).can_reach(ordinal, a(1) as u32)?.into()),
            Call::Reach => sharing(sim).reach(ordinal, a(1) as u32)?,
            _ => panic!("the stand-in does not ask {call:?}"),
        }
    }
    Ok(())
}

fn sharing(sim: &SimDriver) -> &dyn Sharing {
    sim.sharing().expect("the simulator shares memory")
}

fn access(number: u64) -> MapAccess {
    match number {
        0 => MapAccess::None,
        1 => MapAccess::Read,
        _ => MapAccess::ReadWrite,
    }
}

/// The 64 bytes of a handle, which are eight arguments.
fn bytes(argument: impl Fn(usize) -> u64, first: usize) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (at, place) in bytes.chunks_exact_mut(8).enumerate() {
        place.copy_from_slice(&argument(first + at).to_ne_bytes());
    }
    bytes
}

/// The same as eight answers.
fn put_bytes(bytes: &[u8; 64], put: impl Fn(usize, u64)) {
    for (at, word) in bytes.chunks_exact(8).enumerate() {
        put(at, u64::from_ne_bytes(word.try_into().expect("eight bytes")));
    }
}

/// What is exported: a descriptor that is the caller's, or a fabric handle.
fn hand_out(exported: ExportedMemory, put: impl Fn(usize, u64)) {
    match exported {
        ExportedMemory::FileDescriptor(descriptor) => put(0, descriptor.into_raw_fd() as u64),
        ExportedMemory::Fabric(handle) => put_bytes(&handle, put),
        _ => unreachable!("there are two ways"),
    }
}

/// What is imported, by its type: a copy of the caller's descriptor, or a fabric handle.
fn taken_in(argument: impl Fn(usize) -> u64) -> ExportedMemory {
    if HandleType(argument(1) as u32) != HandleType::POSIX_FILE_DESCRIPTOR {
        return ExportedMemory::Fabric(Box::new(bytes(argument, 2)));
    }
    // SAFETY: the driver under test lends a descriptor that is open for as long as the call takes.
    let lent = unsafe { BorrowedFd::borrow_raw(argument(2) as i32) };
    ExportedMemory::FileDescriptor(lent.try_clone_to_owned().expect("there are descriptors"))
}

fn status(status: CaptureStatus) -> u64 {
    match status {
        CaptureStatus::None => 0,
        CaptureStatus::Active => 1,
        CaptureStatus::Invalidated => 2,
    }
}

fn pointer(address: u64) -> NonNull<u8> {
    let pointer = std::ptr::with_exposed_provenance_mut(address as usize);
    NonNull::new(pointer).expect("no library passes null")
}
