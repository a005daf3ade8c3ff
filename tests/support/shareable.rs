//! Resources whose memory can be shared, in every way that there is.

#![allow(dead_code, reason = "some tests need a part of it")]
#![expect(unsafe_code, reason = "keeps a block, and passes the others on")]

use std::fmt;

use alluvion::driver::HandleType;
use alluvion::resource::Export;
use alluvion::source::{Cuda, CudaAsync, CudaAsyncConfig, Mapped, MappedConfig};
use alluvion::suballoc::ArenaConfig;
use alluvion::{
    AnyResource, Device, DeviceAccessible, DevicePtr, Error, Layout, Pool, PoolConfig, Resource, ResourceExt,
    ResourceId, StreamRef,
};

pub(crate) fn pooled(device: &Device) -> CudaAsync {
    CudaAsync::with_config(device, CudaAsyncConfig::default().handle_types(HandleType::POSIX_FILE_DESCRIPTOR))
        .expect("it has pools")
}

pub(crate) fn mapped(device: &Device) -> Mapped {
    Mapped::with_config(device, MappedConfig::default().handle_types(HandleType::POSIX_FILE_DESCRIPTOR))
        .expect("it has pages")
}

/// The bytes that [`Straddling`] leaves of its first page.
pub(crate) const LEFT: usize = 256;

/// A pool over pages, whose first page has a block on it up to its last [`LEFT`] bytes: a block that is longer begins there, and ends on
/// another page.
pub(crate) struct Straddling {
    pool: Pool<Mapped>,
    front: (DevicePtr, Layout),
}

impl Straddling {
    pub(crate) fn new(device: &Device) -> Self {
        let pool = mapped(device).pool(PoolConfig::default()).expect("there is memory");
        let page = pool.upstream().pages().expect("it has pages").page_bytes();
        let layout = Layout::from_bytes(page - LEFT).expect("it is no large number");
        let front = (pool.allocate_sync(layout).expect("there is memory"), layout);
        Self { pool, front }
    }
}

impl Drop for Straddling {
    fn drop(&mut self) {
        let (block, layout) = self.front;
        // SAFETY: the pool made it with this layout, and nothing uses it.
        unsafe { self.pool.deallocate_sync(block, layout) };
    }
}

// SAFETY: all is the pool's, which keeps the contract.
unsafe impl Resource for Straddling {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.pool.allocate(layout, stream)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // SAFETY: the caller's promises.
        unsafe { self.pool.deallocate(block, layout, stream) }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.pool.allocate_sync(layout)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        // SAFETY: the caller's promises.
        unsafe { self.pool.deallocate_sync(block, layout) }
    }

    fn device(&self) -> &Device {
        self.pool.device()
    }

    fn id(&self) -> ResourceId {
        self.pool.id()
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Straddling > ")?;
        self.pool.fmt_layer(f)
    }

    fn max_align(&self) -> usize {
        self.pool.max_align()
    }

    fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        self.pool.trim(keep_bytes)
    }

    unsafe fn export(&self, block: DevicePtr, layout: Layout) -> Result<Export, Error> {
        // SAFETY: the caller's promise.
        unsafe { self.pool.export(block, layout) }
    }
}

// SAFETY: the blocks are the pool's.
unsafe impl DeviceAccessible for Straddling {}

impl alluvion::Shareable for Straddling {}

impl fmt::Debug for Straddling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}

/// A way of making memory that can be shared, and its name.
pub(crate) type Shareable = (&'static str, fn(&Device) -> AnyResource);

/// The way by which a block of more than [`LEFT`] bytes, the first one, lies on several pages.
pub(crate) const SEVERAL_PAGES: &str = "several pages of mapped";

/// Every way that a machine with descriptors has.
pub(crate) const BY_DESCRIPTORS: [Shareable; 8] = [
    ("cuda", |device| AnyResource::new(Cuda::new(device))),
    ("pool of cuda", |device| {
        AnyResource::new(Cuda::new(device).pool(PoolConfig::default()).expect("there is memory"))
    }),
    ("cuda-async", |device| AnyResource::new(pooled(device))),
    ("pool of cuda-async", |device| {
        AnyResource::new(pooled(device).pool(PoolConfig::default()).expect("there is memory"))
    }),
    ("mapped", |device| AnyResource::new(mapped(device))),
    ("pool of mapped", |device| {
        AnyResource::new(mapped(device).pool(PoolConfig::default()).expect("there is memory"))
    }),
    (SEVERAL_PAGES, |device| AnyResource::new(Straddling::new(device))),
    ("arena of mapped", |device| {
        AnyResource::new(
            mapped(device).arena(ArenaConfig::default().bytes(8 << 20)).expect("there is memory"),
        )
    }),
];

/// Those of them that a device has: not every library lends pools.
pub(crate) fn ways_of(device: &Device) -> Vec<Shareable> {
    let capabilities = device.capabilities().expect("it can be asked");
    let has = |types: HandleType| types.contains(HandleType::POSIX_FILE_DESCRIPTOR);
    BY_DESCRIPTORS
        .into_iter()
        .filter(|(name, _)| match *name {
            name if name.ends_with("cuda-async") => has(capabilities.pool_handle_types),
            name if name.ends_with("mapped") => has(capabilities.page_handle_types),
            _ => true,
        })
        .collect()
}
