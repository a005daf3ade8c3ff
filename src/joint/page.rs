//! `JointPage`: a file in memory, which keeps the locks of this process.

#![expect(unsafe_code, reason = "maps a file")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

use crate::sync::{AtomicU64, MadeIn};

/// The file in memory, unmapped when this is dropped.
#[derive(Debug)]
pub(crate) struct JointPage {
    start: NonNull<AtomicU64>,
    words: usize,
    made_in: MadeIn,
    is_kept: bool,
}

// SAFETY: it owns the mapping, which belongs to no thread.
unsafe impl Send for JointPage {}
// SAFETY: it lends out atomics.
unsafe impl Sync for JointPage {}

impl JointPage {
    /// Maps a file, which has that many words.
    pub(super) fn map(file: &File, words: usize) -> io::Result<Self> {
        let bytes = words * size_of::<u64>();
        let made_in = MadeIn::this_process();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the addresses, so no other memory is replaced; the descriptor is open, and the file has as
        // many bytes.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("it was mapped at 0"))?;
        let page = Self { start, words, made_in, is_kept: false };
        // No child of a fork has it, and with it the locks: `NoFork` is there meanwhile.
        // SAFETY: the pages are this mapping's, and the advice does not change what they hold.
        match unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTFORK) } {
            0 => Ok(page),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Keeps it mapped until the process ends, and with it the locks of this process.
    pub(crate) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Returns `true` in a child of the process that mapped it, which has no such memory.
    pub(crate) fn is_forked_child(&self) -> bool {
        self.made_in.is_parent()
    }
}

impl AsRef<[AtomicU64]> for JointPage {
    /// # Panics
    ///
    /// In a child of the process that mapped it.
    fn as_ref(&self) -> &[AtomicU64] {
        assert!(!self.is_forked_child(), "a child of a fork has no part of what its parent shares");
        // SAFETY: the pages are mapped until this is dropped, which the slice borrows, for reading and writing, and at a multiple
        // of their size. Any bits are an `AtomicU64`. The other processes access them as atomics, too. One that writes to the file
        // by other means may change the values at any time, which are checked wherever they are used; one that cuts the file off
        // ends this process by a signal.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for JointPage {
    fn drop(&mut self) {
        if !self.is_forked_child() && !self.is_kept {
            let bytes = self.words * size_of::<u64>();
            // SAFETY: the pages are this value's, which mapped them, and nothing borrows it any more.
            let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), bytes) };
        }
    }
}
