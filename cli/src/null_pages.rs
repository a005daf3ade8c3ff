//! `NullPages`: addresses and pages without memory.

#![expect(unsafe_code, reason = "implements the contracts of resources and of pages")]

use core::sync::atomic::{AtomicU64, Ordering};

use alluvion::resource::{Page, Pages};
use alluvion::source::Null;
use alluvion::{Device, DevicePtr, Error, Resource};

/// The unit of pages on the GPUs of today.
const PAGE: usize = 2 << 20;

/// The first range: beyond 57-bit page tables, so that an access faults, and before the addresses of [`Null`].
const FIRST: u64 = 1 << 59;

/// Addresses and pages without memory, to measure what a pool over pages does on the host: as [`Null`], with pages.
#[derive(Debug)]
pub(crate) struct NullPages {
    null: Null,
    next_address: AtomicU64,
    next_page: AtomicU64,
}

impl NullPages {
    pub(crate) fn new(device: &Device) -> Self {
        Self { null: Null::new(device), next_address: AtomicU64::new(FIRST), next_page: AtomicU64::new(0) }
    }
}

// SAFETY: the blocks are those of one resource, which keeps the contract.
unsafe impl Resource for NullPages {
    fn pages(&self) -> Option<&dyn Pages> {
        Some(self)
    }

    alluvion::forward_resource!(|this| this.null, except pages);
}

// SAFETY:
// - addresses only ever go up, in whole pages, so no two ranges overlap, and none is one of `Null`: 2 to the 59th is 512 PiB.
// - there is no memory, so that of two pages does not overlap, and no work writes to it, through one address or through two; as that of
//   `Null`, it must not be accessed: the type is not `DeviceAccessible`.
unsafe impl Pages for NullPages {
    fn page_bytes(&self) -> usize {
        PAGE
    }

    fn may_alias(&self) -> bool {
        true
    }

    fn reserve(&self, bytes: usize) -> Result<DevicePtr, Error> {
        // Relaxed: only that the ranges differ matters.
        let next = |at: u64| at.checked_add(bytes as u64).filter(|end| *end <= FIRST << 1);
        let address = self.next_address.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        address.ok().and_then(DevicePtr::new).ok_or(Error::out_of_memory(bytes))
    }

    unsafe fn unreserve(&self, _: DevicePtr, _: usize) {}

    fn create(&self, bytes: usize) -> Result<Page, Error> {
        Ok(Page::new(self.next_page.fetch_add(1, Ordering::Relaxed), bytes))
    }

    unsafe fn release(&self, _: Page) {}

    unsafe fn map(&self, _: Page, _: DevicePtr) -> Result<(), Error> {
        Ok(())
    }

    unsafe fn unmap(&self, _: Page, _: DevicePtr) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alluvion::Sim;

    use super::*;

    #[test]
    fn ranges_and_pages_differ_and_are_whole() {
        let sim = Sim::new();
        let source = NullPages::new(&sim.device(0));
        let pages = source.pages().unwrap();
        let [first, second] = [3 * PAGE, PAGE].map(|bytes| pages.reserve(bytes).unwrap().address());
        assert_eq!((first % PAGE as u64, second - first), (0, 3 * PAGE as u64));
        assert_ne!(pages.create(PAGE).unwrap(), pages.create(PAGE).unwrap());
        assert!(pages.reserve(1 << 60).is_err_and(|error| error.is_out_of_memory()));
        assert_eq!(pages.reserve(PAGE).unwrap().address(), second + PAGE as u64, "a failure takes nothing");
    }
}
