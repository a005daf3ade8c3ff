//! Which line of Python asked?
//!
//! The library takes call stacks of Python in the place of native ones, on the threads that run Python. A frame is taken down as
//! its line and the names of its function and file, which all frames of one function share: what is kept holds no object of
//! Python, so that it can be dropped anywhere.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use alluvion::adaptor::{CallSite, CallStacks, InterpretedCalls};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

use crate::attached::{attach, may_have_frames};

/// The most frames that are taken down. A frame costs about 0.15 µs.
static DEPTH: AtomicUsize = AtomicUsize::new(16);

/// The most functions that are remembered. Beyond that all are forgotten, and learned again.
const MOST_FUNCTIONS: usize = 4096;

/// The most frames of this package that are passed over.
const MOST_OWN_FRAMES: usize = 16;

#[derive(Clone, Debug)]
struct Function {
    name: Arc<str>,
    file: Arc<str>,
    /// Whether it belongs to this package: the line that asked is the one that called it.
    is_own: bool,
}

/// The functions by the addresses of their code objects, which are kept alive so that no other gets the address.
static FUNCTIONS: Mutex<Option<HashMap<usize, (Py<PyAny>, Function)>>> = Mutex::new(None);

#[derive(Debug)]
struct PythonCalls(Box<[(Function, u32)]>);

impl InterpretedCalls for PythonCalls {
    fn calls(&self) -> Vec<CallSite> {
        self.0
            .iter()
            .map(|(function, line)| CallSite::new(&function.name, Some(&function.file), Some(*line)))
            .collect()
    }
}

/// Lets the library take call stacks of Python.
pub(crate) fn begin() {
    // `false` if the module was made before in this process: the capture is the same function.
    let _ = CallStacks::interpret(capture);
}

fn capture(most: usize) -> Option<Arc<dyn InterpretedCalls>> {
    // A thread of another language does not wait for the interpreter, which may wait for it.
    if !may_have_frames() {
        return None;
    }
    let depth = most.min(DEPTH.load(Ordering::Relaxed));
    // An error is one of a thread without frames: it has native calls only.
    attach(|py| frames(py, depth).ok()).flatten().map(|calls| Arc::new(calls) as _)
}

fn frames(py: Python<'_>, depth: usize) -> PyResult<PythonCalls> {
    static GET_FRAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let get_frame =
        GET_FRAME.get_or_try_init(py, || py.import("sys")?.getattr("_getframe").map(Bound::unbind))?;
    let mut at = get_frame.bind(py).call0()?;
    let (mut calls, mut passed) = (Vec::with_capacity(depth), 0);
    while calls.len() < depth && passed < MOST_OWN_FRAMES {
        let function = function_of(&at.getattr(intern!(py, "f_code"))?)?;
        if calls.is_empty() && function.is_own {
            passed += 1;
        } else {
            let line: Option<u32> = at.getattr(intern!(py, "f_lineno"))?.extract()?;
            calls.push((function, line.unwrap_or(0)));
        }
        at = at.getattr(intern!(py, "f_back"))?;
        if at.is_none() {
            break;
        }
    }
    Ok(PythonCalls(calls.into_boxed_slice()))
}

fn function_of(code: &Bound<'_, PyAny>) -> PyResult<Function> {
    let key = code.as_ptr().addr();
    {
        let functions = FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, function)) = functions.as_ref().and_then(|known| known.get(&key)) {
            return Ok(function.clone());
        }
    }
    let py = code.py();
    let file = text_of(code.getattr(intern!(py, "co_filename"))?)?;
    let name = text_of(code.getattr(intern!(py, "co_qualname"))?)?;
    let is_own = Path::new(&file).starts_with(package_folder(py)?);
    let function = Function { name: name.into(), file: file.into(), is_own };
    let forgotten = {
        let mut functions = FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = functions.get_or_insert_with(HashMap::new);
        let forgotten = if known.len() < MOST_FUNCTIONS { HashMap::new() } else { core::mem::take(known) };
        known.insert(key, (code.clone().unbind(), function.clone()));
        forgotten
    };
    // Without the lock: code objects go with it.
    drop(forgotten);
    Ok(function)
}

/// A text of Python, as well as it can be written: the name of a file may have bytes that are no text.
fn text_of(text: Bound<'_, PyAny>) -> PyResult<String> {
    Ok(text.cast_into::<PyString>()?.to_string_lossy().into_owned())
}

/// The folder of this package.
fn package_folder(py: Python<'_>) -> PyResult<&str> {
    static FOLDER: PyOnceLock<String> = PyOnceLock::new();
    FOLDER
        .get_or_try_init(py, || {
            let file: String = py.import("alluvion")?.getattr("__file__")?.extract()?;
            let folder = Path::new(&file).parent().unwrap_or(Path::new(&file));
            Ok(folder.display().to_string())
        })
        .map(String::as_str)
}

/// How many frames of Python a call stack has at most. Returns the number before.
///
/// >>> import alluvion
/// >>> before = alluvion.set_stack_depth(4)
/// >>> alluvion.set_stack_depth(before)
/// 4
#[pyfunction]
#[pyo3(signature = (frames, /))]
pub(crate) fn set_stack_depth(frames: usize) -> PyResult<usize> {
    if !(1..=64).contains(&frames) {
        return Err(PyValueError::new_err(format!("a call stack has 1 to 64 frames, and not {frames}")));
    }
    Ok(DEPTH.swap(frames, Ordering::Relaxed))
}
