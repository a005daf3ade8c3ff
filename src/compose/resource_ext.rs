//! `ResourceExt`: the methods that build stacks of resources, and query them.

#![expect(unsafe_code, reason = "frees several blocks as one is freed")]

use crate::adaptor::{
    Aligned, AlignedConfig, Allowance, Budget, FailureCallback, Fallback, Guard, GuardConfig, Limiting, Log,
    Logging, Prefetch, Stats, ThreadSafe, Tracking, Watch, Watched,
};
use crate::error::{Error, OutOfMemory};
use crate::relief::Relief;
use crate::resource::{Describe, DeviceAccessible, DevicePtr, Layer, Layout, Resource, find};
use crate::stream::OnStream;
use crate::suballoc::{
    Arena, ArenaConfig, Binning, BinningBuilder, FixedSize, FixedSizeConfig, Pool, PoolConfig,
};

/// What every resource can be made into, and asked for. Implemented for all of them; bring it into scope by
/// `use alluvion::prelude::*`.
///
/// ```
/// use alluvion::prelude::*;
/// use alluvion::{PoolConfig, Sim, source::CudaAsync};
///
/// let sim = Sim::new();
/// let resource = CudaAsync::new(&sim.device(0))?.pool(PoolConfig::default())?.limiting(8 << 30).stats();
/// assert_eq!(resource.describe().to_string(), "Stats(0 B) > Limiting(8 GiB) > Pool(0 B) > CudaAsync(gpu 0)");
/// # Ok::<(), alluvion::Error>(())
/// ```
pub trait ResourceExt: Resource {
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
    /// use alluvion::{PoolConfig, Resource, ResourceExt, Sim, source::CudaAsync};
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
    /// use alluvion::{Resource, ResourceExt, Sim, source::Cuda};
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
    /// use alluvion::{Resource, ResourceExt, Sim, source::Cuda};
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

    /// Begins to build a [`Binning`] over this resource, which serves the requests above every bin.
    ///
    /// # Examples
    ///
    /// ```
    /// use alluvion::{PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
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

    /// A layer over this resource that does with its blocks what `watch` says: the way to an adaptor of one's own. [`Watch`] has an
    /// example.
    #[must_use]
    fn watched<W: Watch>(self, watch: W) -> Watched<W, Self>
    where
        Self: Sized,
    {
        Watched::over(self, watch)
    }

    /// A [`Logging`] over this resource: every call that passes is a row of `log`.
    ///
    /// ```
    /// use alluvion::adaptor::Log;
    /// use alluvion::{Resource, ResourceExt, Sim, source::Cuda};
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
    /// use alluvion::{Resource, ResourceExt, Sim, source::Cuda};
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

    /// A [`Budget`] over this resource: limited by an allowance, which other resources may share.
    ///
    /// ```
    /// use alluvion::adaptor::Allowance;
    /// use alluvion::{Resource, ResourceExt, Sim, source::Cuda};
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
    /// use alluvion::relief::Relief;
    /// use alluvion::{DeviceVec, Layout, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let resource = Cuda::new(&sim.device(0)).limiting(1 << 20).failure_callback(|report| {
    ///     println!("attempt {}: {report}", report.attempt);
    ///     Relief::None
    /// });
    /// let _live = DeviceVec::<u8, _>::zeroed_in(512 << 10, &sim.device(0).stream()?, &resource)?;
    /// assert!(resource.allocate_sync(Layout::from_bytes(1 << 20)?).unwrap_err().is_out_of_memory());
    /// assert_eq!(resource.book().asked(), 1);
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
    /// use alluvion::{Resource, ResourceExt, Sim, source::Cuda};
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
    /// use alluvion::{Resource, ResourceExt, Sim, source::Managed};
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
    /// use alluvion::{Resource, ResourceExt, Sim};
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
    /// use alluvion::{AnyResource, Resource, ResourceExt, Sim, source::Cuda};
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

    /// [`Stats`] over this resource: counts allocations and frees.
    ///
    /// ```
    /// use alluvion::{Resource, ResourceExt, Sim, source::Cuda};
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
    /// use alluvion::{Resource, ResourceExt, Sim, source::Cuda};
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

    /// A [`Guard`] over this resource: finds writes beside a block, or to a freed one.
    ///
    /// # Examples
    ///
    /// ```
    /// use alluvion::adaptor::GuardConfig;
    /// use alluvion::{Resource, ResourceExt, Sim, source::Cuda};
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

    /// A block for each layout, or none at all.
    ///
    /// ```
    /// use alluvion::{Layout, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().maximum(4 << 20))?;
    /// let layouts = [1 << 20, 1000, 2 << 20].map(|bytes| Layout::from_bytes(bytes).expect("it is small"));
    /// let blocks = pool.allocate_many(&layouts, &stream)?;
    /// assert!(pool.allocate_many(&layouts, &stream).is_err(), "there is no room for as much again");
    /// assert_eq!(pool.status().live_blocks, 3);
    /// let blocks: Vec<_> = blocks.into_iter().zip(layouts).collect();
    /// // SAFETY: the blocks came from `pool` with these layouts, and nothing uses them.
    /// unsafe { pool.deallocate_many(&blocks, &stream) };
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`allocate`](Resource::allocate), for the first that fails; the blocks before it are freed.
    fn allocate_many<'s>(
        &self,
        layouts: &[Layout],
        stream: impl OnStream<'s>,
    ) -> Result<Vec<DevicePtr>, Error>
    where
        Self: Sized,
    {
        let stream = stream.stream_ref();
        let mut blocks = Vec::with_capacity(layouts.len());
        for &layout in layouts {
            match self.allocate(layout, stream) {
                Ok(block) => blocks.push(block),
                Err(error) => {
                    for (&block, &layout) in blocks.iter().zip(layouts) {
                        // SAFETY: the block came from this resource with this layout, and nobody has seen it.
                        unsafe { self.deallocate(block, layout, stream) };
                    }
                    return Err(error);
                }
            }
        }
        Ok(blocks)
    }

    /// Frees many blocks, from [`allocate_many`](Self::allocate_many) or others.
    ///
    /// # Safety
    ///
    /// Each block is live, of this resource, with this layout, and every use of it, its allocation included, is ordered before this
    /// point of `stream`.
    unsafe fn deallocate_many<'s>(&self, blocks: &[(DevicePtr, Layout)], stream: impl OnStream<'s>)
    where
        Self: Sized,
    {
        let stream = stream.stream_ref();
        for &(block, layout) in blocks {
            // SAFETY: the caller's promises.
            unsafe { self.deallocate(block, layout, stream) };
        }
    }

    /// The book of the outermost layer of type `L`, in this resource or under it: see [`Layer`].
    ///
    /// A layer is named over any upstream. What is no layer does not compile:
    ///
    /// ```
    /// use alluvion::adaptor::Stats;
    /// use alluvion::source::CudaAsync;
    /// use alluvion::{AnyResource, Pool, PoolConfig, Resource, ResourceExt, Sim};
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
        find::<L>(self)
    }

    /// The same stack, whose suballocators tell a tool about their blocks also where
    /// [only chosen ones](crate::nvtx::Announced::Chosen) do: those that [`upstream`](Resource::upstream) leads to, and the bins over
    /// them.
    ///
    /// ```
    /// use alluvion::nvtx::{Announced, announce};
    /// use alluvion::{PoolConfig, ResourceExt, Sim, source::Cuda};
    ///
    /// announce(Announced::Chosen);
    /// let sim = Sim::new();
    /// let resource = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?.stats().announced()?;
    /// # let _ = resource;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a tool listens, and one of them has memory already that was not announced.
    #[cfg(feature = "nvtx")]
    fn announced(self) -> Result<Self, Error>
    where
        Self: Sized,
    {
        let mut at: Option<&dyn Resource> = Some(&self);
        while let Some(resource) = at {
            let book = resource.layer().and_then(|book| book.downcast::<crate::suballoc::SuballocBook>());
            book.map_or(Ok(()), crate::suballoc::SuballocBook::choose)?;
            at = resource.upstream();
        }
        Ok(self)
    }
}

impl<R: Resource + ?Sized> ResourceExt for R {}
