//! `Call`: the kinds of driver calls. Errors cite them, counters count by them, and faults are injected by them.

macro_rules! calls {
    ($($name:ident => $symbol:literal),+ $(,)?) => {
        /// One kind of driver call.
        ///
        /// Errors name the call that failed, the simulator counts and charges by it, and a fault is injected at the
        /// n-th call of one kind.
        ///
        /// ```
        /// use alluvion::driver::Call;
        /// assert_eq!(Call::AllocateDevice.symbol(), "cuMemAlloc");
        /// assert!(Call::ALL.contains(&Call::EventRecord));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Call { $(#[doc = concat!("`", $symbol, "`")] $name),+ }

        impl Call {
            /// Every kind of call, in declaration order; `call as usize` indexes it.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The name of the call in CUDA, without the version suffix.
            #[must_use]
            pub const fn symbol(self) -> &'static str {
                match self { $(Self::$name => $symbol),+ }
            }
        }
    };
}

calls! {
    Init => "cuInit",
    DeviceCount => "cuDeviceGetCount",
    DeviceName => "cuDeviceGetName",
    Attribute => "cuDeviceGetAttribute",
    MemoryInfo => "cuMemGetInfo",
    ContextEnter => "cuCtxPushCurrent",
    ContextSynchronize => "cuCtxSynchronize",
    ContextDevice => "cuCtxGetDevice",
    ContextSet => "cuCtxSetCurrent",
    CaptureMode => "cuThreadExchangeStreamCaptureMode",
    StreamPriorityRange => "cuCtxGetStreamPriorityRange",
    StreamCreate => "cuStreamCreateWithPriority",
    StreamDestroy => "cuStreamDestroy",
    StreamSynchronize => "cuStreamSynchronize",
    StreamQuery => "cuStreamQuery",
    StreamWaitEvent => "cuStreamWaitEvent",
    StreamCaptureStatus => "cuStreamIsCapturing",
    StreamCaptureId => "cuStreamGetCaptureInfo",
    StreamId => "cuStreamGetId",
    StreamContext => "cuStreamGetCtx",
    BeginCapture => "cuStreamBeginCapture",
    EndCapture => "cuStreamEndCapture",
    GraphLaunch => "cuGraphLaunch",
    GraphDestroy => "cuGraphDestroy",
    StreamHostCall => "cuLaunchHostFunc",
    EventCreate => "cuEventCreate",
    EventDestroy => "cuEventDestroy",
    EventRecord => "cuEventRecord",
    EventQuery => "cuEventQuery",
    EventSynchronize => "cuEventSynchronize",
    AllocateDevice => "cuMemAlloc",
    FreeDevice => "cuMemFree",
    AllocateManaged => "cuMemAllocManaged",
    AllocatePinned => "cuMemHostAlloc",
    FreePinned => "cuMemFreeHost",
    RegisterHost => "cuMemHostRegister",
    UnregisterHost => "cuMemHostUnregister",
    AllocateAsync => "cuMemAllocFromPoolAsync",
    FreeAsync => "cuMemFreeAsync",
    PoolCreate => "cuMemPoolCreate",
    PoolDestroy => "cuMemPoolDestroy",
    PoolTrim => "cuMemPoolTrimTo",
    PoolAttribute => "cuMemPoolGetAttribute",
    PoolSetAttribute => "cuMemPoolSetAttribute",
    PoolDefault => "cuDeviceGetDefaultMemPool",
    VirtualGranularity => "cuMemGetAllocationGranularity",
    VirtualReserve => "cuMemAddressReserve",
    VirtualFree => "cuMemAddressFree",
    MemoryCreate => "cuMemCreate",
    MemoryRelease => "cuMemRelease",
    MemoryExport => "cuMemExportToShareableHandle",
    MemoryMap => "cuMemMap",
    MemoryUnmap => "cuMemUnmap",
    MemorySetAccess => "cuMemSetAccess",
    Copy => "cuMemcpy",
    CopyAsync => "cuMemcpyAsync",
    FillAsync => "cuMemsetAsync",
    PrefetchAsync => "cuMemPrefetchAsync",
    Advise => "cuMemAdvise",
    PointerAttributes => "cuPointerGetAttributes",
    AddressRange => "cuMemGetAddressRange",
    DeviceUuid => "cuDeviceGetUuid",
    MemoryHandle => "cuIpcGetMemHandle",
    MemoryOpen => "cuIpcOpenMemHandle",
    MemoryClose => "cuIpcCloseMemHandle",
    EventHandle => "cuIpcGetEventHandle",
    EventOpen => "cuIpcOpenEventHandle",
    PoolExport => "cuMemPoolExportToShareableHandle",
    PoolImport => "cuMemPoolImportFromShareableHandle",
    PoolExportPointer => "cuMemPoolExportPointer",
    PoolImportPointer => "cuMemPoolImportPointer",
    MemoryImport => "cuMemImportFromShareableHandle",
    CanReach => "cuDeviceCanAccessPeer",
    Reach => "cuCtxEnablePeerAccess",
    PoolSetAccess => "cuMemPoolSetAccess",
    DmaBuf => "cuMemGetHandleForAddressRange",
}
