//! Notes: what is said beside the figures, on the standard error stream.

use std::io::{self, Write};

/// Says something that is no figure.
pub(crate) fn note(words: &str) {
    // Where nobody can hear it, the figures still count.
    let _ = writeln!(io::stderr(), "note: {words}");
}
