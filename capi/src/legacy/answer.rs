//! What does a call answer?

#![expect(unsafe_code, reason = "exports a function")]

use std::ffi::{CStr, c_char};

use alluvion::{Error, ErrorKind};

use crate::boundary;
use crate::status::ALV_OK;

macro_rules! answers {
    ($($(#[doc = $doc:literal])+ $variant:ident = $number:literal, $name:literal;)+) => {
        /// What a call answers, `rmmError_t`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum RmmError {
            $($(#[doc = $doc])+ $variant = $number,)+
        }

        /// The name of an answer: static text, and never null.
        #[unsafe(no_mangle)]
        pub extern "C" fn rmmGetErrorString(errcode: u32) -> *const c_char {
            let name: &CStr = match errcode {
                $($number => $name,)+
                _ => c"an unknown error of RMM",
            };
            name.as_ptr()
        }
    };
}

answers! {
    /// Success.
    Success = 0, c"RMM_SUCCESS";
    /// The driver has failed, or there is none.
    CudaError = 1, c"RMM_ERROR_CUDA_ERROR";
    /// An argument breaks a rule.
    InvalidArgument = 2, c"RMM_ERROR_INVALID_ARGUMENT";
    /// `rmmFinalize` was called, and `rmmInitialize` was not called after it.
    NotInitialized = 3, c"RMM_ERROR_NOT_INITIALIZED";
    /// There is not enough memory.
    OutOfMemory = 4, c"RMM_ERROR_OUT_OF_MEMORY";
    /// A failure of no other kind.
    Unknown = 5, c"RMM_ERROR_UNKNOWN";
    /// A file cannot be written.
    Io = 6, c"RMM_ERROR_IO";
}

/// Why a call fails: what it answers, and the error for `alv_last_error`.
#[derive(Debug)]
pub(super) struct Refusal {
    answer: RmmError,
    error: Error,
}

impl Refusal {
    /// That the last finalize was followed by no initialize.
    #[cold]
    pub(super) fn not_initialized() -> Self {
        let (what, why) = ("a call of the first RMM", "rmmFinalize has ended it");
        let error = Error::invalid_argument(what, why, "call rmmInitialize first");
        Self { answer: RmmError::NotInitialized, error }
    }
}

impl From<Error> for Refusal {
    #[cold]
    fn from(error: Error) -> Self {
        use ErrorKind as Kind;
        let answer = match error.kind() {
            // "Too much" is one answer, whether the number or the memory ends first.
            Kind::OutOfMemory | Kind::SizeOverflow => RmmError::OutOfMemory,
            Kind::InvalidArgument | Kind::DeviceMismatch | Kind::Misuse | Kind::InUse => {
                RmmError::InvalidArgument
            }
            Kind::Unwritable | Kind::Unreadable => RmmError::Io,
            Kind::NoDevice
            | Kind::NoDriver
            | Kind::Capture
            | Kind::ContextLost
            | Kind::ShutDown
            | Kind::Unsupported
            | Kind::Driver => RmmError::CudaError,
            _ => RmmError::Unknown,
        };
        Self { answer, error }
    }
}

/// Runs the body of a function. Its error and its panic are kept for `alv_last_error`.
pub(super) fn call(body: impl FnOnce() -> Result<(), Refusal>) -> RmmError {
    // What a panic answers.
    let mut answer = RmmError::Unknown;
    let body = || {
        body().map_err(|refusal| {
            answer = refusal.answer;
            refusal.error
        })
    };
    if boundary::call(body) == ALV_OK { RmmError::Success } else { answer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_and_a_panic_have_answers() {
        assert_eq!(call(|| Ok(())), RmmError::Success);
        assert_eq!(call(|| Err(Error::size_overflow(7, 8).into())), RmmError::OutOfMemory);
        assert_eq!(call(|| Err(Error::invalid_argument("a", "b", "c").into())), RmmError::InvalidArgument);
        assert_eq!(call(|| Err(Refusal::not_initialized())), RmmError::NotInitialized);
        assert_eq!(call(|| Err(Error::no_driver("a", "b").into())), RmmError::CudaError);
        assert_eq!(call(|| Err(Error::unsupported("a", "b", "c").into())), RmmError::CudaError);
        assert_eq!(call(|| Err(Error::foreign("of a program").into())), RmmError::Unknown);
        assert_eq!(call(|| std::panic::resume_unwind(Box::new("thrown"))), RmmError::Unknown);
    }
}
