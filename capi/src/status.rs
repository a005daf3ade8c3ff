//! What does a call answer?

#![expect(unsafe_code, reason = "exports functions")]

use std::ffi::{CStr, c_char};

use alluvion::ErrorKind;

/// What a call answers: `ALV_OK`, or the kind of error. Numbers are never used again.
pub type Status = i32;

macro_rules! statuses {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal $(from $($kind:ident)|+)?;)+) => {
        $($(#[doc = $doc])+ pub const $name: Status = $number;)+

        /// The status of a kind of error.
        pub(crate) fn of_kind(kind: ErrorKind) -> Status {
            match kind {
                $($($(ErrorKind::$kind)|+ => $name,)?)+
                // A kind that this table does not know yet: the library's own tests notice it.
                _ => ALV_DRIVER,
            }
        }

        /// The name of a status, such as `ALV_OUT_OF_MEMORY`: static text, and never null. An unknown number has a name that says so.
        #[unsafe(no_mangle)]
        pub extern "C" fn alv_status_name(status: Status) -> *const c_char {
            let name: &CStr = match status {
                $($name => match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                },)+
                _ => c"an unknown status",
            };
            name.as_ptr()
        }

        #[cfg(test)]
        const ALL: &[(Status, &str)] = &[$(($name, stringify!($name))),+];
    };
}

statuses! {
    /// Success.
    ALV_OK = 0;
    /// There is not enough memory; freeing some and asking again may succeed.
    ALV_OUT_OF_MEMORY = 1 from OutOfMemory;
    /// A size does not fit: more than `PTRDIFF_MAX` bytes, rounded up.
    ALV_SIZE_OVERFLOW = 2 from SizeOverflow;
    /// An alignment is not a power of two.
    ALV_INVALID_ALIGNMENT = 3 from InvalidAlignment;
    /// An alignment is larger than the resource can honour.
    ALV_UNSUPPORTED_ALIGNMENT = 4 from UnsupportedAlignment;
    /// A stream or a resource of one device was given to another.
    ALV_DEVICE_MISMATCH = 5 from DeviceMismatch;
    /// An index or a range is outside.
    ALV_OUT_OF_RANGE = 6 from OutOfRange;
    /// Two lengths that must be equal are not.
    ALV_LENGTH_MISMATCH = 7 from LengthMismatch;
    /// An argument breaks a documented rule.
    ALV_INVALID_ARGUMENT = 8 from InvalidArgument;
    /// The device, the driver or the stack cannot do it; the message says what would.
    ALV_UNSUPPORTED = 9 from Unsupported;
    /// No device with that number.
    ALV_NO_DEVICE = 10 from NoDevice;
    /// No driver: libcuda is missing, a stub, or too old.
    ALV_NO_DRIVER = 11 from NoDriver;
    /// The call is illegal while the stream captures. The capture goes on.
    ALV_CAPTURE = 12 from Capture;
    /// The context was lost by an earlier error; every call in it fails.
    ALV_CONTEXT_LOST = 13 from ContextLost;
    /// The driver shut down, or this process is a fork of the one that started it.
    ALV_SHUT_DOWN = 14 from ShutDown;
    /// The resource still has live blocks.
    ALV_IN_USE = 15 from InUse;
    /// A block was given back wrongly, and was not freed.
    ALV_MISUSE = 16 from Misuse;
    /// A recipe or a file is malformed; `alv_last_error` says where.
    ALV_MALFORMED = 17 from Malformed;
    /// A file cannot be read.
    ALV_UNREADABLE = 18 from Unreadable;
    /// A file cannot be written, or a function that writes has stopped.
    ALV_UNWRITABLE = 19 from Unwritable;
    /// Any other code of the driver: `alv_last_error` has it.
    ALV_DRIVER = 20 from Driver;
    /// A panic within the library, or in code that it called. Nothing is lost but what the call was about.
    ALV_PANIC = 21;
    /// The memory sleeps: wake it, and ask again.
    ALV_ASLEEP = 22 from Asleep;
    /// A function of the caller's has failed.
    ALV_FOREIGN = 23 from Foreign;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_used_once_and_go_from_0_on() {
        for (place, &(number, name)) in ALL.iter().enumerate() {
            assert_eq!(number, place as Status, "{name}");
            // SAFETY: static text that ends in 0.
            let named = unsafe { CStr::from_ptr(alv_status_name(number)) };
            assert_eq!(named.to_str(), Ok(name));
        }
        for unknown in [-1, ALL.len() as Status, Status::MAX, Status::MIN] {
            // SAFETY: as above.
            let named = unsafe { CStr::from_ptr(alv_status_name(unknown)) };
            assert_eq!(named, c"an unknown status");
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
        ];
        let statuses: std::collections::BTreeSet<Status> = kinds.iter().map(|&kind| of_kind(kind)).collect();
        assert_eq!(statuses.len(), kinds.len());
        // All but success and a panic, which are no kinds.
        assert_eq!(kinds.len(), ALL.len() - 2);
    }
}
