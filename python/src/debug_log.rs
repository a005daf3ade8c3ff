//! What does the debug log say? What a suballocator takes from below, and requests that fail; and what other classes write.

use std::sync::atomic::{AtomicU32, Ordering};

use alluvion::suballoc::SuballocBook;
use alluvion::{Error, Layout, ResourceExt};
use pyo3::prelude::*;

use crate::resource::Owner;

/// `level_enum.debug`.
pub(crate) const DEBUG: u32 = 1;
/// `level_enum.info`, from which messages are written at first.
const INFO: u32 = 2;
/// `level_enum.error`.
pub(crate) const ERROR: u32 = 4;

/// The level from which messages are written. Relaxed: it guards nothing, and a request under way may miss a change.
static LEVEL: AtomicU32 = AtomicU32::new(INFO);

/// Tells the module what `set_logging_level` was told.
#[pyfunction]
#[pyo3(name = "_set_logging_level")]
pub(crate) fn set_level(level: u32) {
    LEVEL.store(level, Ordering::Relaxed);
}

/// Writes a message, if its level is written.
pub(crate) fn write(py: Python<'_>, level: u32, text: &str) -> PyResult<()> {
    py.import("alluvion.rmm.pylibrmm.logger")?.getattr("_write")?.call1((level, text))?;
    Ok(())
}

/// What a request begins with, to see afterwards whether it made the stack grow: `None` where nobody wants to know.
pub(crate) struct Watch(Option<usize>);

impl Watch {
    pub(crate) fn begin(py: Python<'_>, owner: &Owner) -> Self {
        let is_wanted = LEVEL.load(Ordering::Relaxed) <= DEBUG;
        Self(if is_wanted { py.detach(|| reserved(owner)) } else { None })
    }

    /// Writes what the request did. A message that cannot be written is lost, and the request is not.
    pub(crate) fn end<T>(
        self,
        py: Python<'_>,
        owner: &Owner,
        layout: Layout,
        answer: Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some(before) = self.0
            && let Some(now) = py.detach(|| reserved(owner))
            && now > before
        {
            let (grown, bytes) = (now - before, layout.bytes());
            tell(py, DEBUG, &format!("Growth by {grown} B to {now} B, for a request of {bytes} B"));
        }
        answer.inspect_err(|error| {
            // To the standard error stream nobody writes it: there the exception says so, if anybody wants to know.
            if LEVEL.load(Ordering::Relaxed) <= ERROR
                && std::env::var_os("RMM_DEBUG_LOG_FILE").is_some_and(|name| !name.is_empty())
            {
                tell(py, ERROR, &format!("A request of {} B failed: {error}", layout.bytes()));
            }
        })
    }
}

fn tell(py: Python<'_>, level: u32, text: &str) {
    if let Err(error) = write(py, level, text) {
        error.write_unraisable(py, None);
    }
}

/// What the outermost suballocator of a stack has from below; `None` without one.
fn reserved(owner: &Owner) -> Option<usize> {
    owner.find::<SuballocBook>().map(|book| book.status().reserved_bytes)
}
