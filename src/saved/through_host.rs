//! Copies between a device and a file, by way of two buffers of pinned memory: one is copied while the other is written or read.

use crate::container::{DeviceSlice, DeviceSliceMut, Transfer};
use crate::error::Error;
use crate::host::{PinnedAlloc, PinnedVec, Vec as HostVec};
use crate::stream::StreamRef;

/// The bytes of a buffer. A copy of 8 MiB takes 150 µs over PCIe 5, fifty times what its calls of the driver take.
const BUFFER: usize = 8 << 20;

/// Buffers that nothing is copied to or from.
struct Buffers {
    alloc: PinnedAlloc,
    free: Vec<PinnedVec<u8>>,
}

impl Buffers {
    fn of(stream: StreamRef<'_>) -> Result<Self, Error> {
        Ok(Self { alloc: PinnedAlloc::new(stream.device())?, free: Vec::new() })
    }

    /// One of so many bytes, which are arbitrary.
    fn take(&mut self, bytes: usize) -> Result<PinnedVec<u8>, Error> {
        let mut buffer = self.free.pop().unwrap_or_else(|| HostVec::new_in(self.alloc.clone()));
        let more = bytes.saturating_sub(buffer.len());
        if buffer.try_reserve_exact(more).is_err() {
            return Err(Error::out_of_memory(bytes));
        }
        buffer.resize(bytes, 0);
        Ok(buffer)
    }

    /// Waits for a copy, and passes its bytes on.
    fn pass(
        &mut self,
        copied: Transfer<PinnedVec<u8>>,
        pass: impl FnOnce(&mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut buffer = copied.wait()?;
        pass(&mut buffer)?;
        self.free.push(buffer);
        Ok(())
    }
}

/// Passes the bytes of a device on, in parts.
pub(super) fn download(
    from: DeviceSlice<'_, u8>,
    stream: StreamRef<'_>,
    mut pass: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    if from.is_empty() {
        return Ok(());
    }
    let mut buffers = Buffers::of(stream)?;
    let mut before = None;
    for part in from.chunks(BUFFER)? {
        let room = buffers.take(part.len())?;
        let copy = part.download(room, stream).map_err(Error::from)?;
        if let Some(before) = before.replace(copy) {
            buffers.pass(before, |bytes| pass(bytes))?;
        }
    }
    before.map_or(Ok(()), |last| buffers.pass(last, |bytes| pass(bytes)))
}

/// Fills the bytes of a device, in parts, each with what `fill` puts there.
pub(super) fn upload(
    into: DeviceSliceMut<'_, u8>,
    stream: StreamRef<'_>,
    mut fill: impl FnMut(&mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    if into.is_empty() {
        return fill(&mut []);
    }
    let mut buffers = Buffers::of(stream)?;
    let mut before = None;
    for mut part in into.chunks_mut(BUFFER)? {
        let mut buffer = buffers.take(part.len())?;
        fill(&mut buffer)?;
        let copy = part.upload(buffer, stream).map_err(Error::from)?;
        if let Some(before) = before.replace(copy) {
            buffers.pass(before, |_| Ok(()))?;
        }
    }
    before.map_or(Ok(()), |last| buffers.pass(last, |_| Ok(())))
}
