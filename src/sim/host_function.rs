//! `QueuedFunction`: a function of the host in a queue.

use core::fmt;

use crate::sync::Mutex;

/// A function that runs once, held by a queue or by a graph, or by both.
pub(super) struct QueuedFunction(Mutex<FunctionState>);

struct FunctionState {
    function: Option<Box<dyn FnOnce() + Send>>,
    queued: bool,
}

impl QueuedFunction {
    pub(super) fn new(function: Box<dyn FnOnce() + Send>) -> Self {
        Self(Mutex::new(FunctionState { function: Some(function), queued: false }))
    }

    /// Notes that a queue holds the function. It can be put in one once.
    pub(super) fn set_queued(&self) {
        self.0.lock().queued = true;
    }

    pub(super) fn was_queued(&self) -> bool {
        self.0.lock().queued
    }

    /// The function, to be run.
    pub(super) fn take(&self) -> Option<Box<dyn FnOnce() + Send>> {
        self.0.lock().function.take()
    }
}

impl fmt::Debug for QueuedFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueuedFunction")
    }
}
