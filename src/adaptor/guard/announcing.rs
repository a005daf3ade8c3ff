//! Tells a tool that watches the process what of a fenced block may be accessed: see [`nvtx`].
//!
//! The block itself while it is out; all of it while it is looked at, because the guard's own fills and copies go to its redzones, too;
//! and nothing in the quarantine. Without fills a block is not fenced, and the tool hears of it what the upstream says.

use super::fence::Fence;
use crate::nvtx::{self, Piece};
use crate::tag::Tag;

impl Fence {
    fn whole(&self) -> Piece {
        Piece::new(self.origin.address(), self.plan.whole.bytes())
    }

    /// The block goes out. After the fills were queued, and before anybody else knows it.
    pub(super) fn announce(&self) {
        // The upstream has been called, so the device has a context.
        nvtx::start();
        if nvtx::listens() {
            nvtx::divide(self.whole(), "Guard");
            let tag = Tag::current();
            let block = Piece::new(self.block().address(), self.plan.layout.bytes());
            nvtx::enter(block, tag.number(), || tag.to_string());
        }
    }

    /// The block is looked at.
    pub(super) fn lay_open(&self) {
        nvtx::leave(self.block().address());
        nvtx::enter(self.whole(), 0, String::new);
    }

    /// The block is in the quarantine from now on. Before anybody else may take it out.
    pub(super) fn close(&self) {
        nvtx::leave(self.origin.address());
    }

    /// The block goes back to the upstream, as it came.
    pub(super) fn withdraw(&self) {
        nvtx::unite(self.whole());
    }
}
