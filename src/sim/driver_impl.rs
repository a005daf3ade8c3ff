//! `impl Driver for SimDriver`.

#![expect(unsafe_code, reason = "implements the driver seam")]

use core::ptr::NonNull;
use std::sync::Arc;

use super::allocation::AllocationKind;
use super::capture::WorkTarget;
use super::driver::SimDriver;
use super::entry::of;
use super::graph::SimGraph;
use super::hazard::HazardKind;
use super::host_function::QueuedFunction;
use super::lane::Work;
use super::stream::PRIORITY_RANGE;
use super::virtual_memory::GRANULARITY;
use crate::driver::{
    AddressRange, Advice, BlockWatch, Call, CaptureId, CaptureMode, CaptureStatus, Code, DeviceAttribute,
    Driver, DriverError, DriverResult, ExportedMemory, FillValue, HandleType, Location, MapAccess,
    MemoryInfo, PinnedFlags, PointerInfo, PoolAttribute, PoolKind, PoolProperties, RawEvent, RawGraph,
    RawMemory, RawPool, RawStream, Sharing, StreamFlags,
};

/// The first version that knows stream ids: CUDA 12.0.
const STREAM_ID_VERSION: u32 = 12_000;

/// The first version whose pools may have a maximum: CUDA 12.2.
const POOL_LIMIT_VERSION: u32 = 12_020;

/// The first version with pools of managed memory: CUDA 13.0.
const MANAGED_POOL_VERSION: u32 = 13_000;

// SAFETY:
// - live memory never overlaps: addresses of devices are taken from `AddressSpace::take_addresses` and given back
//   only after their range is unmapped, blocks of a pool are carved from free ones, and memory of the host comes
//   from the allocator of the process.
// - work on one stream runs in the order of the calls: a lane is a queue.
// - a wait on an event waits for all that was on the stream at the record: the event holds the stream's clock.
// - `proves_stopped` answers from the state of the machine, also if a fault chose the code of a call: a context that is lost has
//   no queue, and a kernel that outlives it touches nothing.
unsafe impl Driver for SimDriver {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn version(&self) -> u32 {
        self.look(|machine| machine.config.version).unwrap_or_default()
    }

    fn device_count(&self) -> DriverResult<u32> {
        Ok(self.enter(Call::DeviceCount, None, 0)?.config.devices)
    }

    fn device_name(&self, ordinal: u32) -> DriverResult<String> {
        let machine = self.enter(Call::DeviceName, None, 0)?;
        machine.device(ordinal).map_err(of(Call::DeviceName))?;
        Ok(format!("Simulated GPU {ordinal}"))
    }

    fn attribute(&self, ordinal: u32, attribute: DeviceAttribute) -> DriverResult<i32> {
        let machine = self.enter(Call::Attribute, None, 0)?;
        machine.device(ordinal).map_err(of(Call::Attribute))?;
        Ok(machine.config.attribute_of(ordinal, attribute))
    }

    fn attribute_by_number(&self, ordinal: u32, number: i32) -> DriverResult<i32> {
        let known = DeviceAttribute::ALL.iter().find(|attribute| attribute.number() == number);
        let machine = self.enter(Call::Attribute, None, 0)?;
        machine.device(ordinal).map_err(of(Call::Attribute))?;
        let value = known.map(|attribute| machine.config.attribute_of(ordinal, *attribute));
        value.ok_or(DriverError::new(Call::Attribute, Code::INVALID_VALUE))
    }

    fn memory_info(&self, ordinal: u32) -> DriverResult<MemoryInfo> {
        let mut machine = self.enter(Call::MemoryInfo, Some(ordinal), 0)?;
        machine.release_orphans();
        let device = machine.device(ordinal).map_err(of(Call::MemoryInfo))?;
        Ok(MemoryInfo { free_bytes: device.free_bytes as usize, total_bytes: device.total_bytes as usize })
    }

    fn context_synchronize(&self, ordinal: u32) -> DriverResult<()> {
        let call = Call::ContextSynchronize;
        let machine = self.enter(call, Some(ordinal), 0)?;
        drop(self.wait_for_device(machine, ordinal, call)?);
        Ok(())
    }

    fn proves_stopped(&self, ordinal: u32, _error: DriverError) -> bool {
        self.look(|machine| machine.health(ordinal).is_err_and(|code| code != Code::INVALID_DEVICE))
            .unwrap_or_default()
    }

    fn may_alias(&self) -> bool {
        self.look(|machine| machine.config.has_aliases).unwrap_or_default()
    }

    fn context_device(&self) -> DriverResult<Option<u32>> {
        Ok(self.enter(Call::ContextDevice, None, 0)?.current_device())
    }

    fn set_context(&self, ordinal: u32) -> DriverResult<()> {
        let call = Call::ContextSet;
        self.enter(call, None, 0)?.set_current_device(ordinal).map_err(of(call))
    }

    fn in_context(&self, ordinal: u32, function: &mut dyn FnMut()) -> DriverResult<()> {
        let call = Call::ContextEnter;
        let before = self.enter(call, None, 0)?.exchange_current_device(Some(ordinal)).map_err(of(call))?;
        function();
        // What was current before can be so again.
        let _ = self.enter(call, None, 0)?.exchange_current_device(before);
        Ok(())
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode> {
        let mut machine = self.enter(Call::CaptureMode, None, 0)?;
        Ok(machine.exchange_capture_mode(mode))
    }

    fn stream_priority_range(&self, ordinal: u32) -> DriverResult<(i32, i32)> {
        drop(self.enter(Call::StreamPriorityRange, Some(ordinal), 0)?);
        Ok(PRIORITY_RANGE)
    }

    fn stream_create(&self, ordinal: u32, flags: StreamFlags) -> DriverResult<RawStream> {
        Ok(self.enter(Call::StreamCreate, Some(ordinal), 0)?.create_stream(ordinal, flags))
    }

    unsafe fn stream_destroy(&self, ordinal: u32, stream: RawStream) -> DriverResult<()> {
        let call = Call::StreamDestroy;
        let entered = self.enter(call, Some(ordinal), 0).map(drop);
        // The handle is gone in any case.
        let mut machine = self.lock(call)?;
        let destroyed = machine.destroy_stream(ordinal, stream).map_err(of(call));
        drop(self.shared.drop_discarded(machine));
        entered.and(destroyed)
    }

    unsafe fn stream_synchronize(&self, ordinal: u32, stream: RawStream) -> DriverResult<()> {
        let call = Call::StreamSynchronize;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        let stream = machine.stream(ordinal, stream).map_err(of(call))?;
        machine.check_not_capturing(call, &stream).map_err(of(call))?;
        let goal = machine.lanes.joined(stream.lane);
        drop(self.wait_for(machine, ordinal, &goal, call)?);
        Ok(())
    }

    unsafe fn stream_query(&self, ordinal: u32, stream: RawStream) -> DriverResult<bool> {
        let call = Call::StreamQuery;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        let stream = machine.stream(ordinal, stream).map_err(of(call))?;
        machine.check_not_capturing(call, &stream).map_err(of(call))?;
        let goal = machine.lanes.joined(stream.lane);
        self.query(machine, ordinal, &goal, call)
    }

    unsafe fn stream_wait_event(&self, ordinal: u32, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        let call = Call::StreamWaitEvent;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        machine.wait_event(ordinal, stream, event).map_err(of(call))
    }

    unsafe fn stream_capture_status(&self, ordinal: u32, stream: RawStream) -> DriverResult<CaptureStatus> {
        let call = Call::StreamCaptureStatus;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        let stream = machine.stream(ordinal, stream).map_err(of(call))?;
        machine.capture_status(&stream).map_err(of(call))
    }

    unsafe fn stream_capture_id(&self, ordinal: u32, stream: RawStream) -> DriverResult<Option<CaptureId>> {
        let call = Call::StreamCaptureId;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        let stream = machine.stream_of_any_device(ordinal, stream).map_err(of(call))?;
        machine.capture_id(&stream).map_err(of(call))
    }

    unsafe fn stream_id(&self, ordinal: u32, stream: RawStream) -> DriverResult<u64> {
        let call = Call::StreamId;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        if machine.config.version < STREAM_ID_VERSION {
            return Err(DriverError::new(call, Code::NOT_FOUND));
        }
        let stream = machine.stream_of_any_device(ordinal, stream).map_err(of(call))?;
        machine.check_id_may_be_asked(call, &stream).map_err(of(call))?;
        Ok(stream.id)
    }

    unsafe fn stream_context_device(&self, stream: RawStream) -> DriverResult<Option<u32>> {
        let call = Call::StreamContext;
        let mut machine = self.enter(call, None, 0)?;
        machine.ordinal_of_stream(stream).map(Some).map_err(of(call))
    }

    unsafe fn stream_begin_capture(
        &self,
        ordinal: u32,
        stream: RawStream,
        mode: CaptureMode,
    ) -> DriverResult<()> {
        let call = Call::BeginCapture;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        let stream = machine.stream(ordinal, stream).map_err(of(call))?;
        machine.begin_capture(&stream, mode).map_err(of(call))
    }

    unsafe fn stream_end_capture(&self, ordinal: u32, stream: RawStream) -> DriverResult<RawGraph> {
        let call = Call::EndCapture;
        let entered = self.enter(call, Some(ordinal), 0).map(drop);
        // The capture is over in any case.
        let ended = self.end_capture(ordinal, stream).map(SimGraph::into_raw).map_err(of(call));
        if let (Err(_), Ok(graph)) = (entered, ended) {
            self.lock(call)?.drop_graph(graph.0);
        }
        entered.and(ended)
    }

    unsafe fn graph_destroy(&self, ordinal: u32, graph: RawGraph) -> DriverResult<()> {
        let call = Call::GraphDestroy;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        if machine.drop_graph(graph.0) {
            return Ok(());
        }
        let words = format!("there is no graph {}", graph.0);
        let code = machine.refuse(HazardKind::InvalidFree, words, Code::INVALID_VALUE);
        Err(DriverError::new(call, code))
    }

    unsafe fn stream_host_call(
        &self,
        ordinal: u32,
        stream: RawStream,
        function: Box<dyn FnOnce() + Send>,
    ) -> DriverResult<()> {
        let call = Call::StreamHostCall;
        // On an error the function is dropped after the guard: it is foreign code, and may call the driver.
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        let stream = machine.stream(ordinal, stream).map_err(of(call))?;
        let target = machine.target(&stream).map_err(of(call))?;
        let work = Work::Host(Arc::new(QueuedFunction::new(function)));
        machine.put(target, work, call.symbol().into(), &[]);
        drop(machine);
        self.start_host_call_runner();
        Ok(())
    }

    fn event_create(&self, ordinal: u32) -> DriverResult<RawEvent> {
        Ok(self.enter(Call::EventCreate, Some(ordinal), 0)?.create_event(ordinal))
    }

    unsafe fn event_destroy(&self, ordinal: u32, event: RawEvent) -> DriverResult<()> {
        let call = Call::EventDestroy;
        let entered = self.enter(call, Some(ordinal), 0).map(drop);
        // The handle is gone in any case.
        let destroyed = self.lock(call)?.destroy_event(ordinal, event).map_err(of(call));
        entered.and(destroyed)
    }

    unsafe fn event_record(&self, ordinal: u32, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        let call = Call::EventRecord;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        machine.record_event(ordinal, event, stream).map_err(of(call))
    }

    unsafe fn event_query(&self, ordinal: u32, event: RawEvent) -> DriverResult<bool> {
        let call = Call::EventQuery;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        let goal = machine.event_goal(ordinal, event).map_err(of(call))?;
        self.query(machine, ordinal, &goal, call)
    }

    unsafe fn event_synchronize(&self, ordinal: u32, event: RawEvent) -> DriverResult<()> {
        let call = Call::EventSynchronize;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        let goal = machine.event_goal(ordinal, event).map_err(of(call))?;
        drop(self.wait_for(machine, ordinal, &goal, call)?);
        Ok(())
    }

    fn allocate_device(&self, ordinal: u32, bytes: usize) -> DriverResult<u64> {
        let call = Call::AllocateDevice;
        self.enter(call, Some(ordinal), bytes as u64)?.allocate_device(ordinal, bytes).map_err(of(call))
    }

    unsafe fn free_device(&self, ordinal: u32, address: u64) -> DriverResult<()> {
        let call = Call::FreeDevice;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        machine.check_free(ordinal, address, call).map_err(of(call))?;
        let mut machine = self.wait_for_device(machine, ordinal, call)?;
        machine.check_not_open(call, address);
        if let Some(block) = machine.remove_allocation(address, call) {
            // SAFETY: nobody uses the block any more: the caller's contract, and all work of the device has run.
            unsafe { block.free() };
        }
        Ok(())
    }

    fn allocate_managed(&self, ordinal: u32, bytes: usize) -> DriverResult<u64> {
        let call = Call::AllocateManaged;
        let mut machine = self.enter_with(call, ordinal, bytes, DeviceAttribute::ManagedMemory)?;
        let pointer =
            machine.allocate_host(ordinal, bytes, AllocationKind::Managed, call).map_err(of(call))?;
        Ok(pointer.as_ptr().expose_provenance() as u64)
    }

    fn allocate_pinned(&self, ordinal: u32, bytes: usize, _flags: PinnedFlags) -> DriverResult<NonNull<u8>> {
        let call = Call::AllocatePinned;
        let mut machine = self.enter(call, Some(ordinal), bytes as u64)?;
        machine.allocate_host(ordinal, bytes, AllocationKind::Pinned, call).map_err(of(call))
    }

    unsafe fn free_pinned(&self, ordinal: u32, pointer: NonNull<u8>) -> DriverResult<()> {
        let call = Call::FreePinned;
        let address = pointer.as_ptr().addr() as u64;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        machine.check_free(ordinal, address, call).map_err(of(call))?;
        let mut machine = self.wait_for_device(machine, ordinal, call)?;
        if let Some(block) = machine.remove_allocation(address, call) {
            // SAFETY: nobody uses the block any more: the caller's contract, and all work of the device has run.
            unsafe { block.free() };
        }
        Ok(())
    }

    unsafe fn register_host(
        &self,
        ordinal: u32,
        pointer: NonNull<u8>,
        bytes: usize,
        _flags: PinnedFlags,
    ) -> DriverResult<()> {
        let call = Call::RegisterHost;
        let mut machine = self.enter_with(call, ordinal, bytes, DeviceAttribute::HostRegister)?;
        machine.register_host(ordinal, pointer, bytes).map_err(of(call))
    }

    unsafe fn unregister_host(&self, ordinal: u32, pointer: NonNull<u8>) -> DriverResult<()> {
        let call = Call::UnregisterHost;
        let address = pointer.as_ptr().addr() as u64;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        machine.check_free(ordinal, address, call).map_err(of(call))?;
        machine.remove_allocation(address, call);
        Ok(())
    }

    fn pointer_attributes(&self, address: u64) -> DriverResult<Option<PointerInfo>> {
        let found = self.enter(Call::PointerAttributes, None, 0)?.memory_around(address);
        Ok(found.map(|(info, _)| info))
    }

    fn is_rdma_capable(&self, address: u64) -> DriverResult<Option<bool>> {
        Ok(self.enter(Call::PointerAttributes, None, 0)?.is_rdma_capable(address))
    }

    fn address_range(&self, address: u64) -> DriverResult<Option<AddressRange>> {
        let found = self.enter(Call::AddressRange, None, 0)?.memory_around(address);
        Ok(found.map(|(_, range)| range))
    }

    fn plain_allocation(&self, address: u64) -> DriverResult<Option<AddressRange>> {
        Ok(self.enter(Call::PointerAttributes, None, 0)?.plain_allocation_around(address))
    }

    unsafe fn allocate_async(
        &self,
        ordinal: u32,
        bytes: usize,
        pool: RawPool,
        stream: RawStream,
    ) -> DriverResult<u64> {
        let call = Call::AllocateAsync;
        let mut machine = self.enter_with(call, ordinal, bytes, DeviceAttribute::MemoryPools)?;
        let stream = machine.stream(ordinal, stream).map_err(of(call))?;
        let bytes = bytes as u64;
        let lane = match machine.target(&stream).map_err(of(call))? {
            WorkTarget::Queue(lane) => {
                machine.check_modes_outside(call, &stream).map_err(of(call))?;
                lane
            }
            WorkTarget::Capture(id, branch) => {
                return machine.record_allocation(id, branch, ordinal, bytes).map_err(of(call));
            }
        };
        let mut machine = self.shared.keep_up(machine);
        machine.health(ordinal).map_err(of(call))?;
        match machine.allocate_async(ordinal, bytes, pool, lane) {
            Err(Code::OUT_OF_MEMORY) if machine.may_wait(pool) => {
                // The pending frees may be enough.
                let goal = machine.pending_frees(pool);
                let mut machine = self.wait_for(machine, ordinal, &goal, call)?;
                machine.allocate_async(ordinal, bytes, pool, lane)
            }
            outcome => outcome,
        }
        .map_err(of(call))
    }

    unsafe fn free_async(&self, ordinal: u32, address: u64, stream: RawStream) -> DriverResult<()> {
        let call = Call::FreeAsync;
        let mut machine = self.enter_with(call, ordinal, 0, DeviceAttribute::MemoryPools)?;
        let stream = machine.stream(ordinal, stream).map_err(of(call))?;
        match machine.target(&stream).map_err(of(call))? {
            WorkTarget::Queue(lane) => {
                machine.check_modes_outside(call, &stream).map_err(of(call))?;
                machine.free_async(ordinal, address, lane)
            }
            WorkTarget::Capture(id, branch) => machine.record_free(id, branch, address),
        }
        .map_err(of(call))
    }

    fn pool_create(&self, ordinal: u32, properties: PoolProperties) -> DriverResult<RawPool> {
        let call = Call::PoolCreate;
        let mut machine = self.enter_with(call, ordinal, 0, DeviceAttribute::MemoryPools)?;
        machine.check_pool_types(ordinal, properties.handle_types).map_err(of(call))?;
        if properties.max_bytes != 0 && machine.config.version < POOL_LIMIT_VERSION {
            return Err(of(call)(Code::NOT_SUPPORTED));
        }
        Ok(machine.pool_create(ordinal, properties))
    }

    unsafe fn pool_destroy(&self, ordinal: u32, pool: RawPool) -> DriverResult<()> {
        let call = Call::PoolDestroy;
        self.enter(call, Some(ordinal), 0)?.pool_destroy(ordinal, pool).map_err(of(call))
    }

    unsafe fn pool_trim(&self, ordinal: u32, pool: RawPool, keep_bytes: usize) -> DriverResult<()> {
        let call = Call::PoolTrim;
        self.enter(call, Some(ordinal), 0)?.pool_trim(ordinal, pool, keep_bytes).map_err(of(call))
    }

    unsafe fn pool_attribute(
        &self,
        ordinal: u32,
        pool: RawPool,
        attribute: PoolAttribute,
    ) -> DriverResult<u64> {
        let call = Call::PoolAttribute;
        self.enter(call, Some(ordinal), 0)?.pool_attribute(ordinal, pool, attribute).map_err(of(call))
    }

    unsafe fn pool_set_attribute(
        &self,
        ordinal: u32,
        pool: RawPool,
        attribute: PoolAttribute,
        value: u64,
    ) -> DriverResult<()> {
        let call = Call::PoolSetAttribute;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        machine.pool_set_attribute(ordinal, pool, attribute, value).map_err(of(call))
    }

    fn pool_default(&self, ordinal: u32, kind: PoolKind) -> DriverResult<RawPool> {
        let call = Call::PoolDefault;
        let machine = self.enter_with(call, ordinal, 0, DeviceAttribute::MemoryPools)?;
        if kind == PoolKind::Managed {
            machine.has(ordinal, DeviceAttribute::ManagedMemory).map_err(of(call))?;
            if machine.config.version < MANAGED_POOL_VERSION {
                return Err(DriverError::new(call, Code::NOT_SUPPORTED));
            }
        }
        machine.process.pools.default_of(ordinal, kind).ok_or(DriverError::new(call, Code::NOT_SUPPORTED))
    }

    fn virtual_granularity(&self, ordinal: u32) -> DriverResult<usize> {
        drop(self.enter_with(Call::VirtualGranularity, ordinal, 0, DeviceAttribute::VirtualMemory)?);
        Ok(GRANULARITY as usize)
    }

    fn virtual_reserve(&self, ordinal: u32, bytes: usize, align: usize) -> DriverResult<u64> {
        let call = Call::VirtualReserve;
        let mut machine = self.enter_with(call, ordinal, bytes, DeviceAttribute::VirtualMemory)?;
        machine.virtual_reserve(ordinal, bytes, align).map_err(of(call))
    }

    unsafe fn virtual_free(&self, ordinal: u32, address: u64, bytes: usize) -> DriverResult<()> {
        let call = Call::VirtualFree;
        self.enter(call, Some(ordinal), bytes as u64)?.virtual_free(ordinal, address, bytes).map_err(of(call))
    }

    fn memory_create(&self, ordinal: u32, bytes: usize, handle_types: HandleType) -> DriverResult<RawMemory> {
        let call = Call::MemoryCreate;
        let mut machine = self.enter_with(call, ordinal, bytes, DeviceAttribute::VirtualMemory)?;
        machine.check_memory_types(ordinal, handle_types).map_err(of(call))?;
        machine.memory_create(ordinal, bytes, handle_types).map_err(of(call))
    }

    unsafe fn memory_release(&self, ordinal: u32, memory: RawMemory) -> DriverResult<()> {
        let call = Call::MemoryRelease;
        let bytes = self.look(|machine| machine.process.virtual_memory.bytes_of(memory)).unwrap_or_default();
        self.enter(call, Some(ordinal), bytes)?.memory_release(ordinal, memory).map_err(of(call))
    }

    unsafe fn memory_export(
        &self,
        ordinal: u32,
        memory: RawMemory,
        handle_type: HandleType,
    ) -> DriverResult<ExportedMemory> {
        let call = Call::MemoryExport;
        let mut machine = self.enter_with(call, ordinal, 0, DeviceAttribute::VirtualMemory)?;
        machine.memory_export(ordinal, memory, handle_type).map_err(of(call))
    }

    unsafe fn memory_map(
        &self,
        ordinal: u32,
        address: u64,
        bytes: usize,
        memory: RawMemory,
    ) -> DriverResult<()> {
        let call = Call::MemoryMap;
        let mut machine = self.enter(call, Some(ordinal), bytes as u64)?;
        machine.memory_map(ordinal, address, bytes, memory).map_err(of(call))
    }

    unsafe fn memory_unmap(&self, ordinal: u32, address: u64, bytes: usize) -> DriverResult<()> {
        let call = Call::MemoryUnmap;
        self.enter(call, Some(ordinal), bytes as u64)?.memory_unmap(ordinal, address, bytes).map_err(of(call))
    }

    unsafe fn memory_set_access(
        &self,
        ordinal: u32,
        address: u64,
        bytes: usize,
        accessor: Location,
        access: MapAccess,
    ) -> DriverResult<()> {
        let call = Call::MemorySetAccess;
        let mut machine = self.enter(call, Some(ordinal), bytes as u64)?;
        machine.memory_set_access(ordinal, address, bytes, accessor, access).map_err(of(call))
    }

    unsafe fn copy(&self, ordinal: u32, to: u64, from: u64, bytes: usize) -> DriverResult<()> {
        let call = Call::Copy;
        let mut machine = self.enter(call, Some(ordinal), bytes as u64)?;
        let goal = machine.queue_copy(call, ordinal, to, from, bytes, RawStream::LEGACY).map_err(of(call))?;
        drop(self.wait_for(machine, ordinal, &goal, call)?);
        Ok(())
    }

    unsafe fn copy_async(
        &self,
        ordinal: u32,
        to: u64,
        from: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        let call = Call::CopyAsync;
        let mut machine = self.enter(call, Some(ordinal), bytes as u64)?;
        machine.queue_copy(call, ordinal, to, from, bytes, stream).map_err(of(call))?;
        Ok(())
    }

    unsafe fn fill_async(
        &self,
        ordinal: u32,
        to: u64,
        value: FillValue,
        count: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        let call = Call::FillAsync;
        let bytes = (count as u64).saturating_mul(value.bytes() as u64);
        let mut machine = self.enter(call, Some(ordinal), bytes)?;
        machine.queue_fill(ordinal, to, value, count, bytes, stream).map_err(of(call))
    }

    unsafe fn prefetch_async(
        &self,
        ordinal: u32,
        address: u64,
        bytes: usize,
        to: Location,
        stream: RawStream,
    ) -> DriverResult<()> {
        let call = Call::PrefetchAsync;
        let mut machine = self.enter(call, Some(ordinal), bytes as u64)?;
        machine.queue_prefetch(ordinal, address, bytes, to, stream).map_err(of(call))
    }

    unsafe fn advise(&self, ordinal: u32, address: u64, bytes: usize, advice: Advice) -> DriverResult<()> {
        let call = Call::Advise;
        self.enter(call, Some(ordinal), bytes as u64)?
            .take_advice(ordinal, address, bytes, advice)
            .map_err(of(call))
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        Some(self)
    }

    fn block_watch(&self) -> Option<&dyn BlockWatch> {
        if self.watches_blocks() { Some(self) } else { None }
    }
}
