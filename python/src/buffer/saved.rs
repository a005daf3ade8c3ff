//! Blocks in a file, by address: `_saved.py` keeps the buffers.

use std::path::PathBuf;

use alluvion::saved::{SavedFile, Saver};
use alluvion::{Device, Error, HostBuffer, PinnedAlloc, PinnedVec};
use pyo3::prelude::*;

use super::transfer::{Copy, Settled};
use crate::error::{During, raise};
use crate::stream::{StreamArgument, StreamHandle};
use crate::{machine, pinned};

/// A block, by its name, where it lies, and its bytes.
type Placed = (String, u64, usize);

/// The bytes of the host that are copied at a time: a copy of so many takes twenty times what its calls of the driver take.
const PART: usize = 4 << 20;

/// The buffers that are read into while one is copied.
const AHEAD: usize = 3;

/// Writes blocks to a file, behind what the streams of these numbers do, and returns the bytes of the file.
#[pyfunction]
#[pyo3(
    signature = (path, blocks, behind, stream=StreamArgument::Missing),
    text_signature = "(path, blocks, behind, stream=...)"
)]
pub(crate) fn save_blocks(
    py: Python<'_>,
    path: PathBuf,
    blocks: Vec<Placed>,
    behind: Vec<u64>,
    stream: StreamArgument,
) -> PyResult<u64> {
    let saved = py.detach(|| {
        let mut saver = Saver::create(path)?;
        let mut courier = Courier::new(stream.handle(), &blocks)?;
        for number in behind {
            courier.follow(&StreamHandle::from_number(number, None))?;
        }
        for (name, from, bytes) in &blocks {
            saver.begin(name, *bytes as u64)?;
            if *bytes == 0 {
                continue;
            }
            saver.write_behind(|behind| {
                for (from, bytes) in parts(*from, *bytes) {
                    let full = courier.copy(None, |host| Copy { to: host, from, bytes })?;
                    courier.free.extend(behind.write(full, bytes)?);
                }
                Ok(())
            })?;
        }
        saver.finish()
    });
    raise(py, saved, During::Other)
}

/// The names of the blocks of a file, and their bytes.
#[pyfunction]
pub(crate) fn saved_blocks(py: Python<'_>, path: PathBuf) -> PyResult<Vec<(String, u64)>> {
    let opened = py.detach(|| SavedFile::open(path));
    let opened = raise(py, opened, During::Other)?;
    Ok(opened.blocks().map(|(name, bytes)| (name.to_owned(), bytes)).collect())
}

/// Reads blocks of a file to where they shall lie. The contents there are arbitrary if it fails.
#[pyfunction]
#[pyo3(signature = (path, blocks, stream=StreamArgument::Missing), text_signature = "(path, blocks, stream=...)")]
pub(crate) fn restore_blocks(
    py: Python<'_>,
    path: PathBuf,
    blocks: Vec<Placed>,
    stream: StreamArgument,
) -> PyResult<()> {
    let restored = py.detach(|| {
        let mut saved = SavedFile::open(path)?;
        let mut courier = Courier::new(stream.handle(), &blocks)?;
        for (name, to, bytes) in &blocks {
            let there = saved.begin(name)?;
            if there != *bytes as u64 {
                // Another file has the name by now.
                return Err(Error::length_mismatch(*bytes, usize::try_from(there).unwrap_or(usize::MAX)));
            }
            saved.read_ahead(|ahead| {
                for _ in parts(*to, *bytes).take(AHEAD) {
                    ahead.give(courier.buffer()?)?;
                }
                let mut at = *to;
                while let Some((full, bytes)) = ahead.take()? {
                    let copied = courier.copy(Some(full), |host| Copy { to: at, from: host, bytes })?;
                    at += bytes as u64;
                    ahead.give(copied)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    });
    raise(py, restored, During::Other)
}

/// Where parts of a block begin, and their bytes.
fn parts(start: u64, bytes: usize) -> impl Iterator<Item = (u64, usize)> {
    (0..bytes).step_by(PART).map(move |at| (start + at as u64, PART.min(bytes - at)))
}

/// Pinned memory that contents go through.
struct Courier<'s> {
    device: Device,
    stream: &'s StreamHandle,
    alloc: PinnedAlloc,
    /// The bytes of a buffer.
    bytes: usize,
    /// Buffers that nobody uses now.
    free: Vec<PinnedVec<u8>>,
}

impl<'s> Courier<'s> {
    fn new(stream: &'s StreamHandle, blocks: &[Placed]) -> Result<Self, Error> {
        let device = machine::device()?;
        let bytes = blocks.iter().map(|(_, _, bytes)| PART.min(*bytes)).max().unwrap_or(0);
        let alloc = PinnedAlloc::from_resource(pinned::pool_of(&device)?);
        Ok(Self { device, stream, alloc, bytes, free: Vec::new() })
    }

    /// Makes the copies come after what another stream has now.
    fn follow(&self, other: &StreamHandle) -> Result<(), Error> {
        other.with(&self.device, |other| {
            self.stream.with(&self.device, |stream| stream.wait_for_stream(other))
        })
    }

    /// One for a part of the longest block.
    fn buffer(&mut self) -> Result<PinnedVec<u8>, Error> {
        if let Some(free) = self.free.pop() {
            return Ok(free);
        }
        let mut host = PinnedVec::new_in(self.alloc.clone());
        if host.try_reserve_exact(self.bytes).is_err() {
            return Err(Error::out_of_memory(self.bytes));
        }
        host.resize(self.bytes, 0);
        Ok(host)
    }

    /// Makes a copy, from or to the address of a buffer, and waits for it. The buffer is the given one, or one that nobody uses. After an error
    /// it is lost if the device may use it at any time.
    fn copy(
        &mut self,
        buffer: Option<PinnedVec<u8>>,
        of: impl FnOnce(u64) -> Copy,
    ) -> Result<PinnedVec<u8>, Error> {
        let mut host = buffer.map_or_else(|| self.buffer(), Ok)?;
        let copy = of(HostBuffer::as_mut_ptr(&mut host).expose_provenance() as u64);
        let settled = self.stream.with(&self.device, |stream| Ok(copy.run(stream)));
        match settled.unwrap_or_else(|error| Settled::Over(Err(error))) {
            Settled::Over(outcome) => outcome.map(|()| host),
            Settled::Open(error) => {
                core::mem::forget(host);
                Err(error)
            }
        }
    }
}
