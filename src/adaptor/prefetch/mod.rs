//! `Prefetch`: managed memory that is on the device before it is used.

#![expect(unsafe_code, reason = "has fresh blocks migrated")]

mod book;

pub use book::PrefetchBook;

use core::fmt;

use super::watched::{Proven, Watch, Watched, WatchedBlock, WatchedRequest};
use crate::driver::Location;
use crate::error::Error;
use crate::resource::card::Card;
use crate::resource::{AnyResource, DeviceAccessible, Figures};

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
pub type Prefetch<U = AnyResource> = Watched<PrefetchWatch, U>;

/// The watch of a [`Prefetch`]: has each fresh block migrate. Its upstream is `DeviceAccessible`, because only [`Prefetch::new`] makes one.
#[derive(Debug)]
pub struct PrefetchWatch(PrefetchBook);

static_assertions::assert_impl_all!(Prefetch<crate::source::Managed>: Send, Sync, DeviceAccessible, crate::resource::HostAccessible);
static_assertions::assert_not_impl_any!(Prefetch<crate::source::Cuda>: Clone, crate::resource::HostAccessible);

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
        let watch = PrefetchWatch(PrefetchBook::over(&upstream));
        Self::over(upstream, watch)
    }
}

impl Watch for PrefetchWatch {
    type Book = PrefetchBook;
    type Entry = ();

    const SHARES_ID: bool = true;
    const NEVER_PANICS: Option<Proven> = Some(Proven::OF_THIS_CRATE);

    fn book(&self) -> &PrefetchBook {
        &self.0
    }

    /// A migration is a call of the driver; a free makes none.
    fn admit_at_once(&self, _: &WatchedRequest<'_>) -> bool {
        false
    }

    /// Queues the migration of a block that was allocated on a stream just now.
    fn serve(&self, block: &WatchedBlock<'_>) {
        let Some(stream) = block.stream() else { return };
        // Asked for within a capture it would break it. The legacy stream says that there is none by an error.
        if self.0.migrates() == Some(false) || !matches!(stream.is_capturing(), Ok(false)) {
            return;
        }
        let ordinal = block.upstream().device().ordinal();
        let (address, bytes, to) =
            (block.block().address(), block.layout().bytes(), Location::Device(ordinal));
        // SAFETY:
        // - the range is memory that the device may touch: the upstream is `DeviceAccessible`, because only `Prefetch::new` makes
        //   such a watch, and nobody else can call it. The range is live, since it was allocated just now, and until the migration has run:
        //   the free of the block is ordered after its allocation on this stream, and this is behind nothing but that.
        // - the stream is live, because it is borrowed, and of this device, because the upstream has served it.
        let queued = unsafe { stream.driver().prefetch_async(ordinal, address, bytes, to, stream.raw()) };
        self.0.note(&queued.map_err(Error::from));
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prefetch")
    }

    fn figures(hints: &PrefetchBook, to: &mut Figures<'_>) {
        to.counter("alluvion_prefetch_queued_total", "Blocks whose migration was queued.", hints.queued());
        to.counter(
            "alluvion_prefetch_refused_total",
            "Blocks whose migration the driver refused.",
            hints.refused(),
        );
    }
}
