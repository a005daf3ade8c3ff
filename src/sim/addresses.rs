//! `Addresses`: which addresses of devices are free.

use std::collections::HashMap;

use super::memory::{DEVICE_END, DEVICE_START};

/// The unmapped bytes before the next range, so that an access past the end faults.
const GUARD: u64 = 4096;

/// The free addresses of the machine. Two processes never have the same one, so that an address that one of them got from the other
/// is no memory at all.
#[derive(Debug)]
pub(super) struct Addresses {
    next: u64,
    /// Freed addresses, by size and alignment, last in first out: an address is reused as early as possible, which exposes uses
    /// after a free.
    recycled: HashMap<(u64, u64), Vec<u64>>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { next: DEVICE_START + (2 << 20), recycled: HashMap::new() }
    }
}

impl Addresses {
    /// Addresses for `bytes` bytes, or `None` if there are no more. `align` is a power of two.
    pub(super) fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        if let Some(address) = self.recycled.get_mut(&(bytes, align)).and_then(Vec::pop) {
            return Some(address);
        }
        let start = self.next.checked_next_multiple_of(align)?;
        let end = start.checked_add(bytes)?.checked_add(GUARD)?;
        if end > DEVICE_END {
            return None;
        }
        self.next = end;
        Some(start)
    }

    pub(super) fn free(&mut self, address: u64, bytes: u64, align: u64) {
        self.recycled.entry((bytes, align)).or_default().push(address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_never_the_hosts_and_never_touch() {
        let mut addresses = Addresses::default();
        let first = addresses.take(512, 512).unwrap();
        let second = addresses.take(512, 512).unwrap();
        assert!(first >= DEVICE_START && second >= first + 512 + GUARD && second < DEVICE_END);
        addresses.free(first, 512, 512);
        addresses.free(second, 512, 512);
        assert_eq!(addresses.take(512, 512), Some(second), "the last given back comes first");
        assert_eq!(addresses.take(DEVICE_END, 512), None);
    }
}
