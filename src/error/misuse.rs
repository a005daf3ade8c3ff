//! `Misuse`: a block that was given back wrongly.

use core::fmt;

use crate::driver::DevicePtr;
use crate::size::Size;

/// A block that was given back wrongly, and the mistake: returned by [`Error::misuse`](crate::Error::misuse).
///
/// Nothing was freed, and the suballocator goes on as if it had not been called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Misuse {
    /// The address that was given.
    pub block: DevicePtr,
    /// The bytes of the layout that was given; 0 if none was given, as to a [`Ledger`](crate::Ledger).
    pub bytes: usize,
    /// The mistake.
    pub what: MisuseKind,
}

/// The mistake in giving a block back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MisuseKind {
    /// It is free already.
    DoubleFree,
    /// It is live, and was allocated with another size.
    WrongSize {
        /// The bytes that it was allocated with.
        allocated_bytes: usize,
    },
    /// No memory of this suballocator.
    ForeignPointer,
    /// Not the start of a block that is out: it is free already, or did not come from here. A [`Ledger`](crate::Ledger) knows the blocks
    /// that are out, and no others.
    NotOut,
    /// The middle of a block, and not its start.
    InteriorPointer {
        /// The start of the block.
        block: DevicePtr,
    },
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block, bytes, what } = self;
        match (bytes, what) {
            (0, MisuseKind::NotOut) => write!(f, "{block} was named, ")?,
            (0, MisuseKind::InteriorPointer { .. }) => write!(f, "{block} was given back, ")?,
            _ => write!(f, "{:#} at {block} were given back, ", Size(*bytes))?,
        }
        match what {
            MisuseKind::DoubleFree => f.write_str("and are free already"),
            MisuseKind::WrongSize { allocated_bytes } => {
                write!(f, "where {:#} were allocated", Size(*allocated_bytes))
            }
            MisuseKind::ForeignPointer => f.write_str("and did not come from here"),
            MisuseKind::NotOut => {
                f.write_str("but no block is out there: it is free already, or did not come from here")
            }
            MisuseKind::InteriorPointer { block } => write!(f, "from the middle of the block at {block}"),
        }
    }
}
