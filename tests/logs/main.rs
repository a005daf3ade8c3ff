//! Logs and traces: written by a layer, read back, and read from anybody.

#[path = "../support/log_files.rs"]
mod log_files;
#[path = "../support/parsers.rs"]
mod parsers;
#[path = "../support/raw_block.rs"]
mod raw_block;
#[path = "../support/trials.rs"]
mod trials;

mod devices;
mod faults;
mod logging;
#[cfg(unix)]
mod one_file;
mod parsers_never_panic;
mod round_trip;
mod trace;
mod trace_cut;
