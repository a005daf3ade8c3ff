//! `Code` and `DriverError`: the errors of a driver.

use core::fmt;

use super::Call;

/// A status code, numbered as CUDA's `CUresult`, for every driver.
///
/// ```
/// use alluvion::driver::Code;
/// assert_eq!(Code::OUT_OF_MEMORY.to_string(), "out of memory (2)");
/// assert!(Code::ILLEGAL_ADDRESS.is_sticky());
/// assert_eq!(Code(12345).to_string(), "driver code 12345");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u32);

macro_rules! codes {
    ($($name:ident = $value:literal, $text:literal;)+) => {
        impl Code {
            $(#[doc = concat!("Code ", stringify!($value), ": ", $text, ".")] pub const $name: Self = Self($value);)+

            /// The code in words, if it is one that this crate knows.
            #[must_use]
            pub const fn text(self) -> Option<&'static str> {
                match self.0 { $($value => Some($text),)+ _ => None }
            }
        }
    };
}

codes! {
    INVALID_VALUE = 1, "invalid value";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "driver not initialised in this process";
    DEINITIALIZED = 4, "driver shut down";
    STUB_LIBRARY = 34, "the loaded libcuda is a stub without a driver behind it";
    DEVICE_UNAVAILABLE = 46, "device unavailable";
    NO_DEVICE = 100, "no device";
    INVALID_DEVICE = 101, "no such device";
    INVALID_CONTEXT = 201, "invalid context";
    CONTEXT_DESTROYED = 709, "context destroyed";
    MAP_FAILED = 205, "mapping failed";
    ALREADY_MAPPED = 208, "already mapped";
    NOT_MAPPED = 211, "not mapped";
    INVALID_HANDLE = 400, "invalid handle";
    NOT_FOUND = 500, "symbol not found in the loaded driver";
    NOT_READY = 600, "not ready";
    ILLEGAL_ADDRESS = 700, "illegal address";
    LAUNCH_TIMEOUT = 702, "launch timed out";
    ASSERT = 710, "an assertion of a kernel failed";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "host memory already registered";
    HOST_MEMORY_NOT_REGISTERED = 713, "host memory not registered";
    HARDWARE_STACK = 714, "hardware stack error";
    ILLEGAL_INSTRUCTION = 715, "illegal instruction";
    MISALIGNED_ADDRESS = 716, "misaligned address";
    INVALID_PROGRAM_COUNTER = 718, "invalid program counter";
    LAUNCH_FAILED = 719, "launch failed";
    NOT_PERMITTED = 800, "operation not permitted here";
    NOT_SUPPORTED = 801, "not supported by this device or driver";
    SYSTEM_DRIVER_MISMATCH = 803, "driver and kernel module differ in version";
    CAPTURE_UNSUPPORTED = 900, "not permitted while a stream is capturing";
    CAPTURE_INVALIDATED = 901, "the capture was invalidated by an earlier error";
    CAPTURE_UNJOINED = 904, "the capture ended with unjoined work";
    CAPTURE_ISOLATION = 905, "a dependency would cross into or out of the capture";
    CAPTURE_IMPLICIT = 906, "implicit use of the legacy stream while capturing";
    CAPTURED_EVENT = 907, "the event was last recorded inside a capture";
    CAPTURE_WRONG_THREAD = 908, "the capture was begun by another thread";
    UNKNOWN = 999, "unknown error";
}

impl Code {
    /// Returns `true` if the context is lost after this code: every later call fails with it.
    ///
    /// It classifies the error, and proves nothing about copies under way: for that there is
    /// [`Driver::proves_stopped`](super::Driver::proves_stopped).
    #[must_use]
    pub const fn is_sticky(self) -> bool {
        // Those without a name above: 214 and 220 uncorrectable memory and NVLink, 226 contained, 717 and 718 address space and
        // program counter, 721 leak of tensor memory, 810 MPS ended the client, 911 external device. Not 999: no document says
        // that the next call fails too.
        matches!(self.0, 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 810 | 911)
    }

    /// Returns `true` if a call that failed with this code has done nothing: its arguments were refused, it was illegal at that
    /// point, or there is no such function.
    ///
    /// Other codes do not prove that. libcuda copies from memory that is not pinned in parts, and one part may have been submitted
    /// before the next one failed.
    pub(crate) const fn is_refusal(self) -> bool {
        let of_arguments = matches!(
            self,
            Self::INVALID_VALUE | Self::INVALID_DEVICE | Self::INVALID_CONTEXT | Self::INVALID_HANDLE
        );
        let of_the_call = matches!(self, Self::NOT_FOUND | Self::NOT_PERMITTED | Self::NOT_SUPPORTED);
        of_arguments || of_the_call || self.is_capture() || self.is_shut_down()
    }

    /// Returns `true` if the code says that a call was illegal because of a graph capture.
    #[must_use]
    pub const fn is_capture(self) -> bool {
        matches!(self.0, 900..=908)
    }

    /// Returns `true` if the driver has shut down in this process, or is not initialised yet.
    #[must_use]
    pub const fn is_shut_down(self) -> bool {
        matches!(self.0, 3 | 4)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => write!(f, "{text} ({})", self.0),
            None => write!(f, "driver code {}", self.0),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A driver call that failed, and its code.
///
/// ```
/// use alluvion::driver::{Call, Code, DriverError};
/// let error = DriverError::new(Call::AllocateDevice, Code::OUT_OF_MEMORY);
/// assert_eq!(error.to_string(), "cuMemAlloc: out of memory (2)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DriverError {
    /// The call that failed.
    pub call: Call,
    /// The code that it returned.
    pub code: Code,
}

impl DriverError {
    /// An error of `call`.
    #[must_use]
    pub const fn new(call: Call, code: Code) -> Self {
        Self { call, code }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call.symbol(), self.code)
    }
}

impl core::error::Error for DriverError {}

/// The result of a driver call.
pub type DriverResult<T> = Result<T, DriverError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sticky_codes_differ_from_those_that_can_be_retried() {
        // For each of these, CUDA's manual says that the process must be ended.
        let lost = [214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911];
        assert!(lost.into_iter().all(|code| Code(code).is_sticky()));
        // 712, 713 and 720 lie between them and are errors of one call.
        assert!([1, 2, 600, 712, 713, 720, 800, 801, 900].into_iter().all(|code| !Code(code).is_sticky()));
        // For this one it says only that the error is unknown.
        assert!(!Code::UNKNOWN.is_sticky());
    }
}
