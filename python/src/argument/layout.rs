//! The size and the alignment of a request.

use alluvion::{Error, Layout};

/// The layout of a request: an alignment is a power of two, up to 256 all are one, and 0 means that one.
pub(crate) fn layout(bytes: usize, align: usize) -> Result<Layout, Error> {
    if align != 0 && !align.is_power_of_two() {
        return Err(Error::invalid_alignment(align));
    }
    Layout::new(bytes, align.max(Layout::MIN_ALIGN))
}
