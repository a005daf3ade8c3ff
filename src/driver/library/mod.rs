//! What do drivers over vendors' libraries have in common?
//!
//! The libraries copy one interface, CUDA's: its structures and numbers are in `abi`, and `answer`, `exported` and `plain_allocation` have
//! its oddities. Functions that both drivers call by one text are one table, `functions`. Over that, and over what a driver says of its
//! library as a [`LibraryDriver`], each of `pages`, `pools`, `pinned`, `migration` and `address_range` is one text for all.

pub(super) mod abi;
pub(super) mod address_range;
pub(super) mod answer;
pub(super) mod exported;
pub(super) mod functions;
pub(super) mod host_call;
mod library_driver;
pub(super) mod migration;
pub(super) mod numa;
pub(super) mod pages;
pub(super) mod pinned;
pub(super) mod plain_allocation;
pub(super) mod pools;

pub(super) use library_driver::LibraryDriver;

/// Methods of [`Driver`](super::Driver), or of [`Sharing`](super::Sharing), that a room answers: each by its function of the same name.
/// All that every driver has of a room, as `pools of Driver`, or those that are listed. The driver's file imports the rooms and the types.
macro_rules! answered_in {
    (pinned of Driver) => {
        answered_in! { pinned:
            unsafe fn free_pinned(ordinal: u32, pointer: NonNull<u8>) -> ();
            unsafe fn register_host(ordinal: u32, pointer: NonNull<u8>, bytes: usize, flags: PinnedFlags) -> ();
            unsafe fn unregister_host(ordinal: u32, pointer: NonNull<u8>) -> ();
        }
    };
    (address_range of Driver) => {
        answered_in! { address_range:
            fn address_range(address: u64) -> Option<AddressRange>;
        }
    };
    (pools of Driver) => {
        answered_in! { pools:
            fn pool_create(ordinal: u32, properties: PoolProperties) -> RawPool;
            unsafe fn pool_destroy(ordinal: u32, pool: RawPool) -> ();
            unsafe fn pool_trim(ordinal: u32, pool: RawPool, keep_bytes: usize) -> ();
            unsafe fn pool_attribute(ordinal: u32, pool: RawPool, attribute: PoolAttribute) -> u64;
            unsafe fn pool_set_attribute(ordinal: u32, pool: RawPool, attribute: PoolAttribute, value: u64) -> ();
            fn pool_default(ordinal: u32, kind: PoolKind) -> RawPool;
        }
    };
    (pages of Driver) => {
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
    };
    (migration of Driver) => {
        answered_in! { migration:
            unsafe fn prefetch_async(ordinal: u32, address: u64, bytes: usize, to: Location, stream: RawStream) -> ();
            unsafe fn advise(ordinal: u32, address: u64, bytes: usize, advice: Advice) -> ();
        }
    };
    (pools of Sharing) => {
        answered_in! { pools:
            unsafe fn pool_export_pointer(ordinal: u32, address: u64) -> PointerHandle;
            unsafe fn pool_import_pointer(ordinal: u32, pool: RawPool, block: PointerHandle) -> u64;
            unsafe fn pool_set_access(ordinal: u32, pool: RawPool, accessor: u32, access: MapAccess) -> ();
        }
    };
    (pages of Sharing) => {
        answered_in! { pages:
            fn memory_import(ordinal: u32, exported: &ExportedMemory) -> RawMemory;
        }
    };
    ($room:ident:) => {};
    ($room:ident: fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty; $($rest:tt)*) => {
        fn $name(&self, $($argument: $type),*) -> DriverResult<$answer> {
            $room::$name(self, $($argument),*)
        }
        answered_in! { $room: $($rest)* }
    };
    ($room:ident: unsafe fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty; $($rest:tt)*) => {
        unsafe fn $name(&self, $($argument: $type),*) -> DriverResult<$answer> {
            // SAFETY: the promises of the function are those of the method that it answers, which the caller makes.
            unsafe { $room::$name(self, $($argument),*) }
        }
        answered_in! { $room: $($rest)* }
    };
}

pub(super) use answered_in;
