//! Where the logs of tests go: memory, and files of their own.

#![allow(dead_code, reason = "some tests need a part of it")]
#![allow(clippy::disallowed_types, reason = "no model is run here")]

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use alluvion::trace::{RmmCsv, Row, Trace};

/// A file of its own for each test, gone at its end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("alluvion-{}-{name}", std::process::id()));
        // A process that was killed may have had this number, and left it.
        let _ = fs::remove_file(&path);
        Self(path)
    }

    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.0).expect("the log is there")
    }

    #[track_caller]
    pub(crate) fn trace(&self) -> Trace {
        Trace::from_rmm_csv(self.text().as_bytes()).expect("it is a log")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A writer whose bytes the test sees.
#[derive(Clone, Default)]
pub(crate) struct Paper(Arc<Mutex<Vec<u8>>>);

impl Paper {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).expect("a log is text")
    }

    #[track_caller]
    pub(crate) fn rows(&self) -> Vec<Row> {
        RmmCsv::new(self.text().as_bytes()).unwrap().map(|row| row.expect("it is a row")).collect()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
