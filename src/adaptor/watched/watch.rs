//! `Watch`: what a layer does about the blocks that pass it.

use core::any::Any;
use core::fmt;
use core::ops::Deref;

use crate::driver::MemoryInfo;
use crate::error::Error;
use crate::resource::{DevicePtr, Figures, Layout, Resource};
use crate::stream::StreamRef;

/// What a layer does about the requests, blocks and frees that pass it: [`Watched`](super::Watched) makes a layer of it, which hands
/// out its upstream's blocks unchanged and passes on all else, sleeping, exports and access of the host included.
///
/// Nothing here is `unsafe`: a watch can refuse, count and note, and cannot get a block wrong. So this is the way to an adaptor of
/// one's own, and most of this crate's adaptors are watches.
///
/// # Which method is called when
///
/// | | in this order |
/// |---|---|
/// | a request that is served | [`admit`](Self::admit), the upstream, [`serve`](Self::serve) |
/// | a request that `admit` refuses | `admit`, [`fail`](Self::fail) |
/// | a request that the upstream refuses | `admit`, the upstream, [`rescue`](Self::rescue), [`withdraw`](Self::withdraw), `fail` |
/// | a free | [`leave`](Self::leave), the upstream, [`left`](Self::left) |
/// | a free that a layer below refuses | `leave`, the upstream, [`stay`](Self::stay) |
/// | a request at once | [`admit_at_once`](Self::admit_at_once), the upstream, `serve`, or else `withdraw`, and then as above |
/// | a free at once | [`leave_at_once`](Self::leave_at_once), the upstream, `left`, or else `stay`, and then as above |
/// | a page that is created, and released | `admit` or else `fail`; `left` |
/// | the layer ends | [`end`](Self::end), the upstream, the destructor |
///
/// What may fail, or waits, belongs into `admit`: then there is no block yet that would have to go back. `leave` comes before the
/// upstream has the block back, `left` after it: a book of addresses is closed in `leave`, because another
/// thread may own the address when the upstream has it, and a limit gives its room back in `left`, because the upstream would
/// else have more out than the limit for a moment.
///
/// A method may panic, call the resource, or take its time. A panic is caught: a request whose `admit` panics fails, and a free
/// whose `leave` panics is passed on. The methods that are called at once may not wait, nor call a driver: one that has to says so by
/// `admit_at_once`, or for frees too by [`answers_at_once`](Self::answers_at_once), and the conformance suite finds one that does not.
///
/// # Examples
///
/// A layer that permits so many blocks at a time, whatever their sizes:
///
/// ```
/// use std::fmt;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use alluvion::adaptor::{Watch, WatchedRequest};
/// use alluvion::source::Cuda;
/// use alluvion::{Error, Layout, Resource, ResourceExt, Sim};
///
/// struct Slots(AtomicUsize);
///
/// impl Watch for Slots {
///     type Book = Self;
///     type Entry = ();
///
///     fn book(&self) -> &Self {
///         self
///     }
///
///     fn admit(&self, request: &WatchedRequest<'_>) -> Result<(), Error> {
///         let one_less = |free: usize| free.checked_sub(1);
///         match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) {
///             Ok(_) => Ok(()),
///             Err(_) => Err(Error::out_of_memory(request.layout().bytes())),
///         }
///     }
///
///     fn withdraw(&self, _: &WatchedRequest<'_>) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
///
///     fn left(&self, _: Layout, (): ()) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
///
///     fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         write!(f, "Slots({} free)", self.0.load(Ordering::Relaxed))
///     }
/// }
///
/// let resource = Cuda::new(&Sim::new().device(0)).watched(Slots(AtomicUsize::new(1))).stats();
/// let layout = Layout::from_bytes(1000)?;
/// let block = resource.allocate_sync(layout)?;
/// assert!(resource.allocate_sync(layout).unwrap_err().is_out_of_memory());
/// assert_eq!(resource.describe().to_string(), "Stats(1000 B) > Slots(0 free) > Cuda(gpu 0)");
/// // SAFETY: the block came from this resource with this layout, and nothing uses it.
/// unsafe { resource.deallocate_sync(block, layout) };
/// resource.allocate_sync(layout)?;
/// # Ok::<(), Error>(())
/// ```
pub trait Watch {
    /// The type of the book, which [`find`](crate::ResourceExt::find) answers with: the watch itself, if it is not for others.
    type Book: Any;

    /// What [`leave`](Self::leave) takes out of the book and hands to [`left`](Self::left) or [`stay`](Self::stay).
    type Entry: Default;

    /// Distinguishes layers that have the same type of book: see [`Layer::NAME`](crate::resource::Layer::NAME).
    const NAME: Option<&'static str> = None;

    /// Whether a block that did not come through the layer may be freed through it, and the other way round, because it knows
    /// nothing of blocks. The layer then has its upstream's id, else one of its own.
    const SHARES_ID: bool = false;

    /// Whether it sees requests for zero bytes, which are passed on without it by default.
    const SEES_EMPTY: bool = false;

    /// Whether it sees [pages](Resource::pages), and so lets a suballocator have its upstream's: each is admitted, and has left when it is
    /// released. By default the layer has none, because what is mapped through them would pass it unseen.
    const SEES_PAGES: bool = false;

    /// The proof that no method panics: watches of this crate have read theirs, and so save the price of being called as foreign code.
    #[doc(hidden)]
    const NEVER_PANICS: Option<Proven> = None;

    /// The book.
    fn book(&self) -> &Self::Book;

    /// Prints the layer alone: see [`Resource::fmt_layer`].
    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Adds the figures of the book: see [`Layer::figures`](crate::resource::Layer::figures).
    fn figures(book: &Self::Book, to: &mut Figures<'_>) {
        let _ = (book, to);
    }

    /// Whether the other methods may be called by [`Resource::allocate_at_once`] and `deallocate_at_once`: they call no driver and no
    /// foreign code, and hold no lock across any. If not, the layer answers "not at once".
    #[inline(always)]
    fn answers_at_once(&self) -> bool {
        true
    }

    /// Whether the upstream is asked. An error is the answer to the request, unless the request itself is wrong: then that is.
    #[inline(always)]
    fn admit(&self, request: &WatchedRequest<'_>) -> Result<(), Error> {
        let _ = request;
        Ok(())
    }

    /// As [`admit`](Self::admit), for [`Resource::allocate_at_once`]: after `false` no figure has changed, because `admit` is asked next. So
    /// a watch that counts in `admit`, and not in [`fail`](Self::fail), writes this, too.
    #[inline(always)]
    fn admit_at_once(&self, request: &WatchedRequest<'_>) -> bool {
        self.admit(request).is_ok()
    }

    /// A request that was admitted has got no block; if that was at once, it is admitted again.
    fn withdraw(&self, request: &WatchedRequest<'_>) {
        let _ = request;
    }

    /// The upstream has refused the request: the watch may make room and ask `again`, as often as it likes. The first block that comes
    /// is the answer, and what is returned is, if none has come.
    fn rescue(
        &self,
        request: &WatchedRequest<'_>,
        error: Error,
        again: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _ = (request, again);
        Err(error)
    }

    /// The request fails with this error.
    fn fail(&self, request: &WatchedRequest<'_>, error: &Error) {
        let _ = (request, error);
    }

    /// The request got this block, which nobody has yet.
    #[inline(always)]
    fn serve(&self, block: &WatchedBlock<'_>) {
        let _ = block;
    }

    /// The block is about to be freed, if it is what its free says. `None` keeps it from the upstream: it is leaked, and whoever frees is
    /// told.
    #[inline(always)]
    fn leave(&self, block: &WatchedBlock<'_>) -> Option<Self::Entry> {
        let _ = block;
        Some(Self::Entry::default())
    }

    /// As [`leave`](Self::leave), for [`Resource::deallocate_at_once`]: after `None` no figure has changed, because `leave` is asked next.
    #[inline(always)]
    fn leave_at_once(&self, block: &WatchedBlock<'_>) -> Option<Self::Entry> {
        self.leave(block)
    }

    /// The layout that the block goes to the upstream with.
    #[doc(hidden)]
    #[inline(always)]
    fn layout_upstream(&self, entry: &Self::Entry, layout: Layout, _: Proven) -> Layout {
        let _ = entry;
        layout
    }

    /// The block is the upstream's again.
    #[inline(always)]
    fn left(&self, layout: Layout, entry: Self::Entry) {
        let _ = (layout, entry);
    }

    /// The block is out still: a layer below has refused the free, or has not freed it at once.
    fn stay(&self, block: &WatchedBlock<'_>, entry: Self::Entry) {
        let _ = (block, entry);
    }

    /// The layer ends, and what is under it is there still.
    fn end(&self) {}

    /// The figures of the memory, of which these are the upstream's.
    fn memory_info(&self, of_upstream: MemoryInfo) -> MemoryInfo {
        of_upstream
    }
}

/// The author's word for what the compiler cannot check. Only this crate can make one, or name it: it is exported nowhere, so that no
/// watch of a user's can set `NEVER_PANICS`, nor write `layout_upstream`.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Proven(());

impl Proven {
    pub(in crate::adaptor) const OF_THIS_CRATE: Self = Self(());
}

/// A request that passes a [`Watched`](super::Watched).
#[derive(Clone, Copy)]
pub struct WatchedRequest<'a> {
    pub(super) layout: Layout,
    pub(super) stream: Option<StreamRef<'a>>,
    pub(super) upstream: &'a dyn Resource,
}

impl<'a> WatchedRequest<'a> {
    /// The layout.
    #[inline]
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The stream; `None` in the synchronous forms.
    #[inline]
    #[must_use]
    pub fn stream(&self) -> Option<StreamRef<'a>> {
        self.stream
    }

    /// What the layer stands over.
    #[inline]
    #[must_use]
    pub fn upstream(&self) -> &'a dyn Resource {
        self.upstream
    }
}

impl fmt::Debug for WatchedRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stream = self.stream.map(StreamRef::id);
        f.debug_struct("WatchedRequest")
            .field("layout", &self.layout)
            .field("stream", &stream)
            .finish_non_exhaustive()
    }
}

/// A block that passes a [`Watched`](super::Watched), with the layout and the stream of the call: live and nobody's yet in
/// [`serve`](Watch::serve), and what a free names else.
#[derive(Clone, Copy, Debug)]
pub struct WatchedBlock<'a> {
    pub(super) request: WatchedRequest<'a>,
    pub(super) block: DevicePtr,
}

impl WatchedBlock<'_> {
    /// Where the block begins.
    #[inline]
    #[must_use]
    pub fn block(&self) -> DevicePtr {
        self.block
    }
}

impl<'a> Deref for WatchedBlock<'a> {
    type Target = WatchedRequest<'a>;

    #[inline]
    fn deref(&self) -> &WatchedRequest<'a> {
        &self.request
    }
}
