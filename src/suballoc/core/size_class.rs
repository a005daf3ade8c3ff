//! `Want`: the block length that serves a request, and its stack in a cache.

use crate::resource::Layout;

/// The number of classes: eight for each doubling, from one unit to [`CLASS_UNITS`].
pub(crate) const CLASSES: usize = 80;

/// The largest request that has a class: 1 MiB. Above it a class would waste up to 128 KiB a block, and programs ask for the
/// same large sizes again and again, so there the exact size is the class.
pub(crate) const CLASS_UNITS: u32 = 4096;

/// The largest segment, and so the largest request: 1 TiB less one unit.
pub(crate) const MAX_UNITS: u32 = u32::MAX;

/// The stack of a suballocator of one block size.
const ONLY: u8 = CLASSES as u8;

/// No stack: an exact size.
const EXACT: u8 = u8::MAX;

/// The length of the block that serves a request, and its stack in a cache. Both follow from the layout, so a block
/// goes back to the stack that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    units: u32,
    stack: u8,
}

impl Want {
    /// For a layout of at least one byte; `None` if no segment is so large.
    #[inline]
    pub(crate) fn of(layout: Layout) -> Option<Self> {
        Self::of_units(u32::try_from(layout.rounded_bytes() / Layout::MIN_ALIGN).ok()?)
    }

    /// For a request of so many units; `None` for zero.
    ///
    /// Up to 16 units each length has a class of its own; above, there are eight for each doubling, so a block is at
    /// most an eighth longer than the request.
    #[inline]
    pub(crate) fn of_units(units: u32) -> Option<Self> {
        let last = units.checked_sub(1)?;
        if units > CLASS_UNITS {
            return Some(Self::exactly(units));
        }
        let octave = (last | 8).ilog2() - 3;
        let eighth = last >> octave;
        Some(Self { units: (eighth + 1) << octave, stack: (octave * 8 + eighth) as u8 })
    }

    /// A block of exactly so many units.
    #[inline]
    pub(crate) fn exactly(units: u32) -> Self {
        Self { units, stack: EXACT }
    }

    /// A block of exactly so many units, where all are of this size.
    #[inline]
    pub(crate) fn only(units: u32) -> Self {
        Self { units, stack: ONLY }
    }

    /// Returns `true` if all blocks are of this size.
    pub(crate) fn is_only(self) -> bool {
        self.stack == ONLY
    }

    /// The blocks of one class.
    pub(super) fn class(class: u8) -> Self {
        let octave = (class / 8).saturating_sub(1);
        Self { units: u32::from(class - octave * 8 + 1) << octave, stack: class }
    }

    /// The largest request that a free piece of so many units serves: its class may need more than the request.
    pub(crate) fn most_within(units: u32) -> u32 {
        match Self::of_units(units) {
            Some(Self { units: whole, stack }) if whole > units => Self::class(stack - 1).units,
            _ => units,
        }
    }

    /// The length of the block that serves it.
    #[inline]
    pub(crate) fn units(self) -> u32 {
        self.units
    }

    /// The stack of such blocks in a cache, if they have one.
    #[inline]
    pub(crate) fn stack(self) -> Option<u8> {
        (self.stack != EXACT).then_some(self.stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_smallest_that_fits() {
        for units in 1..=CLASS_UNITS {
            let want = Want::of_units(units).expect("it is not zero");
            let class = want.stack().expect("it has a class");
            assert!((class as usize) < CLASSES);
            assert!(want.units() >= units, "{units} units in a block of {}", want.units());
            let smaller = class.checked_sub(1).map_or(0, |class| Want::class(class).units());
            assert!(smaller < units, "{units} units fit in a smaller class");
            assert!(want.units() * 8 <= units * 9, "{units} units waste more than an eighth");
        }
        assert_eq!(Want::class(CLASSES as u8 - 1).units(), CLASS_UNITS);
    }

    #[test]
    fn a_block_of_a_class_is_of_that_class() {
        for class in 0..CLASSES as u8 {
            let want = Want::class(class);
            assert_eq!(Want::of_units(want.units()), Some(want));
        }
    }

    #[test]
    fn a_piece_serves_whole_classes() {
        for units in 1..=CLASS_UNITS + 1 {
            let most = Want::most_within(units);
            assert!(Want::of_units(most).is_some_and(|want| want.units() <= units), "{most} in {units}");
            let more = Want::of_units(most + 1).expect("it is more than nothing");
            assert!(more.units() > units, "{units} units serve more than {most}");
        }
        assert_eq!(Want::most_within(0), 0);
    }

    #[test]
    fn layouts_beyond_a_segment_have_no_class() {
        let want = |bytes| Want::of(Layout::from_bytes(bytes).expect("it is a size"));
        assert_eq!(want(1), Some(Want::class(0)));
        assert_eq!(want(1 << 20), Some(Want::class(79)));
        assert_eq!(want((1 << 20) + 1), Some(Want::exactly(4097)));
        assert_eq!(want(0), None);
        assert_eq!(want(1 << 40), None);
    }
}
