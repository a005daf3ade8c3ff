//! What is a resource?
//!
//! A [`Resource`] is a source of blocks of memory, ordered by streams. Sources ask a driver; suballocators carve what
//! another resource gives them; adaptors watch or limit one. All have this one contract.
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
mod describe;
mod device_ptr;
mod forward;
mod handle;
mod layer;
mod layout;
mod over_upstream;
mod resource_id;
mod resource_ref;

pub use access::{DeviceAccessible, HostAccessible};
pub use any_resource::AnyResource;
pub(crate) use any_resource::WeakResource;
pub use describe::Describe;
pub use device_ptr::DevicePtr;
pub use layer::{Layer, LayerBook};
pub use layout::Layout;
pub(crate) use over_upstream::blocks_of_upstream;
pub use resource_id::ResourceId;
pub use resource_ref::ResourceRef;

use core::fmt;

use crate::adaptor::{
    Aligned, AlignedConfig, Allowance, Budget, FailureCallback, Fallback, Guard, GuardConfig, Limiting, Log,
    Logging, Prefetch, Stats, ThreadSafe, Tracking,
};
use crate::device::Device;
use crate::driver::MemoryInfo;
use crate::error::Error;
use crate::stream::StreamRef;
use crate::suballoc::{
    Arena, ArenaConfig, Binning, BinningBuilder, FixedSize, FixedSizeConfig, OutOfMemory, Pool, PoolConfig,
    Relief,
};

/// A source of blocks of memory on one device, ordered by streams.
///
/// Taken by handle: `&R`, `Box<R>` and `Arc<R>` are resources too, and free each other's blocks. Generic code takes
/// `R: Resource` and pays nothing; [`ResourceRef`] and [`AnyResource`] are the two ways out of generics.
///
/// # Stream ordering
///
/// A block allocated on a stream may be used by work ordered after the call on that stream. It is deallocated on a stream
/// that all of its uses come before.
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
/// An implementation must hand out blocks that are aligned to [`Layout::block_align`] and at least as long as asked for,
/// that overlap no other live block, and that stay valid until they are deallocated, wherever the resource is moved. What
/// [`id`](Self::id) says equal must be able to free each other's blocks. No method unwinds.
pub unsafe trait Resource {
    /// A block for work on `stream`. Zero bytes give [`Layout::dangling`] and reach nobody.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; `UnsupportedAlignment` above [`max_align`](Self::max_align); `DeviceMismatch` for a stream of another
    /// device; `Capture` where a capture forbids it; as the driver says. Nothing is lost then.
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error>;

    /// Gives a block back, behind the work that is on `stream`. Cannot fail: what goes wrong is leaked.
    ///
    /// # Safety
    ///
    /// - `block` is live and came from a resource with this [`id`](Self::id).
    /// - `layout` fits it.
    /// - Every use of the block is ordered before this point of `stream`, a stream of this device.
    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>);

    /// A block that any stream, and the host where it has access, may use as soon as this returns.
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
                // SAFETY: the block came from this resource with this layout just now, and nobody has seen it.
                unsafe { self.deallocate(block, layout, stream.as_ref()) };
                Err(error)
            }
        }
    }

    /// Gives a block back that no work uses any more. When it returns, the block is free.
    ///
    /// # Safety
    ///
    /// - `block` is live and came from a resource with this [`id`](Self::id).
    /// - `layout` fits it.
    /// - Every use of the block is over.
    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        if layout.is_empty() {
            return;
        }
        // Without a stream there is no place in any order to free it at: the block is leaked.
        let Ok(stream) = self.device().service_stream() else { return };
        // SAFETY: the caller's promises; what is over is ordered before every later point of every stream.
        unsafe { self.deallocate(block, layout, stream.as_ref()) };
        // A failure means that the context is lost, and the block with it.
        let _ = stream.synchronize();
    }

    /// The device that the blocks belong to.
    fn device(&self) -> &Device;

    /// Who can free this resource's blocks.
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

    /// Gives memory that no block uses back to where it came from, until at most `keep_bytes` are kept, or what is next in
    /// turn would leave less: a suballocator gives back whole segments. Returns how many bytes went. A resource that keeps
    /// nothing returns 0.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        self.upstream().map_or(Ok(0), |upstream| upstream.trim(keep_bytes))
    }

    /// Free and total bytes of the memory that it draws on, as far as the resource knows.
    ///
    /// # Errors
    ///
    /// As the driver says.
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

    /// The book that [`find`](Self::find) finds here: see [`Layer`].
    fn layer(&self) -> Option<LayerBook<'_>> {
        None
    }

    /// Prints the whole stack, outermost first: `Stats(1.2 GiB) > Pool(4 GiB) > CudaAsync(gpu 0)`.
    fn describe(&self) -> Describe<'_>
    where
        Self: Sized,
    {
        Describe::new(self)
    }

    /// A [`Pool`] over this resource.
    ///
    /// # Examples
    ///
    /// ```
    /// use alluvion::{PoolConfig, Resource, Sim, source::CudaAsync};
    ///
    /// let sim = Sim::new();
    /// let pool = CudaAsync::new(&sim.device(0))?.pool(PoolConfig::default().initial(8 << 20))?;
    /// assert_eq!(pool.describe().to_string(), "Pool(8 MiB) > CudaAsync(gpu 0)");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Pool::new`].
    fn pool(self, config: PoolConfig) -> Result<Pool<Self>, Error>
    where
        Self: Sized,
    {
        Pool::new(self, config)
    }

    /// An [`Arena`] over this resource.
    ///
    /// # Examples
    ///
    /// ```
    /// use alluvion::suballoc::ArenaConfig;
    /// use alluvion::{Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let arena = Cuda::new(&sim.device(0)).arena(ArenaConfig::default().bytes(16 << 20))?;
    /// assert_eq!(arena.describe().to_string(), "Arena(16 MiB) > Cuda(gpu 0)");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Arena::new`].
    fn arena(self, config: ArenaConfig) -> Result<Arena<Self>, Error>
    where
        Self: Sized,
    {
        Arena::new(self, config)
    }

    /// A [`FixedSize`] over this resource.
    ///
    /// # Examples
    ///
    /// ```
    /// use alluvion::suballoc::FixedSizeConfig;
    /// use alluvion::{Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let tiles = Cuda::new(&sim.device(0)).fixed_size(FixedSizeConfig::default().block(64 << 10).blocks(32))?;
    /// assert_eq!(tiles.describe().to_string(), "FixedSize(2 MiB of 64 KiB) > Cuda(gpu 0)");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`FixedSize::new`].
    fn fixed_size(self, config: FixedSizeConfig) -> Result<FixedSize<Self>, Error>
    where
        Self: Sized,
    {
        FixedSize::new(self, config)
    }

    /// Begins to decide on the bins of a [`Binning`] over this resource, which serves what no bin does.
    ///
    /// # Examples
    ///
    /// ```
    /// use alluvion::{PoolConfig, Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?;
    /// let bins = pool.binning().blocks(16).range(10..=12).build()?;
    /// assert_eq!(bins.bins().collect::<Vec<_>>(), [1024, 2048, 4096]);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    fn binning(self) -> BinningBuilder<Self>
    where
        Self: Sized,
    {
        Binning::over(self)
    }

    /// A [`Logging`] over this resource: every call that passes is a row of `log`.
    ///
    /// ```
    /// use alluvion::adaptor::Log;
    /// use alluvion::{Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let logged = Cuda::new(&sim.device(0)).logging(Log::write_to(std::io::sink())?);
    /// assert_eq!(logged.describe().to_string(), "Logging(writer) > Cuda(gpu 0)");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    fn logging(self, log: Log) -> Logging<Self>
    where
        Self: Sized,
    {
        Logging::new(self, log)
    }

    /// A [`Limiting`] over this resource: at most `bytes` are out at a time.
    ///
    /// ```
    /// use alluvion::{Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let resource = Cuda::new(&sim.device(0)).limiting(8 << 30);
    /// assert_eq!(resource.describe().to_string(), "Limiting(8 GiB) > Cuda(gpu 0)");
    /// ```
    #[must_use]
    fn limiting(self, bytes: usize) -> Limiting<Self>
    where
        Self: Sized,
    {
        Limiting::new(self, bytes)
    }

    /// A [`Budget`] over this resource: what an allowance permits, which others may share.
    ///
    /// ```
    /// use alluvion::adaptor::Allowance;
    /// use alluvion::{Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let jobs = Allowance::new("jobs", 1 << 30);
    /// let resource = Cuda::new(&sim.device(0)).budget(jobs.clone());
    /// assert_eq!(resource.describe().to_string(), "Budget(jobs, 1 GiB) > Cuda(gpu 0)");
    /// ```
    #[must_use]
    fn budget(self, allowance: Allowance) -> Budget<Self>
    where
        Self: Sized,
    {
        Budget::new(self, allowance)
    }

    /// A [`FailureCallback`] over this resource: asks `handler` when it is out of memory, and tries again.
    ///
    /// ```
    /// use alluvion::suballoc::Relief;
    /// use alluvion::{Layout, Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let resource = Cuda::new(&sim.device(0)).limiting(1 << 20).failure_callback(|report| {
    ///     println!("attempt {}: {report}", report.attempt);
    ///     Relief::None
    /// });
    /// assert!(resource.allocate_sync(Layout::from_bytes(2 << 20)?).unwrap_err().is_out_of_memory());
    /// assert_eq!(resource.appeals().asked(), 1);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    fn failure_callback(
        self,
        handler: impl Fn(&OutOfMemory) -> Relief + Send + Sync + 'static,
    ) -> FailureCallback<Self>
    where
        Self: Sized,
    {
        FailureCallback::new(self, handler)
    }

    /// An [`Aligned`] over this resource: blocks that begin at multiples of more than 256.
    ///
    /// # Examples
    ///
    /// ```
    /// use alluvion::{Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let resource = Cuda::new(&sim.device(0)).aligned(4096)?;
    /// assert_eq!(resource.describe().to_string(), "Aligned(4 KiB) > Cuda(gpu 0)");
    /// assert!(resource.aligned(3000).unwrap_err().is_alignment());
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Aligned::new`].
    fn aligned(self, config: impl Into<AlignedConfig>) -> Result<Aligned<Self>, Error>
    where
        Self: Sized,
    {
        Aligned::new(self, config)
    }

    /// A [`Prefetch`] over this resource: managed memory that is on the device before it is used.
    ///
    /// # Examples
    ///
    /// ```
    /// use alluvion::{Resource, Sim, source::Managed};
    ///
    /// let sim = Sim::new();
    /// let resource = Managed::new(&sim.device(0))?.prefetch();
    /// assert_eq!(resource.describe().to_string(), "Prefetch > Managed(gpu 0)");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    fn prefetch(self) -> Prefetch<Self>
    where
        Self: DeviceAccessible + Sized,
    {
        Prefetch::new(self)
    }

    /// A [`Fallback`] over this resource: asks `second` when it is out of memory.
    ///
    /// ```
    /// use alluvion::source::{Cuda, Pinned};
    /// use alluvion::{Resource, Sim};
    ///
    /// let sim = Sim::new();
    /// let device = sim.device(0);
    /// let resource = Cuda::new(&device).fallback(Pinned::new(&device)?)?;
    /// assert_eq!(resource.describe().to_string(), "Fallback(0 B in Pinned(gpu 0)) > Cuda(gpu 0)");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Fallback::new`].
    fn fallback<F: Resource>(self, second: F) -> Result<Fallback<Self, F>, Error>
    where
        Self: Sized,
    {
        Fallback::new(self, second)
    }

    /// A [`ThreadSafe`] over this resource: for all threads, one at a time.
    ///
    /// ```
    /// use alluvion::{AnyResource, Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let resource = AnyResource::new(Cuda::new(&sim.device(0)).thread_safe());
    /// assert_eq!(resource.describe().to_string(), "ThreadSafe(Cuda(gpu 0))");
    /// ```
    #[must_use]
    fn thread_safe(self) -> ThreadSafe<Self>
    where
        Self: Sized,
    {
        ThreadSafe::new(self)
    }

    /// [`Stats`] over this resource: counts what passes.
    ///
    /// ```
    /// use alluvion::{Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stats = Cuda::new(&sim.device(0)).stats();
    /// assert_eq!(stats.counts().allocations.total, 0);
    /// ```
    #[must_use]
    fn stats(self) -> Stats<Self>
    where
        Self: Sized,
    {
        Stats::new(self)
    }

    /// [`Tracking`] over this resource: knows every block that is out.
    ///
    /// ```
    /// use alluvion::{Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let tracking = Cuda::new(&sim.device(0)).tracking();
    /// assert!(tracking.outstanding().is_clean());
    /// ```
    #[must_use]
    fn tracking(self) -> Tracking<Self>
    where
        Self: Sized,
    {
        Tracking::new(self)
    }

    /// A [`Guard`] over this resource: finds who writes beside a block, or to one that was freed.
    ///
    /// # Examples
    ///
    /// ```
    /// use alluvion::adaptor::GuardConfig;
    /// use alluvion::{Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let resource = Cuda::new(&sim.device(0)).guard(GuardConfig::default())?;
    /// assert_eq!(resource.describe().to_string(), "Guard(0 found) > Cuda(gpu 0)");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Guard::new`].
    fn guard(self, config: GuardConfig) -> Result<Guard<Self>, Error>
    where
        Self: DeviceAccessible + Sized,
    {
        Guard::new(self, config)
    }

    /// The book of the outermost layer of type `L`, in this resource or under it: see [`Layer`].
    ///
    /// A layer is named over any upstream. What is no layer does not compile:
    ///
    /// ```
    /// use alluvion::adaptor::Stats;
    /// use alluvion::source::CudaAsync;
    /// use alluvion::{AnyResource, Pool, PoolConfig, Resource, Sim};
    ///
    /// let sim = Sim::new();
    /// let pool = CudaAsync::new(&sim.device(0))?.pool(PoolConfig::default())?;
    /// let resource = AnyResource::new(pool.stats());
    /// let counts = resource.find::<Stats>().expect("the stack counts").counts();
    /// let status = resource.find::<Pool>().expect("the stack has a pool").status();
    /// let source = resource.find::<CudaAsync>().expect("the stack draws on a pool of the driver");
    /// assert_eq!((counts.allocations.total, status.live_blocks, source.used_bytes()?), (0, 0, 0));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    fn find<L: Layer>(&self) -> Option<&L::Book>
    where
        Self: Sized,
    {
        layer::find::<L>(self)
    }
}

static_assertions::assert_obj_safe!(Resource);
