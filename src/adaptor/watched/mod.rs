//! `Watched`: a layer that hands out its upstream's blocks, and watches them.

#![expect(unsafe_code, reason = "forwards the contract of resources")]

mod pages;
mod watch;

pub(super) use watch::Proven;
pub use watch::{Watch, WatchedBlock, WatchedRequest};

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;

use crate::contain::contain;
use crate::driver::MemoryInfo;
use crate::error::{Error, freeing, is_freed_by};
use crate::forward_resource;
use crate::resource::{
    AnyResource, Describe, DeviceAccessible, DevicePtr, Figures, HostAccessible, Layer, LayerBook, Layout,
    Pages, Resource, ResourceId, Shareable,
};
use crate::stream::StreamRef;

/// A layer that does with the blocks of its upstream what a [`Watch`] says, and changes none.
///
/// # Stream ordering
///
/// As the upstream's.
///
/// # Thread safety
///
/// As the upstream's, and as the watch's. A block may be freed on another thread than it was allocated on.
///
/// # Examples
///
/// See [`Watch`] for one of your own. Most layers of this crate are of this type, each with a watch of its own:
///
/// ```
/// use alluvion::adaptor::{Limiting, Watched};
/// use alluvion::{ResourceExt, Sim, source::Cuda};
///
/// fn limit<W: alluvion::adaptor::Watch, U>(layer: &Watched<W, U>) -> &W::Book {
///     layer.book()
/// }
///
/// let limited: Limiting<Cuda> = Cuda::new(&Sim::new().device(0)).limiting(1 << 20);
/// assert_eq!(limit(&limited).limit_bytes(), 1 << 20);
/// ```
// The bound is what `Drop` needs.
pub struct Watched<W: Watch, U = AnyResource> {
    upstream: U,
    // Behind the upstream: a limit that processes share is left when the memory is back.
    watch: Contained<W>,
    id: ResourceId,
}

/// A watch, whose destructor is called as its methods are.
struct Contained<W: Watch>(ManuallyDrop<W>);

impl<W: Watch> Deref for Contained<W> {
    type Target = W;

    #[inline(always)]
    fn deref(&self) -> &W {
        &self.0
    }
}

impl<W: Watch> Drop for Contained<W> {
    fn drop(&mut self) {
        // SAFETY: this is the only place that drops it, and it is not used afterwards.
        ask::<W, _>(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

impl<W: Watch, U> Drop for Watched<W, U> {
    fn drop(&mut self) {
        ask::<W, _>(|| self.watch.end());
    }
}

impl<W: Watch, U> Watched<W, U> {
    /// A layer over `upstream` that `watch` watches.
    #[must_use]
    pub fn over(upstream: U, watch: W) -> Self {
        Self { upstream, watch: Contained(ManuallyDrop::new(watch)), id: ResourceId::unique() }
    }

    /// The upstream.
    #[must_use]
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// Its book.
    #[must_use]
    pub fn book(&self) -> &W::Book {
        self.watch.book()
    }

    pub(super) fn watch_mut(&mut self) -> &mut W {
        &mut self.watch.0
    }
}

/// Calls a method of a watch. `None` if it panicked.
#[inline(always)]
fn ask<W: Watch, T>(method: impl FnOnce() -> T) -> Option<T> {
    match W::NEVER_PANICS {
        Some(_) => Some(method()),
        None => ask_foreign(method),
    }
}

/// Calls a method of a foreign watch. A free that is refused within it is not told to whoever frees around it.
fn ask_foreign<T>(method: impl FnOnce() -> T) -> Option<T> {
    let mut answer = None;
    let _ = freeing(|| answer = contain(method));
    answer
}

/// What was admitted and has no block yet.
struct Admission<'a, W: Watch, U: Resource> {
    layer: &'a Watched<W, U>,
    layout: Layout,
    stream: Option<StreamRef<'a>>,
}

impl<W: Watch, U: Resource> Admission<'_, W, U> {
    /// The request has got what it asked for.
    #[inline(always)]
    fn keep(self) {
        core::mem::forget(self);
    }
}

impl<W: Watch, U: Resource> Drop for Admission<'_, W, U> {
    fn drop(&mut self) {
        let request = self.layer.request(self.layout, self.stream);
        ask::<W, _>(|| self.layer.watch.withdraw(&request));
    }
}

// What is always inlined here is so because a method of a watch is: then a request is two registers. And each of the cold functions makes its
// own, because one that is lent to any of them would have to lie in memory on the way past them, too.
impl<W: Watch, U: Resource> Watched<W, U> {
    #[inline(always)]
    fn request<'a>(&'a self, layout: Layout, stream: Option<StreamRef<'a>>) -> WatchedRequest<'a> {
        WatchedRequest { layout, stream, upstream: &self.upstream }
    }

    #[inline(always)]
    fn block<'a>(
        &'a self,
        block: DevicePtr,
        layout: Layout,
        stream: Option<StreamRef<'a>>,
    ) -> WatchedBlock<'a> {
        WatchedBlock { request: self.request(layout, stream), block }
    }

    #[inline(always)]
    fn admission<'a>(&'a self, layout: Layout, stream: Option<StreamRef<'a>>) -> Admission<'a, W, U> {
        Admission { layer: self, layout, stream }
    }

    /// Whether the watch sees it.
    #[inline(always)]
    fn sees(layout: Layout) -> bool {
        W::SEES_EMPTY || !layout.is_empty()
    }

    /// Both ways to allocate.
    #[inline(always)]
    fn serve(
        &self,
        layout: Layout,
        stream: Option<StreamRef<'_>>,
        allocate: impl Fn() -> Result<DevicePtr, Error>,
    ) -> Result<DevicePtr, Error> {
        if !Self::sees(layout) {
            return allocate();
        }
        match ask::<W, _>(|| self.watch.admit(&self.request(layout, stream))) {
            Some(Ok(())) => {}
            refused => return Err(self.refuse(layout, stream, self.what_is_wrong(layout, stream), refused)),
        }
        let admission = self.admission(layout, stream);
        let block = match allocate() {
            Ok(block) => block,
            Err(error) => match self.rescue(layout, stream, error, &allocate) {
                Ok(block) => block,
                Err(error) => return Err(self.fail(admission, error)),
            },
        };
        admission.keep();
        ask::<W, _>(|| self.watch.serve(&self.block(block, layout, stream)));
        Ok(block)
    }

    /// A request that is wrong is refused as wrong, also where there is no room: room would not help it.
    #[cold]
    fn what_is_wrong(&self, layout: Layout, stream: Option<StreamRef<'_>>) -> Option<Error> {
        let device = stream.map_or(Ok(()), |stream| self.device().require(stream.device()));
        device.and_then(|()| layout.require_align(self.max_align())).err()
    }

    /// The error of a request that was not admitted.
    #[cold]
    fn refuse(
        &self,
        layout: Layout,
        stream: Option<StreamRef<'_>>,
        wrong: Option<Error>,
        answer: Option<Result<(), Error>>,
    ) -> Error {
        let error = wrong.or_else(|| answer.and_then(Result::err));
        let panicked =
            || Error::foreign("the watch of a layer panicked when it was asked to admit a request");
        let error = error.unwrap_or_else(panicked);
        ask::<W, _>(|| self.watch.fail(&self.request(layout, stream), &error));
        error
    }

    /// The block of a request that the upstream has refused, if the watch makes it possible.
    #[cold]
    fn rescue(
        &self,
        layout: Layout,
        stream: Option<StreamRef<'_>>,
        error: Error,
        allocate: &impl Fn() -> Result<DevicePtr, Error>,
    ) -> Result<DevicePtr, Error> {
        let request = self.request(layout, stream);
        let mut came = None;
        let mut again = || {
            if came.is_none() {
                came = Some(allocate()?);
            }
            Ok(())
        };
        let answer = ask::<W, _>(|| self.watch.rescue(&request, error, &mut again));
        if let Some(block) = came {
            return Ok(block);
        }
        let broken = || {
            Error::foreign(
                "the watch of a layer panicked, or said of a request that a block came when none did",
            )
        };
        Err(answer.and_then(Result::err).unwrap_or_else(broken))
    }

    /// The error of a request that was admitted: its room goes back before the watch hears of it.
    #[cold]
    fn fail(&self, admission: Admission<'_, W, U>, error: Error) -> Error {
        let request = self.request(admission.layout, admission.stream);
        drop(admission);
        ask::<W, _>(|| self.watch.fail(&request, &error));
        error
    }

    /// Both ways to free.
    #[inline(always)]
    fn free(
        &self,
        block: DevicePtr,
        layout: Layout,
        stream: Option<StreamRef<'_>>,
        free: impl FnOnce(Layout),
    ) {
        if !Self::sees(layout) {
            return free(layout);
        }
        let entry = match ask::<W, _>(|| self.watch.leave(&self.block(block, layout, stream))) {
            Some(Some(entry)) => entry,
            Some(None) => return Self::tell_of_a_kept_block(),
            // It panicked, and has let nothing go.
            None => return free(layout),
        };
        self.give_back(block, layout, stream, entry, |layout| is_freed_by(|| free(layout)));
    }

    /// Frees a block that the watch has let go by `free`, which says whether the upstream has it, and tells the watch.
    #[inline(always)]
    fn give_back(
        &self,
        block: DevicePtr,
        layout: Layout,
        stream: Option<StreamRef<'_>>,
        entry: W::Entry,
        free: impl FnOnce(Layout) -> bool,
    ) -> bool {
        let is_free = free(self.watch.layout_upstream(&entry, layout, Proven::OF_THIS_CRATE));
        if is_free {
            ask::<W, _>(|| self.watch.left(layout, entry));
        } else {
            self.stay(block, layout, stream, entry);
        }
        is_free
    }

    /// Layers above have the block still. One of this crate has said so, with its reason.
    #[cold]
    fn tell_of_a_kept_block() {
        if W::NEVER_PANICS.is_none() {
            Error::foreign("the watch of a layer keeps the block from its upstream").tell_of_refusal();
        }
    }

    #[cold]
    fn stay(&self, block: DevicePtr, layout: Layout, stream: Option<StreamRef<'_>>, entry: W::Entry) {
        ask::<W, _>(|| self.watch.stay(&self.block(block, layout, stream), entry));
    }

    #[inline(always)]
    fn answers_at_once(&self) -> bool {
        ask::<W, _>(|| self.watch.answers_at_once()) == Some(true)
    }

    /// Not for a watch of a user's on the stream of a [visit](crate::stream::RawStreams::visit): it could take memory there by safe calls,
    /// and nobody knows yet which stream that is.
    #[inline(always)]
    fn answers_at_once_on(&self, stream: StreamRef<'_>) -> bool {
        (W::NEVER_PANICS.is_some() || !stream.is_visit()) && self.answers_at_once()
    }
}

// SAFETY:
// - the blocks are the upstream's, which keeps the contract, and go back to it with the layout that they have there: only a watch of
//   this crate can name another, which is the one that the block was allocated with.
// - with an id of its own, only what came through it comes back through it; with the upstream's, the watch knows nothing of blocks.
// - panics of a watch are caught, or the watch is of this crate and has none.
unsafe impl<W: Watch, U: Resource> Resource for Watched<W, U> {
    #[inline(always)]
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.serve(layout, Some(stream), || self.upstream.allocate(layout, stream))
    }

    #[inline(always)]
    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        self.free(block, layout, Some(stream), |layout| {
            // SAFETY: the caller's promises; a block with this id came from the upstream.
            unsafe { self.upstream.deallocate(block, layout, stream) }
        });
    }

    #[inline(always)]
    fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
        if !Self::sees(layout) {
            return self.upstream.allocate_at_once(layout, stream);
        }
        let admit = || self.watch.admit_at_once(&self.request(layout, Some(stream)));
        if !self.answers_at_once_on(stream) || ask::<W, _>(admit) != Some(true) {
            return None;
        }
        let admission = self.admission(layout, Some(stream));
        let block = self.upstream.allocate_at_once(layout, stream)?;
        admission.keep();
        ask::<W, _>(|| self.watch.serve(&self.block(block, layout, Some(stream))));
        Some(block)
    }

    #[inline(always)]
    unsafe fn deallocate_at_once(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) -> bool {
        if !Self::sees(layout) {
            // SAFETY: the caller's promises; a block with this id came from the upstream.
            return unsafe { self.upstream.deallocate_at_once(block, layout, stream) };
        }
        if !self.answers_at_once_on(stream) {
            return false;
        }
        let leave = || self.watch.leave_at_once(&self.block(block, layout, Some(stream)));
        let Some(Some(entry)) = ask::<W, _>(leave) else { return false };
        self.give_back(block, layout, Some(stream), entry, |layout| {
            // SAFETY: as above.
            unsafe { self.upstream.deallocate_at_once(block, layout, stream) }
        })
    }

    #[inline]
    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.serve(layout, None, || self.upstream.allocate_sync(layout))
    }

    #[inline]
    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        self.free(block, layout, None, |layout| {
            // SAFETY: the caller's promises; a block with this id came from the upstream.
            unsafe { self.upstream.deallocate_sync(block, layout) }
        });
    }

    #[inline]
    fn id(&self) -> ResourceId {
        if W::SHARES_ID { self.upstream.id() } else { self.id }
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ask::<W, _>(|| self.watch.fmt_layer(f)).unwrap_or(Err(fmt::Error))
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        let of_upstream = self.upstream.memory_info()?;
        Ok(ask::<W, _>(|| self.watch.memory_info(of_upstream)).unwrap_or(of_upstream))
    }

    fn pages(&self) -> Option<&dyn Pages> {
        if !W::SEES_PAGES {
            return None;
        }
        self.upstream.pages()?;
        Some(self)
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        ask::<W, _>(|| self.watch.book()).map(LayerBook::of::<Self>)
    }

    forward_resource!(unchanged upstream, except allocate, deallocate, id, fmt_layer, memory_info, pages);
}

impl<W: Watch, U> Layer for Watched<W, U> {
    type Book = W::Book;
    const NAME: Option<&'static str> = W::NAME;

    fn figures(book: &W::Book, to: &mut Figures<'_>) {
        ask::<W, _>(|| W::figures(book, to));
    }
}

// SAFETY: the blocks are the upstream's.
unsafe impl<W: Watch, U: DeviceAccessible> DeviceAccessible for Watched<W, U> {}
// SAFETY: the blocks are the upstream's.
unsafe impl<W: Watch, U: HostAccessible> HostAccessible for Watched<W, U> {}

impl<W: Watch, U: Shareable> Shareable for Watched<W, U> {}

impl<W: Watch, U: Resource> fmt::Debug for Watched<W, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Describe::new(self))
    }
}
