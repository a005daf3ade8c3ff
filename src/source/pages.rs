//! Whole pages of the host, fresh from the operating system.

#![expect(unsafe_code, reason = "maps and unmaps memory")]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes in a page: 4 KiB on most hosts, 64 KiB on some with Grace.
pub(super) fn page_bytes() -> usize {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: every thread that finds 0 computes the same number.
    match KNOWN.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: it reads a constant of the system.
            let bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
            // `sysconf` cannot fail for this name; if it did, 64 KiB is the largest page in use, and a multiple of the others.
            let bytes = bytes.ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(64 << 10);
            KNOWN.store(bytes, Ordering::Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// New pages, zeroed at the first access, which also decides their NUMA node. `None` if the host has no more.
///
/// `bytes` is a multiple of the page and not 0; `align` is a power of two.
pub(super) fn map(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let page = page_bytes();
    // An aligned part is cut out of a larger mapping.
    let slack = align.saturating_sub(page);
    let mapped = map_anywhere(bytes.checked_add(slack)?)?;
    let head = mapped.addr().get().next_multiple_of(align) - mapped.addr().get();
    // A cut makes one more mapping, and fails where the kernel allows no more. The rest can still be unmapped in one piece.
    // SAFETY: these and the ranges below are parts of the mapping that was made just now, and are unused.
    if head > 0 && !unsafe { unmap(mapped, head) } {
        // SAFETY: as above.
        let _ = unsafe { unmap(mapped, bytes + slack) };
        return None;
    }
    // SAFETY: `head` is at most `slack`, and `bytes` is not 0, so that the result is in the mapping.
    let start = unsafe { mapped.add(head) };
    let tail = slack - head;
    // SAFETY: `head + bytes` is at most the length of the mapping, so that the result is in it or at its end.
    let end = unsafe { start.add(bytes) };
    // SAFETY: as above.
    if tail > 0 && !unsafe { unmap(end, tail) } {
        // SAFETY: as above.
        let _ = unsafe { unmap(start, bytes + tail) };
        return None;
    }
    // Blocks are handed out as numbers, which the host and a simulated device turn back into pointers.
    let _ = start.as_ptr().expose_provenance();
    Some(start)
}

fn map_anywhere(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}

/// Unmaps pages. Returns `true` on success.
///
/// # Safety
///
/// The range is whole pages that `map` returned, or made, and they are not used again, by host or device.
pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the pages are ours and unused: the caller's promise.
    unsafe { libc::munmap(start.as_ptr().cast(), bytes) == 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_zeroed_and_writable() {
        let page = page_bytes();
        for align in [1, 256, page, 2 * page, 1 << 20, 2 << 20, 64 << 20] {
            let start = map(3 * page, align).unwrap();
            assert_eq!(start.addr().get() % align.max(page), 0, "{align}");
            // SAFETY: the pages were mapped just now, and are this test's alone.
            let bytes = unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), 3 * page) };
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(7);
            // SAFETY: `map` returned them, and they are not used again.
            assert!(unsafe { unmap(start, 3 * page) });
        }
    }

    #[test]
    fn more_than_there_are_addresses_is_refused() {
        assert_eq!(map(1 << 60, 1), None);
        assert_eq!(map(usize::MAX & !(page_bytes() - 1), 1 << 40), None);
    }
}
