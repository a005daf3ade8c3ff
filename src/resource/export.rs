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
    /// Several pieces of physical memory, side by side: a descriptor of each, all of which are sent as one.
    AdjacentPagesByDescriptor,
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
    /// Two or more, in their order, each with its bytes. None is by a fabric handle.
    AdjacentPages(Vec<(Arc<ExportedMemory>, usize)>),
}

/// The most pages that a block is shared on. A page of a pool is 1/1024 of the device's memory, rounded down to a power of two: on an H200
/// these are 126 GiB of 140. The exporter has so many descriptors open for a moment, and a process has 1024 unless it asks for more.
pub(crate) const MOST_PAGES: usize = 1012;

pub(crate) fn require_few_pages(pages: usize) -> Result<(), Error> {
    if pages <= MOST_PAGES {
        return Ok(());
    }
    Err(Error::unsupported(
        "memory for other processes",
        "the block lies on more than 1012 pages, each of which has a descriptor of its own",
        "allocate it from `Mapped` itself, from an `Arena` over it, or from a pool over `Cuda`",
    ))
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

    /// Several pieces of physical memory that are mapped, whole and side by side, from that address on: each with its bytes.
    ///
    /// # Errors
    ///
    /// `Unsupported` for more than 1012, and for several of which one is by a fabric handle: a message has room for one of these.
    pub fn of_adjacent_pages(
        pages: impl IntoIterator<Item = (Arc<ExportedMemory>, usize)>,
        address: u64,
    ) -> Result<Self, Error> {
        let pages: Vec<_> = pages.into_iter().collect();
        require_few_pages(pages.len())?;
        if pages.len() > 1 && pages.iter().any(|(memory, _)| is_fabric(memory)) {
            return Err(Error::unsupported(
                "memory for other processes",
                "the block lies on several pages, and a message has room for one fabric handle",
                "make the pages with descriptors, or allocate it from `Mapped` itself, or from an `Arena` over it",
            ));
        }
        let segment_bytes = pages.iter().map(|(_, bytes)| bytes).sum();
        Ok(Self { form: ExportForm::of_pages(pages), segment: address, segment_bytes, offset: 0 })
    }

    /// The same without the pages that `bytes` bytes from the piece's beginning do not lie on.
    pub(crate) fn narrowed(mut self, bytes: usize) -> Self {
        let ExportForm::AdjacentPages(pages) = &self.form else { return self };
        let wanted = self.offset..self.offset + bytes.max(1);
        let (mut kept, mut at, mut before) = (Vec::new(), 0, 0);
        for (memory, page_bytes) in pages {
            let page = at..at + page_bytes;
            at = page.end;
            if page.end <= wanted.start {
                before = page.end;
            } else if page.start < wanted.end {
                kept.push((Arc::clone(memory), *page_bytes));
            }
        }
        self.segment += before as u64;
        self.offset -= before;
        self.segment_bytes = kept.iter().map(|(_, bytes)| bytes).sum();
        self.form = ExportForm::of_pages(kept);
        self
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
        match &self.form {
            ExportForm::Nothing => ExportWay::Nothing,
            ExportForm::Allocation(_) => ExportWay::Allocation,
            ExportForm::Pool(pool, _) if !is_fabric(pool) => ExportWay::PoolByDescriptor,
            ExportForm::Pool(..) => ExportWay::PoolByFabric,
            ExportForm::Pages(memory) if !is_fabric(memory) => ExportWay::PagesByDescriptor,
            ExportForm::Pages(_) => ExportWay::PagesByFabric,
            ExportForm::AdjacentPages(_) => ExportWay::AdjacentPagesByDescriptor,
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

impl ExportForm {
    fn of_pages(mut pages: Vec<(Arc<ExportedMemory>, usize)>) -> Self {
        if pages.len() > 1 {
            return Self::AdjacentPages(pages);
        }
        pages.pop().map_or(Self::Nothing, |(memory, _)| Self::Pages(memory))
    }
}

fn is_fabric(memory: &ExportedMemory) -> bool {
    matches!(memory, ExportedMemory::Fabric(_))
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
