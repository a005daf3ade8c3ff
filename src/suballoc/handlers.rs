//! `Handlers`: whom a suballocator asks when it has tried everything.

use core::fmt;
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
    pub(super) fn ask(&self, report: &OutOfMemory) -> Relief {
        for handler in &self.0 {
            if handler(report) == Relief::Freed {
                return Relief::Freed;
            }
        }
        Relief::None
    }
}
impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} handlers", self.0.len())
    }
}
