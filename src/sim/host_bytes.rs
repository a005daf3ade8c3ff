//! `HostBytes`: pinned, managed and registered memory of the host, and access to ordinary memory.

#![expect(unsafe_code, reason = "reads and writes memory of the host by address, as a DMA engine does")]

use core::alloc::Layout;
use core::ptr::{self, NonNull};
use std::alloc::{alloc_zeroed, dealloc};

/// Pinned and managed blocks start on a page, as the hardware's do.
const PAGE: usize = 4096;

/// Blocks from here on are mapped one by one, the others are the allocator's. New mappings read as zero with no page touched. glibc
/// maps large requests too, until the first such block is freed: from then on it takes all up to that size, at most 32 MiB, from
/// its heap, and clears them. One test program spent 36 s on that.
#[cfg(unix)]
const MAPPED_BYTES: usize = 1 << 20;

/// A block of host memory that the device can reach, at one address for both.
///
/// It does not free itself: the program may still use a live block when the machine is dropped, so the block is leaked.
#[derive(Debug)]
pub(super) struct HostBytes {
    start: NonNull<u8>,
    bytes: usize,
    origin: Origin,
}

/// Whose the memory of a block is.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// The allocator's, from which it came as this block, a page longer.
    Heap(NonNull<u8>),
    /// The kernel's, which mapped it as it is.
    #[cfg(unix)]
    Mapped,
    /// Other code's.
    Foreign,
}

// SAFETY: the block is raw memory that belongs to no thread; the contract of the driver calls that queue the accesses governs
// reads and writes.
unsafe impl Send for HostBytes {}

impl HostBytes {
    /// New pages, or `None` if the host has no more.
    pub(super) fn allocate(bytes: usize) -> Option<Self> {
        #[cfg(unix)]
        if bytes >= MAPPED_BYTES {
            return Self::map(bytes);
        }
        let layout = Self::layout(bytes)?;
        // SAFETY: the size is not 0: `layout` adds a page.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let into = base.addr().get().wrapping_neg() % PAGE;
        // SAFETY: the offset to the next page is less than a page, and the block is a page longer than `bytes`.
        let start = unsafe { base.add(into) };
        Some(Self::of(start, bytes, Origin::Heap(base)))
    }

    #[cfg(unix)]
    fn map(bytes: usize) -> Option<Self> {
        // As for every allocation: pointers into it are as far apart as `isize` can say.
        if isize::try_from(bytes).is_err() {
            return None;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses the addresses, so no other memory is replaced; no file is named.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        Some(Self::of(NonNull::new(start.cast())?, bytes, Origin::Mapped))
    }

    /// Device addresses of a block are plain numbers; they must be able to become pointers again.
    fn of(start: NonNull<u8>, bytes: usize, origin: Origin) -> Self {
        let _ = start.as_ptr().expose_provenance();
        Self { start, bytes, origin }
    }

    /// The layout of the allocation: a page more, and no alignment. For an aligned request the standard library clears the
    /// memory itself, which touches every page.
    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.checked_add(PAGE).filter(|_| bytes > 0)?, 1).ok()
    }

    /// Registered memory that other code owns.
    pub(super) fn registered(start: NonNull<u8>, bytes: usize) -> Self {
        Self::of(start, bytes, Origin::Foreign)
    }

    /// The address, the same for host and device.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    pub(super) const fn pointer(&self) -> NonNull<u8> {
        self.start
    }

    /// Frees the pages, unless other code owns them.
    ///
    /// # Safety
    ///
    /// The block is not used any more.
    pub(super) unsafe fn free(self) {
        match self.origin {
            Origin::Heap(base) => {
                if let Some(layout) = Self::layout(self.bytes) {
                    // SAFETY:
                    // - `base` came from `alloc_zeroed` in `allocate`: only that makes this origin.
                    // - with this layout: it depends on the size alone, which is unchanged since.
                    unsafe { dealloc(base.as_ptr(), layout) };
                }
            }
            #[cfg(unix)]
            Origin::Mapped => {
                // A size that was mapped is unmapped: this call fails for addresses of nobody alone.
                // SAFETY: the pages are those of `map`, all of them and no others: only that makes this origin, and the size is
                // unchanged since. Nobody uses them: this function's contract.
                let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
            }
            Origin::Foreign => {}
        }
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY:
        // - `from` is valid for reads of `into.len()` bytes: `at` checked the bounds, the block is mapped while it is
        //   not freed, and whoever queued the access promised that nobody writes it meanwhile.
        // - `into` is valid for writes; bytes have no alignment.
        // - they do not overlap: `into` is a buffer of the simulator or of a kernel, not part of the block.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    pub(super) fn write(&mut self, offset: u64, from: &[u8]) {
        let to = self.at(offset, from.len());
        // SAFETY:
        // - `from` is valid for reads.
        // - `to` is valid for writes of `from.len()` bytes: as in `read`, and nobody reads it meanwhile either.
        // - they do not overlap, as in `read`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    fn at(&self, offset: u64, length: usize) -> *mut u8 {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= self.bytes),
            "access outside of its block"
        );
        // SAFETY:
        // - the offset is within the block: asserted above.
        // - the block is one allocation of at most `isize::MAX` bytes: `Layout` and `register_host` see to it.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

/// Reads ordinary memory of the host.
///
/// # Safety
///
/// The bytes at `address` are mapped and initialised, and no code writes them meanwhile.
pub(super) unsafe fn read_pageable(address: u64, into: &mut [u8]) {
    let from = ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY:
    // - `from` is valid for reads: this function's contract.
    // - `into` is valid for writes, and a buffer of the simulator, so that they do not overlap.
    unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
}

/// Writes ordinary memory of the host.
///
/// # Safety
///
/// The bytes at `address` are mapped and writable, and no code uses them meanwhile.
pub(super) unsafe fn write_pageable(address: u64, from: &[u8]) {
    let to = ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY:
    // - `from` is valid for reads, and a buffer of the simulator, so that they do not overlap.
    // - `to` is valid for writes: this function's contract.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_page_aligned_and_holds_bytes() {
        let mut block = HostBytes::allocate(5000).unwrap();
        assert_eq!(block.address() % PAGE as u64, 0);
        block.write(4990, &[7; 10]);
        let mut back = [0; 10];
        block.read(4990, &mut back);
        assert_eq!(back, [7; 10]);
        // SAFETY: the block is used by nobody else.
        unsafe { block.free() };
    }

    /// Pages of a block that are in memory, as the kernel says.
    #[cfg(target_os = "linux")]
    fn touched(block: &HostBytes) -> usize {
        let mut pages = vec![0_u8; block.bytes.div_ceil(PAGE)];
        // SAFETY: the block starts on a page and is mapped, and there is a byte for each of its pages.
        let asked = unsafe { libc::mincore(block.start.as_ptr().cast(), block.bytes, pages.as_mut_ptr()) };
        assert_eq!(asked, 0);
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    /// The allocator of the system clears what it has had before, which the third block would be.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_large_block_costs_nothing_until_it_is_touched() {
        for _ in 0..3 {
            let mut block = HostBytes::allocate(4 * MAPPED_BYTES).unwrap();
            assert_eq!(touched(&block), 0);
            block.write(2 * MAPPED_BYTES as u64, &[1]);
            assert!(touched(&block) >= 1);
            // SAFETY: the block is used by nobody else.
            unsafe { block.free() };
        }
    }

    #[test]
    fn no_block_is_larger_than_memory_can_be() {
        assert!(HostBytes::allocate(usize::MAX).is_none());
        assert!(HostBytes::allocate(isize::MAX as usize).is_none());
    }

    #[test]
    #[should_panic(expected = "outside of its block")]
    fn an_access_outside_is_refused() {
        let mut bytes = [0_u8; 4];
        let block = HostBytes::registered(NonNull::from(&mut bytes).cast(), 4);
        block.read(3, &mut [0; 2]);
    }
}
