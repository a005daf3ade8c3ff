//! Contents that go to a file and come back, by way of pinned memory.

#![expect(unsafe_code, reason = "reads and writes pinned memory that nobody else has")]

use std::sync::Arc;

use super::super::Engine;
use super::copying::Direction;
use crate::device::Device;
use crate::error::Error;
use crate::resource::{ContentFiles, HostCopy, Resource, SleepRecord, SleepingBlock};
use crate::source::Pinned;

/// The bytes that are copied at a time. To copy 16 MiB takes 0.3 ms over PCIe 5, and to write them to a disk of 3 GB/s 5 ms: that the
/// next ones are not copied meanwhile costs 6 %.
const STAGE: u64 = 16 << 20;

impl<U: Resource> Engine<U> {
    /// Writes the contents of the blocks of a record to a new file. After an error there is none.
    pub(super) fn write_out(
        &self,
        record: &mut SleepRecord<'_>,
        files: &dyn ContentFiles,
    ) -> Result<(), Error> {
        let bytes = record.bytes() as u64;
        let mut file = files.create(bytes)?;
        let SleepRecord { blocks, host, .. } = record;
        let host = host.insert(stage(&self.book.device, bytes)?);
        for (from, to) in stages(bytes) {
            self.copy(&within(blocks, from, to), host, Direction::ToHost)?;
            file.write(staged(host, to - from)?)?;
        }
        record.file = Some(file.finish()?);
        record.host = None;
        Ok(())
    }

    /// Copies the contents of the blocks of a record back from its file, if they are in one. It can be called again after an error.
    pub(super) fn read_back(&self, record: &mut SleepRecord<'_>) -> Result<(), Error> {
        let SleepRecord { blocks, host, file, .. } = record;
        let Some(file) = file else { return Ok(()) };
        let bytes = file.bytes();
        // There is one of an attempt that has failed.
        let host = match host {
            Some(host) => host,
            None => host.insert(stage(&self.book.device, bytes)?),
        };
        file.begin()?;
        for (from, to) in stages(bytes) {
            // Also where all blocks were freed meanwhile: the checksum is that of the whole.
            file.read(staged(host, to - from)?)?;
            self.copy(&within(blocks, from, to), host, Direction::ToDevice)?;
        }
        Ok(())
    }
}

/// Pinned memory for the copies of so many bytes. It has no bytes that are not written.
fn stage(device: &Device, bytes: u64) -> Result<HostCopy<'static>, Error> {
    let mut host = HostCopy::allocate(Arc::new(Pinned::new(device)?), bytes.min(STAGE))?;
    if let Some((pointer, bytes)) = memory(&mut host) {
        // SAFETY: the memory is live, so long, and nobody else knows it; no copy goes on.
        unsafe { pointer.write_bytes(0, bytes) };
    }
    Ok(host)
}

/// The first bytes of a stage.
fn staged<'h>(host: &'h mut HostCopy<'_>, bytes: u64) -> Result<&'h mut [u8], Error> {
    match memory(host) {
        Some((pointer, room)) if bytes <= room as u64 => {
            // SAFETY:
            // - the memory is live while `host` is borrowed, at least so long, and was written when it was made.
            // - nobody else knows it, and no copy goes on: `Engine::copy` has waited for it, or has failed, and then nobody comes here
            //   before the copies are over.
            Ok(unsafe { core::slice::from_raw_parts_mut(pointer, bytes as usize) })
        }
        _ => Err(Error::length_mismatch(0, bytes as usize)),
    }
}

/// Where the memory of a stage is for the host, and its bytes.
fn memory(host: &mut HostCopy<'_>) -> Option<(*mut u8, usize)> {
    let (address, bytes) = host.place(0)?;
    // The host reaches pinned memory at the addresses that the device has for it: `HostAccessible`.
    Some((core::ptr::with_exposed_provenance_mut(address as usize), bytes as usize))
}

/// Where each stage begins and ends.
fn stages(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes.div_ceil(STAGE)).map(move |turn| (turn * STAGE, (turn * STAGE + STAGE).min(bytes)))
}

/// What of the blocks is kept between two offsets, with its offset from the first.
fn within(blocks: &[SleepingBlock], from: u64, to: u64) -> Vec<SleepingBlock> {
    let first = blocks.partition_point(|block| block.offset + block.bytes <= from);
    let blocks = blocks[first..].iter().take_while(|block| block.offset < to);
    blocks
        .map(|block| {
            let (start, end) = (block.offset.max(from), (block.offset + block.bytes).min(to));
            SleepingBlock {
                address: block.address + (start - block.offset),
                bytes: end - start,
                offset: start - from,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(address: u64, bytes: u64, offset: u64) -> SleepingBlock {
        SleepingBlock { address, bytes, offset }
    }

    #[test]
    fn blocks_are_cut_where_a_stage_ends() {
        let blocks = [block(1000, 10, 0), block(2000, 5, 10), block(3000, 20, 15), block(4000, 1, 40)];
        let cut = |from, to| {
            let found = within(&blocks, from, to);
            found.iter().map(|block| (block.address, block.bytes, block.offset)).collect::<Vec<_>>()
        };
        assert_eq!(cut(0, 10), [(1000, 10, 0)]);
        assert_eq!(cut(5, 12), [(1005, 5, 0), (2000, 2, 5)]);
        assert_eq!(cut(12, 30), [(2002, 3, 0), (3000, 15, 3)]);
        // Between 35 and 40 was a block that was freed.
        assert_eq!(cut(30, 41), [(3015, 5, 0), (4000, 1, 10)]);
        assert_eq!(cut(35, 40), []);
    }

    #[test]
    fn stages_have_all_bytes_once() {
        assert_eq!(stages(0).count(), 0);
        assert_eq!(stages(STAGE).collect::<Vec<_>>(), [(0, STAGE)]);
        assert_eq!(stages(STAGE + 1).collect::<Vec<_>>(), [(0, STAGE), (STAGE, STAGE + 1)]);
    }
}
