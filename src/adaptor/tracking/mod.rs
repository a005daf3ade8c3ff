//! `Tracking`: records every live block.

#![expect(unsafe_code, reason = "frees what its book says is live")]

mod book;

pub use book::{
    CallSite, CallStacks, CaptureCalls, Holding, Holdings, InterpretedCalls, Share, TrackingBook,
};

use core::fmt;

use super::watched::{Proven, Watch, Watched, WatchedBlock, WatchedRequest};
use crate::contain::contain;
use crate::error::{Error, Misuse, MisuseKind, freeing};
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{AnyResource, DevicePtr, Figures, Layout, Resource};
use crate::size::Size;
use crate::stream::{OnStream, StreamRef};
use crate::sync::Arc;

/// Records every live block: its size, its thread, its call site, its time and its tag.
///
/// Its book is a [`TrackingBook`]. A block that is live when the layer is dropped is a leak, and reported: on the
/// standard error stream, or to the handler of [`on_leak`](Self::on_leak). A wrong free is not passed on, and reported
/// as well.
///
/// Requests for zero bytes are passed on and not recorded. Without [call stacks](Self::call_stacks) it answers
/// [at once](Resource::allocate_at_once), if its upstream does: the locks of its book are held across no code but its own.
///
/// # Stream ordering
///
/// As the upstream's.
///
/// # Thread safety
///
/// As the upstream's. A block may be freed on another thread than it was allocated on.
///
/// # Examples
///
/// ```
/// use alluvion::tag::with_tag;
/// use alluvion::source::Cuda;
/// use alluvion::{DeviceVec, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let tracking = Cuda::new(&sim.device(0)).tracking();
/// let stream = sim.device(0).stream()?;
/// let table = with_tag("join", || DeviceVec::<u64, _>::zeroed_in(512, &stream, &tracking))?;
/// let out = tracking.outstanding();
/// assert_eq!((out.blocks.len(), out.bytes(), out.blocks[0].tag.name()), (1, 4096, "join"));
/// assert_eq!(tracking.describe().to_string(), "Tracking(4 KiB in 1) > Cuda(gpu 0)");
/// drop(table);
/// assert!(tracking.outstanding().is_clean());
/// # Ok::<(), alluvion::Error>(())
/// ```
pub type Tracking<U = AnyResource> = Watched<TrackingWatch, U>;

/// The watch of a [`Tracking`]: registers each block while it is live. The register reports when the layer ends, while the memory is there.
#[expect(missing_debug_implementations, reason = "holds a function, and no value of it is public")]
pub struct TrackingWatch {
    register: TrackingBook,
    on_wrong_free: Option<OnWrongFree>,
}

/// What is told of wrong frees.
type OnWrongFree = Arc<dyn Fn(&Misuse) + Send + Sync>;

static_assertions::assert_impl_all!(Tracking<crate::source::Cuda>: Send, Sync, crate::resource::DeviceAccessible);
static_assertions::assert_impl_all!(Tracking<crate::source::Pinned>: crate::resource::HostAccessible);
static_assertions::assert_not_impl_any!(Tracking<crate::source::Cuda>: Clone, crate::resource::HostAccessible);

impl Tracking {
    pub(crate) const CARD: Card = Card {
        name: "tracking",
        about: "Records every live block, refuses wrong frees, and reports leaks.",
        parameters: &[Parameter::new(
            "stacks",
            ArgumentKind::WordOrCount(&["none", "all"]),
            "keeps the call stack of all allocations, of every N-th one, or of none; none if left out",
        )],
    };
}

impl<U> Tracking<U> {
    /// Records the blocks of `upstream`.
    #[must_use]
    pub fn new(upstream: U) -> Self {
        Self::over(upstream, TrackingWatch { register: TrackingBook::new(), on_wrong_free: None })
    }

    /// Captures call stacks, of all allocations or of samples: see [`CallStacks`].
    #[must_use]
    pub fn call_stacks(mut self, of: CallStacks) -> Self {
        self.watch_mut().register.set_stacks(of);
        self
    }

    /// Sets the leak handler. When the layer is dropped, it is called with the live blocks and the wrong frees, if
    /// there are any: once, with no lock held. A panic of it is caught.
    ///
    /// ```
    /// use alluvion::{Layout, Resource, ResourceExt, Sim, source::Cuda};
    /// use std::sync::mpsc;
    ///
    /// let sim = Sim::new();
    /// let (tell, told) = mpsc::channel();
    /// let tracking = Cuda::new(&sim.device(0)).tracking().on_leak(move |left| {
    ///     let _ = tell.send(left.bytes());
    /// });
    /// tracking.allocate_sync(Layout::from_bytes(100)?)?;
    /// drop(tracking);
    /// assert_eq!(told.recv(), Ok(100));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub fn on_leak(mut self, report: impl Fn(&Holdings) + Send + Sync + 'static) -> Self {
        self.watch_mut().register.set_on_leak(Arc::new(report));
        self
    }

    /// The live blocks: see [`TrackingBook::outstanding`].
    #[must_use]
    pub fn outstanding(&self) -> Holdings {
        self.book().outstanding()
    }

    /// Reports each wrong free, and passes on what may be a block of the upstream, as RMM does: a block that is not in the book goes
    /// to the upstream with the size of the free, and one that is goes with the size that it was allocated with. An address within a
    /// block is refused all the same. `report` is called with no lock held; a panic of it is
    /// caught.
    ///
    /// For programs that allocate from the upstream itself and free through this layer.
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// use alluvion::{Layout, Resource, ResourceExt, Sim, source::CudaAsync};
    ///
    /// let sim = Sim::new();
    /// let pool = std::sync::Arc::new(CudaAsync::new(&sim.device(0))?);
    /// let (tell, told) = mpsc::channel();
    /// let tracking = pool.clone().tracking().on_wrong_free(move |misuse| {
    ///     let _ = tell.send(misuse.bytes);
    /// });
    /// let layout = Layout::from_bytes(1000)?;
    /// let block = pool.allocate_sync(layout)?;
    /// // SAFETY: the block came from the upstream, which this layer passes it on to, and nothing uses it.
    /// unsafe { tracking.deallocate_sync(block, layout) };
    /// assert_eq!((told.recv(), pool.used_bytes()?), (Ok(1000), 0));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub fn on_wrong_free(mut self, report: impl Fn(&Misuse) + Send + Sync + 'static) -> Self {
        self.watch_mut().on_wrong_free = Some(Arc::new(report));
        self
    }
}

impl<U: Resource> Tracking<U> {
    /// Frees a block as [`deallocate`](Resource::deallocate) does, if it is live. A block that is not live, or was
    /// allocated with another size, is refused with an error that says which, and left alone.
    ///
    /// The last thousand freed addresses are remembered: a second free after that is reported as a foreign pointer.
    ///
    /// ```
    /// use alluvion::{Layout, MisuseKind, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let tracking = Cuda::new(&sim.device(0)).tracking().on_leak(|_| {});
    /// let layout = Layout::from_bytes(1000)?;
    /// let block = tracking.allocate(layout, stream.as_ref())?;
    /// // SAFETY: nothing uses the block.
    /// unsafe { tracking.try_deallocate(block, layout, &stream) }?;
    /// // SAFETY: as before.
    /// let error = unsafe { tracking.try_deallocate(block, layout, &stream) }.unwrap_err();
    /// assert_eq!(error.misuse().map(|misuse| misuse.what), Some(MisuseKind::DoubleFree));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Misuse`, also where a layer below has refused it; `DeviceMismatch` for a stream of another device.
    ///
    /// # Safety
    ///
    /// Every use of the block, its allocation included, is ordered before this point of `stream`. If it came from this resource with
    /// this layout, nobody frees it again.
    pub unsafe fn try_deallocate<'s>(
        &self,
        block: DevicePtr,
        layout: Layout,
        stream: impl OnStream<'s>,
    ) -> Result<(), Error> {
        let stream = stream.stream_ref();
        self.book().require_same_process()?;
        self.device().require(stream.device())?;
        if layout.is_empty() {
            return Ok(());
        }
        let gone = self.book().strike_out(block, layout).map_err(Error::of_misuse)?;
        // SAFETY:
        // - the block was in the register with this layout, so it is live and came from the upstream; it is struck out, so
        //   nobody else frees it.
        // - the caller promises the order of its uses; the stream is of this device.
        let freed = freeing(|| unsafe { self.upstream().deallocate(block, layout, stream) });
        // A layer below has left it alone.
        freed.inspect_err(|_| self.book().put_back(gone))
    }
}

impl TrackingWatch {
    /// The entry that the register has closed, if the block needs one. `None` for a block that stays: its wrong free was reported.
    #[inline]
    fn lets_go(&self, block: DevicePtr, layout: Layout) -> Option<Option<Holding>> {
        self.register.require_same_process().ok()?;
        if layout.is_empty() {
            return Some(None);
        }
        match self.register.strike_out(block, layout) {
            Ok(holding) => Some(Some(holding)),
            Err(misuse) => self.lets_go_wrong(&misuse, layout),
        }
    }

    #[cold]
    fn lets_go_wrong(&self, misuse: &Misuse, layout: Layout) -> Option<Option<Holding>> {
        let Some(report) = &self.on_wrong_free else {
            Error::of_misuse(*misuse).tell_of_refusal();
            return None;
        };
        contain(|| report(misuse));
        match misuse.what {
            // An address that went may be a new block of the upstream's.
            MisuseKind::ForeignPointer | MisuseKind::DoubleFree => Some(None),
            MisuseKind::WrongSize { allocated_bytes } => {
                let allocated = Layout::new(allocated_bytes, layout.align()).ok()?;
                // Another thread may have freed it meanwhile, which is its block's only free then.
                self.register.withdraw(misuse.block, allocated).map(Some)
            }
            _ => {
                Error::of_misuse(*misuse).tell_of_refusal();
                None
            }
        }
    }
}

impl Watch for TrackingWatch {
    type Book = TrackingBook;
    type Entry = Option<Holding>;

    const SEES_EMPTY: bool = true;
    const NEVER_PANICS: Option<Proven> = Some(Proven::OF_THIS_CRATE);

    fn book(&self) -> &TrackingBook {
        &self.register
    }

    #[inline(always)]
    fn answers_at_once(&self) -> bool {
        self.register.is_quick()
    }

    #[inline(always)]
    fn admit(&self, _: &WatchedRequest<'_>) -> Result<(), Error> {
        Ok(self.register.require_same_process()?)
    }

    #[inline(always)]
    fn serve(&self, block: &WatchedBlock<'_>) {
        if !block.layout().is_empty() {
            self.register.enter(block.block(), block.layout(), block.stream());
        }
    }

    #[inline(always)]
    fn leave(&self, leaving: &WatchedBlock<'_>) -> Option<Option<Holding>> {
        let (block, layout) = (leaving.block(), leaving.layout());
        let gone = self.lets_go(block, layout);
        // A driver that asks hears of a refusal.
        if gone.is_none()
            && let device = leaving.upstream().device()
            && let Some(watch) = device.driver().block_watch()
        {
            let stream = leaving.stream().map(StreamRef::raw);
            watch.refuse("Tracking", device.ordinal(), block.address(), layout.bytes(), stream);
        }
        gone
    }

    #[inline(always)]
    fn leave_at_once(&self, leaving: &WatchedBlock<'_>) -> Option<Option<Holding>> {
        if leaving.layout().is_empty() {
            return Some(None);
        }
        // If it is no live block, `leave` reports it.
        self.register.withdraw(leaving.block(), leaving.layout()).map(Some)
    }

    /// The size that it was allocated with, whatever its free names.
    #[inline(always)]
    fn layout_upstream(&self, gone: &Option<Holding>, layout: Layout, _: Proven) -> Layout {
        match gone {
            Some(gone) if gone.bytes != layout.bytes() => {
                Layout::new(gone.bytes, layout.align()).unwrap_or(layout)
            }
            _ => layout,
        }
    }

    fn end(&self) {
        self.register.report_leaks();
    }

    #[cold]
    fn stay(&self, _: &WatchedBlock<'_>, gone: Option<Holding>) {
        if let Some(gone) = gone {
            self.register.put_back(gone);
        }
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tracking({} in {})", Size(self.register.live_bytes()), self.register.live_blocks())
    }

    fn figures(register: &TrackingBook, to: &mut Figures<'_>) {
        let held = register.outstanding();
        to.gauge("alluvion_live_bytes", "Bytes in blocks that are out.", held.bytes());
        to.gauge("alluvion_live_blocks", "Blocks that are out.", held.blocks.len());
        to.counter("alluvion_misuses_total", "Frees that were wrong, and not passed on.", held.misuse_count);
        for share in held.by_tag() {
            to.labelled(&[("tag", &*share.label)], |to| {
                to.gauge("alluvion_tag_live_bytes", "Bytes of the blocks which are out.", share.bytes);
                to.gauge("alluvion_tag_live_blocks", "How many blocks of a tag are out.", share.blocks);
            });
        }
    }
}
