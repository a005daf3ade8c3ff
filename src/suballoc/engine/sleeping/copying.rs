//! Copies contents between device and host.

use super::super::Engine;
use crate::driver::own_work;
use crate::error::Error;
use crate::resource::{HostCopy, Resource, SleepingBlock};
use crate::stream::{Stream, StreamRef};

/// The bytes of one copy: two streams take turns with copies of 64 MiB, so that one is always queued behind the other.
const PIECE: u64 = 64 << 20;

impl<U: Resource> Engine<U> {
    /// Copies the contents of blocks, on two streams, and waits for it.
    pub(super) fn copy(
        &self,
        blocks: &[SleepingBlock],
        host: &HostCopy<'_>,
        direction: Direction,
    ) -> Result<(), Error> {
        let device = &self.book.device;
        let streams: [Stream; 2] = [device.stream()?, device.stream()?];
        let mut submitted = Ok(());
        for (piece, stream) in Pieces::of(blocks, host).zip(streams.iter().cycle()) {
            // SAFETY: the memory of blocks and host is live and as long; no other work uses the blocks, as the caller has
            // promised, or because they are not awake yet; nobody else knows the memory of the host. It is waited for below,
            // or both stay where they are: see `SuballocBook::settle_copies`.
            submitted = unsafe { submit(stream.as_ref(), piece, direction) };
            if submitted.is_err() {
                break;
            }
        }
        submitted.and(host.copies().settle(streams))
    }
}

/// Where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    ToHost,
    ToDevice,
}

/// Bytes at two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    block: u64,
    host: u64,
    bytes: u64,
}

/// Submits the copy of a piece.
///
/// # Safety
///
/// As [`Driver::copy_async`](crate::driver::Driver::copy_async), for memory; the stream is proved by its borrow.
unsafe fn submit(stream: StreamRef<'_>, piece: Piece, direction: Direction) -> Result<(), Error> {
    let (to, from) = match direction {
        Direction::ToHost => (piece.host, piece.block),
        Direction::ToDevice => (piece.block, piece.host),
    };
    let ordinal = stream.device().ordinal();
    // SAFETY: the caller's promises; the stream is live and of this device, because it is borrowed.
    Ok(own_work(|| unsafe {
        stream.driver().copy_async(ordinal, to, from, piece.bytes as usize, stream.raw())
    })?)
}

/// The copies of blocks: adjacent blocks together, and long ones in several.
struct Pieces<'b> {
    blocks: core::iter::Peekable<core::slice::Iter<'b, SleepingBlock>>,
    host: &'b HostCopy<'b>,
    /// Bytes that are left: at an address, and where they are kept.
    left: Option<SleepingBlock>,
}

impl<'b> Pieces<'b> {
    fn of(blocks: &'b [SleepingBlock], host: &'b HostCopy<'b>) -> Self {
        Self { blocks: blocks.iter().peekable(), host, left: None }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let mut left = match self.left.take() {
            Some(left) => left,
            None => *self.blocks.next()?,
        };
        let end = |left: &SleepingBlock| (left.address + left.bytes, left.offset + left.bytes);
        while left.bytes < PIECE
            && let Some(block) = self.blocks.next_if(|block| (block.address, block.offset) == end(&left))
        {
            left.bytes += block.bytes;
        }
        let (host, room) = self.host.place(left.offset)?;
        let bytes = left.bytes.min(room).min(PIECE);
        if bytes < left.bytes {
            self.left = Some(SleepingBlock {
                address: left.address + bytes,
                bytes: left.bytes - bytes,
                offset: left.offset + bytes,
            });
        }
        Some(Piece { block: left.address, host, bytes })
    }
}
