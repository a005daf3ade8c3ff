//! What the vendors' libraries answer each in its way, and the contract in one.

use crate::driver::{Call, CaptureMode, CaptureStatus, Code, DriverError, DriverResult};

/// The largest amount that a trim may keep: with `usize::MAX`, NVIDIA's driver 580 gives back everything, as if its rounding wrapped.
/// No device has 256 TiB.
pub(in crate::driver) const MOST_KEPT: usize = 1 << 48;

/// A library's own answer to 0 bytes differs from function to function; the contract's is one.
pub(in crate::driver) fn not_empty(call: Call, bytes: usize) -> DriverResult<()> {
    if bytes == 0 { Err(DriverError::new(call, Code::INVALID_VALUE)) } else { Ok(()) }
}

/// A query's result: "not ready" is an answer, not an error.
pub(in crate::driver) fn is_done(result: DriverResult<()>) -> DriverResult<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(DriverError { code: Code::NOT_READY, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// `CUstreamCaptureMode`.
pub(in crate::driver) const fn capture_mode(mode: CaptureMode) -> u32 {
    match mode {
        CaptureMode::Global => 0,
        CaptureMode::ThreadLocal => 1,
        CaptureMode::Relaxed => 2,
    }
}

/// The mode by its number in `CUstreamCaptureMode`.
pub(in crate::driver) const fn capture_mode_of(number: u32) -> CaptureMode {
    match number {
        0 => CaptureMode::Global,
        1 => CaptureMode::ThreadLocal,
        _ => CaptureMode::Relaxed,
    }
}

/// The status by its number in `CUstreamCaptureStatus`.
pub(in crate::driver) const fn capture_status_of(number: u32) -> CaptureStatus {
    match number {
        0 => CaptureStatus::None,
        1 => CaptureStatus::Active,
        _ => CaptureStatus::Invalidated,
    }
}
