//! What does a call answer?

#![expect(unsafe_code, reason = "exports functions")]

use std::ffi::{CStr, c_char};

use alluvion::ErrorKind;

/// What a call answers: `ALV_OK`, or the kind of error. Numbers are never used again.
pub type Status = i32;

/// Success.
pub const ALV_OK: Status = 0;
/// There is not enough memory; freeing some and asking again may succeed.
pub const ALV_OUT_OF_MEMORY: Status = 1;
/// A size does not fit: more than `PTRDIFF_MAX` bytes, rounded up.
pub const ALV_SIZE_OVERFLOW: Status = 2;
/// An alignment is not a power of two.
pub const ALV_INVALID_ALIGNMENT: Status = 3;
/// An alignment is larger than the resource can honour.
pub const ALV_UNSUPPORTED_ALIGNMENT: Status = 4;
/// A stream or a resource of one device was given to another.
pub const ALV_DEVICE_MISMATCH: Status = 5;
/// An index or a range is outside.
pub const ALV_OUT_OF_RANGE: Status = 6;
/// Two lengths that must be equal are not.
pub const ALV_LENGTH_MISMATCH: Status = 7;
/// An argument breaks a documented rule.
pub const ALV_INVALID_ARGUMENT: Status = 8;
/// The device, the driver or the stack cannot do it; the message says what would.
pub const ALV_UNSUPPORTED: Status = 9;
/// No device with that number.
pub const ALV_NO_DEVICE: Status = 10;
/// No driver: libcuda is missing, a stub, or too old.
pub const ALV_NO_DRIVER: Status = 11;
/// The call is illegal while the stream captures. The capture goes on.
pub const ALV_CAPTURE: Status = 12;
/// The context was lost by an earlier error; every call in it fails.
pub const ALV_CONTEXT_LOST: Status = 13;
/// The driver shut down, or this process is a fork of the one that started it.
pub const ALV_SHUT_DOWN: Status = 14;
/// The resource still has live blocks.
pub const ALV_IN_USE: Status = 15;
/// A block was given back wrongly, and was not freed.
pub const ALV_MISUSE: Status = 16;
/// A recipe or a file is malformed; `alv_last_error` says where.
pub const ALV_MALFORMED: Status = 17;
/// A file cannot be read.
pub const ALV_UNREADABLE: Status = 18;
/// A file cannot be written, or a function that writes has stopped.
pub const ALV_UNWRITABLE: Status = 19;
/// Any other code of the driver: `alv_last_error` has it.
pub const ALV_DRIVER: Status = 20;
/// A panic within the library, or in code that it called. Nothing is lost but what the call was about.
pub const ALV_PANIC: Status = 21;
/// The memory sleeps: wake it, and ask again.
pub const ALV_ASLEEP: Status = 22;
/// A function of the caller's has failed.
pub const ALV_FOREIGN: Status = 23;
/// What another process shared is gone: it has ended, or has taken it back.
pub const ALV_STALE: Status = 24;
/// What this process shares was to be opened in it: use the buffer itself.
pub const ALV_OWN_PROCESS: Status = 25;

/// From here on numbers are the program's: a function of its own answers them, and `alv_last_error` gives them back.
pub const ALV_OF_PROGRAM: Status = 1 << 16;

/// Every status, with its name and what it says.
const ALL: &[(Status, &CStr, &CStr)] = &[
    (ALV_OK, c"ALV_OK", c"success"),
    (ALV_OUT_OF_MEMORY, c"ALV_OUT_OF_MEMORY", c"out of memory"),
    (ALV_SIZE_OVERFLOW, c"ALV_SIZE_OVERFLOW", c"the size is more than a program can have"),
    (ALV_INVALID_ALIGNMENT, c"ALV_INVALID_ALIGNMENT", c"the alignment is not a power of two"),
    (
        ALV_UNSUPPORTED_ALIGNMENT,
        c"ALV_UNSUPPORTED_ALIGNMENT",
        c"the alignment is larger than the resource can honour",
    ),
    (ALV_DEVICE_MISMATCH, c"ALV_DEVICE_MISMATCH", c"a stream or a resource is of another device"),
    (ALV_OUT_OF_RANGE, c"ALV_OUT_OF_RANGE", c"an index or a range is outside"),
    (ALV_LENGTH_MISMATCH, c"ALV_LENGTH_MISMATCH", c"two lengths that must be equal are not"),
    (ALV_INVALID_ARGUMENT, c"ALV_INVALID_ARGUMENT", c"an argument breaks a documented rule"),
    (ALV_UNSUPPORTED, c"ALV_UNSUPPORTED", c"the device, the driver or the stack cannot do it"),
    (ALV_NO_DEVICE, c"ALV_NO_DEVICE", c"there is no device with that number"),
    (ALV_NO_DRIVER, c"ALV_NO_DRIVER", c"there is no driver: it is missing, a stub, or too old"),
    (ALV_CAPTURE, c"ALV_CAPTURE", c"the call is illegal while the stream captures"),
    (ALV_CONTEXT_LOST, c"ALV_CONTEXT_LOST", c"the context was lost by an earlier error"),
    (
        ALV_SHUT_DOWN,
        c"ALV_SHUT_DOWN",
        c"the driver has shut down, or the process is a fork of the one that started it",
    ),
    (ALV_IN_USE, c"ALV_IN_USE", c"something still uses it"),
    (ALV_MISUSE, c"ALV_MISUSE", c"a block was given back wrongly, and was not freed"),
    (ALV_MALFORMED, c"ALV_MALFORMED", c"a recipe or a file is malformed"),
    (ALV_UNREADABLE, c"ALV_UNREADABLE", c"a file cannot be read"),
    (ALV_UNWRITABLE, c"ALV_UNWRITABLE", c"a file cannot be written, or a function that writes has stopped"),
    (ALV_DRIVER, c"ALV_DRIVER", c"the driver has failed with a code of its own"),
    (ALV_PANIC, c"ALV_PANIC", c"a panic within the library, or in code that it called"),
    (ALV_ASLEEP, c"ALV_ASLEEP", c"the memory sleeps"),
    (ALV_FOREIGN, c"ALV_FOREIGN", c"a function of the caller's has failed"),
    (ALV_STALE, c"ALV_STALE", c"what another process shared is gone"),
    (ALV_OWN_PROCESS, c"ALV_OWN_PROCESS", c"what this process shares was to be opened in it"),
];

/// The status of a kind of error.
pub(crate) fn of_kind(kind: ErrorKind) -> Status {
    match kind {
        ErrorKind::OutOfMemory => ALV_OUT_OF_MEMORY,
        ErrorKind::SizeOverflow => ALV_SIZE_OVERFLOW,
        ErrorKind::InvalidAlignment => ALV_INVALID_ALIGNMENT,
        ErrorKind::UnsupportedAlignment => ALV_UNSUPPORTED_ALIGNMENT,
        ErrorKind::DeviceMismatch => ALV_DEVICE_MISMATCH,
        ErrorKind::OutOfRange => ALV_OUT_OF_RANGE,
        ErrorKind::LengthMismatch => ALV_LENGTH_MISMATCH,
        ErrorKind::InvalidArgument => ALV_INVALID_ARGUMENT,
        ErrorKind::Unsupported => ALV_UNSUPPORTED,
        ErrorKind::NoDevice => ALV_NO_DEVICE,
        ErrorKind::NoDriver => ALV_NO_DRIVER,
        ErrorKind::Capture => ALV_CAPTURE,
        ErrorKind::ContextLost => ALV_CONTEXT_LOST,
        ErrorKind::ShutDown => ALV_SHUT_DOWN,
        ErrorKind::InUse => ALV_IN_USE,
        ErrorKind::Misuse => ALV_MISUSE,
        ErrorKind::Malformed => ALV_MALFORMED,
        ErrorKind::Unreadable => ALV_UNREADABLE,
        ErrorKind::Unwritable => ALV_UNWRITABLE,
        ErrorKind::Driver => ALV_DRIVER,
        ErrorKind::Asleep => ALV_ASLEEP,
        ErrorKind::Foreign => ALV_FOREIGN,
        ErrorKind::Stale => ALV_STALE,
        ErrorKind::OwnProcess => ALV_OWN_PROCESS,
        // A kind that this table does not know yet: a test of the library notices it.
        _ => ALV_DRIVER,
    }
}

/// The name of a status, such as `ALV_OUT_OF_MEMORY`: static text, and never null. An unknown number has a name that says so.
#[unsafe(no_mangle)]
pub extern "C" fn alv_status_name(status: Status) -> *const c_char {
    known(status).map_or(UNKNOWN, |(_, name, _)| name).as_ptr()
}

/// What a status says, such as `out of memory`: static text, and never null, for a status that comes without a message, as one that
/// another thread or another library has got. `alv_last_error_message` says more of a call of the thread's own.
#[unsafe(no_mangle)]
pub extern "C" fn alv_status_text(status: Status) -> *const c_char {
    known(status).map_or(UNKNOWN, |(_, _, text)| text).as_ptr()
}

const UNKNOWN: &CStr = c"an unknown status";

fn known(status: Status) -> Option<&'static (Status, &'static CStr, &'static CStr)> {
    ALL.iter().find(|(known, ..)| *known == status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_used_once_and_go_from_0_on() {
        let mut texts = std::collections::BTreeSet::new();
        for (place, &(number, name, text)) in ALL.iter().enumerate() {
            assert_eq!(number, place as Status, "{name:?}");
            // SAFETY: static text that ends in 0.
            let named = unsafe { CStr::from_ptr(alv_status_name(number)) };
            assert_eq!(named, name);
            // SAFETY: as above.
            let said = unsafe { CStr::from_ptr(alv_status_text(number)) };
            assert!(said == text && texts.insert(said), "{name:?} has a text of its own");
        }
        for unknown in [-1, ALL.len() as Status, Status::MAX, Status::MIN] {
            // SAFETY: as above.
            let named = unsafe { CStr::from_ptr(alv_status_name(unknown)) };
            assert_eq!(named, c"an unknown status");
            // SAFETY: as above.
            assert_eq!(unsafe { CStr::from_ptr(alv_status_text(unknown)) }, named);
        }
    }

    #[test]
    fn each_kind_has_a_status_of_its_own() {
        use ErrorKind as K;
        let kinds = [
            K::OutOfMemory,
            K::SizeOverflow,
            K::InvalidAlignment,
            K::UnsupportedAlignment,
            K::DeviceMismatch,
            K::OutOfRange,
            K::LengthMismatch,
            K::InvalidArgument,
            K::Unsupported,
            K::NoDevice,
            K::NoDriver,
            K::Capture,
            K::ContextLost,
            K::ShutDown,
            K::InUse,
            K::Asleep,
            K::Misuse,
            K::Malformed,
            K::Unreadable,
            K::Unwritable,
            K::Driver,
            K::Foreign,
            K::Stale,
            K::OwnProcess,
        ];
        let statuses: std::collections::BTreeSet<Status> = kinds.iter().map(|&kind| of_kind(kind)).collect();
        assert_eq!(statuses.len(), kinds.len());
        // All but success and a panic, which are no kinds.
        assert_eq!(kinds.len(), ALL.len() - 2);
    }
}
