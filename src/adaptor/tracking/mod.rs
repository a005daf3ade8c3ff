//! `Tracking`: records every live block.

#![expect(unsafe_code, reason = "forwards the contract of resources")]

mod book;

pub use book::{
    CallSite, CallStacks, CaptureCalls, Holding, Holdings, InterpretedCalls, Share, TrackingBook,
};

use core::fmt;

use crate::contain::contain;
use crate::error::{Error, Misuse, MisuseKind};
use crate::forward_resource;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    AnyResource, DeviceAccessible, DevicePtr, Figures, Layer, LayerBook, Layout, Resource, ResourceId,
    blocks_of_upstream,
};
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
pub struct Tracking<U = AnyResource> {
    // Before the upstream, so that it reports before the memory goes.
    register: TrackingBook,
    upstream: U,
    id: ResourceId,
    on_wrong_free: Option<OnWrongFree>,
}

/// What is told of wrong frees.
type OnWrongFree = Arc<dyn Fn(&Misuse) + Send + Sync>;

static_assertions::assert_impl_all!(Tracking<crate::source::Cuda>: Send, Sync, DeviceAccessible);
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
        Self { register: TrackingBook::new(), upstream, id: ResourceId::unique(), on_wrong_free: None }
    }

    /// Captures call stacks, of all allocations or of samples: see [`CallStacks`].
    #[must_use]
    pub fn call_stacks(mut self, of: CallStacks) -> Self {
        self.register.set_stacks(of);
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
        self.register.set_on_leak(Arc::new(report));
        self
    }

    /// The upstream.
    #[must_use]
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// Its book.
    #[must_use]
    pub fn book(&self) -> &TrackingBook {
        &self.register
    }

    /// The live blocks: see [`TrackingBook::outstanding`].
    #[must_use]
    pub fn outstanding(&self) -> Holdings {
        self.register.outstanding()
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
        self.on_wrong_free = Some(Arc::new(report));
        self
    }

    /// Enters what was allocated.
    #[inline]
    fn note(&self, layout: Layout, stream: Option<StreamRef<'_>>, outcome: &Result<DevicePtr, Error>) {
        if let Ok(block) = outcome
            && !layout.is_empty()
        {
            self.register.enter(*block, layout, stream);
        }
    }

    /// The layout with which the block may go to the upstream: the book is closed over it, or it is none.
    #[inline]
    fn lets_go(&self, block: DevicePtr, layout: Layout) -> Option<Layout> {
        self.register.require_same_process().ok()?;
        if layout.is_empty() {
            return Some(layout);
        }
        match self.register.strike_out(block, layout) {
            Ok(()) => Some(layout),
            Err(misuse) => self.lets_go_wrong(&misuse, layout),
        }
    }

    #[cold]
    fn lets_go_wrong(&self, misuse: &Misuse, layout: Layout) -> Option<Layout> {
        let Some(report) = &self.on_wrong_free else {
            Error::of_misuse(*misuse).tell_who_frees();
            return None;
        };
        contain(|| report(misuse));
        match misuse.what {
            // An address that went may be a new block of the upstream's.
            MisuseKind::ForeignPointer | MisuseKind::DoubleFree => Some(layout),
            MisuseKind::WrongSize { allocated_bytes } => {
                let allocated = Layout::new(allocated_bytes, layout.align()).ok()?;
                // Another thread may have freed it meanwhile, which is its block's only free then.
                self.register.withdraw(misuse.block, allocated).map(|_| allocated)
            }
            _ => {
                Error::of_misuse(*misuse).tell_who_frees();
                None
            }
        }
    }
}

impl<U: Resource> Tracking<U> {
    /// A free was refused: a driver that [asks](crate::driver::Driver::block_watch) hears of it.
    #[cold]
    fn tell_driver(&self, block: DevicePtr, layout: Layout, stream: Option<StreamRef<'_>>) {
        if let Some(watch) = self.device().driver().block_watch() {
            let (ordinal, stream) = (self.device().ordinal(), stream.map(StreamRef::raw));
            watch.refuse("Tracking", ordinal, block.address(), layout.bytes(), stream);
        }
    }

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
    /// `Misuse`; `DeviceMismatch` for a stream of another device.
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
        self.register.require_same_process()?;
        self.device().require(stream.device())?;
        if layout.is_empty() {
            return Ok(());
        }
        self.register.strike_out(block, layout).map_err(Error::of_misuse)?;
        // SAFETY:
        // - the block was in the register with this layout, so it is live and came from the upstream; it is struck out, so
        //   nobody else frees it.
        // - the caller promises the order of its uses; the stream is of this device.
        unsafe { self.upstream.deallocate(block, layout, stream) };
        Ok(())
    }
}

// SAFETY: the blocks are the upstream's, which keeps the contract; the id is this layer's own, so only what came through it
// comes back through it.
unsafe impl<U: Resource> Resource for Tracking<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.register.require_same_process()?;
        let outcome = self.upstream.allocate(layout, stream);
        self.note(layout, Some(stream), &outcome);
        outcome
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if let Some(layout) = self.lets_go(block, layout) {
            // SAFETY: the caller's promises; a block with this id came from the upstream.
            unsafe { self.upstream.deallocate(block, layout, stream) };
        } else {
            self.tell_driver(block, layout, Some(stream));
        }
    }

    fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
        if !self.register.is_quick() {
            return None;
        }
        let block = self.upstream.allocate_at_once(layout, stream)?;
        self.note(layout, Some(stream), &Ok(block));
        Some(block)
    }

    unsafe fn deallocate_at_once(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) -> bool {
        if !self.register.is_quick() {
            return false;
        }
        // First, as in `deallocate`: once the upstream has the block, another thread may own the address.
        let withdrawn = if layout.is_empty() { None } else { self.register.withdraw(block, layout) };
        if withdrawn.is_none() && !layout.is_empty() {
            // No live block: `deallocate` reports it.
            return false;
        }
        // SAFETY: the caller's promises; a block with this id came from the upstream.
        let is_free = unsafe { self.upstream.deallocate_at_once(block, layout, stream) };
        if !is_free && let Some(withdrawn) = withdrawn {
            self.register.put_back(withdrawn);
        }
        is_free
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.register.require_same_process()?;
        let outcome = self.upstream.allocate_sync(layout);
        self.note(layout, None, &outcome);
        outcome
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        if let Some(layout) = self.lets_go(block, layout) {
            // SAFETY: the caller's promises; a block with this id came from the upstream.
            unsafe { self.upstream.deallocate_sync(block, layout) };
        } else {
            self.tell_driver(block, layout, None);
        }
    }

    forward_resource!(unchanged upstream, except allocate, deallocate, id, fmt_layer);

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tracking({} in {})", Size(self.register.live_bytes()), self.register.live_blocks())
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(&self.register))
    }
}

impl<U> Layer for Tracking<U> {
    type Book = TrackingBook;

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

blocks_of_upstream!(Tracking);
