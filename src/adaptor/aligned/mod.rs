//! `Aligned`: larger alignments than the upstream's.

#![expect(unsafe_code, reason = "forwards the contract of resources, for blocks that it moves")]

mod book;

pub use book::AlignedBook;

use core::fmt;

use crate::error::{Error, is_freed_by};
use crate::forward_resource;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    AnyResource, DeviceAccessible, DevicePtr, Export, Figures, HostAccessible, Layer, LayerBook, Layout,
    Resource, ResourceId, blocks_of_upstream,
};
use crate::size::Size;
use crate::stream::StreamRef;

/// Aligns blocks to more than the request says, and to more than its upstream honours. For example, files that are read
/// directly to the device need pages of 4096 bytes.
///
/// An alignment that the upstream honours is passed on, and wastes nothing. A larger one makes the request longer, by
/// `alignment - 256` bytes over a driver's memory, and the block begins at the first aligned address. Only blocks that
/// begin elsewhere than the upstream's are recorded.
///
/// The larger one of this alignment and that of the request is honoured, so [`max_align`](Resource::max_align) is 2 MiB
/// at least, over every upstream.
///
/// # Stream ordering
///
/// As the upstream's.
///
/// # Thread safety
///
/// As the upstream's. Blocks that the upstream does not align by itself are recorded under one lock.
///
/// # Examples
///
/// ```
/// use alluvion::adaptor::AlignedConfig;
/// use alluvion::{Layout, Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let resource = Cuda::new(&sim.device(0)).aligned(AlignedConfig::new(4096).threshold(64 << 10))?;
/// assert_eq!(resource.describe().to_string(), "Aligned(4 KiB from 64 KiB) > Cuda(gpu 0)");
/// let layout = Layout::from_bytes(100_000)?;
/// let block = resource.allocate(layout, stream.as_ref())?;
/// assert!(block.is_aligned_to(4096));
/// // SAFETY: the block came from `resource` with this layout, and nothing uses it.
/// unsafe { resource.deallocate(block, layout, stream.as_ref()) };
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Aligned<U = AnyResource> {
    upstream: U,
    moves: AlignedBook,
    id: ResourceId,
}

static_assertions::assert_impl_all!(Aligned<crate::source::Cuda>: Send, Sync, DeviceAccessible);
static_assertions::assert_not_impl_any!(Aligned<crate::source::Cuda>: Clone, HostAccessible);
static_assertions::assert_impl_all!(Aligned<crate::source::Pinned>: HostAccessible);

/// Which blocks [`Aligned`] aligns, and to what alignment. A number is the alignment of all blocks.
///
/// ```
/// use alluvion::adaptor::AlignedConfig;
///
/// assert_eq!(AlignedConfig::from(4096), AlignedConfig::new(4096).threshold(0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a configuration does nothing until a layer is made with it"]
pub struct AlignedConfig {
    alignment: usize,
    threshold_bytes: usize,
}

impl AlignedConfig {
    /// Aligns all blocks to `alignment`.
    pub fn new(alignment: usize) -> Self {
        Self { alignment, threshold_bytes: 0 }
    }

    /// Aligns only blocks of at least so many bytes. Default: all.
    pub fn threshold(mut self, bytes: usize) -> Self {
        self.threshold_bytes = bytes;
        self
    }
}

impl From<usize> for AlignedConfig {
    fn from(alignment: usize) -> Self {
        Self::new(alignment)
    }
}

impl Aligned {
    pub(crate) const CARD: Card = Card {
        name: "aligned",
        about: "Aligns blocks to more than was asked for.",
        parameters: &[
            Parameter::needed("alignment", ArgumentKind::Size, "the alignment, a power of two"),
            Parameter::new(
                "threshold",
                ArgumentKind::Size,
                "aligns only blocks of at least this size; all if left out",
            ),
        ],
    };
}

impl<U: Resource> Aligned<U> {
    /// A layer over `upstream`.
    ///
    /// # Errors
    ///
    /// `InvalidAlignment` unless the alignment is a power of two.
    pub fn new(upstream: U, config: impl Into<AlignedConfig>) -> Result<Self, Error> {
        let AlignedConfig { alignment, threshold_bytes } = config.into();
        let moves = AlignedBook::new(alignment, threshold_bytes, upstream.max_align())?;
        Ok(Self { upstream, moves, id: ResourceId::unique() })
    }

    /// What it stands over.
    #[must_use]
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// Its book.
    #[must_use]
    pub fn book(&self) -> &AlignedBook {
        &self.moves
    }

    fn allocate_with(
        &self,
        layout: Layout,
        allocate: impl FnOnce(Layout) -> Result<DevicePtr, Error>,
        give_back: impl FnOnce(DevicePtr, Layout),
    ) -> Result<DevicePtr, Error> {
        let ask = self.moves.request(layout)?;
        // Zero bytes too: the upstream says whether the stream is one of its device.
        let block = allocate(ask.layout)?;
        if layout.is_empty() {
            return Layout::new(0, ask.align).map(Layout::dangling);
        }
        self.moves.open(block, ask).ok_or_else(|| {
            give_back(block, ask.layout);
            let (what, why) = ("an alignment over this upstream", "its memory is not aligned to 256 bytes");
            Error::unsupported(what, why, "mend the upstream")
        })
    }

    /// The block as the upstream knows it, with its layout. Its record is removed. `None` for zero bytes and for
    /// unknown blocks.
    fn forget(&self, block: DevicePtr, layout: Layout) -> Option<(DevicePtr, Layout)> {
        let ask = self.moves.request(layout).ok().filter(|ask| !ask.layout.is_empty())?;
        // First: once the upstream has the block, another thread may be given the same address, and enter it. Tested over
        // `Delayed`, and by loom-tests/tests/aligned_address_reuse.rs.
        Some((self.moves.close(block, ask), ask.layout))
    }
}

// SAFETY: a block is the upstream's, or the part of it from where it is aligned on: `AlignedBook::request` asks for as many bytes more as
// that may lie further on. It stays as long as the upstream's. Only the value itself has its id.
unsafe impl<U: Resource> Resource for Aligned<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.allocate_with(
            layout,
            |layout| self.upstream.allocate(layout, stream),
            // SAFETY: the block came from the upstream with this layout just now, and nobody has seen it.
            |block, layout| unsafe { self.upstream.deallocate(block, layout, stream) },
        )
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if let Some((origin, layout)) = self.forget(block, layout) {
            // SAFETY:
            // - the block is live and the upstream's: `allocate_with` got it there, and only this layer has its id.
            // - the layout fits: it follows from the caller's alone, and `allocate_with` asked with the same.
            // - uses are ordered before: the caller's promise.
            if !is_freed_by(|| unsafe { self.upstream.deallocate(origin, layout, stream) }) {
                self.moves.reopen(block, origin);
            }
        }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.allocate_with(
            layout,
            |layout| self.upstream.allocate_sync(layout),
            // SAFETY: as in `allocate`.
            |block, layout| unsafe { self.upstream.deallocate_sync(block, layout) },
        )
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        if let Some((origin, layout)) = self.forget(block, layout) {
            // SAFETY: as in `deallocate`; uses are over: the caller's promise.
            if !is_freed_by(|| unsafe { self.upstream.deallocate_sync(origin, layout) }) {
                self.moves.reopen(block, origin);
            }
        }
    }

    forward_resource!(upstream, except allocate, deallocate, id, fmt_layer, max_align);

    unsafe fn export(&self, block: DevicePtr, layout: Layout) -> Result<Export, Error> {
        if layout.is_empty() {
            return Ok(Export::of_nothing());
        }
        let ask = self.moves.request(layout)?;
        let origin = self.moves.origin(block);
        // SAFETY: as in `deallocate`; the block is live: the caller's promise.
        let export = unsafe { self.upstream.export(origin, ask.layout) }?;
        Ok(export.within((block.address() - origin.address()) as usize))
    }

    fn host_access(&self) -> bool {
        self.upstream.host_access()
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aligned({}", Size(self.moves.alignment()))?;
        match self.moves.threshold_bytes() {
            0 => f.write_str(")"),
            bytes => write!(f, " from {})", Size(bytes)),
        }
    }

    fn max_align(&self) -> usize {
        self.moves.max_align()
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(&self.moves))
    }
}

impl<U> Layer for Aligned<U> {
    type Book = AlignedBook;

    fn figures(moves: &AlignedBook, to: &mut Figures<'_>) {
        let help = "Blocks that are out and begin elsewhere than the upstream's do.";
        to.gauge("alluvion_aligned_moved_blocks", help, moves.moved_blocks());
    }
}

blocks_of_upstream!(Aligned);
