//! The program `alluvion`, run by Python.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Does what a command line asks for, whose first argument is the name of the program. Returns the exit code: 0 done, 1 failed, 2
/// the command line was not understood.
#[pyfunction]
pub(crate) fn run_program(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| alluvion_cli::run_with(arguments))
}

/// Draws a log or a snapshot as a page for a browser. Returns what the program would print.
#[pyfunction]
pub(crate) fn draw_page(py: Python<'_>, file: PathBuf, page: PathBuf) -> PyResult<String> {
    py.detach(|| alluvion_cli::write_page(&file, &page)).map_err(PyRuntimeError::new_err)
}
