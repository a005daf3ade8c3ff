//! The contract of resources.
//!
//! A [`Resource`] is a source of blocks of memory, ordered by streams. Sources ask a driver; suballocators carve blocks out of the
//! memory of another resource; adaptors watch or limit one. All have this one contract.
//!
//! # The words
//!
//! - A block is *live* from the return of the call that allocated it to the call that deallocates it.
//! - A layout *fits* a block if it is the layout that the block was allocated with.
//! - Work is *ordered after* a point of a stream if it was submitted to that stream later, or to a stream that has since
//!   been made to wait for that point, or by a host that has since waited for it.
//! - The *upstream* of a resource is the resource that it gets its memory from.

#![expect(unsafe_code, reason = "declares the contract that deallocation rests on")]

mod access;
mod any_resource;
pub(crate) mod card;
mod describe;
mod export;
mod figures;
mod forward;
mod handle;
mod layer;
mod layout;
mod over_upstream;
mod pages;
mod resource_id;
mod resource_ref;
mod sleeping;

pub use crate::driver::DevicePtr;
pub use access::{DeviceAccessible, HostAccessible, Shareable};
pub use any_resource::AnyResource;
pub(crate) use any_resource::WeakResource;
pub use describe::Describe;
#[cfg(target_os = "linux")]
pub(crate) use export::MOST_PAGES;
pub use export::{Export, ExportWay};
pub(crate) use export::{ExportForm, no_export, require_few_pages};
pub use figures::{Figure, FigureKind, FigureValue, Figures};
pub(crate) use layer::find;
pub use layer::{Layer, LayerBook};
pub use layout::Layout;
pub(crate) use over_upstream::blocks_of_upstream;
pub(crate) use pages::require_whole_pages;
pub use pages::{Page, Pages};
pub use resource_id::ResourceId;
pub use resource_ref::ResourceRef;
pub(crate) use sleeping::{ContentFiles, ContentWriter, KeptContents, Place};
pub(crate) use sleeping::{HostCopy, OpenCopies, SleepingBlock};
pub use sleeping::{Kept, SleepRecord, Sleeping, Tagged};

use core::fmt;

use crate::device::Device;
use crate::driver::MemoryInfo;
use crate::error::Error;
use crate::stream::StreamRef;

/// A source of blocks of memory on one device, ordered by streams.
///
/// Handles are resources too: `&R`, `Box<R>` and `Arc<R>` free each other's blocks. Generic code takes `R: Resource` at no cost;
/// code without generics takes [`ResourceRef`] or [`AnyResource`].
///
/// # Stream ordering
///
/// A block allocated on a stream may be used by work ordered after the call on that stream. It is deallocated on a stream
/// that all of its uses come before. The allocation is the first use, also of a block that has no other: its memory may have come
/// behind work that is still on that stream.
///
/// # Examples
///
/// ```
/// use alluvion::{Layout, Resource, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// let (resource, stream) = (Cuda::new(&device), device.stream()?);
/// let layout = Layout::array::<f32>(1024)?;
/// let block = resource.allocate(layout, stream.as_ref())?;
/// // SAFETY: `block` came from this resource with this layout, and nothing uses it.
/// unsafe { resource.deallocate(block, layout, stream.as_ref()) };
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// # Safety
///
/// An implementation must hand out blocks that are aligned to [`Layout::block_align`] and at least as long as asked for, that
/// overlap no other live block, and that stay valid until they are deallocated, wherever the resource is moved. Resources with
/// equal [`id`](Self::id) must be able to free each other's blocks. If [`host_access`](Self::host_access) returns `true`, the blocks that
/// are live then are memory of which [`HostAccessible`]'s promise holds. No method unwinds. The stream of `allocate_at_once` and
/// `deallocate_at_once` is used for nothing but to take a block and to give it back so: it may be one [of which nobody knows whether its
/// handle is still its own](crate::stream::RawStreams::visit).
pub unsafe trait Resource {
    /// Allocates a block for work on `stream`. Zero bytes give [`Layout::dangling`], without a call of an upstream.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; `UnsupportedAlignment` above [`max_align`](Self::max_align); `DeviceMismatch` for a stream of another
    /// device; `Capture` where a capture forbids it; as the driver says. Nothing is lost then.
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error>;

    /// Frees a block, behind the work that is on `stream`. Cannot fail: a block that cannot be freed is leaked.
    ///
    /// # Safety
    ///
    /// - `block` is live and came from a resource with this [`id`](Self::id).
    /// - `layout` fits it.
    /// - Every use of the block is ordered before this point of `stream`, a stream of this device. The point of its stream that it was
    ///   allocated at counts as one: another stream has waited for it, even if nothing has touched the block.
    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>);

    /// As [`allocate`](Self::allocate), if that needs no wait: with no driver call, under no lock that is ever held across a driver
    /// call or across foreign code, and without foreign code, such as handlers and observers. For callers that hold a lock of
    /// their own meanwhile, such as the lock of an interpreter.
    ///
    /// `None` means "not at once", and says nothing about memory: no figure has changed, and the caller goes on with `allocate`. A
    /// [`Pool`](crate::Pool) answers from the cache of the stream. By default `None`, so a layer that does not know this method
    /// is never left out.
    ///
    /// ```
    /// use alluvion::{Layout, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?;
    /// let layout = Layout::from_bytes(1000)?;
    /// assert_eq!(pool.allocate_at_once(layout, stream.as_ref()), None, "nothing was freed on the stream yet");
    /// let block = pool.allocate(layout, stream.as_ref())?;
    /// // SAFETY: the block came from this resource with this layout, and nothing uses it.
    /// assert!(unsafe { pool.deallocate_at_once(block, layout, stream.as_ref()) });
    /// assert_eq!(pool.allocate_at_once(layout, stream.as_ref()), Some(block));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
        let _ = (layout, stream);
        None
    }

    /// As [`deallocate`](Self::deallocate), if that needs no wait, as in [`allocate_at_once`](Self::allocate_at_once). After `false`
    /// nothing has happened: the block is live, no figure has changed, and the caller goes on with `deallocate`. A stream of
    /// [`Stream::from_raw`](crate::Stream::from_raw) needs a driver call at some frees, so it is `false` there.
    ///
    /// # Safety
    ///
    /// As [`deallocate`](Self::deallocate).
    #[must_use = "after `false` the block is still live"]
    unsafe fn deallocate_at_once(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) -> bool {
        let _ = (block, layout, stream);
        false
    }

    /// Allocates a block that any stream, and the host if it has access, may use as soon as this returns.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate).
    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(self.max_align())?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        let stream = self.device().service_stream()?;
        let block = self.allocate(layout, stream.as_ref())?;
        match stream.synchronize() {
            Ok(()) => Ok(block),
            Err(error) => {
                // SAFETY: the block came from this resource with this layout just now, and was not handed out.
                unsafe { self.deallocate(block, layout, stream.as_ref()) };
                Err(error)
            }
        }
    }

    /// Frees a block that no work uses any more. When it returns, the block is free.
    ///
    /// # Safety
    ///
    /// - `block` is live and came from a resource with this [`id`](Self::id).
    /// - `layout` fits it.
    /// - Every use of the block is over. So is all work that its stream had before it was allocated, if it was on a stream.
    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        if layout.is_empty() {
            return;
        }
        // Without a stream there is no point to free it at: the block is leaked.
        let Ok(stream) = self.device().service_stream() else { return };
        // SAFETY: the caller's promises; what is over is ordered before every later point of every stream.
        unsafe { self.deallocate(block, layout, stream.as_ref()) };
        // A failure means that the context is lost, and the block with it.
        let _ = stream.synchronize();
    }

    /// The device that the blocks belong to.
    fn device(&self) -> &Device;

    /// The id: resources with the same id free each other's blocks.
    ///
    /// A layer answers by one question: may a block that did not come through it be freed through it? If it may, because the layer
    /// knows nothing of blocks, its id is its upstream's. If not, because the layer has counted the block, recorded or moved it, it has
    /// [one of its own](ResourceId::unique).
    fn id(&self) -> ResourceId;

    /// Prints this layer alone, without what is under it: `CudaAsync(gpu 0)`.
    ///
    /// # Errors
    ///
    /// Those of the formatter.
    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// The largest alignment that it honours.
    fn max_align(&self) -> usize {
        self.upstream().map_or(Layout::MIN_ALIGN, Resource::max_align)
    }

    /// Returns `true` if the host may read and write the blocks that are live, as [`HostAccessible`] promises of a type: for a resource
    /// whose type is erased. By default `false`, which promises nothing.
    ///
    /// A layer that hands out its upstream's blocks, or pieces of them, answers as its upstream. The answer stays what it is, but for a
    /// resource that takes in others while it is used: a [`Binning`](crate::Binning) answers `false` from the time when a bin is added
    /// whose blocks the host may not access.
    ///
    /// ```
    /// use alluvion::source::{Cuda, Pinned};
    /// use alluvion::{AnyResource, PoolConfig, Resource, ResourceExt, Sim};
    ///
    /// let device = Sim::new().device(0);
    /// let staging = AnyResource::new(Pinned::new(&device)?.pool(PoolConfig::default())?.stats());
    /// assert!(staging.host_access());
    /// assert!(!AnyResource::new(staging.fallback(Cuda::new(&device))?).host_access());
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    fn host_access(&self) -> bool {
        false
    }

    /// Returns unused memory to the upstream or the driver, until at most `keep_bytes` are kept. A suballocator returns whole
    /// segments, and stops before the next one would leave less. Returns the number of bytes released; 0 for a resource that keeps
    /// no memory.
    fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        self.upstream().map_or(Ok(0), |upstream| upstream.trim(keep_bytes))
    }

    /// Free and total bytes of the memory that blocks come from, as far as the resource knows.
    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        match self.upstream() {
            Some(upstream) => upstream.memory_info(),
            None => self.device().memory_info(),
        }
    }

    /// The resource under this one, if there is one.
    fn upstream(&self) -> Option<&dyn Resource> {
        None
    }

    /// Addresses and physical memory, apart, if the resource has them: a [`Pool`](crate::Pool) over it then grows in place,
    /// and moves free memory instead of growing. A block that [`allocate`](Self::allocate) returns has nothing to do with them.
    ///
    /// A limit passes those of its upstream on, and counts the pages that are created. A layer that watches the blocks of its
    /// upstream does not pass them on, because what is mapped through them is no block.
    fn pages(&self) -> Option<&dyn Pages> {
        None
    }

    /// Puts blocks to sleep, if the resource can: a [`Pool`](crate::Pool) over a resource with [`pages`](Self::pages). A layer that
    /// hands its upstream's blocks out unchanged may pass its upstream's on.
    fn sleeping(&self) -> Option<&dyn Sleeping> {
        None
    }

    /// The memory that a block lies in, in a form that other processes can open: see [`share`](crate::share). Zero bytes give
    /// [`Export::of_nothing`].
    ///
    /// A layer that hands out its upstream's blocks, or pieces of them, passes the question on, and says where in the upstream's block
    /// its own begins. By default a resource has no such form.
    ///
    /// ```
    /// use alluvion::source::Managed;
    /// use alluvion::{Layout, Resource, Sim};
    ///
    /// let device = Sim::new().device(0);
    /// let (managed, layout) = (Managed::new(&device)?, Layout::from_bytes(1000)?);
    /// let block = managed.allocate_sync(layout)?;
    /// // SAFETY: the block is live, and of this resource.
    /// let error = unsafe { managed.export(block, layout) }.unwrap_err();
    /// assert!(error.is_unsupported());
    /// // SAFETY: as above, and nothing uses it.
    /// unsafe { managed.deallocate_sync(block, layout) };
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported`, with the reason: the memory has no such form, a source was made without handle types, the device or the
    /// machine lacks the way; as the driver says.
    ///
    /// # Safety
    ///
    /// - `block` is live and came from a resource with this [`id`](Self::id).
    /// - `layout` fits it.
    unsafe fn export(&self, block: DevicePtr, layout: Layout) -> Result<Export, Error> {
        let _ = block;
        if layout.is_empty() { Ok(Export::of_nothing()) } else { Err(no_export("this resource has none")) }
    }

    /// The book that [`find`](crate::ResourceExt::find) finds here: see [`Layer`].
    fn layer(&self) -> Option<LayerBook<'_>> {
        None
    }
}

static_assertions::assert_obj_safe!(Resource);
