//! The numbers by which a call answers, which are those of `alluvion/raw.h`.

use alluvion::ErrorKind;

/// What a call answers: [`OK`], or the kind of an error. Numbers are never used again.
pub(super) type Status = i32;

/// Success.
pub(super) const OK: Status = 0;
/// Any other code of the driver.
const DRIVER: Status = 20;
/// A panic within the library.
pub(super) const PANIC: Status = 21;

/// The status of a kind of error.
pub(super) fn of_kind(kind: ErrorKind) -> Status {
    match kind {
        ErrorKind::OutOfMemory => 1,
        ErrorKind::SizeOverflow => 2,
        ErrorKind::InvalidAlignment => 3,
        ErrorKind::UnsupportedAlignment => 4,
        ErrorKind::DeviceMismatch => 5,
        ErrorKind::OutOfRange => 6,
        ErrorKind::LengthMismatch => 7,
        ErrorKind::InvalidArgument => 8,
        ErrorKind::Unsupported => 9,
        ErrorKind::NoDevice => 10,
        ErrorKind::NoDriver => 11,
        ErrorKind::Capture => 12,
        ErrorKind::ContextLost => 13,
        ErrorKind::ShutDown => 14,
        ErrorKind::InUse => 15,
        ErrorKind::Misuse => 16,
        ErrorKind::Malformed => 17,
        ErrorKind::Unreadable => 18,
        ErrorKind::Unwritable => 19,
        ErrorKind::Asleep => 22,
        ErrorKind::Foreign => 23,
        ErrorKind::Stale => 24,
        ErrorKind::OwnProcess => 25,
        // `Driver`, and a kind that this table does not know yet.
        _ => DRIVER,
    }
}
