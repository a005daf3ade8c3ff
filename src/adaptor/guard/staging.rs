//! `Staging`: pinned memory that a `Guard` copies zones to.

#![expect(unsafe_code, reason = "reads pinned memory that the device has written, and gives it back")]

use core::slice;

use crate::device::Device;
use crate::error::Error;
use crate::resource::{DevicePtr, Layout, Resource};
use crate::source::Pinned;
use crate::suballoc::{Pool, PoolConfig};
use crate::sync::Arc;

/// A pool of pinned memory. Its source is one whose type is forgotten, because a program that makes its stacks of recipes has such a pool
/// already, and needs no machine code for another.
#[derive(Debug)]
pub(super) struct StagingPool(Pool<Arc<dyn Resource + Send + Sync>>);

impl StagingPool {
    pub(super) fn new(device: &Device, config: PoolConfig) -> Result<Self, Error> {
        let source: Arc<dyn Resource + Send + Sync> = Arc::new(Pinned::new(device)?);
        Pool::new(source, config).map(Self)
    }

    pub(super) fn trim(&self) -> Result<(), Error> {
        self.0.trim(0).map(drop)
    }
}

/// A piece of pinned memory. Dropped, it goes back to its pool: nothing may be writing to it then. What may still be written to
/// is forgotten instead.
#[derive(Debug)]
pub(super) struct Staging {
    pool: Arc<StagingPool>,
    block: DevicePtr,
    layout: Layout,
}

impl Staging {
    /// `None` if the pool has no memory.
    pub(super) fn new(pool: &Arc<StagingPool>, bytes: usize) -> Option<Self> {
        let layout = Layout::from_bytes(bytes).ok().filter(|layout| !layout.is_empty())?;
        let block = pool.0.allocate_sync(layout).ok()?;
        Some(Self { pool: Arc::clone(pool), block, layout })
    }

    /// Where a copy can put what comes `offset` bytes into it.
    pub(super) fn address(&self, offset: usize) -> u64 {
        self.block.address() + offset as u64
    }

    /// The bytes at `offset`.
    ///
    /// # Safety
    ///
    /// They were written whole by a copy that is over, and no other work writes to them.
    pub(super) unsafe fn bytes(&self, offset: usize, bytes: usize) -> &[u8] {
        assert!(offset <= self.layout.bytes() && bytes <= self.layout.bytes() - offset);
        let first = core::ptr::with_exposed_provenance::<u8>(self.address(offset) as usize);
        // SAFETY:
        // - valid and of one block: the range is within the block, compared above, and it is of `Pinned`, which is host-accessible, so that a
        //   pointer to its address, whose provenance it has exposed, may be read while the block is live, as it is until drop.
        // - bytes are aligned anywhere, and these are initialised: a copy has written them, the caller's promise.
        // - nothing writes to them meanwhile: the caller's promise.
        // - no longer than `isize::MAX`: a layout is not.
        unsafe { slice::from_raw_parts(first, bytes) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: the block came from this pool with this layout, and no work uses it: who may not say so forgets it.
        unsafe { self.pool.0.deallocate_sync(self.block, self.layout) };
    }
}
