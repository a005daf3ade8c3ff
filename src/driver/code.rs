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
/// assert_eq!(Code(2).name(), Some("CUDA_ERROR_OUT_OF_MEMORY"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u32);

macro_rules! codes {
    ($($name:ident = $value:literal, $symbol:literal, $text:literal;)+) => {
        impl Code {
            $(#[doc = concat!("Code ", stringify!($value), ": ", $text, ".")] pub const $name: Self = Self($value);)+

            /// Every code that this crate knows.
            pub const KNOWN: &'static [Self] = &[$(Self::$name),+];

            /// The name of the code in CUDA's headers, if it is one that this crate knows.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some($symbol),)+ _ => None }
            }

            /// The code in words, if it is one that this crate knows.
            #[must_use]
            pub const fn text(self) -> Option<&'static str> {
                match self.0 { $($value => Some($text),)+ _ => None }
            }
        }
    };
}

codes! {
    INVALID_VALUE = 1, "CUDA_ERROR_INVALID_VALUE", "invalid value";
    OUT_OF_MEMORY = 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory";
    NOT_INITIALIZED = 3, "CUDA_ERROR_NOT_INITIALIZED", "driver not initialised in this process";
    DEINITIALIZED = 4, "CUDA_ERROR_DEINITIALIZED", "driver shut down";
    STUB_LIBRARY = 34, "CUDA_ERROR_STUB_LIBRARY", "the loaded libcuda is a stub without a driver behind it";
    DEVICE_UNAVAILABLE = 46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "device unavailable";
    NO_DEVICE = 100, "CUDA_ERROR_NO_DEVICE", "no device";
    INVALID_DEVICE = 101, "CUDA_ERROR_INVALID_DEVICE", "no such device";
    INVALID_CONTEXT = 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid context";
    CONTEXT_DESTROYED = 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context destroyed";
    MAP_FAILED = 205, "CUDA_ERROR_MAP_FAILED", "mapping failed";
    ALREADY_MAPPED = 208, "CUDA_ERROR_ALREADY_MAPPED", "already mapped";
    NOT_MAPPED = 211, "CUDA_ERROR_NOT_MAPPED", "not mapped";
    PEER_ACCESS_UNSUPPORTED = 217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "the devices cannot reach each other";
    INVALID_HANDLE = 400, "CUDA_ERROR_INVALID_HANDLE", "invalid handle";
    NOT_FOUND = 500, "CUDA_ERROR_NOT_FOUND", "symbol not found in the loaded driver";
    NOT_READY = 600, "CUDA_ERROR_NOT_READY", "not ready";
    ILLEGAL_ADDRESS = 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal address";
    LAUNCH_TIMEOUT = 702, "CUDA_ERROR_LAUNCH_TIMEOUT", "launch timed out";
    ASSERT = 710, "CUDA_ERROR_ASSERT", "an assertion of a kernel failed";
    PEER_ACCESS_ALREADY_ENABLED = 704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "the device reaches the other one already";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "host memory already registered";
    HOST_MEMORY_NOT_REGISTERED = 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "host memory not registered";
    HARDWARE_STACK = 714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error";
    ILLEGAL_INSTRUCTION = 715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "illegal instruction";
    MISALIGNED_ADDRESS = 716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address";
    INVALID_PROGRAM_COUNTER = 718, "CUDA_ERROR_INVALID_PC", "invalid program counter";
    LAUNCH_FAILED = 719, "CUDA_ERROR_LAUNCH_FAILED", "launch failed";
    NOT_PERMITTED = 800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted here";
    NOT_SUPPORTED = 801, "CUDA_ERROR_NOT_SUPPORTED", "not supported by this device or driver";
    SYSTEM_DRIVER_MISMATCH = 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "driver and kernel module differ in version";
    CAPTURE_UNSUPPORTED = 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted while a stream is capturing";
    CAPTURE_INVALIDATED = 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the capture was invalidated by an earlier error";
    CAPTURE_UNJOINED = 904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "the capture ended with unjoined work";
    CAPTURE_ISOLATION = 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "a dependency would cross into or out of the capture";
    CAPTURE_IMPLICIT = 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "implicit use of the legacy stream while capturing";
    CAPTURED_EVENT = 907, "CUDA_ERROR_CAPTURED_EVENT", "the event was last recorded inside a capture";
    CAPTURE_WRONG_THREAD = 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture was begun by another thread";
    UNKNOWN = 999, "CUDA_ERROR_UNKNOWN", "unknown error";
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
