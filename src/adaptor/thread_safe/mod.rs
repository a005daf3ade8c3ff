//! `ThreadSafe`: a lock around a resource that is not `Sync`.

#![expect(unsafe_code, reason = "forwards the contract of resources")]

mod book;

use core::fmt::{self, Write};

use book::Parked;
pub use book::ThreadSafeBook;

use crate::device::Device;
use crate::driver::MemoryInfo;
use crate::error::Error;
use crate::resource::{
    AnyResource, Describe, DevicePtr, Export, Figures, Layer, LayerBook, Layout, Resource, ResourceId,
    blocks_of_upstream,
};
use crate::stream::{Frontier, StreamRef};
use crate::sync::{Mutex, MutexGuard};

/// Lets many threads share a resource that is not `Sync`, one at a time.
///
/// It is for a resource that may move to another thread and may not be used by two at once: one with a `Cell` in it, or
/// closures over such. All resources of the crate are `Sync` if their upstream is, and do not need it.
///
/// **A lock is held around each call of the upstream.** It is the only place of the crate that holds a lock across a
/// call of foreign code. So an upstream must not wait for a thread that uses this resource.
///
/// # What cannot pass
///
/// The upstream is not accessible without the lock: [`upstream`](Resource::upstream) returns `None`, [`find`] ends
/// here, and the description shows the upstream in parentheses. [`look`](Self::look) lends it, under the lock. Its
/// device, its id and its largest alignment are read once.
///
/// # Calls from within
///
/// An upstream may call foreign code, which may call this layer on the same thread: with the lock held, that would
/// never end. Instead an allocation is refused, as `Unsupported`; and a block that is freed is *parked* until the outer
/// call is over, and goes back before that returns, behind the work that it was freed behind. If that stream captures
/// then, the block waits for the next call; what still waits when this is dropped is leaked. [`ThreadSafeBook`] counts
/// both.
///
/// # Stream ordering
///
/// As the upstream's.
///
/// # Thread safety
///
/// Any thread may call it, if the upstream may move between threads; they wait for each other.
///
/// # Examples
///
/// ```
/// use std::cell::Cell;
/// use alluvion::source::{Callback, CudaAsync};
/// use alluvion::{AnyResource, DeviceVec, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
/// let (giving, taking) = (CudaAsync::new(&device)?, Cell::new(0));
/// let giving = std::sync::Arc::new(giving);
/// let freeing = giving.clone();
/// // SAFETY: the closures hand out the blocks of a pool, and give them back to it.
/// let counted = unsafe {
///     Callback::new(
///         &device,
///         move |layout, stream| {
///             taking.set(taking.get() + 1); // No two threads at a time.
///             Ok(giving.allocate(layout, stream)?.address())
///         },
///         move |block, layout, stream| freeing.deallocate(block, layout, stream),
///     )
/// };
/// let shared = AnyResource::new(counted.thread_safe()); // `counted` alone is not `Sync`: this would not compile.
/// let numbers = DeviceVec::from_slice_in(&[1, 2, 3], &stream, shared.clone())?;
/// assert_eq!(shared.describe().to_string(), "ThreadSafe(Callback(gpu 0))");
/// # drop(numbers);
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// [`find`]: crate::ResourceExt::find
pub struct ThreadSafe<U = AnyResource> {
    upstream: Mutex<U>,
    reentries: ThreadSafeBook,
    device: Device,
    id: ResourceId,
    max_align: usize,
}

static_assertions::assert_impl_all!(ThreadSafe<crate::source::Cuda>: Send, Sync, crate::resource::DeviceAccessible);
static_assertions::assert_not_impl_any!(ThreadSafe<crate::source::Cuda>: Clone, crate::resource::HostAccessible);
static_assertions::assert_impl_all!(ThreadSafe<crate::source::Pinned>: crate::resource::HostAccessible);
// By structure: a mutex is `Sync` if what it holds may move.
static_assertions::assert_impl_all!(ThreadSafe<core::cell::Cell<u8>>: Send, Sync);
static_assertions::assert_not_impl_any!(ThreadSafe<*const u8>: Send, Sync);

impl<U: Resource> ThreadSafe<U> {
    /// Takes `upstream`, for one thread at a time.
    #[must_use]
    pub fn new(upstream: U) -> Self {
        let (device, id, max_align) = (upstream.device().clone(), upstream.id(), upstream.max_align());
        Self { upstream: Mutex::new(upstream), reentries: ThreadSafeBook::default(), device, id, max_align }
    }

    /// Calls `look` with the upstream, under the lock: to read the book of a layer below.
    ///
    /// # Errors
    ///
    /// `Unsupported` from within a call of the upstream on this thread; `ShutDown` in a child of the process that this was made
    /// in.
    pub fn look<T>(&self, look: impl FnOnce(&U) -> T) -> Result<T, Error> {
        self.enter().map(|entered| look(&entered.upstream))
    }

    /// Its book: the calls from within.
    #[must_use]
    pub fn book(&self) -> &ThreadSafeBook {
        &self.reentries
    }

    /// Locks the upstream, after other threads have left it.
    fn enter(&self) -> Result<Entered<'_, U>, Error> {
        // Before the lock, which another thread may have had at the fork; and in the middle of a call that has forked.
        self.upstream.require_same_process()?;
        if self.reentries.is_inside() {
            return Err(Error::unsupported(
                "a call from within",
                "the resource under `ThreadSafe` is in the middle of a call on this thread",
                "allocate before or after, or from another resource",
            ));
        }
        let upstream = self.upstream.lock_around_foreign_code();
        self.reentries.begin();
        Ok(Entered { upstream, of: self })
    }

    /// As `enter`, for what a caller from within cannot have.
    fn enter_or_refuse(&self) -> Result<Entered<'_, U>, Error> {
        self.enter().inspect_err(|_| self.reentries.count_refusal())
    }

    /// A block that was freed from within waits until the call is over. In a child of the process that this was made in, it is
    /// leaked.
    fn park(&self, parked: Parked) {
        if !parked.layout.is_empty() && !self.upstream.is_forked_child() {
            self.reentries.park(parked);
        }
    }
}

/// The lock of this thread on the upstream.
struct Entered<'a, U: Resource> {
    upstream: MutexGuard<'a, U>,
    of: &'a ThreadSafe<U>,
}

impl<U: Resource> Entered<'_, U> {
    /// Frees what was parked meanwhile, and by that.
    #[cold]
    fn free_parked(&self) {
        let mut waiting = Vec::new();
        while let Some(parked) = self.of.reentries.next() {
            if !self.free(&parked) {
                waiting.push(parked);
            }
        }
        self.of.reentries.keep(waiting);
    }

    /// Returns `false` if the block cannot be freed now.
    fn free(&self, parked: &Parked) -> bool {
        let Parked { block, layout, freed_at } = *parked;
        let Some(freed_at) = freed_at else {
            // SAFETY: the block was given to `deallocate_sync` and to nobody else: its caller's promises.
            unsafe { self.upstream.deallocate_sync(block, layout) };
            return true;
        };
        // A stream of the crate's own: the one that it was freed on may be gone.
        let Ok(service) = self.of.device.service_stream() else { return false };
        if service.as_ref().wait_for(&Frontier::of(freed_at)).is_err() {
            return false;
        }
        // SAFETY: the block was given to `deallocate` and to nobody else: its caller's promises. Its uses come before the point
        // that the stream has been made to wait for.
        unsafe { self.upstream.deallocate(block, layout, service.as_ref()) };
        true
    }
}

impl<U: Resource> Drop for Entered<'_, U> {
    /// Before the lock goes, which is a field.
    fn drop(&mut self) {
        // The upstream may be the user's, and have forked: what is parked belongs to the parent then.
        if !self.of.upstream.is_forked_child() && self.of.reentries.has_parked() {
            self.free_parked();
        }
        self.of.reentries.end();
    }
}

// SAFETY: everything is forwarded to the upstream, whose id it has and which keeps the contract; a block that is freed from
// within goes back once, later. No two threads are in the upstream.
unsafe impl<U: Resource> Resource for ThreadSafe<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.enter_or_refuse()?.upstream.allocate(layout, stream)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        match self.enter() {
            // SAFETY: the caller's promises; the ids are the same.
            Ok(entered) => unsafe { entered.upstream.deallocate(block, layout, stream) },
            Err(_) => self.park(Parked { block, layout, freed_at: Some(stream.release()) }),
        }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.enter_or_refuse()?.upstream.allocate_sync(layout)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        match self.enter() {
            // SAFETY: the caller's promises; the ids are the same.
            Ok(entered) => unsafe { entered.upstream.deallocate_sync(block, layout) },
            Err(_) => self.park(Parked { block, layout, freed_at: None }),
        }
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // On one line, and not to the formatter while the lock is held: that may be anybody's.
        let mut under = String::new();
        match self.enter() {
            Ok(entered) => write!(under, "{}", Describe::new(&*entered.upstream))?,
            Err(_) => under.push_str("in use"),
        }
        write!(f, "ThreadSafe({under})")
    }

    fn max_align(&self) -> usize {
        self.max_align
    }

    unsafe fn export(&self, block: DevicePtr, layout: Layout) -> Result<Export, Error> {
        // SAFETY: the caller's promises; the ids are the same.
        unsafe { self.enter_or_refuse()?.upstream.export(block, layout) }
    }

    /// `false` where the upstream cannot be asked: from within a call of it, and in a child of the process that this was made in.
    fn host_access(&self) -> bool {
        self.enter().is_ok_and(|entered| entered.upstream.host_access())
    }

    fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        self.enter_or_refuse()?.upstream.trim(keep_bytes)
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.enter_or_refuse()?.upstream.memory_info()
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(&self.reentries))
    }
}

impl<U> Layer for ThreadSafe<U> {
    type Book = ThreadSafeBook;

    fn figures(reentries: &ThreadSafeBook, to: &mut Figures<'_>) {
        let refused = "Questions that were refused because they came from within a call.";
        to.counter("alluvion_reentries_refused_total", refused, reentries.refused());
        let parked = "Blocks that were freed from within a call, and parked.";
        to.counter("alluvion_reentries_parked_total", parked, reentries.parked());
        let waiting = "Blocks that are parked and not freed yet.";
        to.gauge("alluvion_reentries_waiting_blocks", waiting, reentries.waiting());
    }
}

blocks_of_upstream!(ThreadSafe);
