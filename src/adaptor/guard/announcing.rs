//! Tells a tool that watches the process what of a fenced block may be accessed: see [`nvtx`]. The same for the driver, if it asks: see
//! [`BlockWatch`](crate::driver::BlockWatch), which leaves the guard's own fills and copies alone.
//!
//! The block itself while it is out; all of it while it is looked at, because the guard's own fills and copies go to its redzones, too;
//! and nothing in the quarantine. Without fills a block is not fenced, and the tool hears of it what the upstream says.
//!
//! A tool that looks for reads of what was not written takes each new region for unwritten, and a block is a new one each time that it
//! may be accessed again. So the guard says of what it copies that it was written.

use smallvec::SmallVec;

use super::fence::{Fence, Zone};
use crate::device::Device;
use crate::nvtx::{self, Piece};
use crate::resource::{DevicePtr, Layout};
use crate::stream::StreamRef;
use crate::tag::Tag;

/// What was given back is no block of the guard that is out.
pub(super) fn refuse(device: &Device, block: DevicePtr, layout: Layout, stream: Option<StreamRef<'_>>) {
    if let Some(watch) = device.driver().block_watch() {
        let (ordinal, stream) = (device.ordinal(), stream.map(StreamRef::raw));
        watch.refuse("Guard", ordinal, block.address(), layout.bytes(), stream);
    }
}

impl Fence {
    fn whole(&self) -> Piece {
        Piece::new(self.origin.address(), self.plan.whole.bytes())
    }

    /// The block goes out. After the fills were queued, and before anybody else knows it.
    pub(super) fn announce(&self, device: &Device, stream: Option<StreamRef<'_>>) {
        let (block, layout) = (self.block(), self.plan.layout);
        if let Some(watch) = device.driver().block_watch()
            && watch.divide(self.origin.address(), self.plan.whole.bytes())
        {
            let stream = stream.map(StreamRef::raw);
            watch.enter("Guard", device.ordinal(), block.address(), layout.bytes(), stream);
        }
        // The upstream has been called, so the device has a context.
        nvtx::start();
        if nvtx::listens() {
            // Where chosen ones alone are announced, those are suballocators.
            let may_be_heap = || {
                nvtx::announces_all()
                    && device.begins_an_allocation(self.origin.address(), self.plan.whole.bytes())
            };
            // A tool asks for a current device when it is told of a heap.
            let divide = || nvtx::divide(self.whole(), "Guard", may_be_heap);
            if device.in_context(divide) != Some(true) {
                return;
            }
            let tag = Tag::current();
            let block = Piece::new(self.block().address(), self.plan.layout.bytes());
            nvtx::enter(block, tag.number(), || tag.to_string());
        }
    }

    /// The block has been freed.
    pub(super) fn take_in(&self, device: &Device, stream: Option<StreamRef<'_>>) {
        if let Some(watch) = device.driver().block_watch() {
            let (block, bytes) = (self.block().address(), self.plan.layout.bytes());
            watch.leave("Guard", device.ordinal(), block, bytes, stream.map(StreamRef::raw));
        }
        self.lay_open();
    }

    /// The block is looked at.
    pub(super) fn lay_open(&self) {
        nvtx::leave(self.block().address());
        nvtx::enter(self.whole(), 0, String::new);
    }

    /// Zones of the open block are copied next, by the stream, behind the work that has written them.
    pub(super) fn vouch_for(&self, zones: &[Zone], stream: StreamRef<'_>) {
        if nvtx::listens() {
            let pieces: SmallVec<[Piece; 2]> =
                zones.iter().map(|zone| Piece::new(self.address(*zone), zone.bytes())).collect();
            // As of a heap. Without it, the tool reports what is read.
            let _ = stream.device().in_context(|| nvtx::vouch(&pieces, stream.raw().0 as usize));
        }
    }

    /// The block is in the quarantine from now on. Before anybody else may take it out.
    pub(super) fn close(&self) {
        nvtx::leave(self.origin.address());
    }

    /// The block goes back to the upstream, as it came. One that was not announced is none of this: it may be all of what the upstream
    /// has announced itself.
    pub(super) fn withdraw(&self, device: &Device) {
        nvtx::unite(self.whole());
        if let Some(watch) = device.driver().block_watch() {
            watch.unite(self.origin.address(), self.plan.whole.bytes());
        }
    }
}
