//! `Handlers`: whom a suballocator asks when it has tried everything.

use core::cell::Cell;
use core::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{OutOfMemory, Relief};

type Handler = Arc<dyn Fn(&OutOfMemory) -> Relief + Send + Sync>;

#[derive(Clone, Default)]
pub(super) struct Handlers(Vec<Handler>);

impl Handlers {
    pub(super) fn push(&mut self, handler: impl Fn(&OutOfMemory) -> Relief + Send + Sync + 'static) {
        self.0.push(Arc::new(handler));
    }

    pub(super) fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Asks each in turn until one has freed something. One that panics has not.
    pub(super) fn ask(&self, report: &OutOfMemory) -> Relief {
        let Some(_asking) = Asking::begin() else { return Relief::None };
        for handler in &self.0 {
            match catch_unwind(AssertUnwindSafe(|| handler(report))) {
                Ok(Relief::Freed) => return Relief::Freed,
                Ok(Relief::None) => {}
                // Dropping it could run code of the user's, and panic anew.
                Err(payload) => core::mem::forget(payload),
            }
        }
        Relief::None
    }
}

thread_local! {
    // No destructor, so it can be used while the thread's other locals are being dropped.
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

/// This thread is in a handler. What the handler itself allocates in vain, no handler is asked about: it would be asked
/// within itself, without end.
struct Asking;

impl Asking {
    fn begin() -> Option<Self> {
        (!IS_ASKING.replace(true)).then_some(Self)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        IS_ASKING.set(false);
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} handlers", self.0.len())
    }
}
