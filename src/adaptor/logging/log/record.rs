//! `Record`: the data of one call.

use std::time::{SystemTime, UNIX_EPOCH};

use super::queue::Queue;
use crate::tag::Tag;
use crate::trace::Action;

/// The words of a record in the queue: with the word for the turn they fill a cache line.
const WORDS: usize = 7;

/// The queue of a log.
pub(super) type Records = Queue<WORDS>;

/// The bits of a device's number: the word has an action, a device and a tag. No machine has sixteen million devices.
const ORDINAL: u32 = (1 << 24) - 1;

/// No number of reserved bytes.
const NONE: u64 = u64::MAX;

/// The data of one call: plain numbers, which the writer thread formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) thread: u64,
    /// Since 1970, UTC.
    pub(super) nanoseconds: u64,
    pub(super) action: Action,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: u64,
    /// The number of the device.
    pub(super) device: u32,
    pub(super) tag: Tag,
    pub(super) reserved_bytes: Option<u64>,
}

impl Record {
    #[inline]
    pub(super) fn pack(self) -> [u64; WORDS] {
        let action = match self.action {
            Action::Allocate => 0,
            Action::AllocateFailure => 1,
            Action::Free => 2,
        };
        [
            self.thread,
            self.nanoseconds,
            action | u64::from(self.device & ORDINAL) << 8 | u64::from(self.tag.number()) << 32,
            self.address,
            self.bytes,
            self.stream,
            self.reserved_bytes.unwrap_or(NONE),
        ]
    }

    pub(super) fn unpack(words: [u64; WORDS]) -> Self {
        let [thread, nanoseconds, what, address, bytes, stream, reserved] = words;
        Self {
            thread,
            nanoseconds,
            action: match what as u8 {
                0 => Action::Allocate,
                1 => Action::AllocateFailure,
                _ => Action::Free,
            },
            address,
            bytes,
            stream,
            device: (what as u32) >> 8,
            tag: Tag::numbered((what >> 32) as u32),
            reserved_bytes: (reserved != NONE).then_some(reserved),
        }
    }
}

/// The time of day's clock, in nanoseconds since 1970: 30 ns, through no call of the system.
#[inline]
pub(super) fn nanoseconds_now() -> u64 {
    // A clock that is set to before 1970 is at 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs().wrapping_mul(1_000_000_000).wrapping_add(u64::from(since.subsec_nanos()))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tag::with_tag;

    #[test]
    fn what_is_packed_is_unpacked() {
        for (action, reserved_bytes) in
            [(Action::Allocate, None), (Action::AllocateFailure, Some(0)), (Action::Free, Some(1 << 40))]
        {
            let record = Record {
                thread: u64::MAX,
                nanoseconds: 1 << 62,
                action,
                address: 0x3_0200_0000,
                bytes: isize::MAX as u64,
                stream: 2,
                device: ORDINAL,
                tag: with_tag("packed", Tag::current),
                reserved_bytes,
            };
            assert_eq!(Record::unpack(record.pack()), record);
        }
    }
}
