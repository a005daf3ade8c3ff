//! `Prefetch`: managed memory that is on the device before it is used.

#![expect(unsafe_code, reason = "forwards the contract of resources, and has fresh blocks migrated")]

mod book;

pub use book::PrefetchBook;

use core::fmt;

use crate::driver::Location;
use crate::error::Error;
use crate::forward_resource;
use crate::resource::card::Card;
use crate::resource::{
    AnyResource, DeviceAccessible, DevicePtr, Figures, HostAccessible, Layer, LayerBook, Layout, Resource,
    blocks_of_upstream,
};
use crate::stream::StreamRef;

/// Makes each block of managed memory migrate to the device when it is allocated, so that kernels do not fault it in
/// page by page.
///
/// A migration is a hint: if the driver refuses it, the block is served all the same. Memory that cannot migrate is
/// left alone: the layer learns its kind from the source at the bottom, or, if that is not one of this crate's, from
/// the driver's answer for the first block. There are no migrations while the stream captures.
///
/// Blocks that are allocated synchronously do not migrate: there is no stream to do so, and the host may use them.
///
/// Each block costs two driver calls: one asks whether the stream captures, one queues the migration.
///
/// # Stream ordering
///
/// As the upstream's. The migration comes before every use of the block, and before its free, as the allocation does.
///
/// # Thread safety
///
/// As the upstream's.
///
/// # Examples
///
/// ```
/// use alluvion::source::Managed;
/// use alluvion::{DeviceVec, PoolConfig, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let resource = Managed::new(&sim.device(0))?.pool(PoolConfig::default())?.prefetch();
/// let _numbers = DeviceVec::<f32, _>::zeroed_in(1000, &stream, &resource)?;
/// assert_eq!(resource.book().queued(), 1);
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Prefetch<U = AnyResource> {
    upstream: U,
    hints: PrefetchBook,
}

static_assertions::assert_impl_all!(Prefetch<crate::source::Managed>: Send, Sync, DeviceAccessible, HostAccessible);
static_assertions::assert_not_impl_any!(Prefetch<crate::source::Cuda>: Clone, HostAccessible);
static_assertions::assert_not_impl_any!(Prefetch<crate::source::Null>: Resource);

impl Prefetch {
    pub(crate) const CARD: Card = Card {
        name: "prefetch",
        about: "Migrates managed memory to the device before it is used.",
        parameters: &[],
    };
}

impl<U: DeviceAccessible> Prefetch<U> {
    /// A layer over `upstream`, whose blocks migrate to its device.
    #[must_use]
    pub fn new(upstream: U) -> Self {
        let hints = PrefetchBook::over(&upstream);
        Self { upstream, hints }
    }

    /// What it stands over.
    #[must_use]
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// Its book: whether the memory migrates, and the migrations so far.
    #[must_use]
    pub fn book(&self) -> &PrefetchBook {
        &self.hints
    }

    /// Queues the migration of a block that was allocated on `stream` just now.
    fn hint(&self, block: DevicePtr, bytes: usize, stream: StreamRef<'_>) {
        // Asked for within a capture it would break it. The legacy stream says that there is none by an error.
        if self.hints.migrates() == Some(false) || !matches!(stream.is_capturing(), Ok(false)) {
            return;
        }
        let ordinal = self.upstream.device().ordinal();
        let (address, to) = (block.address(), Location::Device(ordinal));
        // SAFETY:
        // - the range is memory that the device may touch (`DeviceAccessible`), and live, since it was allocated just now, and until the migration has run: what frees the block is ordered
        //   after its allocation on this stream, and this is behind nothing but that.
        // - the stream is live, because it is borrowed, and of this device, because the upstream has served it.
        let queued = unsafe { stream.driver().prefetch_async(ordinal, address, bytes, to, stream.raw()) };
        self.hints.note(&queued.map_err(Error::from));
    }
}

// SAFETY: the blocks are the upstream's, whose id it has and which keeps the contract. A migration changes no byte.
unsafe impl<U: DeviceAccessible> Resource for Prefetch<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        let block = self.upstream.allocate(layout, stream)?;
        if !layout.is_empty() {
            self.hint(block, layout.bytes(), stream);
        }
        Ok(block)
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.upstream.allocate_sync(layout)
    }

    forward_resource!(unchanged upstream, except allocate, fmt_layer);

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prefetch")
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(&self.hints))
    }
}

impl<U> Layer for Prefetch<U> {
    type Book = PrefetchBook;

    fn figures(hints: &PrefetchBook, to: &mut Figures<'_>) {
        to.counter("alluvion_prefetch_queued_total", "Blocks whose migration was queued.", hints.queued());
        to.counter(
            "alluvion_prefetch_refused_total",
            "Blocks whose migration the driver refused.",
            hints.refused(),
        );
    }
}

blocks_of_upstream!(Prefetch, over DeviceAccessible);
