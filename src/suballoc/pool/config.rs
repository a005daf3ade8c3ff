//! `PoolConfig`: the knobs of `Pool`.

use std::path::PathBuf;

use crate::error::Error;
use crate::error::OutOfMemory;
use crate::relief::Relief;
use crate::resource::Layout;
use crate::suballoc::engine::EngineConfig;
use crate::suballoc::snapshot::SnapshotFiles;
use crate::suballoc::{Growth, PageBudget, Reuse, SegmentHooks};

/// How a [`Pool`](super::Pool) grows, shares and ends.
///
/// ```
/// use alluvion::suballoc::{Growth, Reuse};
/// use alluvion::PoolConfig;
///
/// let config = PoolConfig::default()
///     .initial(1 << 30)
///     .maximum(8 << 30)
///     .growth(Growth::Step(256 << 20))
///     .reuse(Reuse::Completed)
///     .checked(true);
/// assert!(format!("{config:?}").contains("Completed"));
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a configuration does nothing until a pool is made with it"]
pub struct PoolConfig {
    pub(super) engine: EngineConfig,
    pub(super) initial_bytes: usize,
    /// Takes half of what is free instead of `initial_bytes`.
    pub(super) takes_half: bool,
}

impl PoolConfig {
    /// Takes this much from the upstream at once, when the pool is made; rounded up to units of 256 bytes, and over an upstream with
    /// [pages](crate::resource::Pages) to whole pages. Default: nothing.
    pub fn initial(mut self, bytes: usize) -> Self {
        (self.initial_bytes, self.takes_half) = (bytes, false);
        self
    }

    /// Takes half of what is free from the upstream at once, when the pool is made, and at most the
    /// [maximum](Self::maximum): the default of RMM. Of two such pools in a row the second takes a quarter.
    ///
    /// ```
    /// use alluvion::{PoolConfig, ResourceExt, Sim, source::Cuda};
    ///
    /// let device = Sim::new().device(0);
    /// let free_bytes = device.memory_info()?.free_bytes;
    /// let pool = Cuda::new(&device).pool(PoolConfig::default().initial_half_of_free())?;
    /// assert_eq!(pool.pool_size(), free_bytes / 2);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn initial_half_of_free(mut self) -> Self {
        (self.initial_bytes, self.takes_half) = (0, true);
        self
    }

    /// Never has more than this from the upstream; rounded down to units of 256 bytes, and over an upstream with
    /// [pages](crate::resource::Pages) to whole pages, one of them at least. While nothing is live, a request for all of it
    /// succeeds. Default: no limit.
    pub fn maximum(mut self, bytes: usize) -> Self {
        self.engine.maximum_bytes = bytes;
        self
    }

    /// Moves free pages instead of growing past this, over an upstream with [pages](crate::resource::Pages): see
    /// [`PageBudget`]. Over other upstreams, and in a [registered](Self::registered) pool, whose pages do not move, it has no effect. Default: none, and free pages move only where there is no
    /// more memory, or no room under the [maximum](Self::maximum).
    pub fn budget(mut self, limit: PageBudget) -> Self {
        self.engine.page_budget = Some(limit);
        self
    }

    /// Takes whole segments of this many bytes, or a multiple where a request needs more, which stay what they are as long as they live:
    /// one allocation of the upstream each, or one page, which nothing is ever moved to or from. What registers memory, such as a
    /// network card's driver or NCCL, may do so once for each segment: see [`SegmentHooks`]. Takes the place of
    /// [`growth`](Self::growth); rounded up to whole pages of the device, 2 MiB. Where there is not as much memory, a segment is shorter.
    ///
    /// Default: no. Over an upstream with [pages](crate::resource::Pages) memory is mapped piece by piece then, and moves.
    ///
    /// ```
    /// use alluvion::source::Mapped;
    /// use alluvion::suballoc::SuballocBook;
    /// use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let pool = Mapped::new(&sim.device(0))?.pool(PoolConfig::default().registered(16 << 20))?;
    /// let _numbers = DeviceVec::<f32, _>::zeroed_in(1000, &stream, &pool)?;
    /// let _more = DeviceVec::<f32, _>::zeroed_in(5 << 20, &stream, &pool)?;
    /// let bytes: Vec<usize> = pool.segments().iter().map(|segment| segment.bytes).collect();
    /// assert_eq!(bytes.iter().sum::<usize>(), 48 << 20);
    /// assert_eq!(bytes.len(), 2, "the second request is longer than a segment");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn registered(mut self, segment_bytes: usize) -> Self {
        self.engine.segment_bytes = Some(segment_bytes);
        self
    }

    /// Has these hooks told of every segment, from the first one on. Default: none.
    ///
    /// Over an upstream with [pages](crate::resource::Pages) the pool has to be [registered](Self::registered).
    pub fn segment_hooks(mut self, hooks: SegmentHooks) -> Self {
        self.engine.segment_hooks = Some(hooks);
        self
    }

    /// How much it takes from the upstream at a time. Default: [`Growth::Spare`].
    pub fn growth(mut self, growth: Growth) -> Self {
        self.engine.growth = growth;
        self
    }

    /// Which memory freed on other streams a stream may take. Default: [`Reuse::Wait`].
    pub fn reuse(mut self, reuse: Reuse) -> Self {
        self.engine.reuse = reuse;
        self
    }

    /// Keeps a ledger of the live blocks, so that a wrong free is refused: [`deallocate`](crate::Resource::deallocate)
    /// then does nothing, and [`try_deallocate`](super::Pool::try_deallocate) says why. Default: as the machine says, see
    /// [`Machine::check_frees`](crate::Machine::check_frees).
    pub fn checked(mut self, checked: bool) -> Self {
        self.engine.checked = Some(checked);
        self
    }

    /// Asks the driver at each free whether the stream captures, and never again hands out a block that is freed in a capture: its
    /// graph may use it at each launch. For captures that nobody tells the pool of; [`Pool::capture`](super::Pool::capture) costs
    /// nothing elsewhere, and gives the memory back in the end. The question takes 34 ns. Default: no.
    ///
    /// ```
    /// use alluvion::driver::CaptureMode;
    /// use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().watch_captures(true))?;
    /// let input = DeviceVec::<u8, _>::zeroed_in(1 << 20, &stream, &pool)?;
    /// sim.begin_capture(0, stream.raw(), CaptureMode::Global).expect("a stream can capture");
    /// drop(input);
    /// assert!(sim.end_capture(0, stream.raw()).is_ok());
    /// let status = pool.status();
    /// assert_eq!((status.graph_bytes, status.cached_bytes), (1 << 20, 0));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn watch_captures(mut self, watch_captures: bool) -> Self {
        self.engine.watch_captures = watch_captures;
        self
    }

    /// Asks `handler` for help when the pool has tried everything else. Several handlers are asked in turn, with no
    /// lock held. After [`Relief::Freed`] the request is retried, as long as memory was freed or moved.
    ///
    /// A request that a handler itself makes asks no handlers. A handler that panics has freed nothing. A request for
    /// more than the [maximum](Self::maximum), or more than the upstream has in all, fails before any handler is asked:
    /// see [`Cause::TooLarge`](crate::error::Cause::TooLarge).
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// use alluvion::source::Cuda;
    /// use alluvion::relief::Relief;
    /// use alluvion::{DeviceVec, Pool, PoolConfig, Resource, ResourceExt, Sim};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let (keep, kept) = mpsc::channel();
    /// let kept = std::sync::Mutex::new(kept);
    /// // What can be done without is let go of, one piece at a time.
    /// let config = PoolConfig::default().maximum(8 << 20).on_out_of_memory(move |_report| {
    ///     let piece = kept.lock().ok().and_then(|kept| kept.try_recv().ok());
    ///     if piece.is_some() { Relief::Freed } else { Relief::None }
    /// });
    /// let pool = std::sync::Arc::new(Cuda::new(&sim.device(0)).pool(config)?);
    /// for _ in 0..8 {
    ///     let piece: DeviceVec<u8, std::sync::Arc<Pool<Cuda>>> = DeviceVec::zeroed_in(1 << 20, &stream, pool.clone())?;
    ///     keep.send(piece).expect("the handler has the other end");
    /// }
    /// let needed = DeviceVec::<u8, _>::zeroed_in(3 << 20, &stream, pool.clone())?;
    /// assert_eq!(pool.status().live_blocks, 6, "three pieces of eight have gone");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn on_out_of_memory(
        mut self,
        handler: impl Fn(&OutOfMemory) -> Relief + Send + Sync + 'static,
    ) -> Self {
        self.engine.handlers.push(handler);
        self
    }

    /// Writes a [`Snapshot`](super::Snapshot) to the file `path` when a request finds no memory and fails, with the report of
    /// that request in it: once the handlers have been asked, and with no lock held. `alluvion viz` draws it.
    ///
    /// The first file is `path`, the next three have a number, as in `pool-2.json`, and there are no more; copies of a
    /// configuration share that count. The files of another device than the first have its number, as in `pool-gpu1.json` and
    /// `pool-gpu1-2.json`, so that [one for each device](crate::Machine::per_device) may have one configuration, or one recipe. A file appears when it is complete, and replaces one of that name.
    /// [`OutOfMemory::snapshot_file`] says where it is, or why there is none. The error of the request is the same
    /// without it.
    ///
    /// ```
    /// use alluvion::error::SnapshotFile;
    /// use alluvion::{Layout, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let path = std::env::temp_dir().join(format!("alluvion-doc-{}.json", std::process::id()));
    /// let sim = Sim::new();
    /// let config = PoolConfig::default().maximum(1 << 20).snapshot_on_out_of_memory(&path);
    /// let pool = Cuda::new(&sim.device(0)).pool(config)?;
    /// let error = pool.allocate_sync(Layout::from_bytes(2 << 20)?).unwrap_err();
    /// let report = error.out_of_memory_report().expect("a pool says why");
    /// assert_eq!(report.snapshot_file, Some(SnapshotFile::Written(path.clone())));
    /// assert!(std::fs::read_to_string(&path).is_ok_and(|json| json.contains("\"cause\": \"too_large\"")));
    /// # let _ = std::fs::remove_file(path);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn snapshot_on_out_of_memory(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.snapshots = Some(SnapshotFiles::new(path.into()));
        self
    }

    /// As far as the upstream does not matter.
    pub(super) fn validate(&self) -> Result<(), Error> {
        if self.engine.maximum_bytes < Layout::MIN_ALIGN {
            return Err(Error::invalid_argument(
                "a maximum below 256 bytes",
                "no block is smaller",
                "pass 256 or more",
            ));
        }
        if self.initial_bytes > self.engine.maximum_bytes {
            return Err(Error::invalid_argument(
                "an initial size above the maximum",
                "the pool would break its own limit",
                "raise the maximum, or start with less",
            ));
        }
        if matches!(self.engine.growth, Growth::Step(bytes) if bytes < Layout::MIN_ALIGN) {
            return Err(Error::invalid_argument(
                "a growth step below 256 bytes",
                "no segment is smaller",
                "pass a step of 2 MiB or more, or `Growth::Exact`",
            ));
        }
        if self.engine.segment_bytes == Some(0) {
            return Err(Error::invalid_argument(
                "registered segments of no bytes",
                "a segment is whole pages",
                "pass the bytes of a segment, such as 64 MiB",
            ));
        }
        self.engine.page_budget.map_or(Ok(()), PageBudget::validate)
    }

    /// Over an upstream whose memory comes in pages of so many bytes.
    pub(super) fn validate_over_pages(&self, page_bytes: usize) -> Result<(), Error> {
        let (initial, maximum) = (self.initial_bytes, self.engine.maximum_bytes);
        if maximum < page_bytes {
            return Err(Error::invalid_argument_that(format!(
                "a maximum of {maximum} bytes over pages of {page_bytes} bytes: the pool would refuse every request; \
                 pass {page_bytes} or more"
            )));
        }
        let (whole, most) = (initial.div_ceil(page_bytes), maximum / page_bytes);
        if whole > most {
            return Err(Error::invalid_argument_that(format!(
                "an initial size of {initial} bytes, which takes {whole} pages of {page_bytes} bytes, above a maximum of \
                 {maximum} bytes, which is {most}: raise the maximum, or start with less"
            )));
        }
        Ok(())
    }

    /// The initial size in units.
    pub(super) fn initial_units(&self) -> Result<u32, Error> {
        let most = self.engine.maximum_bytes / Layout::MIN_ALIGN;
        let units = self.initial_bytes.div_ceil(Layout::MIN_ALIGN).min(most);
        u32::try_from(units).map_err(|_| {
            Error::invalid_argument(
                "an initial size of 1 TiB or more",
                "a segment holds less",
                "start with less: a pool grows by itself",
            )
        })
    }
}
