//! `Driver`: the part of a machine that the crate needs. The room has the contract of every method, and says why most of them have a body.

#![expect(unsafe_code, reason = "declares what a driver's callers must guarantee")]

use core::fmt::Debug;
use core::ptr::NonNull;

use super::{
    AddressRange, Advice, BlockWatch, Call, CaptureId, CaptureMode, CaptureStatus, Code, DeviceAttribute,
    DriverError, DriverResult, ExportedMemory, FillValue, HandleType, Location, MapAccess, MemoryInfo,
    PinnedFlags, PointerInfo, PoolAttribute, PoolKind, PoolProperties, RawEvent, RawGraph, RawMemory,
    RawPool, RawStream, Sharing, StreamFlags,
};

/// A machine with devices: the seam between this crate and hardware.
///
/// Addresses are plain `u64`: the host must not dereference one, except where a method says so. `ordinal` is always the device
/// that the call concerns.
///
/// # Safety
///
/// An implementation must keep the promises of the [module](super): in particular, memory that it hands out does not overlap other
/// memory it has handed out and not been given back, work on one stream runs in the order of the calls, and a wait on an event
/// waits for all that was on the recording stream at the time of the record. The crate releases memory of the host when a wait has
/// succeeded or [`proves_stopped`](Self::proves_stopped) has returned `true`, so both answers must be true.
/// The body of a method says that the machine lacks an ability: a driver whose streams can be captured writes all that is about captures.
#[expect(
    unused_variables,
    reason = "a body that refuses has no use for its arguments, and their names are for readers"
)]
pub unsafe trait Driver: Debug + Send + Sync {
    /// A short name: `cuda`, `sim`, `cudart`, `hip`, `maca`.
    fn name(&self) -> &'static str;

    /// The version of the driver, counted as CUDA counts its own: 13000 is 13.0. Another vendor's 6.3 is 6030.
    fn version(&self) -> u32;

    /// The number of devices.
    fn device_count(&self) -> DriverResult<u32>;

    /// The name of the device.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`] if there is no such device.
    fn device_name(&self, ordinal: u32) -> DriverResult<String>;

    /// One property of a device. An attribute that the driver does not know reads as 0.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`] if there is no such device.
    fn attribute(&self, ordinal: u32, attribute: DeviceAttribute) -> DriverResult<i32>;

    /// One property of a device by its number in CUDA (`CUdevice_attribute`), also one that this crate has no name for.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a number that the driver does not know; [`Code::INVALID_DEVICE`] if there is no such device.
    fn attribute_by_number(&self, ordinal: u32, number: i32) -> DriverResult<i32> {
        let named = DeviceAttribute::ALL.iter().find(|attribute| attribute.number() == number);
        let named = named.ok_or(DriverError::new(Call::Attribute, Code::INVALID_VALUE))?;
        self.attribute(ordinal, *named)
    }

    /// The name of a code in CUDA, as `CUDA_ERROR_OUT_OF_MEMORY`; `None` for one that neither the driver nor this crate knows.
    fn code_name(&self, code: Code) -> Option<String> {
        code.name().map(str::to_owned)
    }

    /// A code in the words of the driver, or of this crate where the driver has none.
    fn code_text(&self, code: Code) -> Option<String> {
        code.text().map(str::to_owned)
    }

    /// Free and total memory of the device.
    fn memory_info(&self, ordinal: u32) -> DriverResult<MemoryInfo>;

    /// Waits until all work of the device, on every stream of the context, is done. Breaks every capture of the device, in any
    /// mode.
    fn context_synchronize(&self, ordinal: u32) -> DriverResult<()>;

    /// Returns `true` if `error`, which a call for the device has returned, proves that nothing that was submitted to the
    /// device runs any more: no copy that is queued or under way reads or writes memory from now on, for ever.
    ///
    /// `false` where the driver does not know that for certain. A lost context is not enough, and neither is a driver that has
    /// shut down. By default only a wait that succeeds ends a transfer. The CUDA driver uses the default: when a kernel has lost
    /// the context and every call fails, a GPU goes on with the copies of other streams.
    fn proves_stopped(&self, ordinal: u32, error: DriverError) -> bool {
        false
    }

    /// Returns `true` if physical memory may be mapped at several addresses at once: what work has written through one of them is seen
    /// through each of them by work that begins after it is over, and one can be unmapped while work uses another. Default: `false`.
    fn may_alias(&self) -> bool {
        false
    }

    /// The device of the context that is current on the calling thread, whoever made that context; `None` where none is current. A
    /// library without contexts has a current device instead, which is device 0 at first. Makes no context.
    ///
    /// # Errors
    ///
    /// Also where the current context has been destroyed.
    fn context_device(&self) -> DriverResult<Option<u32>> {
        Ok(None)
    }

    /// Makes the primary context of the device current on the calling thread, in place of the one that was current there, as
    /// `cudaSetDevice` does. The context is made if there is none, and kept as long as the process.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`] if there is no such device. The current context is then the one before.
    fn set_context(&self, ordinal: u32) -> DriverResult<()> {
        lacks(Call::ContextSet)
    }

    /// Makes a context current on the calling thread if none is, as a call of cudart does: the primary context of device 0. One that is
    /// current stays, whoever made it. No other call of this trait leaves another context current than it has found: this one is for
    /// interfaces that stand in for those of a library that does.
    ///
    /// # Errors
    ///
    /// As [`context_device`](Self::context_device) and [`set_context`](Self::set_context). Then nothing has changed.
    fn ensure_context(&self) -> DriverResult<()> {
        match self.context_device()? {
            Some(_) => Ok(()),
            None => self.set_context(0),
        }
    }

    /// Calls `function` while the device is current on this thread, and makes current again what was: for code of others that wants a
    /// current device, and leaves it current. By default it is called as it is, for a driver whose devices nobody else knows.
    ///
    /// # Errors
    ///
    /// `function` was not called.
    fn in_context(&self, ordinal: u32, function: &mut dyn FnMut()) -> DriverResult<()> {
        function();
        Ok(())
    }

    /// Exchanges which calls a capture forbids on the calling thread; returns the mode before.
    fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode> {
        Ok(CaptureMode::Relaxed)
    }

    /// The least and the greatest priority of a stream (the greatest is the lower number).
    fn stream_priority_range(&self, ordinal: u32) -> DriverResult<(i32, i32)> {
        Ok((0, 0))
    }

    /// Makes a stream.
    fn stream_create(&self, ordinal: u32, flags: StreamFlags) -> DriverResult<RawStream>;

    /// Destroys a stream. Work on it still runs to its end. The value of the handle may be handed out again.
    ///
    /// # Errors
    ///
    /// The handle is gone all the same.
    ///
    /// # Safety
    ///
    /// `stream` was made by `stream_create` for this device and is not used again.
    unsafe fn stream_destroy(&self, ordinal: u32, stream: RawStream) -> DriverResult<()>;

    /// Waits until all work that was on the stream is done. Capture-unsafe; breaks the capture of the stream itself.
    ///
    /// # Safety
    ///
    /// `stream` is live and belongs to this device.
    unsafe fn stream_synchronize(&self, ordinal: u32, stream: RawStream) -> DriverResult<()>;

    /// Returns `true` if all work that was on the stream is done. Does not wait. Capture-unsafe; breaks the capture of the
    /// stream itself.
    ///
    /// # Safety
    ///
    /// `stream` is live and belongs to this device.
    unsafe fn stream_query(&self, ordinal: u32, stream: RawStream) -> DriverResult<bool>;

    /// Makes later work on `stream` wait, on the device, for the work that `event` was last recorded after.
    ///
    /// An event that was never recorded makes nothing wait. The event may be recorded anew at once.
    ///
    /// # Errors
    ///
    /// [`Code::CAPTURE_ISOLATION`] if `stream` captures and the event was recorded outside.
    ///
    /// # Safety
    ///
    /// `stream` is live and belongs to this device; `event` is live, of any device of this machine.
    unsafe fn stream_wait_event(&self, ordinal: u32, stream: RawStream, event: RawEvent) -> DriverResult<()>;

    /// Whether the stream is recording a graph.
    ///
    /// # Safety
    ///
    /// `stream` is live and belongs to this device.
    unsafe fn stream_capture_status(&self, ordinal: u32, stream: RawStream) -> DriverResult<CaptureStatus> {
        Ok(CaptureStatus::None)
    }

    /// The capture that the stream takes part in; `None` for a stream that does not capture, or whose capture is broken.
    ///
    /// # Safety
    ///
    /// `stream` is live: of this device, or another stream than a default one, of any device of this machine.
    unsafe fn stream_capture_id(&self, ordinal: u32, stream: RawStream) -> DriverResult<Option<CaptureId>> {
        // SAFETY: the caller's promise.
        match unsafe { self.stream_capture_status(ordinal, stream) }? {
            CaptureStatus::Active => unknown(Call::StreamCaptureId),
            CaptureStatus::None | CaptureStatus::Invalidated => Ok(None),
        }
    }

    /// The driver's own number for the stream, never used twice while the process lives. Breaks the capture of the stream.
    ///
    /// # Safety
    ///
    /// `stream` is live: of this device, or another stream than a default one, of any device of this machine.
    unsafe fn stream_id(&self, ordinal: u32, stream: RawStream) -> DriverResult<u64> {
        unknown(Call::StreamId)
    }

    /// The device whose primary context the stream belongs to, directly or by a green context; `None` for a stream of another
    /// context. Makes no context.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`] for a [default stream](RawStream::is_default), which belongs to whatever context is current.
    ///
    /// # Safety
    ///
    /// `stream` is live, of any device of this machine.
    unsafe fn stream_context_device(&self, stream: RawStream) -> DriverResult<Option<u32>> {
        unknown(Call::StreamContext)
    }

    /// Begins to record the work that is queued on the stream, instead of running it.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] or another for the legacy stream, and for a stream that captures already.
    ///
    /// # Safety
    ///
    /// `stream` is live and belongs to this device.
    unsafe fn stream_begin_capture(
        &self,
        ordinal: u32,
        stream: RawStream,
        mode: CaptureMode,
    ) -> DriverResult<()> {
        lacks(Call::BeginCapture)
    }

    /// Ends a capture on the stream that it was begun on. The stream captures no more, except after `CAPTURE_WRONG_THREAD`.
    ///
    /// # Errors
    ///
    /// [`Code::CAPTURE_INVALIDATED`] if something broke it; [`Code::CAPTURE_UNJOINED`]; [`Code::CAPTURE_WRONG_THREAD`].
    ///
    /// # Safety
    ///
    /// `stream` is live and belongs to this device.
    unsafe fn stream_end_capture(&self, ordinal: u32, stream: RawStream) -> DriverResult<RawGraph> {
        lacks(Call::EndCapture)
    }

    /// Destroys a graph.
    ///
    /// # Safety
    ///
    /// `graph` came from `stream_end_capture` of this device and is not used again, nor is memory that it allocates.
    unsafe fn graph_destroy(&self, ordinal: u32, graph: RawGraph) -> DriverResult<()> {
        lacks(Call::GraphDestroy)
    }

    /// Queues a function of the host on the stream. The function must not call the driver.
    ///
    /// # Errors
    ///
    /// The function is then dropped without being called.
    ///
    /// # Safety
    ///
    /// `stream` is live and belongs to this device. The function does not unwind.
    unsafe fn stream_host_call(
        &self,
        ordinal: u32,
        stream: RawStream,
        function: Box<dyn FnOnce() + Send>,
    ) -> DriverResult<()> {
        lacks(Call::StreamHostCall)
    }

    /// Makes an event without timing.
    fn event_create(&self, ordinal: u32) -> DriverResult<RawEvent>;

    /// Destroys an event. Earlier waits on it stay in force.
    ///
    /// # Errors
    ///
    /// The handle is gone all the same.
    ///
    /// # Safety
    ///
    /// `event` was made by `event_create` for this device and is not used again.
    unsafe fn event_destroy(&self, ordinal: u32, event: RawEvent) -> DriverResult<()>;

    /// Records the event after the work that is on the stream now. On a capturing stream it becomes part of the graph.
    ///
    /// # Safety
    ///
    /// `event` and `stream` are live and belong to this device.
    unsafe fn event_record(&self, ordinal: u32, event: RawEvent, stream: RawStream) -> DriverResult<()>;

    /// Returns `true` if the work that the event was last recorded after is done. Capture-unsafe. Does not wait.
    ///
    /// # Errors
    ///
    /// [`Code::CAPTURED_EVENT`] if it was last recorded inside a capture.
    ///
    /// # Safety
    ///
    /// `event` is live and belongs to this device.
    unsafe fn event_query(&self, ordinal: u32, event: RawEvent) -> DriverResult<bool>;

    /// Waits until the work that the event was last recorded after is done. Capture-unsafe.
    ///
    /// # Errors
    ///
    /// [`Code::CAPTURED_EVENT`] if it was last recorded inside a capture.
    ///
    /// # Safety
    ///
    /// `event` is live and belongs to this device.
    unsafe fn event_synchronize(&self, ordinal: u32, event: RawEvent) -> DriverResult<()>;

    /// Memory of the device, aligned to 256 at least. Capture-unsafe; may wait for the device.
    ///
    /// # Errors
    ///
    /// [`Code::OUT_OF_MEMORY`]; [`Code::INVALID_VALUE`] for 0 bytes.
    fn allocate_device(&self, ordinal: u32, bytes: usize) -> DriverResult<u64>;

    /// Gives back device or managed memory. Waits for all work of the device first. Capture-unsafe.
    ///
    /// # Safety
    ///
    /// `address` came from `allocate_device` or `allocate_managed` of this device and is not used again.
    unsafe fn free_device(&self, ordinal: u32, address: u64) -> DriverResult<()>;

    /// Managed memory: the address may be dereferenced by the host too, for as long as it is live, also when the context of the device is
    /// lost. Capture-unsafe.
    ///
    /// # Errors
    ///
    /// As `allocate_device`.
    fn allocate_managed(&self, ordinal: u32, bytes: usize) -> DriverResult<u64> {
        lacks(Call::AllocateManaged)
    }

    /// Pinned memory of the host, aligned to 256 at least: driver 580 aligns 4096 bytes to less than a page. Device address and host
    /// address are the same. Capture-unsafe.
    ///
    /// # Errors
    ///
    /// As `allocate_device`.
    fn allocate_pinned(&self, ordinal: u32, bytes: usize, flags: PinnedFlags) -> DriverResult<NonNull<u8>> {
        lacks(Call::AllocatePinned)
    }

    /// Gives back pinned memory. Waits for all work of the device first. Capture-unsafe.
    ///
    /// # Safety
    ///
    /// `pointer` came from `allocate_pinned` of this device and is not used again.
    unsafe fn free_pinned(&self, ordinal: u32, pointer: NonNull<u8>) -> DriverResult<()> {
        lacks(Call::FreePinned)
    }

    /// Pins memory that the host has mapped already. Afterwards it is as from `allocate_pinned`. Capture-unsafe.
    ///
    /// # Errors
    ///
    /// [`Code::HOST_MEMORY_ALREADY_REGISTERED`].
    ///
    /// # Safety
    ///
    /// The bytes are mapped, whole pages, and stay mapped until `unregister_host`.
    unsafe fn register_host(
        &self,
        ordinal: u32,
        pointer: NonNull<u8>,
        bytes: usize,
        flags: PinnedFlags,
    ) -> DriverResult<()> {
        lacks(Call::RegisterHost)
    }

    /// Unpins what `register_host` pinned. Capture-unsafe.
    ///
    /// # Errors
    ///
    /// [`Code::HOST_MEMORY_NOT_REGISTERED`].
    ///
    /// # Safety
    ///
    /// `pointer` was registered, and the device has no work left that touches it.
    unsafe fn unregister_host(&self, ordinal: u32, pointer: NonNull<u8>) -> DriverResult<()> {
        lacks(Call::UnregisterHost)
    }

    /// The memory that an address lies in: its kind and its device. `None` for memory that the driver did not hand out and that is
    /// not registered. Any number may be asked about; with memory that was freed, the answer may be of the memory before.
    ///
    /// # Errors
    ///
    /// Never because of the address.
    fn pointer_attributes(&self, address: u64) -> DriverResult<Option<PointerInfo>> {
        unknown(Call::PointerAttributes)
    }

    /// Whether network cards may be given the memory that an address lies in (GPUDirect RDMA). `None` for an address that the driver
    /// does not know. Pages are made so wherever the device has [`DeviceAttribute::PageRdma`].
    ///
    /// # Errors
    ///
    /// [`Code::NOT_FOUND`] where it cannot be asked.
    fn is_rdma_capable(&self, address: u64) -> DriverResult<Option<bool>> {
        unknown(Call::PointerAttributes)
    }

    /// The whole allocation that an address lies in; for addresses that were mapped, what was mapped there at once or more. `None`
    /// where the driver does not know: always for addresses that [`pointer_attributes`](Self::pointer_attributes) knows nothing of.
    ///
    /// # Errors
    ///
    /// Never because of the address.
    fn address_range(&self, address: u64) -> DriverResult<Option<AddressRange>> {
        unknown(Call::AddressRange)
    }

    /// The allocation that an address lies in, if it is one of [`allocate_device`](Self::allocate_device),
    /// [`allocate_managed`](Self::allocate_managed), [`allocate_pinned`](Self::allocate_pinned) or
    /// [`register_host`](Self::register_host), whoever made that call of the driver. `None` for memory of pools and of graphs, and for
    /// what is mapped or unknown; and where the driver cannot tell, as by default and through the libraries of HIP and MACA. Tools that
    /// watch a process take such an allocation for a heap, and nothing else.
    ///
    /// # Errors
    ///
    /// Never because of the address.
    fn plain_allocation(&self, address: u64) -> DriverResult<Option<AddressRange>> {
        Ok(None)
    }

    /// Memory from a pool, usable by later work on the stream. Capture-unsafe, except on a stream that captures: there it
    /// becomes part of the graph.
    ///
    /// # Errors
    ///
    /// As `allocate_device`.
    ///
    /// # Safety
    ///
    /// `pool` is live; `stream` is live and belongs to this device.
    unsafe fn allocate_async(
        &self,
        ordinal: u32,
        bytes: usize,
        pool: RawPool,
        stream: RawStream,
    ) -> DriverResult<u64> {
        lacks(Call::AllocateAsync)
    }

    /// Gives memory back to its pool once earlier work on the stream is done. Capture-unsafe, except on a stream that
    /// captures: there it becomes part of the graph, and the memory must be of that graph.
    ///
    /// # Safety
    ///
    /// `address` came from `allocate_async` and is not used again, except by work already ordered before this point of
    /// the stream; `stream` is live and belongs to this device.
    unsafe fn free_async(&self, ordinal: u32, address: u64, stream: RawStream) -> DriverResult<()> {
        lacks(Call::FreeAsync)
    }

    /// Makes a memory pool. Capture-unsafe.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for handle types that the device does not have.
    fn pool_create(&self, ordinal: u32, properties: PoolProperties) -> DriverResult<RawPool> {
        lacks(Call::PoolCreate)
    }

    /// Destroys a pool. Capture-unsafe.
    ///
    /// # Safety
    ///
    /// `pool` was made by `pool_create` and is not used again. None of its memory is out, and every free has run: the
    /// manual permits both, and driver 580 crashes on either (SIGFPE and SIGSEGV within 200 pools).
    unsafe fn pool_destroy(&self, ordinal: u32, pool: RawPool) -> DriverResult<()> {
        lacks(Call::PoolDestroy)
    }

    /// Gives unused memory of the pool back to the device until at most `keep_bytes` are left. Capture-unsafe.
    ///
    /// # Safety
    ///
    /// `pool` is live.
    unsafe fn pool_trim(&self, ordinal: u32, pool: RawPool, keep_bytes: usize) -> DriverResult<()> {
        lacks(Call::PoolTrim)
    }

    /// One property of a pool. Capture-unsafe.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] or [`Code::INVALID_HANDLE`] for a pool that is gone, where the driver notices.
    ///
    /// # Safety
    ///
    /// `pool` is live.
    unsafe fn pool_attribute(
        &self,
        ordinal: u32,
        pool: RawPool,
        attribute: PoolAttribute,
    ) -> DriverResult<u64> {
        lacks(Call::PoolAttribute)
    }

    /// Sets one property of a pool. Capture-unsafe.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] if it is read only.
    ///
    /// # Safety
    ///
    /// `pool` is live.
    unsafe fn pool_set_attribute(
        &self,
        ordinal: u32,
        pool: RawPool,
        attribute: PoolAttribute,
        value: u64,
    ) -> DriverResult<()> {
        lacks(Call::PoolSetAttribute)
    }

    /// The device's own pool of one kind, which lives as long as the process.
    ///
    /// # Errors
    ///
    /// [`Code::NOT_SUPPORTED`] for a kind that the device does not have: managed pools need driver 13.0.
    fn pool_default(&self, ordinal: u32, kind: PoolKind) -> DriverResult<RawPool> {
        lacks(Call::PoolDefault)
    }

    /// The unit in which virtual memory is reserved and mapped: a power of two.
    fn virtual_granularity(&self, ordinal: u32) -> DriverResult<usize> {
        lacks(Call::VirtualGranularity)
    }

    /// Reserves addresses, without memory until they are mapped. With `align` 0 the driver chooses the alignment.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] unless `bytes` is a multiple of the granularity.
    fn virtual_reserve(&self, ordinal: u32, bytes: usize, align: usize) -> DriverResult<u64> {
        lacks(Call::VirtualReserve)
    }

    /// Gives reserved addresses back.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] while anything is mapped there.
    ///
    /// # Safety
    ///
    /// The range is one whole reservation of this device and is not used again.
    unsafe fn virtual_free(&self, ordinal: u32, address: u64, bytes: usize) -> DriverResult<()> {
        lacks(Call::VirtualFree)
    }

    /// Physical memory of the device, without an address.
    ///
    /// # Errors
    ///
    /// [`Code::OUT_OF_MEMORY`]; [`Code::INVALID_VALUE`] unless `bytes` is a multiple of the granularity.
    fn memory_create(&self, ordinal: u32, bytes: usize, handle_types: HandleType) -> DriverResult<RawMemory> {
        lacks(Call::MemoryCreate)
    }

    /// Releases physical memory; it returns to the device once it is no longer mapped.
    ///
    /// # Safety
    ///
    /// `memory` came from `memory_create` and is not used again by its handle.
    unsafe fn memory_release(&self, ordinal: u32, memory: RawMemory) -> DriverResult<()> {
        lacks(Call::MemoryRelease)
    }

    /// Exports physical memory for another process, as one of the handle types that it was created for.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a type that it was not created for, and for more than one; [`Code::NOT_PERMITTED`],
    /// [`Code::NOT_SUPPORTED`] where the machine is not set up for it.
    ///
    /// # Safety
    ///
    /// `memory` is live.
    unsafe fn memory_export(
        &self,
        ordinal: u32,
        memory: RawMemory,
        handle_type: HandleType,
    ) -> DriverResult<ExportedMemory> {
        lacks(Call::MemoryExport)
    }

    /// Maps a whole physical allocation to reserved addresses. It is not accessible until `memory_set_access`.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] if the range is not reserved, not aligned, or mapped already.
    ///
    /// # Safety
    ///
    /// `memory` is live and `bytes` is its size.
    unsafe fn memory_map(
        &self,
        ordinal: u32,
        address: u64,
        bytes: usize,
        memory: RawMemory,
    ) -> DriverResult<()> {
        lacks(Call::MemoryMap)
    }

    /// Removes mappings. Does not wait: work that is still queued faults.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] if the range cuts a mapping. Unmapped parts are no error.
    ///
    /// # Safety
    ///
    /// No work of any stream of any device that touches the range is left.
    unsafe fn memory_unmap(&self, ordinal: u32, address: u64, bytes: usize) -> DriverResult<()> {
        lacks(Call::MemoryUnmap)
    }

    /// Sets the access that `accessor` has to a mapped range.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] unless the range is mapped; [`Code::INVALID_DEVICE`] where `accessor` cannot reach the memory.
    ///
    /// # Safety
    ///
    /// No work that is left needs an access that this takes away.
    unsafe fn memory_set_access(
        &self,
        ordinal: u32,
        address: u64,
        bytes: usize,
        accessor: Location,
        access: MapAccess,
    ) -> DriverResult<()> {
        lacks(Call::MemorySetAccess)
    }

    /// Copies and waits until it is done. Either side may be memory of a device or of the host. Capture-unsafe.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] if a side is not memory that the device can reach.
    ///
    /// # Safety
    ///
    /// Both ranges are live, and no other work touches them in a conflicting way meanwhile.
    unsafe fn copy(&self, ordinal: u32, to: u64, from: u64, bytes: usize) -> DriverResult<()> {
        lacks(Call::Copy)
    }

    /// Queues a copy on the stream.
    ///
    /// # Errors
    ///
    /// As [`Driver::copy`], at once or at a later synchronisation.
    ///
    /// # Safety
    ///
    /// Both ranges stay live until the copy has run, memory of the host included, and no unordered work conflicts.
    unsafe fn copy_async(
        &self,
        ordinal: u32,
        to: u64,
        from: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()>;

    /// Queues `count` repetitions of a value on the stream.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] if the address is not aligned to the value.
    ///
    /// # Safety
    ///
    /// The range stays live until the fill has run, and no unordered work conflicts.
    unsafe fn fill_async(
        &self,
        ordinal: u32,
        to: u64,
        value: FillValue,
        count: usize,
        stream: RawStream,
    ) -> DriverResult<()>;

    /// Queues the migration of managed memory.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] if the memory is not managed; [`Code::INVALID_DEVICE`].
    ///
    /// # Safety
    ///
    /// The range is live until the prefetch has run; `stream` is live and belongs to this device.
    unsafe fn prefetch_async(
        &self,
        ordinal: u32,
        address: u64,
        bytes: usize,
        to: Location,
        stream: RawStream,
    ) -> DriverResult<()> {
        lacks(Call::PrefetchAsync)
    }

    /// Advises on the use of managed or system memory.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] if the memory cannot be advised on.
    ///
    /// # Safety
    ///
    /// The range is live.
    unsafe fn advise(&self, ordinal: u32, address: u64, bytes: usize, advice: Advice) -> DriverResult<()> {
        lacks(Call::Advise)
    }

    /// The calls by which other processes and other devices use memory; `None` for a driver without them.
    fn sharing(&self) -> Option<&dyn Sharing> {
        None
    }

    /// Who is told of the blocks that suballocators and guards carve out of memory of the driver; `None` for a driver that does not ask.
    /// The answer is the same at each call. A machine with one [checks frees](crate::Machine::check_frees) by default.
    fn block_watch(&self) -> Option<&dyn BlockWatch> {
        None
    }
}

/// The answer to a call of an ability that the driver does not have.
#[cold]
pub(super) fn lacks<T>(call: Call) -> DriverResult<T> {
    Err(DriverError::new(call, Code::NOT_SUPPORTED))
}

/// The answer to a question about a stream or an address that the driver has no answer to.
#[cold]
fn unknown<T>(call: Call) -> DriverResult<T> {
    Err(DriverError::new(call, Code::NOT_FOUND))
}

static_assertions::assert_obj_safe!(Driver);
