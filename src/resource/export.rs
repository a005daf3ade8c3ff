//! `Export`: memory in a form that other processes can open.

use core::fmt;

use crate::driver::{ExportedMemory, MemoryHandle, PointerHandle};
use crate::error::Error;
use crate::sync::Arc;

/// The ways in which CUDA lends memory to other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExportWay {
    /// There are no bytes.
    Nothing,
    /// A handle of a whole allocation: `cuIpcGetMemHandle`.
    Allocation,
    /// A block of a pool that a descriptor stands for: `cuMemPoolExportPointer`.
    PoolByDescriptor,
    /// A block of a pool that a fabric handle stands for.
    PoolByFabric,
    /// Physical memory that a descriptor stands for: `cuMemExportToShareableHandle`.
    PagesByDescriptor,
    /// Physical memory that a fabric handle stands for.
    PagesByFabric,
}

/// Memory that a block lies in, in a form that other processes can open: see [`Resource::export`](crate::Resource::export).
///
/// A source makes it of what it got from the driver, its *segment*. What hands out pieces of a segment says
/// [where](Self::within) its piece lies.
#[derive(Clone)]
pub struct Export {
    pub(crate) form: ExportForm,
    /// Where the segment begins, and its bytes.
    pub(crate) segment: u64,
    pub(crate) segment_bytes: usize,
    /// Where the block begins in it.
    pub(crate) offset: usize,
}

#[derive(Clone)]
pub(crate) enum ExportForm {
    Nothing,
    Allocation(MemoryHandle),
    Pool(Arc<ExportedMemory>, PointerHandle),
    Pages(Arc<ExportedMemory>),
}

impl Export {
    /// No bytes at all.
    #[must_use]
    pub fn of_nothing() -> Self {
        Self { form: ExportForm::Nothing, segment: 0, segment_bytes: 0, offset: 0 }
    }

    /// An allocation of [`allocate_device`](crate::driver::Driver::allocate_device), which begins at that address.
    #[must_use]
    pub fn of_allocation(handle: MemoryHandle, address: u64, bytes: usize) -> Self {
        Self { form: ExportForm::Allocation(handle), segment: address, segment_bytes: bytes, offset: 0 }
    }

    /// A block of a pool, which begins at that address. The pool is exported once, for all of its blocks.
    #[must_use]
    pub fn of_pool(pool: Arc<ExportedMemory>, block: PointerHandle, address: u64, bytes: usize) -> Self {
        Self { form: ExportForm::Pool(pool, block), segment: address, segment_bytes: bytes, offset: 0 }
    }

    /// Physical memory that is mapped, whole, at that address. It is exported once, for all that lies on it.
    #[must_use]
    pub fn of_pages(memory: Arc<ExportedMemory>, address: u64, bytes: usize) -> Self {
        Self { form: ExportForm::Pages(memory), segment: address, segment_bytes: bytes, offset: 0 }
    }

    /// A piece that begins so many bytes further on.
    #[must_use]
    pub fn within(mut self, offset: usize) -> Self {
        self.offset += offset;
        self
    }

    /// Which way it goes.
    #[must_use]
    pub fn way(&self) -> ExportWay {
        let by_descriptor = |memory: &ExportedMemory| !matches!(memory, ExportedMemory::Fabric(_));
        match &self.form {
            ExportForm::Nothing => ExportWay::Nothing,
            ExportForm::Allocation(_) => ExportWay::Allocation,
            ExportForm::Pool(pool, _) if by_descriptor(pool) => ExportWay::PoolByDescriptor,
            ExportForm::Pool(..) => ExportWay::PoolByFabric,
            ExportForm::Pages(memory) if by_descriptor(memory) => ExportWay::PagesByDescriptor,
            ExportForm::Pages(_) => ExportWay::PagesByFabric,
        }
    }

    /// The bytes that an importer gets to see, or the fewest: the segment, of which the block may be a small part. What CUDA adds to a
    /// segment that is no multiple of 2 MiB, nobody can ask.
    #[must_use]
    pub fn visible_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// Where the block begins in what is visible.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment, segment_bytes, offset, .. } = self;
        write!(f, "Export({:?}, {offset} bytes into {segment_bytes} at {segment:#x})", self.way())
    }
}

/// The refusal of a resource that exports nothing.
#[cold]
pub(crate) fn no_export(why: &'static str) -> Error {
    Error::unsupported(
        "memory for other processes",
        why,
        "allocate it from `source::Cuda`, or from `CudaAsync` or `Mapped` with `handle_types`, or from a pool over one of them",
    )
}
