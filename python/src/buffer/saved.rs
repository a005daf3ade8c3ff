//! Blocks in a file, by address: `_saved.py` keeps the buffers.

#![expect(unsafe_code, reason = "copies from and to addresses")]

use std::path::PathBuf;

use alluvion::PinnedAlloc;
use alluvion::saved::{SavedFile, Saver};
use pyo3::prelude::*;

use crate::error::{During, raise};
use crate::stream::{StreamArgument, StreamHandle};
use crate::{machine, pinned};

/// A block, by its name, where it lies, and its bytes.
type Placed = (String, u64, usize);

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
        let device = machine::device()?;
        let pinned = Some(PinnedAlloc::from_resource(pinned::pool_of(&device)?));
        stream.handle().with(&device, |stream| {
            for number in behind {
                let other = StreamHandle::from_number(number, None);
                other.with(&device, |other| stream.wait_for_stream(other))?;
            }
            for (name, from, bytes) in &blocks {
                // SAFETY: the buffers are kept until the call returns, by `_saved.py`; an address that was made up is the fault of who
                // passed it, as the documentation says.
                unsafe { saver.save_block(name, *from, *bytes, stream, pinned.clone()) }?;
            }
            Ok(())
        })?;
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
        let device = machine::device()?;
        let pinned = Some(PinnedAlloc::from_resource(pinned::pool_of(&device)?));
        stream.handle().with(&device, |stream| {
            for (name, to, bytes) in &blocks {
                // SAFETY: as in `save_blocks`.
                unsafe { saved.restore_block(name, *to, *bytes, stream, pinned.clone()) }?;
            }
            Ok(())
        })
    });
    raise(py, restored, During::Other)
}
