//! Opens a trace: a log in RMM's format, packed by gzip or not.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use alluvion::trace::Trace;
use flate2::bufread::MultiGzDecoder;

use crate::failure::Failure;

/// How a file that gzip made begins, whatever its name.
const GZIP: [u8; 2] = [0x1f, 0x8b];

pub(crate) fn read(path: &Path) -> Result<Trace, Failure> {
    let failed = |why: &dyn core::fmt::Display| Failure::of_file(path, why);
    let mut file = BufReader::new(File::open(path).map_err(|error| failed(&error))?);
    let start = file.fill_buf().map_err(|error| failed(&error))?;
    let read = if start.starts_with(&GZIP) {
        Trace::from_rmm_csv(BufReader::new(MultiGzDecoder::new(file)))
    } else {
        Trace::from_rmm_csv(file)
    };
    read.map_err(|error| failed(&error))
}
