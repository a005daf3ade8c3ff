//! `Recent`: the blocks that were put into the stacks of a cache last, so that one that is there is not put twice.

/// How many: four lines of memory for each stream.
const PLACES: usize = if cfg!(loom) { 4 } else { 32 };
const _: () = assert!(PLACES.is_power_of_two());

/// Addresses of blocks that are in the stacks, each at its place; 0 where there is none. A block is missing where another one has taken
/// its place, and never here when it is not in the stacks.
#[derive(Debug)]
pub(super) struct Recent([u64; PLACES]);

impl Recent {
    pub(super) const NONE: Self = Self([0; PLACES]);

    /// Notes a block that is put. Returns `false` if it is there already.
    #[inline]
    pub(super) fn note(&mut self, address: u64) -> bool {
        let place = &mut self.0[place_of(address)];
        let is_new = *place != address;
        *place = address;
        is_new
    }

    /// A block leaves. Without a look at whose place it is: a store is less than a comparison and a jump.
    #[inline]
    pub(super) fn forget(&mut self, address: u64) {
        self.0[place_of(address)] = 0;
    }

    pub(super) fn has(&self, address: u64) -> bool {
        self.0[place_of(address)] == address
    }
}

/// Fibonacci hashing: the top bits of the product depend on all bits of the address, and blocks in a row have places apart.
#[inline]
fn place_of(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - PLACES.ilog2())) as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_told_from_what_is_not() {
        let mut recent = Recent::NONE;
        let addresses = (1..=1000).map(|at| at * 256);
        for address in addresses.clone() {
            assert!(recent.note(address) && recent.has(address) && !recent.note(address));
        }
        // The last one is there whatever came before; what is forgotten is not there, whoever had its place.
        assert!(recent.has(256_000));
        for address in addresses {
            recent.forget(address);
            assert!(!recent.has(address));
        }
        assert_eq!(recent.0, [0; PLACES]);
    }

    #[test]
    fn blocks_in_a_row_have_places_of_their_own() {
        for stride in [256, 4096, 65_536, 3 << 20] {
            let mut recent = Recent::NONE;
            let base = 0x7f00_0000_0000;
            (0..16).for_each(|at| assert!(recent.note(base + at * stride)));
            let kept = (0..16).filter(|at| recent.has(base + at * stride)).count();
            assert!(kept >= 14, "{kept} of 16 blocks {stride} bytes apart have a place");
        }
    }
}
