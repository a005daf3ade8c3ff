//! `LimitWatch`: what a layer does whose blocks are within an allowance.

use core::fmt;

use super::{Allowance, TakenRoom};
use crate::adaptor::watched::{Proven, Watch, WatchedRequest};
use crate::driver::MemoryInfo;
use crate::error::Error;
use crate::resource::{Figures, Layer, Layout};
use crate::size::Size;
use crate::stream::StreamRef;

/// The watch of a [`Limiting`](crate::adaptor::Limiting) and, of an allowance that others have too, of a
/// [`Budget`](crate::adaptor::Budget): takes room for each block, and gives it back.
///
/// Books of addresses close before the upstream has the block, because another thread may own the address afterwards. Here is no
/// address, and room goes back after it: bytes that are given back before could be taken by another thread, whose block would then
/// be out beside the one that is not back yet. So what the upstream has given out is never more than what is counted, and that is
/// never more than the limit. A free that the upstream refuses gives nothing back.
#[derive(Debug)]
pub struct LimitWatch<const IS_SHARED: bool>(pub(in crate::adaptor) Allowance);

impl<const IS_SHARED: bool> LimitWatch<IS_SHARED> {
    const LAYER: &'static str = if IS_SHARED { "Budget" } else { "Limiting" };
}

impl<const IS_SHARED: bool> Watch for LimitWatch<IS_SHARED> {
    type Book = Allowance;
    type Entry = ();

    const NAME: Option<&'static str> = Some(Self::LAYER);
    const SEES_PAGES: bool = true;
    const NEVER_PANICS: Option<Proven> = Some(Proven::OF_THIS_CRATE);

    fn book(&self) -> &Allowance {
        &self.0
    }

    #[inline(always)]
    fn admit(&self, request: &WatchedRequest<'_>) -> Result<(), Error> {
        let layout = request.layout();
        self.0.take_for(layout).map(TakenRoom::keep).map_err(|refusal| {
            let stream = request.stream().map(StreamRef::id);
            refusal.into_error(Self::LAYER, &self.0, layout.bytes(), layout.align(), stream)
        })
    }

    #[inline(always)]
    fn admit_at_once(&self, request: &WatchedRequest<'_>) -> bool {
        self.0.take_at_once(request.layout()).map(TakenRoom::keep).is_some()
    }

    fn withdraw(&self, request: &WatchedRequest<'_>) {
        self.0.give(request.layout().rounded_bytes());
    }

    #[inline(always)]
    fn left(&self, layout: Layout, (): ()) {
        self.0.give(layout.rounded_bytes());
    }

    fn memory_info(&self, of_upstream: MemoryInfo) -> MemoryInfo {
        self.0.cap(of_upstream)
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if IS_SHARED {
            write!(f, "Budget({})", self.0.describe())
        } else {
            write!(f, "Limiting({})", Size(self.0.limit_bytes()))
        }
    }

    fn figures(book: &Allowance, to: &mut Figures<'_>) {
        <Allowance as Layer>::figures(book, to);
    }
}
