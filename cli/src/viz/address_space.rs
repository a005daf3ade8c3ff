//! `AddressSpace`: the parts of the address space that are of interest, without what lies between them.

/// Addresses as they are drawn. Segments lie gibibytes apart, and a picture to scale would show what is between them: so
/// the ranges that were ever used are put end to end, in the order of their addresses.
#[derive(Debug, Default)]
pub(super) struct AddressSpace {
    /// In the order of their addresses, and so of their places.
    pub(super) regions: Vec<Region>,
}

/// A range of addresses with nothing left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// Where it begins in the address space.
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Where it begins in the picture.
    pub(super) place: u64,
}

impl AddressSpace {
    /// Of ranges, as beginning and end, that may come in any order and overlap. Those with `gap` bytes or less between them
    /// lie in one region, and what is between them too.
    pub(super) fn of_ranges(mut ranges: Vec<(u64, u64)>, gap: u64) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (begin, end) in ranges {
            match joined.last_mut() {
                Some((_, last)) if begin <= last.saturating_add(gap) => *last = end.max(*last),
                _ => joined.push((begin, end)),
            }
        }
        let mut place = 0;
        let region = |(begin, end): (u64, u64)| {
            let region = Region { address: begin, bytes: end - begin, place };
            place += region.bytes;
            region
        };
        Self { regions: joined.into_iter().map(region).collect() }
    }

    /// Where an address is drawn, if it is of interest.
    pub(super) fn place_of(&self, address: u64) -> Option<u64> {
        let after = self.regions.partition_point(|region| region.address <= address);
        let region = self.regions.get(after.checked_sub(1)?)?;
        let offset = address - region.address;
        (offset < region.bytes).then_some(region.place + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_put_end_to_end() {
        let space =
            AddressSpace::of_ranges(vec![(9000, 9100), (1000, 1100), (1100, 1300), (1400, 1500)], 100);
        let region = |address, bytes, place| Region { address, bytes, place };
        assert_eq!(space.regions, [region(1000, 500, 0), region(9000, 100, 500)]);
        assert_eq!(space.place_of(1000), Some(0));
        assert_eq!(space.place_of(1499), Some(499));
        assert_eq!(space.place_of(9099), Some(599));
        assert_eq!([0, 999, 1500, 8999, 9100, u64::MAX].map(|address| space.place_of(address)), [None; 6]);
    }

    #[test]
    fn the_whole_address_space_fits() {
        let space = AddressSpace::of_ranges(vec![(0, u64::MAX), (5, 6)], u64::MAX);
        assert_eq!(space.regions, [Region { address: 0, bytes: u64::MAX, place: 0 }]);
        assert_eq!(space.place_of(u64::MAX - 1), Some(u64::MAX - 1));
    }
}
