//! What has a guard found, and who hears of it?

use std::io::Write as _;

use alluvion::adaptor::{Damage, Guard, GuardBook, Trespass, TrespassKind};
use alluvion::{AnyResource, Error, Resource, ResourceExt as _};
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;

use crate::attached::attach;

/// A finding for Python: the address, bytes, tag and stream of the block, a line for people, the kind, the offset of the first wrong byte, and
/// how many are wrong.
pub(crate) type Row =
    (u64, usize, String, Option<String>, String, &'static str, Option<isize>, Option<usize>);

/// What the outermost `guard` layer of a stack has found, all pending checks made; `None` without one.
pub(crate) fn rows(stack: &AnyResource) -> Result<Option<Vec<Row>>, Error> {
    let Some(book) = stack.find::<Guard>() else { return Ok(None) };
    book.check()?;
    Ok(Some(book.violations().iter().map(row).collect()))
}

fn row(found: &Trespass) -> Row {
    let (kind, damage) = match found.kind {
        TrespassKind::Before(damage) => ("before", Some(damage)),
        TrespassKind::Behind(damage) => ("behind", Some(damage)),
        TrespassKind::AfterFree(damage) => ("after free", Some(damage)),
        TrespassKind::NotLive => ("not live", None),
        TrespassKind::WrongLayout { .. } => ("wrong layout", None),
        _ => ("other", None),
    };
    (
        found.block.address(),
        found.bytes,
        found.tag.to_string(),
        found.stream.map(|stream| stream.to_string()),
        found.to_string(),
        kind,
        damage.map(|Damage { offset, .. }| offset),
        damage.map(|Damage { wrong_bytes, .. }| wrong_bytes),
    )
}

/// Has the guards among the `own` outermost layers of a stack that was just made warn of what they find.
pub(crate) fn warn_of_what_is_found(stack: &AnyResource, own: u32) {
    let mut at: Option<&dyn Resource> = Some(stack);
    for _ in 0..own {
        let Some(layer) = at else { return };
        if let Some(book) = layer.layer().and_then(|book| book.downcast::<GuardBook>()) {
            book.on_violation(warn);
        }
        at = layer.upstream();
    }
}

/// Warns on the thread that has found it, which holds no lock of ours. A line is all that there is where the interpreter is gone; and for a
/// free that was not done, whose caller gets an error for it.
fn warn(found: &Trespass) {
    if found.kind == TrespassKind::NotLive {
        return write(found);
    }
    let warned = attach(|py| {
        let text = std::ffi::CString::new(format!("a guard has found: {found}")).unwrap_or_default();
        // Where warnings are errors, nobody is there to get one.
        if let Err(raised) = PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1) {
            raised.write_unraisable(py, None);
        }
    });
    if warned.is_none() {
        write(found);
    }
}

fn write(found: &Trespass) {
    // A failure to write is no failure of the free.
    let _ = writeln!(std::io::stderr(), "alluvion: a guard has found: {found}");
}
