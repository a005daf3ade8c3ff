//! `Owned<R>`: a block and the resource that it goes back to. Not generic over what lies in it.

#![expect(unsafe_code, reason = "owns a block, and gives it back")]

use core::fmt;
use core::mem::{self, ManuallyDrop};

use super::access::Access;
use super::block::{Block, outside_of_graphs};
use super::capture::refuse_capture;
use super::raw_parts::RawParts;
use crate::error::Error;
use crate::resource::{Describe, DeviceAccessible, Export, Layout};
use crate::stream::StreamRef;

/// What a container has, and gives back when it is dropped.
pub(crate) struct Owned<R: DeviceAccessible> {
    block: Block,
    resource: ManuallyDrop<R>,
}

impl<R: DeviceAccessible> Owned<R> {
    /// A block with arbitrary contents, all of it in use.
    pub(super) fn allocate(layout: Layout, stream: StreamRef<'_>, resource: R) -> Result<Self, Error> {
        let mut block = Block::allocate(&resource, layout, stream)?;
        block.len = layout.bytes();
        Ok(Self { block, resource: ManuallyDrop::new(resource) })
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    pub(super) fn block_mut(&mut self) -> &mut Block {
        &mut self.block
    }

    pub(crate) fn resource(&self) -> &R {
        &self.resource
    }

    /// Has room for `wanted` bytes: moves, if there is none yet, to the block that `layout` says, of the capacity, the bytes wanted and
    /// the alignment.
    pub(super) fn make_room(
        &mut self,
        wanted: usize,
        stream: StreamRef<'_>,
        layout: fn(usize, usize, usize) -> Result<Layout, Error>,
    ) -> Result<(), Error> {
        self.block.device().require(stream.device())?;
        let now = self.block.layout;
        if wanted <= now.bytes() {
            return Ok(());
        }
        self.reallocate(layout(now.bytes(), wanted, now.align())?, stream)
    }

    /// Moves to a block of what is in use and no more.
    pub(super) fn shrink_to_fit(&mut self, stream: StreamRef<'_>) -> Result<(), Error> {
        self.block.device().require(stream.device())?;
        let (len, now) = (self.block.len, self.block.layout);
        if len == now.bytes() {
            return Ok(());
        }
        self.reallocate(Layout::new(len, now.align())?, stream)
    }

    /// Moves what is in use to a new block, which is at least as long. The home stays.
    fn reallocate(&mut self, layout: Layout, stream: StreamRef<'_>) -> Result<(), Error> {
        let mut fresh = Block::allocate(&*self.resource, layout, self.block.home.as_ref())?;
        fresh.len = self.block.len;
        let moved = self.block.copy_into(&fresh, self.block.len, stream);
        let mut unused = if moved.is_ok() { mem::replace(&mut self.block, fresh) } else { fresh };
        // SAFETY: both blocks came from this resource; the one that the container does not keep is not used again.
        unsafe { unused.deallocate_to(&*self.resource) };
        moved
    }

    pub(super) fn into_raw_parts(self) -> RawParts<R> {
        let (block, resource) = self.dismantle();
        let frontier = block.frontier();
        RawParts {
            block: block.address,
            layout: block.layout,
            len_bytes: block.len,
            home: block.home,
            frontier,
            resource,
        }
    }

    /// # Safety
    ///
    /// Those of [`DeviceVec::from_raw_parts`](super::DeviceVec::from_raw_parts), for bytes.
    pub(super) unsafe fn from_raw_parts(parts: RawParts<R>) -> Self {
        let RawParts { block, layout, len_bytes, home, frontier, resource } = parts;
        debug_assert!(len_bytes <= layout.bytes());
        let block = Block::adopt(block, layout, len_bytes, home, &frontier);
        Self { block, resource: ManuallyDrop::new(resource) }
    }

    /// Runs `submit`, which submits to `stream` what comes behind all uses of the block.
    ///
    /// # Errors
    ///
    /// `Capture` if the stream records a graph; `DeviceMismatch` for one of another device; what `submit` says.
    pub(crate) fn behind_all_uses<X>(
        &self,
        stream: StreamRef<'_>,
        submit: impl FnOnce() -> Result<X, Error>,
    ) -> Result<X, Error> {
        self.block.device().require(stream.device())?;
        refuse_capture(stream)?;
        outside_of_graphs(stream, &[&self.block], || self.block.access(stream, Access::Write, submit))
    }

    /// The memory that the block lies in, for other processes.
    pub(crate) fn export(&self) -> Result<Export, Error> {
        // SAFETY: the block is live, because this has it, and came from this resource, or from one with its id, with this layout.
        unsafe { self.resource.export(self.block.address, self.block.layout) }
    }

    /// Block and resource, without giving the block back.
    fn dismantle(self) -> (Block, R) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped and not used again but for the resource, so the block has one owner.
        let block = unsafe { core::ptr::read(&raw const this.block) };
        // SAFETY: `this` is not dropped and not used again.
        let resource = unsafe { ManuallyDrop::take(&mut this.resource) };
        (block, resource)
    }
}

impl<R: DeviceAccessible> Drop for Owned<R> {
    fn drop(&mut self) {
        // SAFETY: the block came from this resource, or one with its id, and its owner is gone.
        unsafe { self.block.deallocate_to(&*self.resource) };
        // SAFETY: nobody uses it after the drop, and the drop runs once.
        unsafe { ManuallyDrop::drop(&mut self.resource) };
    }
}

impl<R: DeviceAccessible> fmt::Debug for Owned<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}, home {:?}, {}", self.block.address, self.block.home, Describe::new(&*self.resource))
    }
}
