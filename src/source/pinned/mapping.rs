//! `Mapping`: anonymous memory of the host, in huge pages if possible.

#![expect(unsafe_code, reason = "maps and unmaps memory")]

use core::ptr::{self, NonNull};
use std::num::NonZero;
use std::thread;

use super::config::BYTES_PER_THREAD;
use crate::source::pages::{self, page_bytes};
use crate::sync::Mutex;

/// A huge page of x86-64, and of AArch64 with pages of 4 KiB. A mapping starts at a multiple of it; otherwise its first and last
/// part would be small pages.
const HUGE_PAGE: usize = 2 << 20;

/// Anonymous pages that this value owns: unmapped when it is dropped.
///
/// Its addresses have exposed provenance. This type does not access the bytes, except that [`populate`](Self::populate) may write
/// zeros.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonZero<usize>,
    bytes: usize,
}

static_assertions::assert_impl_all!(Mapping: Send, Sync);

impl Mapping {
    /// Maps whole pages of zeros for `bytes` at a multiple of `align`; `None` if the host has no room for them.
    pub(super) fn new(bytes: usize, align: usize) -> Option<Self> {
        let bytes = bytes.checked_next_multiple_of(page_bytes()).filter(|&bytes| bytes > 0)?;
        let start = pages::map(bytes, align.max(HUGE_PAGE))?;
        Some(Self { start: start.addr(), bytes })
    }

    /// The first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        NonNull::with_exposed_provenance(self.start)
    }

    /// The size, in whole pages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Asks for huge pages: 512 times fewer to touch and to pin. A kernel without them uses small ones, which work too.
    pub(super) fn prefer_huge_pages(&self) {
        #[cfg(target_os = "linux")]
        // SAFETY: the pages are this value's, and the advice does not change what they hold.
        unsafe {
            libc::madvise(self.start().as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE)
        };
    }

    /// Asks for pages of one NUMA node. If it has none left, they come from another one.
    pub(super) fn prefer_node(&self, node: u32) {
        #[cfg(target_os = "linux")]
        {
            /// As `set_mempolicy(2)` numbers it: this node while it has room, then the others.
            const MPOL_PREFERRED: libc::c_long = 1;
            const BITS: usize = usize::BITS as usize;
            /// A mask for 1024 nodes, the most that a kernel can be built for.
            const WORDS: usize = 1024 / BITS;
            let node = node as usize;
            let mut nodes = [0_usize; WORDS];
            let Some(word) = nodes.get_mut(node / BITS) else { return };
            *word = 1 << (node % BITS);
            // One more than there are bits: the kernel takes one off.
            let bits = (WORDS * BITS + 1) as libc::c_ulong;
            let start: *mut u8 = self.start().as_ptr();
            // SAFETY: the pages are this value's and the policy does not change what they hold; the mask is readable for
            // as many bits as it says, rounded up to whole words.
            unsafe {
                libc::syscall(libc::SYS_mbind, start, self.bytes, MPOL_PREFERRED, nodes.as_ptr(), bits, 0)
            };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = node;
    }

    /// Makes every page present, with up to `threads` threads. Returns `false` if the host has no memory for them.
    pub(super) fn populate(&self, threads: usize) -> bool {
        let can_run = thread::available_parallelism().map_or(1, NonZero::get);
        let parts = (self.bytes / BYTES_PER_THREAD).min(threads).min(can_run).max(1);
        // Whole huge pages, so that no two threads want the same one.
        let part_bytes = self.bytes.div_ceil(parts).next_multiple_of(HUGE_PAGE);
        let part = |index: usize| {
            let from = (index * part_bytes).min(self.bytes);
            (self.start.get() + from, part_bytes.min(self.bytes - from))
        };
        // No thread begins before all have started. Starting a thread maps its stack, which would wait for the threads at work.
        let gate = Mutex::new(());
        let closed = gate.lock();
        thread::scope(|scope| {
            // SAFETY: the part is of this mapping, which outlives the scope, and no other thread's.
            let work = |(start, bytes)| unsafe { populate_part(start, bytes) };
            let gate = &gate;
            let others: Vec<_> = (1..parts)
                .map(part)
                .map(|part| {
                    let behind_the_gate = move || {
                        drop(gate.lock());
                        work(part)
                    };
                    (part, thread::Builder::new().spawn_scoped(scope, behind_the_gate))
                })
                .collect();
            drop(closed);
            let mut present = work(part(0));
            for (part, thread) in others {
                present &= match thread {
                    Ok(thread) => thread.join().unwrap_or(false),
                    // The process may start no more threads, so this one does the work.
                    Err(_) => work(part),
                };
            }
            present
        })
    }

    /// Returns the pages, which are no longer used, to the kernel.
    pub(super) fn unmap(self) {
        drop(self);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the pages are this value's, and its owner uses them no more when it drops the value. If the kernel refuses, they
        // stay mapped and are leaked.
        let _ = unsafe { pages::unmap(self.start(), self.bytes) };
    }
}

/// Makes pages present: by a system call, or by writing to each if there is no such call.
///
/// # Safety
///
/// The pages are mapped, writable and in nobody's use; what they hold is lost.
unsafe fn populate_part(start: usize, bytes: usize) -> bool {
    #[cfg(target_os = "linux")]
    // SAFETY: the caller's promise.
    if let Some(present) = unsafe { populate_by_kernel(start, bytes) } {
        return present;
    }
    // SAFETY: the caller's promise.
    unsafe { touch(start, bytes) };
    true
}

/// Makes pages present by a system call. `None` if the kernel has no such call, `Some(false)` if the host has no memory.
///
/// A huge page at a time: a thread that maps memory meanwhile waits until the call returns, which takes 0.5 ms for 2 MiB.
///
/// # Safety
///
/// The pages are mapped, writable and in nobody's use.
#[cfg(target_os = "linux")]
unsafe fn populate_by_kernel(start: usize, bytes: usize) -> Option<bool> {
    let end = start + bytes;
    let mut at = start;
    while at < end {
        let length = HUGE_PAGE.min(end - at);
        // SAFETY: the pages are mapped and writable, as the caller promises; the call does not change what they hold.
        let code =
            unsafe { libc::madvise(ptr::with_exposed_provenance_mut(at), length, libc::MADV_POPULATE_WRITE) };
        if code == 0 {
            at += length;
            continue;
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN) => {}
            // Older than Linux 5.14.
            Some(libc::EINVAL | libc::ENOSYS) => return None,
            _ => return Some(false),
        }
    }
    Some(true)
}

/// Writes to each page.
///
/// # Safety
///
/// The pages are mapped, writable and in nobody's use; what they hold is lost.
unsafe fn touch(start: usize, bytes: usize) {
    for page in (start..start + bytes).step_by(page_bytes()) {
        let byte = ptr::with_exposed_provenance_mut::<u8>(page);
        // SAFETY: the page is mapped, writable and in nobody's use, as the caller promises. Volatile, because the write matters
        // though the byte is not read.
        unsafe { byte.write_volatile(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(mapping: &mut Mapping) -> &mut [u8] {
        // SAFETY: the mapping owns these readable and writable bytes, and is borrowed for as long as the slice.
        unsafe { core::slice::from_raw_parts_mut(mapping.start().as_ptr(), mapping.bytes()) }
    }

    #[test]
    fn it_is_aligned_and_holds_no_more_than_whole_pages() {
        for (bytes, align) in [(1, 1), (4096, 4096), (HUGE_PAGE + 1, HUGE_PAGE), (10, 64 << 20)] {
            let mapping = Mapping::new(bytes, align).unwrap();
            assert!(mapping.start.get().is_multiple_of(align.max(HUGE_PAGE)));
            assert_eq!(mapping.bytes(), bytes.next_multiple_of(page_bytes()));
        }
        assert!(Mapping::new(usize::MAX, 1).is_none());
        assert!(Mapping::new(isize::MAX as usize, 1).is_none());
    }

    #[test]
    fn every_part_is_touched_and_can_be_used_whatever_the_number_of_threads() {
        for (bytes, threads) in
            [(1, 8), (3 * BYTES_PER_THREAD + 5, 2), (9 * BYTES_PER_THREAD, 0), (17 << 20, 64)]
        {
            let mut mapping = Mapping::new(bytes, 1).unwrap();
            mapping.prefer_huge_pages();
            // No machine has this node, and the one after it does not fit in the mask.
            mapping.prefer_node(1023);
            mapping.prefer_node(u32::MAX);
            mapping.prefer_node(0);
            assert!(mapping.populate(threads));
            assert_eq!(resident_pages(&mapping), mapping.bytes() / page_bytes(), "{bytes} by {threads}");
            assert!(bytes_of(&mut mapping).iter().all(|byte| *byte == 0));
            bytes_of(&mut mapping).fill(7);
        }
    }

    #[test]
    fn pages_can_be_touched_one_by_one() {
        let mapping = Mapping::new(HUGE_PAGE + 1, 1).unwrap();
        assert_eq!(resident_pages(&mapping), 0);
        // SAFETY: the pages are the mapping's, and nobody uses them.
        unsafe { touch(mapping.start.get(), mapping.bytes()) };
        assert_eq!(resident_pages(&mapping), mapping.bytes() / page_bytes());
    }

    #[test]
    fn what_is_dropped_is_unmapped() {
        // 70,000 times 4 GiB are 273 TiB: more than the 256 TiB of 48-bit addresses hold at once.
        for _ in 0..70_000 {
            assert!(Mapping::new(4 << 30, 1).is_some());
        }
    }

    fn resident_pages(mapping: &Mapping) -> usize {
        let mut present = vec![0_u8; mapping.bytes() / page_bytes()];
        // SAFETY: the call writes a byte for each page.
        let code = unsafe {
            libc::mincore(mapping.start().as_ptr().cast(), mapping.bytes(), present.as_mut_ptr().cast())
        };
        assert_eq!(code, 0);
        present.iter().filter(|page| **page & 1 == 1).count()
    }
}
