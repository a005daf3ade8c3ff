//! Tells a tool that watches the process which blocks are out: see [`nvtx`]; and the driver, if it asks: see [`BlockWatch`].
//!
//! What is taken of the upstream is announced before a block of it goes out, and until nothing of it is out. A block is announced with
//! the bytes that were asked for, after it was taken, and no more before it is put anywhere. So blocks that wait in caches are none to
//! the tool. Memory that graphs have is announced whole, until it is released: a graph may be launched at any time.
//!
//! Of memory that tools take for no heap nothing is announced to them: memory of driver pools, and pages, which are mapped. A driver is
//! told of that, too: of ranges of addresses whole, whatever is mapped there.

use core::sync::atomic::Ordering;

use super::Engine;
use super::book::SuballocBook;
use crate::driver::BlockWatch;
#[cfg(feature = "nvtx")]
use crate::error::Error;
use crate::nvtx::{self, Piece};
use crate::resource::{DevicePtr, Layout, Resource};
use crate::stream::StreamRef;
use crate::tag::Tag;

impl<U: Resource> Engine<U> {
    /// Announces memory of the upstream that is carved from now on. No lock is held, and nobody else knows the memory.
    ///
    /// Starts the tool, if it has not begun: the upstream has been called, so the device has a context.
    pub(super) fn announce_memory(&self, address: u64, bytes: usize) {
        self.announce_to_driver(address, bytes);
        nvtx::start();
        if !nvtx::listens() {
            return;
        }
        let piece = Piece::new(address, bytes);
        // A bin over a chosen pool carves what the tool knows.
        if nvtx::announces_all() || self.book.is_chosen() || nvtx::knows(piece) {
            let device = &self.book.device;
            let may_be_heap = || device.begins_an_allocation(address, bytes);
            // A tool asks for a current device when it is told of a heap.
            if device.in_context(|| nvtx::divide(piece, self.book.config.name, may_be_heap)) == Some(true) {
                self.book.is_plain_no_more();
            }
        }
    }

    /// The same of addresses of the upstream, for the driver alone.
    pub(super) fn announce_to_driver(&self, address: u64, bytes: usize) {
        if self.book.watch().is_some_and(|watch| watch.divide(address, bytes)) {
            self.book.is_plain_no_more();
        }
    }

    /// The memory goes back to the upstream: nothing of it is out. No lock is held.
    pub(super) fn withdraw_memory(&self, address: u64, bytes: usize) {
        nvtx::unite(Piece::new(address, bytes));
        if let Some(watch) = self.book.watch() {
            watch.unite(address, bytes);
        }
    }

    /// Notes a block that goes out, for a ledger and for a tool.
    #[cold]
    #[inline(never)]
    pub(super) fn note_out(&self, block: DevicePtr, layout: Layout, stream: Option<StreamRef<'_>>) {
        if let Some(ledger) = &self.book.ledger {
            ledger.insert(block, layout);
        }
        self.book.goes_out(block, layout, stream);
        if nvtx::listens() {
            let tag = Tag::current();
            let piece = Piece::new(block.address(), layout.bytes());
            nvtx::enter(piece, tag.number(), || tag.to_string());
        }
    }
}

impl SuballocBook {
    /// A tool hears of this suballocator, also where it hears of chosen ones alone.
    #[cfg(feature = "nvtx")]
    pub(crate) fn choose(&self) -> Result<(), Error> {
        if nvtx::listens() && !nvtx::announces_all() && !self.is_chosen() && self.reserved_bytes() > 0 {
            return Err(Error::invalid_argument(
                "to announce a suballocator that has memory",
                "a tool has to hear of all its blocks, from the first one",
                "choose it when it is made, without an initial size",
            ));
        }
        // Relaxed: it is read when memory is taken, and whoever takes it has the resource from this thread.
        self.is_chosen.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn is_chosen(&self) -> bool {
        // Relaxed: as above.
        self.is_chosen.load(Ordering::Relaxed)
    }

    /// Who of the driver is told of blocks.
    pub(super) fn watch(&self) -> Option<&dyn BlockWatch> {
        self.device.driver().block_watch()
    }

    /// The driver hears of a block that goes out.
    fn goes_out(&self, block: DevicePtr, layout: Layout, stream: Option<StreamRef<'_>>) {
        if let Some(watch) = self.watch() {
            let stream = stream.map(StreamRef::raw);
            watch.enter(self.config.name, self.device.ordinal(), block.address(), layout.bytes(), stream);
        }
    }

    /// The driver has heard that a block came back, and it stays out: for all work, because nobody knows by now since when.
    pub(super) fn stays_out(&self, block: DevicePtr, layout: Layout) {
        self.goes_out(block, layout, None);
    }

    /// Nobody hears of a block any more. Before the block is put anywhere, and with no lock held. Returns `false` if the driver knows
    /// that it is none.
    #[inline]
    pub(super) fn withdraw(&self, block: DevicePtr, layout: Layout, stream: Option<StreamRef<'_>>) -> bool {
        if self.is_plain() {
            return true;
        }
        nvtx::leave(block.address());
        let Some(watch) = self.watch() else { return true };
        let stream = stream.map(StreamRef::raw);
        watch.leave(self.config.name, self.device.ordinal(), block.address(), layout.bytes(), stream)
    }
}
