//! `Fallback`: a second resource for when the first one is out of memory.

#![expect(unsafe_code, reason = "forwards the contract of resources to two of them")]

mod book;

use core::fmt;

pub use book::FallbackBook;

use crate::driver::MemoryInfo;
use crate::error::{Error, is_freed_by};
use crate::forward_resource;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    AnyResource, Describe, DeviceAccessible, DevicePtr, Export, Figures, HostAccessible, Layer, LayerBook,
    Layout, Resource, ResourceId, Shareable,
};
use crate::size::Size;
use crate::stream::StreamRef;

/// Asks a second resource when the first one is out of memory.
///
/// Other errors of the first are returned. If both are out of memory, the error is that of the first. A block goes back
/// to the resource that it came from: the [`FallbackBook`] records the blocks of the second.
///
/// It serves alignments that both honour, and its blocks are accessible where those of both are. A trim trims both,
/// each down to the given size. Its memory figures are those of the resource with more memory, because one resource
/// serves a request, and both may share one upstream. [`upstream`](Resource::upstream) and [`find`](crate::ResourceExt::find) go
/// on to the first; [`second`](Self::second) is the other one, and the description shows it in parentheses.
///
/// Both must hand out memory, in which no two live blocks have one address: two [`Null`](crate::source::Null)s do not.
///
/// # Stream ordering
///
/// As that of the resource that a block came from.
///
/// # Thread safety
///
/// As both resources'. The blocks of the second are recorded in sixteen sets, each with a lock of its own. While there
/// are none, a free costs one more read.
///
/// # Examples
///
/// ```
/// use alluvion::source::{CudaAsync, Managed};
/// use alluvion::{DeviceVec, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
/// let resource = CudaAsync::new(&device)?.limiting(1 << 20).fallback(Managed::new(&device)?)?;
/// let first = DeviceVec::<u8, _>::zeroed_in(1 << 20, &stream, &resource)?;
/// let second = DeviceVec::<u8, _>::zeroed_in(1 << 20, &stream, &resource)?;
/// assert_eq!((resource.book().live_blocks(), resource.book().live_bytes()), (1, 1 << 20));
/// assert_eq!(
///     resource.describe().to_string(),
///     "Fallback(1 MiB in Managed(gpu 0)) > Limiting(1 MiB) > CudaAsync(gpu 0)",
/// );
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Fallback<U = AnyResource, F = AnyResource> {
    upstream: U,
    second: F,
    spill: FallbackBook,
    id: ResourceId,
}

static_assertions::assert_impl_all!(Fallback<crate::source::Cuda, crate::source::Pinned>: Send, Sync, DeviceAccessible);
static_assertions::assert_not_impl_any!(Fallback<crate::source::Cuda, crate::source::Pinned>: Clone, HostAccessible);
static_assertions::assert_impl_all!(Fallback<crate::source::Managed, crate::source::Pinned>: HostAccessible);

impl Fallback {
    pub(crate) const CARD: Card = Card {
        name: "fallback",
        about: "Asks a second stack when the one under it is out of memory.",
        parameters: &[Parameter::needed(
            "second",
            ArgumentKind::Recipe,
            "the second stack, on the same device",
        )],
    };
}

impl<U: Resource, F: Resource> Fallback<U, F> {
    /// Asks `second` when `upstream` is out of memory.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` if they are not of one device.
    pub fn new(upstream: U, second: F) -> Result<Self, Error> {
        upstream.device().require(second.device())?;
        Ok(Self { upstream, second, spill: FallbackBook::default(), id: ResourceId::unique() })
    }

    #[cold]
    fn fall_back(
        &self,
        first: Error,
        layout: Layout,
        allocate: impl FnOnce(&F) -> Result<DevicePtr, Error>,
    ) -> Result<DevicePtr, Error> {
        if self.spill.is_forked_child() {
            return Err(first);
        }
        match allocate(&self.second) {
            Ok(block) => {
                self.spill.enter(block, layout);
                Ok(block)
            }
            Err(error) if error.is_out_of_memory() => {
                self.spill.count_failure();
                Err(first)
            }
            Err(error) => Err(error),
        }
    }
}

impl<U, F> Fallback<U, F> {
    /// The first resource, which is asked first.
    #[must_use]
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// The second resource, which is asked if the first is out of memory.
    #[must_use]
    pub fn second(&self) -> &F {
        &self.second
    }

    /// Its book: the live blocks of the second resource.
    #[must_use]
    pub fn book(&self) -> &FallbackBook {
        &self.spill
    }
}

// SAFETY: the blocks are those of two resources of one device that keep the contract, memory that both have at a time, so they
// overlap no other. Each goes back to the one that it came from. Only the value itself has its id.
unsafe impl<U: Resource, F: Resource> Resource for Fallback<U, F> {
    #[inline]
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        layout.require_align(self.max_align())?;
        match self.upstream.allocate(layout, stream) {
            Err(error) if error.is_out_of_memory() => {
                self.fall_back(error, layout, |second| second.allocate(layout, stream))
            }
            answer => answer,
        }
    }

    #[inline]
    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if self.spill.is_forked_child() {
            return;
        }
        // Forgotten first: from the free on, the address may be another thread's, in either of the two.
        if let Some(bytes) = self.spill.leave(block, layout) {
            // SAFETY: the caller's promises; the block came from the second.
            if !is_freed_by(|| unsafe { self.second.deallocate(block, layout, stream) }) {
                self.spill.stays(block, bytes);
            }
        } else {
            // SAFETY: the caller's promises; the block came from the first, or is of zero bytes.
            unsafe { self.upstream.deallocate(block, layout, stream) };
        }
    }

    #[inline]
    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(self.max_align())?;
        match self.upstream.allocate_sync(layout) {
            Err(error) if error.is_out_of_memory() => {
                self.fall_back(error, layout, |second| second.allocate_sync(layout))
            }
            answer => answer,
        }
    }

    #[inline]
    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        if self.spill.is_forked_child() {
            return;
        }
        if let Some(bytes) = self.spill.leave(block, layout) {
            // SAFETY: as in `deallocate`.
            if !is_freed_by(|| unsafe { self.second.deallocate_sync(block, layout) }) {
                self.spill.stays(block, bytes);
            }
        } else {
            // SAFETY: as in `deallocate`.
            unsafe { self.upstream.deallocate_sync(block, layout) };
        }
    }

    forward_resource!(upstream, except allocate, deallocate, id, fmt_layer, max_align, trim, memory_info);

    unsafe fn export(&self, block: DevicePtr, layout: Layout) -> Result<Export, Error> {
        if layout.is_empty() {
            return Ok(Export::of_nothing());
        }
        self.upstream.device().machine().require_same_process()?;
        if self.spill.has(block) {
            // SAFETY: the caller's promises; the block came from the second.
            unsafe { self.second.export(block, layout) }
        } else {
            // SAFETY: the caller's promises; the block came from the first.
            unsafe { self.upstream.export(block, layout) }
        }
    }

    fn host_access(&self) -> bool {
        self.upstream.host_access() && self.second.host_access()
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fallback({} in {})", Size(self.spill.live_bytes()), Describe::new(&self.second))
    }

    fn max_align(&self) -> usize {
        self.upstream.max_align().min(self.second.max_align())
    }

    fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        // Both, also if one fails.
        let (first, second) = (self.upstream.trim(keep_bytes), self.second.trim(keep_bytes));
        Ok(first?.saturating_add(second?))
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        let (first, second) = (self.upstream.memory_info()?, self.second.memory_info()?);
        Ok(MemoryInfo {
            free_bytes: first.free_bytes.max(second.free_bytes),
            total_bytes: first.total_bytes.max(second.total_bytes),
        })
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(&self.spill))
    }
}

impl<U, F> Layer for Fallback<U, F> {
    type Book = FallbackBook;

    fn figures(spill: &FallbackBook, to: &mut Figures<'_>) {
        to.gauge(
            "alluvion_fallback_live_bytes",
            "Bytes in blocks of the second resource that are out.",
            spill.live_bytes(),
        );
        to.gauge(
            "alluvion_fallback_live_blocks",
            "Blocks of the second resource that are out.",
            spill.live_blocks(),
        );
        to.counter(
            "alluvion_fallback_served_total",
            "Blocks that the second resource has served.",
            spill.served(),
        );
        to.counter(
            "alluvion_fallback_failed_total",
            "Requests that the second resource failed too.",
            spill.failed(),
        );
    }
}

// SAFETY: its blocks are those of the two.
unsafe impl<U: DeviceAccessible, F: DeviceAccessible> DeviceAccessible for Fallback<U, F> {}
// SAFETY: its blocks are those of the two.
unsafe impl<U: HostAccessible, F: HostAccessible> HostAccessible for Fallback<U, F> {}

impl<U: Shareable, F: Shareable> Shareable for Fallback<U, F> {}

impl<U: Resource, F: Resource> fmt::Debug for Fallback<U, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Describe::new(self))
    }
}
