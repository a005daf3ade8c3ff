//! The class `TrackingResourceAdaptor`.

use std::fmt::Write as _;

use alluvion::ResourceExt;
use alluvion::adaptor::{CallStacks, Tracking, TrackingBook};
use alluvion::{Misuse, MisuseKind};
use pyo3::prelude::*;

use super::UpstreamResourceAdaptor;
use super::base::{layer, owner_of};
use crate::attached::attach;
use crate::debug_log::{self, DEBUG, ERROR};

/// Knows every block that is allocated. With `capture_stacks` it knows the call stack of each allocation.
///
/// A free of a block that it does not know is an error in the debug log, and goes to the upstream.
#[pyclass(extends = UpstreamResourceAdaptor, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct TrackingResourceAdaptor;

#[pymethods]
impl TrackingResourceAdaptor {
    #[new]
    #[pyo3(signature = (upstream_mr, capture_stacks=false))]
    fn new(upstream_mr: &Bound<'_, PyAny>, capture_stacks: bool) -> PyResult<PyClassInitializer<Self>> {
        let stacks = if capture_stacks { CallStacks::All } else { CallStacks::None };
        let base = layer(upstream_mr, |upstream| {
            // What is outstanding at the end is no news: the interpreter drops its objects in any order, or not at all.
            let tracking = Tracking::new(upstream).call_stacks(stacks).on_leak(|_| {});
            Ok(tracking.on_wrong_free(log_wrong_free))
        })?;
        Ok(base.add_subclass(Self))
    }

    /// The bytes of the blocks that are allocated now.
    fn get_allocated_bytes(slf: &Bound<'_, Self>) -> PyResult<usize> {
        Ok(owner_of(slf)?.find::<Tracking>().map_or(0, TrackingBook::live_bytes))
    }

    /// The blocks that are allocated now, a line each: the address and the size, and the call stack if it was captured.
    fn get_outstanding_allocations_str(slf: &Bound<'_, Self>) -> PyResult<String> {
        let owner = owner_of(slf)?;
        Ok(slf.py().detach(|| owner.find::<Tracking>().map_or_else(String::new, outstanding)))
    }

    /// Writes the blocks that are allocated now into the debug log, at the level `debug`.
    fn log_outstanding_allocations(slf: &Bound<'_, Self>) -> PyResult<()> {
        let text = Self::get_outstanding_allocations_str(slf)?;
        debug_log::write(slf.py(), DEBUG, &format!("Outstanding Allocations: {}", text.trim_end()))
    }
}

fn outstanding(book: &TrackingBook) -> String {
    let mut text = String::new();
    for block in &book.outstanding().blocks {
        // Writing to a string does not fail.
        let _ = write!(text, "{:#x}: {} B", block.address.address(), block.bytes);
        let calls = block.call_stack();
        if !calls.is_empty() {
            text.push_str(" : callstack:");
            for (number, call) in calls.iter().enumerate() {
                let _ = write!(text, "\n#{number} in {call}");
            }
        }
        text.push('\n');
    }
    text
}

/// Called by the library where a block is freed, on any thread, which holds no lock.
fn log_wrong_free(misuse: &Misuse) {
    let Misuse { block, bytes, what, .. } = misuse;
    let address = block.address();
    let text = match what {
        MisuseKind::WrongSize { allocated_bytes } => {
            format!(
                "Alloc bytes ({allocated_bytes}) and Dealloc bytes ({bytes}) do not match. Ptr: {address:#x}"
            )
        }
        MisuseKind::ForeignPointer | MisuseKind::DoubleFree => {
            format!("Deallocating a pointer that was not tracked. Ptr: {address:#x}, {bytes} B")
        }
        _ => format!("Deallocating a pointer that is no block: {misuse}. It was not freed"),
    };
    // Without an interpreter there is nobody to tell.
    let _ = attach(|py| {
        if let Err(error) = debug_log::write(py, ERROR, &text) {
            error.write_unraisable(py, None);
        }
    });
}
