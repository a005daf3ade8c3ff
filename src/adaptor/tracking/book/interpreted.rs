//! `InterpretedCalls`: the calls of a program that an interpreter runs.

use core::fmt;
#[cfg(feature = "backtrace")]
use std::sync::OnceLock;

use super::CallSite;
#[cfg(feature = "backtrace")]
use crate::contain::contain;
use crate::sync::Arc;

/// The calls of a program that an interpreter runs, as they stood on one thread.
///
/// The native calls of such a program are those of the interpreter, and say nothing. `CallStacks::interpret`
/// puts these in their place.
///
/// A capture is kept with a block and dropped with it, while a lock is held: the drop must neither wait nor allocate from a resource.
pub trait InterpretedCalls: fmt::Debug + Send + Sync {
    /// The calls, the innermost first.
    fn calls(&self) -> Vec<CallSite>;
}

/// Looks at the calling thread, and takes down its innermost calls: at most as many as it is asked for. `None` if no interpreter
/// runs on the thread.
pub type CaptureCalls = fn(usize) -> Option<Arc<dyn InterpretedCalls>>;

#[cfg(feature = "backtrace")]
static CAPTURE: OnceLock<CaptureCalls> = OnceLock::new();

/// Sets the capture; `false` if there was one already.
#[cfg(feature = "backtrace")]
pub(super) fn set(capture: CaptureCalls) -> bool {
    CAPTURE.set(capture).is_ok()
}

/// The calls of the calling thread, if an interpreter runs on it. A capture that panics has none.
#[cfg(feature = "backtrace")]
pub(super) fn capture(most: usize) -> Option<Arc<dyn InterpretedCalls>> {
    let capture = CAPTURE.get()?;
    contain(|| capture(most)).flatten()
}
