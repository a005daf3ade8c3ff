//! `Want`: which stack of a cache a request is served from.

use crate::resource::Layout;

/// How many classes there are: eight for each doubling, from one unit to [`CLASS_UNITS`].
pub(crate) const CLASSES: usize = 80;

/// The largest request that has a class: 1 MiB. Above it a class would waste up to 128 KiB a block, and programs ask for the
/// same large sizes again and again, so there the exact size is the class.
pub(crate) const CLASS_UNITS: u32 = 4096;

/// The largest segment, and so the largest request: 1 TiB less one unit.
pub(crate) const MAX_UNITS: u32 = u32::MAX;

/// What is asked for, in units, and where a cache keeps such blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// A class by its number.
    Class(u8),
    /// A block of exactly so many units, one size among many.
    Exact(u32),
    /// A block of exactly so many units, where all are of this size.
    Only(u32),
}

impl Want {
    /// What a layout of at least one byte wants, or `None` if no segment is so large.
    #[inline]
    pub(crate) fn of(layout: Layout) -> Option<Self> {
        Self::of_units(u32::try_from(layout.rounded_bytes() / Layout::MIN_ALIGN).ok()?)
    }

    /// What a request of so many units wants; `None` for zero.
    #[inline]
    pub(crate) fn of_units(units: u32) -> Option<Self> {
        match units {
            0 => None,
            1..=CLASS_UNITS => Some(Self::Class(class_of(units))),
            _ => Some(Self::Exact(units)),
        }
    }

    /// The largest request that a piece of so many units serves: a class may want more than was asked for.
    pub(crate) fn most_within(units: u32) -> u32 {
        match Self::of_units(units) {
            Some(Self::Class(class)) if units_of(class) > units => units_of(class - 1),
            _ => units,
        }
    }

    /// The length of the block that serves it.
    #[inline]
    pub(crate) fn units(self) -> u32 {
        match self {
            Self::Class(class) => units_of(class),
            Self::Exact(units) | Self::Only(units) => units,
        }
    }

    /// The stack of a cache that such blocks are in, if they are in one.
    #[inline]
    pub(crate) fn stack(self) -> Option<u8> {
        match self {
            Self::Class(class) => Some(class),
            Self::Only(_) => Some(CLASSES as u8),
            Self::Exact(_) => None,
        }
    }
}

/// The smallest class that `units` fit in. Up to 16 units each has its own; from there on a block is at most an eighth
/// longer than what was asked for.
#[inline]
const fn class_of(units: u32) -> u8 {
    let last = units - 1;
    if last < 8 {
        return last as u8;
    }
    let octave = last.ilog2() - 3;
    (8 + octave * 8 + ((last >> octave) & 7)) as u8
}

/// The length of the blocks of a class.
#[inline]
const fn units_of(class: u8) -> u32 {
    let class = class as u32;
    if class < 8 {
        return class + 1;
    }
    let octave = (class - 8) / 8;
    (9 + (class & 7)) << octave
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_smallest_that_fits() {
        for units in 1..=CLASS_UNITS {
            let class = class_of(units);
            assert!((class as usize) < CLASSES);
            assert!(units_of(class) >= units, "{units} units in a block of {}", units_of(class));
            assert!(class == 0 || units_of(class - 1) < units, "{units} units fit in a smaller class");
            assert!(units_of(class) * 8 <= units * 9, "{units} units waste more than an eighth");
        }
        assert_eq!(units_of(CLASSES as u8 - 1), CLASS_UNITS);
    }

    #[test]
    fn a_block_of_a_class_is_of_that_class() {
        for class in 0..CLASSES as u8 {
            assert_eq!(class_of(units_of(class)), class);
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
        assert_eq!(want(1), Some(Want::Class(0)));
        assert_eq!(want(1 << 20), Some(Want::Class(79)));
        assert_eq!(want((1 << 20) + 1), Some(Want::Exact(4097)));
        assert_eq!(want(0), None);
        assert_eq!(want(1 << 40), None);
    }
}
