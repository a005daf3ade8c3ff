//! `Trespass`: a finding of a `Guard`.

use core::fmt;

use crate::resource::DevicePtr;
use crate::stream::StreamId;
use crate::tag::Tag;

/// A finding of a [`Guard`](super::Guard): a write outside of a live block, or a wrong free.
///
/// Displayed, it is one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trespass {
    /// The block that it happened to.
    pub block: DevicePtr,
    /// Its length; for a block that is not live, the length given to the free.
    pub bytes: usize,
    /// What happened.
    pub kind: TrespassKind,
    /// The tag of the block.
    pub tag: Tag,
    /// The stream that it was freed on, unless that was done synchronously.
    pub stream: Option<StreamId>,
}

/// What happened to a block: part of a [`Trespass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrespassKind {
    /// Bytes before it were written.
    Before(Damage),
    /// Bytes behind it were written.
    Behind(Damage),
    /// Bytes of it were written after it was freed.
    AfterFree(Damage),
    /// It was freed and is not live: it was freed before, or never allocated here. The free was not done.
    NotLive,
    /// It was freed with another layout than it was allocated with. The free was done, with the right one.
    WrongLayout {
        /// The length given to the free.
        freed_bytes: usize,
    },
}

/// Bytes that are not what the guard had written there: part of a [`TrespassKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Where the first is, from the beginning of the block: −1 is the byte before it.
    pub offset: isize,
    /// The value found there.
    pub found: u8,
    /// The value that the guard had written.
    pub expected: u8,
    /// How many there are, as far as the guard has looked.
    pub wrong_bytes: usize,
}

impl Damage {
    /// Holds bytes against the one value that they should all have. `offset` is that of the first.
    pub(super) fn in_bytes(bytes: &[u8], expected: u8, offset: isize) -> Option<Self> {
        let first = bytes.iter().position(|byte| *byte != expected)?;
        let wrong_bytes = bytes[first..].iter().filter(|byte| **byte != expected).count();
        Some(Self { offset: offset + first as isize, found: bytes[first], expected, wrong_bytes })
    }
}

impl fmt::Display for Trespass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} of {} bytes", self.block, self.bytes)?;
        if self.tag != Tag::NONE {
            write!(f, " for {}", self.tag)?;
        }
        match self.stream {
            Some(stream) => write!(f, ", freed on stream {stream}: ")?,
            None => f.write_str(", freed synchronously: ")?,
        }
        match self.kind {
            TrespassKind::Before(damage) => {
                write!(f, "written before its beginning, {damage}")
            }
            TrespassKind::Behind(damage) => write!(f, "written behind its end, {damage}"),
            TrespassKind::AfterFree(damage) => write!(f, "written after it was freed, {damage}"),
            TrespassKind::NotLive => f.write_str("it is not live"),
            TrespassKind::WrongLayout { freed_bytes } => write!(f, "as one of {freed_bytes} bytes"),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, found, expected, wrong_bytes } = self;
        write!(f, "at {offset}: {found:#04x} where {expected:#04x} was, {wrong_bytes} wrong bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_counted_from_the_first_wrong_byte() {
        assert_eq!(Damage::in_bytes(&[7; 10], 7, 0), None);
        assert_eq!(Damage::in_bytes(&[], 7, 0), None);
        let found = Damage::in_bytes(&[7, 7, 1, 7, 2], 7, -256);
        assert_eq!(found, Some(Damage { offset: -254, found: 1, expected: 7, wrong_bytes: 2 }));
    }

    #[test]
    fn it_reads_as_one_line() {
        let damage = Damage { offset: 100, found: 0, expected: 0xfd, wrong_bytes: 4 };
        let mut trespass = Trespass {
            block: DevicePtr::new(0x1000).expect("not null"),
            bytes: 100,
            kind: TrespassKind::Behind(damage),
            tag: Tag::NONE,
            stream: Some(StreamId::new(3, 5)),
        };
        assert_eq!(
            trespass.to_string(),
            "block 0x1000 of 100 bytes, freed on stream 3.5: written behind its end, at 100: 0x00 where 0xfd was, \
             4 wrong bytes"
        );
        (trespass.kind, trespass.stream) = (TrespassKind::NotLive, None);
        assert_eq!(trespass.to_string(), "block 0x1000 of 100 bytes, freed synchronously: it is not live");
    }
}
