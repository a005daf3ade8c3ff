//! Who may cross threads, and who may be copied: the table of all public types. A line that changes is a change of contract.

use std::collections::BTreeSet;
use std::hash::RandomState;

use alluvion::adaptor::*;
use alluvion::compose::{PerDevice, PerDeviceError, StackGraphMemory, StackSleeper};
use alluvion::container::*;
use alluvion::current::CurrentResources;
use alluvion::device::*;
use alluvion::driver::cuda::{CudaDriver, LoadError};
use alluvion::driver::runtime::{Runtime, RuntimeDriver};
use alluvion::driver::*;
use alluvion::error::{Cause, Member, OutOfMemory, Returned, SnapshotFile};
use alluvion::host::{self, NewDelete, OnHost, PinnedAlloc, PinnedVec};
use alluvion::interop::cudarc::{CudarcGraph, CudarcMemory, CudarcView, CudarcViewMut};
use alluvion::ledger::{DeviceLedger, Ledger, LedgerBlock};
use alluvion::relief::Relief;
use alluvion::resource::*;
use alluvion::saved::{Ahead, Behind, SavedFile, Saver};
use alluvion::share::lease::{Hold, Lease, LeaseName};
use alluvion::share::{
    Import, Imported, ImportedMemory, ImportedMut, Message, ShareConfig, ShareStatus, Shared, SharedBlock,
};
use alluvion::sim::*;
use alluvion::source::*;
use alluvion::stream::*;
use alluvion::suballoc::*;
use alluvion::tag::Tag;
use alluvion::testing::*;
use alluvion::trace::{RmmCsv, RmmCsvWriter};
use alluvion::{Error, ErrorKind, Misuse, MisuseKind, Unsupported};
use static_assertions::{assert_impl_all, assert_not_impl_any};

/// One line of the table: what all of the types are, and what none of them is.
macro_rules! all {
    ([$($type:ty),+ $(,)?] are $yes:tt) => {
        $( all!(@is $type, $yes); )+
    };
    ([$($type:ty),+ $(,)?] are $yes:tt not $no:tt) => {
        $( all!(@is $type, $yes); all!(@is_not $type, $no); )+
    };
    (@is $type:ty, [$($yes:ident)+]) => {
        const _: () = { assert_impl_all!($type: $($yes),+); };
    };
    (@is_not $type:ty, [$($no:ident)+]) => {
        const _: () = { assert_not_impl_any!($type: $($no),+); };
    };
}

// Values.
all!([Advice, CaptureId, CaptureMode, CaptureStatus, DeviceAttribute, FillValue, HandleType, Location, MapAccess, MemoryInfo,
    PinnedFlags, PoolAttribute, PoolKind, PoolProperties, StreamFlags, Call, Code, DriverError, RawEvent, RawGraph, RawMemory,
    RawPool, RawStream, AddressRange, MemoryKind, PointerInfo, EventHandle, MemoryHandle, PointerHandle] are [Send Sync Copy]);
// Made for a call, of what the call has.
all!([WatchedRequest<'static>, WatchedBlock<'static>] are [Copy] not [Send Sync]);
all!([DevicePtr, Layout, Page, ResourceId, ErrorKind, StreamId, Epoch, Stamp, StreamKind, BlockRange, LedgerBlock] are [Send Sync Copy]);
all!([Exploration, Ran] are [Send Sync]);
all!([AccessMode, HazardKind, StreamLabel, Fault, Live, Explored, Op, Summary, Swept, Footprint] are [Send Sync Copy]);
all!([Misuse, MisuseKind, Cause, Relief, Growth, PageBudget, Reuse, Status, SegmentView, BlockView, BlockState] are [Send Sync Copy]);
all!([Error, Unsupported, OutOfMemory, Snapshot, SnapshotFile, Capabilities, Frontier, CallCounts, Schedule, Violation, ShadowHeap] are [Send Sync Clone] not [Copy]);
all!([SimConfig, CostModel, Access, Hazard, Kernel, Sweep] are [Send Sync Clone] not [Copy]);
all!([CudaConfig, CudaAsyncConfig] are [Send Sync Clone] not [Copy]);
all!([PinnedConfig, NumaPolicy, PoolConfig, ArenaConfig, FixedSizeConfig] are [Send Sync Clone]);

// Handles: cloning is a reference count.
all!([Log] are [Send Sync Clone] not [Copy]);
all!([Machine, Device, Stream, Event, AnyResource, PinnedAlloc, Cuda, Managed, Mapped, MappedConfig, Pinned] are [Send Sync Clone] not [Copy]);
all!([RawStreams<'static>, DeviceLedger<'static>] are [Send Sync Copy]);
all!([CudaAsyncView<'static>] are [Send Sync Clone]);
all!([ResourceRef<'static>, ResourceRef<'static, Null>, ResourceRef<'static, Cuda>, NewDelete] are [Send Sync Copy]);

// Owners.
all!([Logging<Cuda>, ExportedMemory] are [Send Sync] not [Clone]);
all!([LogConfig, alluvion::Recipe] are [Send Sync Clone] not [Copy]);
all!([RmmCsvWriter<Vec<u8>>, RmmCsv<&'static [u8]>] are [Send Sync] not [Clone]);
all!([Sim, SimDriver, SimGraph, CudaDriver, RuntimeDriver, StreamPool] are [Send Sync] not [Clone]);
all!([CudaAsync, CudaAsyncManaged, Null, Shadow<Cuda>, Faulty<Cuda>, Delayed<Cuda>] are [Send Sync]);
all!([CudaAsync, Null, Shadow<Cuda>, Faulty<Cuda>, Delayed<Cuda>] are [Send] not [Clone]);
all!([Pool<Cuda>, Arena<Cuda>, FixedSize<Cuda>, Binning<Cuda>, BinningBuilder<Cuda>] are [Send Sync] not [Clone]);
all!([SuballocBook, GraphMemory<'static, Cuda>] are [Send Sync] not [Clone]);
all!([Limiting<Cuda>, Budget<Cuda>, Reservation, FailureCallback<Cuda>, FailureCallbackBook, Fallback<Cuda, Pinned>, FallbackBook, ThreadSafeBook] are [Send Sync] not [Clone]);
all!([Ledger<Cuda>, Stats<Cuda>, StatsBook, Tracking<Cuda>, TrackingBook, Scope<'static>] are [Send Sync] not [Clone]);
all!([Counter, Counts, TagCounts, CallStacks, CaptureCalls] are [Send Sync Copy]);
all!([Holding, Holdings, Share, CallSite] are [Send Sync Clone] not [Copy]);
all!([Allowance, SharedConfig, Member] are [Send Sync Clone] not [Copy]);
all!([Crossing<'static>, Tag] are [Send Sync Copy]);
all!([OnHost<Pinned>, PinnedVec<u8>] are [Send Sync]);
all!([host::Vec<u8, PinnedAlloc>, host::Box<u8, PinnedAlloc>] are [Send Sync Clone]);
all!([host::HashMap<u8, u8, RandomState, PinnedAlloc>, host::HashSet<u8, RandomState, PinnedAlloc>] are [Send Sync Clone]);
all!([DeviceBuffer, DeviceVec<f32>, DeviceScalar<u8>, RawParts<AnyResource>, Transfer<Vec<u8>>, Returned<Vec<u8>>] are [Send Sync] not [Clone]);
all!([CudarcMemory<f32>, DeviceVec<f32, CudarcMemory<f32>>, Returned<DeviceVec<f32>>] are [Send Sync] not [Clone]);
all!([SavedFile, Saver] are [Send Sync] not [Clone]);
all!([Asleep<'static, DeviceVec<f32>>] are [Send Sync] not [Clone]);
all!([Sleeper<'static, Mapped>, StackSleeper, StackGraphMemory, SleepRecord<'static>] are [Send Sync] not [Clone]);
all!([SleepConfig<'static>, Kept<'static>] are [Send Sync Clone] not [Copy]);
all!([SegmentHooks] are [Send Sync Clone] not [Copy]);
all!([Tagged<'static>] are [Send Sync Copy]);
all!([DeviceVec<f32, &'static Cuda>, DeviceVec<f32, ResourceRef<'static>>] are [Send Sync] not [Clone]);
all!([DeviceSlice<'static, u8>, DeviceSliceMut<'static, u8>] are [Send Sync]);
all!([Chunks<'static, u8>, ChunksExact<'static, u8>] are [Send Sync Clone] not [Copy]);
all!([ChunksMut<'static, u8>, ChunksExactMut<'static, u8>] are [Send Sync] not [Clone]);
all!([GuardedPtr<'static>] are [Send Sync Copy]);

// Layers, and their books.
all!([Tag, AlignedConfig, Trespass, TrespassKind, Damage] are [Send Sync Copy]);
all!([GuardConfig] are [Send Sync Clone] not [Copy]);
all!([Aligned<Cuda>, Prefetch<Managed>, Guard<Cuda>] are [Send Sync] not [Clone]);
all!([AlignedBook, PrefetchBook, GuardBook] are [Send Sync] not [Clone]);

// What names a place in the order of one thread's work, or is about one thread, does not leave it.
all!([StreamRef<'static>] are [Copy] not [Send Sync]);
all!([PerThreadStream, RelaxedCapture<'static>, ReadGuard<'static, u8>, WriteGuard<'static, u8>] are [Sized] not [Send Sync Clone]);
all!([CudarcView<'static, u8>, CudarcViewMut<'static, u8>] are [Sized] not [Send Sync Clone]);
all!([CudarcGraph<'static, Cuda>] are [Sized] not [Send Sync Clone]);
all!([TransferScope<'static, 'static>] are [Sized] not [Send Sync Clone]);
// Nor does the half of a thread that reads or writes beside the caller.
all!([Ahead<'static, Vec<u8>>, Behind<'static, Vec<u8>>] are [Sized] not [Send Sync Clone]);
all!([DeviceMemory<'static>] are [Send Sync] not [Clone]);
all!([Describe<'static>, LayerBook<'static>] are [Copy] not [Send Sync]);
all!([Upstream] are [Send Sync Clone] not [Copy]);
all!([Figure<'static>, FigureKind, FigureValue, LoadError, Runtime] are [Send Sync Copy]);
all!([Figures<'static>] are [Sized] not [Send Sync Clone]);
all!([Bench] are [Sized] not [Clone]);
all!([Stall] are [Send Sync] not [Clone]);

// Between processes.
all!([Message, ShareConfig, Export] are [Send Sync Clone] not [Copy]);
all!([ShareStatus, ExportWay, LeaseName] are [Send Sync Copy]);
all!([Import<'static>, ImportedMemory, Imported<f32>, ImportedMut<f32>, Shared<DeviceVec<f32>>, Shared<DeviceBuffer>] are [Send Sync] not [Clone]);
all!([Lease, Hold, SharedBlock] are [Send Sync] not [Clone]);

// A resource is what its closures and its upstream are.
type Local = std::rc::Rc<()>;
all!([ThreadSafe<std::cell::Cell<u8>>] are [Send Sync] not [Clone]);
all!([ThreadSafe<Local>] are [Sized] not [Send Sync Clone]);
all!([Callback<Local, Local>] are [Sized] not [Send Sync]);
all!([Callback<u8, u8>] are [Send Sync] not [Clone]);

// One for each device.
all!([PerDevice<Cuda>] are [Send Sync Clone] not [Copy]);
all!([PerDevice<Local>] are [Clone] not [Send Sync]);
all!([PerDeviceError<Cuda>, CurrentResources] are [Send Sync] not [Clone]);

// Traits that stay usable as objects.
static_assertions::assert_obj_safe!(
    Resource,
    Pages,
    DeviceAccessible,
    HostAccessible,
    Driver,
    Sharing,
    InterpretedCalls
);

/// Names that the rooms hand out and that are no types.
const NO_TYPES: [&str; 22] = [
    "Watch",
    // `Stats`, `Tracking` and others.
    "Watched",
    "BlockWatch",
    "Shareable",
    "Iter",
    "InterpretedCalls",
    "LibraryDriver",
    "Sharing",
    "Plain",
    "Allocator",
    "DeviceCopy",
    "HostBuffer",
    "DeviceAccessible",
    "HostAccessible",
    "Layer",
    "Pages",
    "Sleeping",
    "ResourceExt",
    "OnStream",
    "DriverResult",
    "SystemConfig",
    "System",
];

/// Every type that a room hands out has a line above.
#[test]
fn the_table_is_whole() {
    let rooms = [
        include_str!("../../src/adaptor/mod.rs"),
        include_str!("../../src/compose/mod.rs"),
        include_str!("../../src/container/mod.rs"),
        include_str!("../../src/current/mod.rs"),
        include_str!("../../src/device/mod.rs"),
        include_str!("../../src/driver/mod.rs"),
        include_str!("../../src/driver/cuda/mod.rs"),
        include_str!("../../src/error/mod.rs"),
        include_str!("../../src/host/mod.rs"),
        include_str!("../../src/interop/cudarc/mod.rs"),
        include_str!("../../src/order/mod.rs"),
        include_str!("../../src/resource/mod.rs"),
        include_str!("../../src/sim/mod.rs"),
        include_str!("../../src/source/mod.rs"),
        include_str!("../../src/stream/mod.rs"),
        include_str!("../../src/suballoc/mod.rs"),
        include_str!("../../src/testing/mod.rs"),
        include_str!("../../src/lib.rs"),
    ];
    let table: BTreeSet<&str> = words(include_str!("auto_traits.rs")).collect();
    let mut missing = BTreeSet::new();
    for room in rooms {
        for exports in room.split("\npub use ").skip(1) {
            let exports = exports.split(';').next().unwrap_or_default();
            let types = words(exports).filter(|word| word.starts_with(char::is_uppercase));
            missing.extend(types.filter(|name| !table.contains(name) && !NO_TYPES.contains(name)));
        }
    }
    assert_eq!(missing, BTreeSet::new(), "public types without a line in the table");
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}
